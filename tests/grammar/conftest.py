"""Tokenizers of several kinds, and the program grammar_probe that walks through grammars with them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "text"))  # tokenizer_kinds

from tokenizer_kinds import KINDS  # noqa: E402


class Refused(Exception):
    """The C++ side answered with an error."""


class Probe:
    def __init__(self):
        build = pathlib.Path(os.environ.get("MLXLM_BUILD_DIR", ROOT / "build"))
        program = build / "bin" / "grammar_probe"
        assert program.exists(), f"{program} is not built; set MLXLM_BUILD_DIR"
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, op, **request):
        line = json.dumps({"op": op, **request}, ensure_ascii=False) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


class Model:
    """A tokenizer of a kind, and a probe that has loaded it."""

    def __init__(self, kind, folder):
        self.tokenizer = KINDS[kind]()
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
        self.probe = Probe()
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
