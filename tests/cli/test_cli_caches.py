"""Bounded and quantised keys and values, and prompt caches in files."""

import json

import pytest
import tiny_model
from cli_support import encode, rendered

TEXT = "It was a dark and stormy night; the rain fell in torrents."
QUERY = " Who wrote it?"


@pytest.fixture
def cache_file(mlxlm, model, tmp_path):
    def make(*args, prompt=TEXT, **kwargs):
        path = tmp_path / "cache.safetensors"
        done = mlxlm("cache-prompt", "--model", model, "--prompt", prompt, "--prompt-cache-file", path, *args, check=0,
                     **kwargs)
        lines = done.out.splitlines()
        assert lines[0].startswith("Processed ") and lines[1].startswith("Peak memory: ") and lines[2] == "Saving..."
        return path

    return make


def metadata(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


@pytest.mark.parametrize("options", [(), ("--kv-bits", 8, "--kv-group-size", 32, "--quantized-kv-start", 20),
                                     ("--max-kv-size", 48), ("--precision", "exact")])
def test_a_cached_beginning_gives_the_same_answer(mlxlm, model, cache_file, options):
    """The file's tokens and the query are the whole conversation."""
    path = cache_file(*options)
    precision = options if "--precision" in options else ()
    warm = mlxlm.json("generate", "--prompt-cache-file", path, "--prompt", QUERY, "-m", 12, *precision)
    start = rendered(("user", TEXT), prompt=False).rstrip("\n")
    assert warm["cached_tokens"] == len(encode(start))
    assert warm["prompt_token_ids"] == encode(QUERY + "\n<|turn|>assistant: ")
    ids = ",".join(map(str, encode(start) + warm["prompt_token_ids"]))
    cold = mlxlm.json("generate", "--model", model, "--prompt-ids", ids, "-m", 12, *options)
    assert (warm["token_ids"], warm["logprobs"]) == (cold["token_ids"], cold["logprobs"])


def test_prompt_from_standard_input(mlxlm, cache_file):
    plain = mlxlm.json("generate", "--prompt-cache-file", cache_file(), "-m", 4)
    piped = mlxlm.json("generate", "--prompt-cache-file", cache_file(prompt="-", stdin=TEXT.encode()), "-m", 4)
    assert plain["token_ids"] == piped["token_ids"] and plain["cached_tokens"] == piped["cached_tokens"]


def test_raw_prompts_go_on_as_they_are(mlxlm, model, cache_file):
    warm = mlxlm.json("generate", "--prompt-cache-file", cache_file(), "--prompt", "<s> x", "--ignore-chat-template",
                      "-m", 1)
    assert warm["prompt_token_ids"] == encode("<s> x")


def test_system_prompts_stand_before_the_query(mlxlm, cache_file):
    warm = mlxlm.json("generate", "--prompt-cache-file", cache_file(), "--system-prompt", "Be brief.", "--prompt", "Hi",
                      "--prefill-response", "Well", "-m", 1)
    assert warm["prompt_token_ids"] == encode("Hi\n<|turn|>assistant: Well")


def test_metadata(mlxlm, model, cache_file):
    data = metadata(cache_file("--eos-token", "</s>"))
    assert data["0.model"] == str(model)
    assert json.loads(data["0.tokenizer_config"]) == {"trust_remote_code": False, "eos_token": "</s>"}
    assert {value for key, value in data.items() if key.startswith("1.")} == {"KVCache"}


def test_the_eos_token_of_the_file_counts(mlxlm, cache_file):
    likely = ("--temp", 1, "--seed", 2, "--logit-bias", '{"65": 100, "66": 100, "67": 100}', "-m", 12)
    whole = mlxlm.json("generate", "--prompt-cache-file", cache_file(), *likely)["token_ids"]
    last = whole[-1]  # A, B or C: as an EOS it ends the text where it comes first
    answer = mlxlm.json("generate", "--prompt-cache-file", cache_file("--eos-token", chr(last)), *likely)
    assert answer["token_ids"] == whole[:whole.index(last) + 1] and answer["finish_reason"] == "stop"


def test_mismatches(mlxlm, model, endless_model, cache_file, tmp_path):
    path = cache_file("--kv-bits", 8, "--kv-group-size", 32, "--quantized-kv-start", 0)
    base = ("generate", "--prompt-cache-file", path)
    assert mlxlm.json(*base, "--model", model, "-m", 1, "--kv-bits", 8, "--kv-group-size", 32)["generation_tokens"] == 1
    assert "--kv-bits is 8 in this file, got 4" in mlxlm.fails(1, *base, "--kv-bits", 4)
    assert "--kv-group-size is 32 in this file, got 64" in mlxlm.fails(1, *base, "--kv-group-size", 64)
    assert "--max-kv-size is not set in this file, got 64" in mlxlm.fails(1, *base, "--max-kv-size", 64)
    assert str(model) in mlxlm.fails(1, *base, "--model", endless_model)
    assert "missing" in mlxlm.fails(1, "generate", "--prompt-cache-file", tmp_path / "missing")
    (tmp_path / "text").write_text("not a cache")
    assert str(tmp_path / "text") in mlxlm.fails(1, "generate", "--prompt-cache-file", tmp_path / "text")
    assert "--model is required" in mlxlm.fails(2, "generate")


def test_wrong_cache_prompts(mlxlm, model, tmp_path):
    base = ("cache-prompt", "--model", model, "--prompt-cache-file", tmp_path / "c")
    assert "--prompt" in mlxlm.fails(2, *base)
    assert "'no such token'" in mlxlm.fails(1, *base, "--prompt", "x", "--eos-token", "no such token")
    assert "--kv-group-size needs --kv-bits" in mlxlm.fails(2, *base, "--prompt", "x", "--kv-group-size", 32)
    assert mlxlm.fails(2, *base, "--prompt", "x", "--adapter-path", "y").startswith("--adapter-path: ")
    assert not (tmp_path / "c").exists()


def test_bounded_memory(mlxlm, endless_model):
    """A window wider than the conversation changes nothing; a narrow one does, and runs on."""
    args = ("generate", "--model", endless_model, "--prompt", TEXT, "-m", 64)
    plain = mlxlm.json(*args)
    assert mlxlm.json(*args, "--max-kv-size", 4096)["logprobs"] == plain["logprobs"]
    narrow = mlxlm.json(*args, "--max-kv-size", 16, "--kv-bits", 8, "--kv-group-size", 32, "--quantized-kv-start", 0)
    assert narrow["generation_tokens"] == 64 and narrow["logprobs"] != plain["logprobs"]
    # Quantisation begins at position 5000 unless told otherwise.
    assert mlxlm.json(*args, "--kv-bits", 8, "--kv-group-size", 32)["logprobs"] == plain["logprobs"]
    early = mlxlm.json(*args, "--kv-bits", 4, "--kv-group-size", 32, "--quantized-kv-start", 0)
    assert early["logprobs"] != plain["logprobs"]


def test_chat_with_a_window_runs_on(mlxlm, endless_model):
    lines = b"".join(b"message %d\n" % i for i in range(8))
    done = mlxlm("chat", "--model", endless_model, "-m", 12, "--max-kv-size", 32, stdin=lines, check=0)
    assert done.out.count("\n") >= 8 and done.err == ""
