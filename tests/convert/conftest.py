import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))  # reference
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program():
    path = pathlib.Path(os.environ.get("MLXLM_BIN", ROOT / "build/bin/mlxlm"))
    assert path.is_file(), f"{path} is not there: build it, or set MLXLM_BIN"
    return path


@pytest.fixture
def convert(program):
    """convert(gguf, folder): the finished process; convert.fails(…) asserts failure and returns its message."""
    def run(gguf, folder, check=True):
        process = subprocess.run([program, "convert", "--gguf", str(gguf), "--mlx-path", str(folder)], capture_output=True, text=True)
        assert not check or process.returncode == 0, process.stderr
        return process

    def fails(gguf, folder):
        process = run(gguf, folder, check=False)
        assert process.returncode == 1, process
        assert not pathlib.Path(folder).exists() or not list(pathlib.Path(folder).glob("config.json"))
        assert not list(pathlib.Path(folder).parent.glob("*.tmp-*")), "a temporary folder was left"
        return process.stderr

    run.fails = fails
    return run


@pytest.fixture
def convert_hf(program):
    """convert_hf(source, folder, flags…): the finished process; convert_hf.fails(…) asserts failure and returns its message."""
    def run(source, folder, *flags, check=True):
        command = [program, "convert", "--hf-path", str(source), "--mlx-path", str(folder), *flags]
        process = subprocess.run(command, capture_output=True, text=True)
        assert not check or process.returncode == 0, process.stderr
        return process

    def fails(source, folder, *flags):
        before = sorted(pathlib.Path(folder).parent.iterdir())
        process = run(source, folder, *flags, check=False)
        assert process.returncode == 1, process
        assert sorted(pathlib.Path(folder).parent.iterdir()) == before, "something was left behind"
        return process.stderr

    run.fails = fails
    return run


@pytest.fixture
def generate(program):
    """generate(folder): what the command prints with --json for a few greedy tokens."""
    def run(folder):
        command = [program, "generate", "--model", str(folder), "--json", "--prompt", "jump", "-m", "8"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return run
