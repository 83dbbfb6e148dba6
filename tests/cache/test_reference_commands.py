"""Cache files between the commands: `mlxlm cache-prompt` and `mlxlm generate`, and the real `mlx_lm.cache_prompt` and
`mlx_lm.generate`, with their own options, metadata and chat templates. Both continue with the same tokens."""
import importlib
import json
import os
import subprocess
import sys

import pytest

import ours
import reference

TEXT = "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals."
QUERY = " Who wrote it, and when?"
TEMPLATE = ("{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")
STEPS = "24"
TIMEOUT = 120
EXACT = ("--precision", "exact")  # float32, as these models are

MODELS = {
    "llama": reference.config("llama", head_dim=32),
    "qwen3": reference.config("qwen3", head_dim=32, tie_word_embeddings=True),
    "gemma3": reference.config("gemma3_text", tie_word_embeddings=None, **reference.GEMMA3),
}
CODES = ("--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0")
#: model, options of cache-prompt, options of mlx_lm.generate for such a file
KINDS = {
    "plain": ("llama", (), ()),
    "window of the model": ("gemma3", (), ()),
    "window": ("qwen3", ("--max-kv-size", "32"), ()),
    "quantised": ("qwen3", CODES, ("--kv-group-size", "32")),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The model folders by name, made when they are first asked for."""
    made = {}

    def get(name):
        if name not in made:
            folder = reference.make(tmp_path_factory.mktemp("models") / name, MODELS[name])
            config = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
            made[name] = folder
        return made[name]

    return get


def mlxlm(*args):
    done = subprocess.run([ours.CLI, *map(str, args)], capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def our_tokens(path, *options):
    answer = mlxlm("generate", "--prompt-cache-file", path, "--prompt", QUERY, "-m", STEPS, *EXACT, "--json", *options)
    return json.loads(answer)["token_ids"]


def run_main(monkeypatch, command, *args):
    """mlx_lm's command in this process: its own main(), option parser and all."""
    module = importlib.import_module(f"mlx_lm.{command}")
    monkeypatch.setattr(sys, "argv", [command, *map(str, args)])
    module.main()
    return module


def reference_tokens(monkeypatch, path, *options):
    """The tokens that mlx_lm.generate makes, seen on their way to its output."""
    module, tokens = importlib.import_module("mlx_lm.generate"), []
    real = module.stream_generate

    def watched(*args, **kwargs):
        for response in real(*args, **kwargs):
            if len(tokens) < response.generation_tokens:
                tokens.append(response.token)
            yield response

    monkeypatch.setattr(module, "stream_generate", watched)
    # One prompt token at a time: with a window mlx-lm's answer depends on the size of its chunks.
    run_main(monkeypatch, "generate", "--prompt-cache-file", path, "--prompt", QUERY, "-m", STEPS,
             "--prefill-step-size", 1, *options)
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_goes_on_from_our_file(folders, tmp_path, monkeypatch, kind):
    name, options, of_file = KINDS[kind]
    path = tmp_path / "cache.safetensors"
    mlxlm("cache-prompt", "--model", folders(name), "--prompt", TEXT, "--prompt-cache-file", path, *EXACT, *options)
    expected = our_tokens(path)
    assert len(expected) >= 8
    assert reference_tokens(monkeypatch, path, *of_file) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_we_go_on_from_the_references_file(folders, tmp_path, monkeypatch, kind):
    name, options, of_file = KINDS[kind]
    path = tmp_path / "cache.safetensors"
    run_main(monkeypatch, "cache_prompt", "--model", folders(name), "--prompt", TEXT, "--prompt-cache-file", path,
             *options)
    expected = reference_tokens(monkeypatch, path, *of_file)
    assert len(expected) >= 8
    assert our_tokens(path) == expected
    assert our_tokens(path, "--model", folders(name)) == expected


def test_the_programs_themselves(folders, tmp_path):
    """The same through `python -m mlx_lm`, text for text."""
    folder = folders("llama")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

    def mlx_lm(command, *args):
        done = subprocess.run([sys.executable, "-m", "mlx_lm", command, *map(str, args)], capture_output=True,
                              timeout=TIMEOUT, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    files = {"ours": tmp_path / "ours.safetensors", "theirs": tmp_path / "theirs.safetensors"}
    cache = ("--model", folder, "--prompt", TEXT, "--prompt-cache-file")
    mlxlm("cache-prompt", *cache, files["ours"], *EXACT)
    mlx_lm("cache_prompt", *cache, files["theirs"])
    query = ("--prompt", QUERY, "-m", STEPS, "--verbose", "false", "--prompt-cache-file")
    texts = {(program, file): run("generate", *query, path, *flags)
             for file, path in files.items()
             for program, run, flags in (("mlxlm", mlxlm, EXACT), ("mlx_lm", mlx_lm, ()))}
    assert len(set(texts.values())) == 1, texts
    assert len(texts["mlxlm", "ours"]) > 8
