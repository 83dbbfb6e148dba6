"""The package from the build folder (MLXLM_BUILD), tiny models, and the reference's models beside them."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MLXLM_BUILD", TESTS.parent / "build"))
PACKAGE = Path(os.environ.get("MLXLM_PYTHON_PACKAGE", BUILD / "python"))  # a folder to import mlxlm from
# A shell that starts the tests in the background ignores Ctrl-C, which the programs they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MLX_DISABLE_COMPILE"] = "1"  # mlx would run the C++ compiler for every function it fuses
sys.path[:0] = [str(PACKAGE), str(TESTS), str(TESTS / "parity")]

import tiny_model  # noqa: E402


def write_tiny(folder, **config):
    """tests/tiny_model.py's model: 4-bit weights, 256 bytes as tokens, <s>, </s> and <|turn|>."""
    tiny_model.write_model(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | config), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def loaded(tiny_folder):
    import mlxlm

    return mlxlm.load(tiny_folder)


@pytest.fixture(scope="session")
def model(loaded):
    return loaded[0]


@pytest.fixture(scope="session")
def tokenizer(loaded):
    return loaded[1]


@pytest.fixture(scope="session")
def float_folder(tmp_path_factory):
    """A model in float32 that the real mlx-lm runs too. What it writes are printable characters of ASCII: mlx-lm streams
    broken characters otherwise than it decodes them."""
    import mlx.core as mx
    import reference

    folder = reference.make(tmp_path_factory.mktemp("models") / "float", reference.FAMILIES["llama-no-gqa"])
    path = str(folder / "model.safetensors")
    weights = dict(mx.load(path))
    head = weights["lm_head.weight"]
    printable = mx.array([[float(32 <= i < 127)] for i in range(head.shape[0])])
    mx.save_safetensors(path, weights | {"lm_head.weight": head * printable}, {"format": "mlx"})
    return folder


@pytest.fixture(scope="session")
def draft_folder(tmp_path_factory):
    import reference

    config = reference.config("llama", num_hidden_layers=1)
    return reference.make(tmp_path_factory.mktemp("models") / "draft", config, seed=2)
