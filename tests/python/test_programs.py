"""Programs written for mlx_lm print the same with mlxlm, after changing the import."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

HERE = Path(__file__).resolve().parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


@pytest.fixture(scope="module")
def outputs(float_folder, draft_folder):
    """{package: {program: text}}, the two packages in processes of their own."""
    running = {}
    for package in ("mlx_lm", "mlxlm"):
        command = [sys.executable, HERE / "run_programs.py", package, float_folder, draft_folder, *PROGRAMS]
        environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
        running[package] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    texts = {package: process.communicate(timeout=300)[0] for package, process in running.items()}
    assert all(process.returncode == 0 for process in running.values())
    return {package: json.loads(text.splitlines()[-1]) for package, text in texts.items()}


def test_there_are_ten():
    assert len(PROGRAMS) == 10


@pytest.mark.parametrize("name", [p.stem for p in PROGRAMS])
def test_prints_the_same(outputs, name):
    expected = outputs["mlx_lm"][name]
    assert expected.count("\n") >= 2, "the program should show something"
    assert outputs["mlxlm"][name] == expected
