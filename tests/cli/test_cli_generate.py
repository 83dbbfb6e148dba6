"""mlxlm generate: prompts, options, streaming and JSON."""

import json
import re

import pytest
import tiny_model
from cli_support import edit_json, encode, rendered

KEYS = ["text", "prompt_token_ids", "token_ids", "logprobs", "top_logprobs", "from_draft", "finish_reason",
        "prompt_tokens", "cached_tokens", "prompt_tps", "generation_tokens", "generation_tps", "draft_tokens",
        "accepted_tokens", "peak_memory", "seed"]


@pytest.fixture
def generate(mlxlm, model):
    def run(*args, **kwargs):
        return mlxlm.json("generate", "--model", model, *args, **kwargs)

    return run


def test_prints_as_the_reference_does(mlxlm, model, generate):
    arguments = ("--prompt", "What?", "-m", 12)
    text = generate(*arguments)["text"]
    out = mlxlm("generate", "--model", model, *arguments, check=0).out
    assert out.startswith(f"==========\n{text}\n==========\n")
    assert re.fullmatch(r"Prompt: \d+ tokens, \d+\.\d{3} tokens-per-sec\n"
                        r"Generation: 12 tokens, \d+\.\d{3} tokens-per-sec\n"
                        r"Peak memory: \d+\.\d{3} GB\n", out[len(f"==========\n{text}\n==========\n"):])


@pytest.mark.parametrize("value", ["false", "False", "F"])
def test_verbose_false_prints_only_the_text(mlxlm, model, generate, value):
    arguments = ("--prompt", "What?", "-m", 12)
    done = mlxlm("generate", "--model", model, *arguments, "--verbose", value, check=0)
    assert done.out == generate(*arguments)["text"] + "\n"
    assert done.err == ""


def test_json_keys_and_types(generate):
    answer = generate("--prompt", "hello", "-m", 6, "--seed", 5)
    assert list(answer) == KEYS
    assert answer["prompt_token_ids"] == encode(rendered(("user", "hello")))
    assert answer["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert len(answer["token_ids"]) == len(answer["logprobs"]) == answer["generation_tokens"] == 6
    assert all(isinstance(i, int) and 0 <= i < 259 for i in answer["token_ids"])
    assert all(isinstance(p, float) and p <= 0 for p in answer["logprobs"])
    assert answer["top_logprobs"] == []
    assert answer["finish_reason"] == "length"
    assert answer["seed"] == 5
    assert (answer["cached_tokens"], answer["draft_tokens"], answer["accepted_tokens"]) == (0, 0, 0)
    assert answer["from_draft"] == [False] * 6
    assert answer["prompt_tps"] > 0 and answer["generation_tps"] > 0 and answer["peak_memory"] > 0


def test_top_logprobs(generate):
    answer = generate("-m", 5, "--top-logprobs", 3)
    assert len(answer["top_logprobs"]) == 5
    for token, logprob, top in zip(answer["token_ids"], answer["logprobs"], answer["top_logprobs"]):
        assert len(top) == 3
        assert top[0] == [token, logprob]  # greedy
        assert sorted((p for _, p in top), reverse=True) == [p for _, p in top]


def test_default_prompt(generate):
    assert generate("-m", 1)["prompt_token_ids"] == encode(rendered(("user", "hello")))


def test_prompt_sources_agree(generate, tmp_path):
    text = "line one\nline two ✓"
    (tmp_path / "prompt.txt").write_text(text, encoding="utf-8")
    expected = generate("--prompt", text, "-m", 4)
    assert generate("--prompt", "-", "-m", 4, stdin=text.encode())["token_ids"] == expected["token_ids"]
    assert generate("--prompt-file", tmp_path / "prompt.txt", "-m", 4)["token_ids"] == expected["token_ids"]
    ids = ",".join(map(str, expected["prompt_token_ids"]))
    assert generate("--prompt-ids", ids, "-m", 4)["token_ids"] == expected["token_ids"]


def test_escapes_only_in_the_argument(generate, tmp_path):
    raw = ("--ignore-chat-template", "-m", 1)
    assert generate("--prompt", "a\\nb\\tc", *raw)["prompt_token_ids"] == encode("a\nb\tc")
    assert generate("--prompt", "-", *raw, stdin=b"a\\nb")["prompt_token_ids"] == encode("a\\nb")
    (tmp_path / "p").write_text("a\\nb")
    assert generate("--prompt-file", tmp_path / "p", *raw)["prompt_token_ids"] == encode("a\\nb")


def test_prompts_that_look_like_options(generate):
    raw = ("--ignore-chat-template", "-m", 1)
    assert generate("--prompt", "--json", *raw)["prompt_token_ids"] == encode("--json")
    assert generate("--prompt=--temp", *raw)["prompt_token_ids"] == encode("--temp")
    assert generate("--prompt", "chat", *raw)["prompt_token_ids"] == encode("chat")
    assert generate("--prompt", "[1,2]", *raw)["prompt_token_ids"] == encode("[1,2]")


def test_empty_prompt_with_a_template_is_an_empty_message(generate):
    for arguments in (("--prompt", ""), ("--prompt=",)):
        assert generate(*arguments, "-m", 1)["prompt_token_ids"] == encode(rendered(("user", "")))


def test_system_prompt_and_prefilled_answer(generate):
    answer = generate("--system-prompt", "Be brief.", "--prompt", "Hi", "-m", 1)
    assert answer["prompt_token_ids"] == encode(rendered(("system", "Be brief."), ("user", "Hi")))
    answer = generate("--prompt", "Hi", "--prefill-response", "Well", "-m", 1)
    assert answer["prompt_token_ids"] == encode("<|turn|>user: Hi\n<|turn|>assistant: Well")


def test_seed_decides(generate):
    arguments = ("--temp", 1, "-m", 24)
    first = generate(*arguments, "--seed", 1)
    assert generate(*arguments, "--seed", 1)["token_ids"] == first["token_ids"]
    assert generate(*arguments, "--seed", 2)["token_ids"] != first["token_ids"]


def test_drawn_seed_is_reported_and_repeats(generate):
    first, second = generate("--temp", 1, "-m", 24), generate("--temp", 1, "-m", 24)
    assert first["seed"] != second["seed"]
    again = generate("--temp", 1, "-m", 24, "--seed", first["seed"])
    assert (again["token_ids"], again["logprobs"]) == (first["token_ids"], first["logprobs"])


@pytest.mark.parametrize("precision", ["fast", "exact"])
def test_threads_chunks_and_kernels_change_nothing(generate, precision):
    arguments = ("--prompt", "word " * 40, "--temp", 0.8, "--seed", 3, "-m", 16, "--precision", precision)
    base = generate(*arguments)
    for change in (("-t", 1), ("--threads", 3), ("--prefill-step-size", 1), ("--prefill-step-size", 7),
                   ("--isa", "scalar")):
        other = generate(*arguments, *change)
        assert (other["token_ids"], other["logprobs"]) == (base["token_ids"], base["logprobs"]), change


def test_sampling_options_reach_the_sampler(generate):
    greedy = generate("-m", 16)["token_ids"]
    for change in (("--top-k", 1), ("--min-p", 1), ("--top-p", 0.000001)):
        assert generate("-m", 16, "--temp", 1, "--seed", 9, *change)["token_ids"] == greedy, change
    assert generate("-m", 16, "--temp", 1, "--seed", 9, "--min-p", 1, "--min-tokens-to-keep", 200)["token_ids"] != greedy


def test_stop_strings(mlxlm, endless_model):
    def generate(*args):
        return mlxlm.json("generate", "--model", endless_model, "-m", 60, "--temp", 1, "--seed", 2, *args)

    whole = generate()
    text = whole["text"]
    # The first place past the beginning whose two characters do not stand earlier in the text.
    stop = next(text[i:i + 2] for i in range(5, len(text) - 10) if text.index(text[i:i + 2]) == i)
    answer = generate("--stop", "not in the text", "--stop", stop)
    assert answer["text"] == whole["text"][:whole["text"].index(stop)]
    assert len(answer["text"]) >= 5
    assert answer["finish_reason"] == "stop"
    assert answer["token_ids"] == whole["token_ids"][:len(answer["token_ids"])]
    assert len(answer["token_ids"]) < 60


def test_extra_eos_by_id_and_text(generate):
    whole = generate("-m", 20)["token_ids"]
    end = next(i for i, t in enumerate(whole) if 33 <= t < 127)  # an ASCII byte has its own text
    first = whole.index(whole[end])
    for token in (whole[end], chr(whole[end])):
        if str(token).isdigit() and not isinstance(token, int):
            continue  # a digit's text reads as an id
        answer = generate("-m", 20, "--extra-eos-token", "</s>", token)
        assert answer["token_ids"] == whole[:first + 1]
        assert answer["finish_reason"] == "stop"
        assert answer["generation_tokens"] == first + 1


def test_every_eos_ends_unseen(mlxlm, tmp_path):
    """Of config.json 257 and 65, of generation_config.json 66, of the tokenizer 258, of the command line C."""
    folder = tmp_path / "model"
    tiny_model.write_model(folder)
    edit_json(folder / "config.json", eos_token_id=[257, 65])
    (folder / "generation_config.json").write_text('{"eos_token_id": 66}')
    edit_json(folder / "tokenizer_config.json", eos_token="<|turn|>")
    lines = tmp_path / "requests.jsonl"
    for eos in (257, 65, 66, 258, 67):
        # x as the first token, then the end: a penalty takes x away once it has been seen.
        bias = json.dumps({"120": 2000, str(eos): 1000})
        args = ("--model", folder, "--logit-bias", bias, "--presence-penalty", 1500, "--presence-context-size", 0,
                "--penalize-prompt", "false", "--extra-eos-token", "C", "-m", 9)
        answer = mlxlm.json("generate", "--prompt", "What?", *args)
        assert (answer["token_ids"], answer["text"], answer["finish_reason"]) == ([120, eos], "x", "stop")
        assert mlxlm("generate", "--prompt", "What?", "--verbose", "false", *args, check=0).out == "x\n"
        assert mlxlm("chat", *args, stdin=b"One\nTwo\n", check=0).out == "x\nx\n"
        lines.write_text('{"prompt": "One"}\n{"messages": [{"role": "user", "content": "Two"}]}\n')
        out = mlxlm("batch", "--input", lines, "--verbose", "false", *args, check=0).out
        assert [json.loads(line)["text"] for line in out.splitlines()] == ["x", "x"]


def test_max_tokens(generate):
    none = generate("-m", 0)
    assert (none["text"], none["token_ids"], none["finish_reason"]) == ("", [], "length")
    assert generate("-m", 3)["token_ids"] == generate("--max-tokens", 5)["token_ids"][:3]


def test_unlimited_ends_with_the_context(mlxlm, model):
    answer = mlxlm.json("generate", "--model", model, "-m", -1, "--temp", 1, "--seed", 4)
    total = answer["prompt_tokens"] + answer["generation_tokens"]
    assert answer["finish_reason"] == ("stop" if answer["token_ids"][-1] == 257 else "length")
    assert total <= 2048 + 1


def test_nothing_generated(mlxlm, model):
    out = mlxlm("generate", "--model", model, "-m", 0, check=0).out
    assert out == "==========\n\n==========\nNo text generated for this prompt\n"


def test_accepted_without_effect(generate):
    assert generate("-m", 3, "--use-default-chat-template")["token_ids"] == generate("-m", 3)["token_ids"]
