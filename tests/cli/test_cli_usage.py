"""Help, wrong command lines, and failures: messages and exit codes."""

import json
import shutil
import subprocess

import pytest

COMMANDS = ["generate", "chat", "batch", "cache-prompt", "info", "convert", "bench"]


def test_program_help(mlxlm):
    for args in (["--help"], ["-h"], ["help"]):
        done = mlxlm(*args, check=0)
        assert all(f"\n  {name} " in done.out for name in COMMANDS) and done.err == ""
    nothing = mlxlm(check=2)
    assert "Usage: mlxlm COMMAND" in nothing.err and nothing.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help(mlxlm, command):
    done = mlxlm(command, "--help", check=0)
    assert "Examples:" in done.out and f"mlxlm {command}" in done.out
    assert mlxlm("help", command, check=0).out == done.out


def test_version(mlxlm):
    name, version = mlxlm("--version", check=0).out.split()
    assert name == "mlxlm" and version.count(".") == 2


@pytest.mark.parametrize("args, message", [
    (["genrate"], "unknown command 'genrate'; did you mean 'generate'?; see 'mlxlm --help'"),
    (["--verison"], "unknown option '--verison'; did you mean '--version'?; see 'mlxlm --help'"),
    (["generate", "--modle", "x"], "unknown option '--modle'; did you mean '--model'?; see 'mlxlm generate --help'"),
    (["generate", "--model", "x", "--max_tokens=5"],
     "unknown option '--max_tokens'; did you mean '--max-tokens'?; see 'mlxlm generate --help'"),
    (["generate", "--model", "x", "two", "words"],
     "unexpected argument 'two'; put a value with spaces in quotes; see 'mlxlm generate --help'"),
])
def test_unknown_words(mlxlm, args, message):
    assert mlxlm.fails(2, *args) == message


@pytest.mark.parametrize("args, part", [
    ([], "--model"),
    (["--temp", "-1"], "--temp: expected a number of at least 0, got '-1'"),
    (["--temp", "inf"], "--temp: expected a number"),
    (["--top-p", "1.01"], "--top-p: expected a number from 0 to 1"),
    (["--min-p", "nan"], "--min-p: expected a number from 0 to 1"),
    (["--min-tokens-to-keep", "0"], "--min-tokens-to-keep: expected a whole number of at least 1"),
    (["--top-k", "-1"], "--top-k: expected a whole number of at least 0"),
    (["-m", "-2"], "--max-tokens: expected a whole number of at least -1"),
    (["-m", "."], "--max-tokens: expected a whole number of at least -1, got '.'; a model folder goes with --model"),
    (["--seed", "1.5"], "--seed: expected a whole number"),
    (["--threads", "two"], "--threads: expected a whole number"),
    (["--precision", "slow"], "--precision: expected fast or exact, got 'slow'"),
    (["--verbose", "maybe"], "--verbose: expected true or false"),
    (["--prefill-step-size", "0"], "--prefill-step-size: expected a whole number of at least 1"),
    (["--prompt", "a", "--prompt-ids", "1"], "--prompt"),
    (["--prompt-file", "a", "--prompt-ids", "1"], "--prompt"),
    (["--prompt", b"a\xff"], "--prompt: expected valid UTF-8, got 'a\\xff'"),
    (["--top-logprobs", "2"], "--top-logprobs needs --json"),
    (["--ignore-chat-template", "--system-prompt", "x"], "need the chat template"),
    (["--prompt"], "--prompt"),
])
def test_wrong_values(mlxlm, model, args, part):
    given = ["--model", str(model)] if args else []
    assert part in mlxlm.fails(2, "generate", *given, *args)


@pytest.mark.parametrize("flag", [
    ["--adapter-path", "x"], ["--image", "x"], ["--pipeline"], ["-qa"], ["--quantize-activations"],
    ["--trust-remote-code"]])
@pytest.mark.parametrize("command", ["generate", "chat", "batch"])
def test_refused_flags_of_the_reference(mlxlm, model, command, flag):
    files = ["--input", "none.jsonl"] if command == "batch" else []
    message = mlxlm.fails(2, command, "--model", model, *files, *flag)
    assert message.startswith(flag[0] + ": ") and "unknown option" not in message


def test_hub_names(mlxlm, tmp_path, monkeypatch):
    """What downloads do is in tests/hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    message = mlxlm.fails(1, "generate", "--model", "mlx-community/SmolLM2-135M-Instruct-4bit")
    assert message.startswith("mlx-community/SmolLM2-135M-Instruct-4bit: no folder of that name")
    assert str(tmp_path / "hub") in message and "HF_HUB_OFFLINE" in message
    assert "no such model folder" in mlxlm.fails(1, "generate", "--model", "a/b/c")


@pytest.mark.parametrize("command", ["generate", "chat", "info", "bench"])
def test_no_model(mlxlm, command, tmp_path):
    assert "no such model folder" in mlxlm.fails(1, command, "--model", tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "config.json" in mlxlm.fails(1, command, "--model", tmp_path / "empty")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert "mlxlm convert" in mlxlm.fails(1, command, "--model", tmp_path / "x.gguf")


def test_broken_folder(mlxlm, model, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(model, folder)
    (folder / "config.json").write_text("{")
    assert "config.json" in mlxlm.fails(1, "generate", "--model", folder)


def test_wrong_prompts(mlxlm, model, tmp_path):
    base = ("generate", "--model", model)
    assert "--prompt-ids" in mlxlm.fails(1, *base, "--prompt-ids", "1,x")
    assert "259" in mlxlm.fails(1, *base, "--prompt-ids", "1,5000")
    assert "empty prompt" in mlxlm.fails(1, *base, "--prompt", "", "--ignore-chat-template")
    assert str(tmp_path / "none") in mlxlm.fails(1, *base, "--prompt-file", tmp_path / "none")
    (tmp_path / "latin1").write_bytes(b"caf\xe9")
    assert "0xe9 at offset 3" in mlxlm.fails(1, *base, "--prompt-file", tmp_path / "latin1")
    assert "standard input" in mlxlm.fails(1, *base, "--prompt", "-", stdin=b"caf\xe9")


def test_wrong_tokens_templates_and_sets(mlxlm, model):
    base = ("generate", "--model", model)
    assert "'no such token'" in mlxlm.fails(1, *base, "--extra-eos-token", "no such token")
    assert "9999" in mlxlm.fails(1, *base, "--extra-eos-token", "9999")
    assert "--isa" in mlxlm.fails(1, *base, "--isa", "mmx") or "mmx" in mlxlm.fails(1, *base, "--isa", "mmx")
    assert "--chat-template-config" in mlxlm.fails(2, *base, "--chat-template-config", "{not json")


def test_no_chat_template(mlxlm, model, tmp_path):
    folder = tmp_path / "plain"
    shutil.copytree(model, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert "no chat template" in mlxlm.fails(1, "chat", "--model", folder)
    assert "no chat template" in mlxlm.fails(1, "generate", "--model", folder, "--system-prompt", "x")
    answer = mlxlm.json("generate", "--model", folder, "--prompt", "ab", "-m", 1)
    assert answer["prompt_token_ids"] == [97, 98]


def test_full_disk(mlxlm, model):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([mlxlm.path, "generate", "--model", str(model), "-m", "4"], stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("mlxlm: error: standard output: cannot write: No space left")
