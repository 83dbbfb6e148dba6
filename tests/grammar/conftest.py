"""Tokenizers of several kinds, and the program grammar_probe that walks through grammars with them."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "text"))  # probe_client, tokenizer_kinds

from probe_client import Probe  # noqa: E402
from tokenizer_kinds import KINDS  # noqa: E402


class Model:
    """A tokenizer of a kind, and a probe that has loaded it."""

    def __init__(self, kind, folder):
        self.tokenizer = KINDS[kind]()
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
        self.probe = Probe("grammar_probe")
        self.probe.ask("load", folder=str(folder))

    def walk(self, seed, length=25, **grammar):
        return self.probe.ask("walk", seed=seed, length=length, **grammar)


def loaded(request, tmp_path_factory):
    model = Model(request.param, tmp_path_factory.mktemp(request.param))
    yield model
    model.probe.close()


# Unigram without byte tokens cannot write every character.
complete_model = pytest.fixture(scope="session", params=sorted(set(KINDS) - {"unigram"}), name="model")(loaded)
forcing_model = pytest.fixture(
    scope="session", params=["byte_level_gpt2", "byte_level_qwen", "gemma"], name="forcing_model"
)(loaded)
incomplete_model = pytest.fixture(scope="session", params=["unigram"], name="incomplete_model")(loaded)
