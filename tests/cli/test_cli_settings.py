"""Penalties, bans, XTC, minimum lengths, deadlines and speculation: every option reaches the engine."""

import json
import time

import pytest
import tiny_model
from cli_support import edit_json, encode

SAMPLED = ("--temp", 1, "--seed", 7)


@pytest.fixture
def generate(mlxlm, endless_model):
    def run(*args, **kwargs):
        return mlxlm.json("generate", "--model", endless_model, "--prompt", "What?", "-m", 24, *args, **kwargs)

    return run


@pytest.fixture(scope="session")
def thinking_model(tmp_path_factory):
    """The tiny model with think markers among its tokens; they take the places of rare bytes."""
    folder = tmp_path_factory.mktemp("models") / "thinking"
    tiny_model.write_model(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    for token, marker in ((254, "<think>"), (255, "</think>")):
        vocab = {text: id_ for text, id_ in vocab.items() if id_ != token}
        vocab[marker] = token
        tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=token, content=marker, special=False))
    tokenizer["model"]["vocab"] = vocab
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    edit_json(folder / "config.json", eos_token_id=None)
    edit_json(folder / "tokenizer_config.json", eos_token=None)
    return folder


def test_logit_bias_and_bans(generate):
    plain = generate()["token_ids"]
    assert generate("--logit-bias", '{"65": 1000}')["token_ids"] == [65] * 24
    for change in (("--logit-bias", json.dumps({plain[0]: -1000})), ("--ban-token-ids", f"{plain[0]}, 3")):
        answer = generate(*change)["token_ids"]
        assert plain[0] not in answer and answer[0] != plain[0]


@pytest.mark.parametrize("penalty", ["--repetition-penalty", "--presence-penalty", "--frequency-penalty"])
def test_penalties(generate, penalty):
    plain = generate("--logit-bias", '{"65": 6, "66": 5.5}')["token_ids"]
    assert generate("--logit-bias", '{"65": 6, "66": 5.5}', penalty, 9)["token_ids"] != plain


def test_penalty_windows(generate):
    """With a strong penalty on all that was seen no token comes twice; in a window of one it may."""
    bias = ("--logit-bias", json.dumps({str(65 + i): 1000 - 20 * i for i in range(26)}))
    every = generate(*bias, "--presence-penalty", 5000, "--presence-context-size", 0)["token_ids"]
    assert len(set(every)) == 24
    assert generate(*bias, "--presence-penalty", 1000, "--presence-context-size", 1)["token_ids"] == [65, 66] * 12
    assert generate(*bias, "--frequency-penalty", 1000, "--frequency-context-size", 1)["token_ids"] == [65, 66] * 12
    pair = ("--logit-bias", '{"65": 100, "66": 99}')
    repeated = generate(*pair, "--repetition-penalty", 2, "--repetition-context-size", 1)["token_ids"]
    assert repeated == [65, 66] * 12


def test_penalize_prompt(generate):
    raw = ("--prompt", "AAA", "--ignore-chat-template", "--logit-bias", '{"65": 100, "66": 90}', "--presence-penalty", 50)
    assert generate(*raw)["token_ids"][0] == 66
    assert generate(*raw, "--penalize-prompt", "false")["token_ids"][:2] == [65, 66]


def test_xtc(generate):
    """Of two likely tokens XTC leaves the less likely one."""
    pair = ("--temp", 1, "--logit-bias", '{"65": 100, "66": 100}', "-m", 1)
    likely, rare = (token for token, _ in generate(*pair, "--top-logprobs", 2)["top_logprobs"][0])
    assert {likely, rare} == {65, 66}
    seeds = [("--seed", seed) for seed in range(8)]
    assert {generate(*pair, *seed)["token_ids"][0] for seed in seeds} == {likely, rare}
    for seed in seeds:
        assert generate(*pair, *seed, "--xtc-probability", 1)["token_ids"] == [rare]


def test_min_tokens(mlxlm, model):
    args = ("generate", "--model", model, "--logit-bias", '{"257": 1000}', "-m", 12)
    assert mlxlm.json(*args)["token_ids"] == [257]
    held = mlxlm.json(*args, "--min-tokens", 5)
    assert held["token_ids"][5:] == [257] and 257 not in held["token_ids"][:5]


def test_thinking_budget(mlxlm, thinking_model, model):
    args = ("generate", "--model", thinking_model, "--ban-token-ids", "254", "-m", 16, "--prompt", "<think>",
            "--ignore-chat-template")
    assert mlxlm.json(*args)["prompt_token_ids"] == [254]
    assert 255 not in mlxlm.json(*args)["token_ids"][:5]
    assert mlxlm.json(*args, "--thinking-budget", 4)["token_ids"].index(255) == 4
    assert "think" in mlxlm.fails(1, "generate", "--model", model, "--thinking-budget", 4)


def test_deadline(mlxlm, endless_model):
    start = time.monotonic()
    answer = mlxlm.json("generate", "--model", endless_model, "-m", -1, "--deadline", 0.5)
    assert answer["finish_reason"] == "deadline" and answer["generation_tokens"] >= 1
    assert time.monotonic() - start < 30
    assert mlxlm.json("generate", "--model", endless_model, "-m", 3, "--deadline", 1e9)["finish_reason"] == "length"


def test_json_from_prefill(generate, mlxlm, endless_model):
    """The answer goes on from the prefilled one; the text is what is new."""
    whole = generate("--ignore-chat-template", "--prompt", "<|turn|>user: What?\n<|turn|>assistant: Well")
    assert generate("--prefill-response", "Well")["token_ids"] == whole["token_ids"]


@pytest.mark.parametrize("sampling", [(), SAMPLED])
def test_speculation_changes_nothing(generate, endless_model, model, sampling):
    args = ("--prompt", "one two three one two three one two", *sampling)
    plain = generate(*args)
    assert (plain["draft_tokens"], plain["accepted_tokens"], plain["from_draft"]) == (0, 0, [False] * 24)
    for change in (("--draft-model", endless_model), ("--draft-model", model, "--num-draft-tokens", 1),
                   ("--draft-model", endless_model, "--max-kv-size", 4096), ("--prompt-lookup",),
                   ("--prompt-lookup", "--num-draft-tokens", 2)):
        answer = generate(*args, *change)
        assert (answer["token_ids"], answer["logprobs"]) == (plain["token_ids"], plain["logprobs"]), change
        assert 0 <= answer["accepted_tokens"] <= answer["draft_tokens"]
        assert sum(answer["from_draft"]) <= answer["accepted_tokens"]


def test_the_same_model_as_draft_is_always_right(generate, mlxlm, endless_model):
    answer = generate("--draft-model", endless_model)
    assert answer["accepted_tokens"] == answer["draft_tokens"] > 0 and any(answer["from_draft"])
    out = mlxlm("generate", "--model", endless_model, "-m", 24, "--draft-model", endless_model, check=0).out
    assert "guessed tokens right (100.0 %)\n" in out
    assert "Speculation" not in mlxlm("generate", "--model", endless_model, "-m", 24, check=0).out


def test_draft_of_another_vocabulary(mlxlm, model, thinking_model):
    message = mlxlm.fails(1, "generate", "--model", model, "--draft-model", thinking_model)
    assert "vocabular" in message


def test_chat_takes_the_settings(mlxlm, endless_model):
    def chat(*args):
        return mlxlm("chat", "--model", endless_model, "-m", 8, *args, stdin=b"One\nTwo\n", check=0).out

    assert chat("--logit-bias", '{"65": 1000}') == "AAAAAAAA\nAAAAAAAA\n"
    plain = chat()
    assert chat("--prompt-lookup") == chat("--draft-model", endless_model) == plain
    assert chat("--max-kv-size", 4096) == plain
    assert chat("--kv-bits", 8, "--kv-group-size", 32) == plain  # quantised from position 5000 on


@pytest.mark.parametrize("args, message", [
    (["--logit-bias", "{"], "--logit-bias"),
    (["--logit-bias", "[1]"], "--logit-bias: expected an object"),
    (["--logit-bias", '{"x": 1}'], "--logit-bias: expected token ids as keys, got \"x\""),
    (["--logit-bias", '{"-1": 1}'], "--logit-bias: expected token ids as keys"),
    (["--logit-bias", '{"1.5": 1}'], "--logit-bias: expected token ids as keys"),
    (["--logit-bias", '{"5": null}'], "--logit-bias: expected a finite number for token 5, got null"),
    (["--logit-bias", '{"5": true}'], "--logit-bias: expected a finite number for token 5, got true"),
    (["--logit-bias", '{"5": 1e999}'], "--logit-bias"),
    (["--ban-token-ids", "1,x"], "--ban-token-ids: expected whole numbers"),
    (["--chat-template-config", "[]"], "--chat-template-config: expected a JSON object, got []"),
    (["--xtc-probability", "1.1"], "--xtc-probability: expected a number from 0 to 1"),
    (["--xtc-threshold", "0.6"], "--xtc-threshold: expected a number from 0 to 0.5"),
    (["--repetition-penalty", "-1"], "--repetition-penalty: expected a number of at least 0"),
    (["--repetition-context-size", "-1"], "--repetition-context-size: expected a whole number of at least 0"),
    (["--deadline", "-1"], "--deadline: expected a number of at least 0"),
    (["--max-kv-size", "0"], "--max-kv-size: expected a whole number of at least 1"),
    (["--kv-group-size", "64"], "--kv-group-size needs --kv-bits"),
    (["--quantized-kv-start", "0"], "--quantized-kv-start needs --kv-bits"),
    (["--num-draft-tokens", "2"], "--num-draft-tokens needs --draft-model or --prompt-lookup"),
    (["--draft-model", "x", "--prompt-lookup"], "choose one of them"),
    (["--json-object", "--regex", "a"], "--json-object and --regex: an answer has one form"),
])
@pytest.mark.parametrize("command", ["generate", "chat", "batch"])
def test_wrong_settings(mlxlm, model, command, args, message):
    files = ["--input", "none.jsonl"] if command == "batch" else []
    assert message in mlxlm.fails(2, command, "--model", model, *files, *args)


@pytest.mark.parametrize("args, message", [
    (["--logit-bias", '{"5000": 1}'], "5000"),
    (["--ban-token-ids", "5000"], "5000"),
    (["--temp", "1", "--xtc-probability", "0.5", "--xtc-threshold", "0"], "xtc_threshold"),
    (["--temp", "1", "--top-k", "5000"], "top_k"),
    (["--kv-bits", "7"], "kv_bits"),
    (["--kv-bits", "8", "--kv-group-size", "48"], "kv_group_size"),
    (["--prompt-lookup", "--num-draft-tokens", "1000"], "num_draft_tokens"),
    (["--json-schema", "missing.json"], "missing.json"),
    (["--grammar", "missing.lark"], "missing.lark"),
])
def test_settings_that_do_not_fit(mlxlm, model, args, message):
    assert message in mlxlm.fails(1, "generate", "--model", model, *args)
