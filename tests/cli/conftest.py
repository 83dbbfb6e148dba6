"""The command mlxlm, run as a user runs it. MLXLM_BIN names the program; the model is a tiny random one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tiny_model  # noqa: E402
from cli_support import BINARY, Command, edit_json  # noqa: E402


@pytest.fixture(scope="session")
def mlxlm():
    assert Path(BINARY).is_file(), f"{BINARY}: build it first, or set MLXLM_BIN"
    return Command()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.write_model(folder)
    return folder


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory):
    """The same model without an end-of-text token and with room for far more than any test waits for."""
    folder = tmp_path_factory.mktemp("models") / "endless"
    tiny_model.write_model(folder)
    edit_json(folder / "config.json", max_position_embeddings=10_000_000, eos_token_id=None)
    edit_json(folder / "tokenizer_config.json", eos_token=None)
    return folder
