"""The programs of examples/python run, and the pages show them as they are."""

import os
import re
import subprocess
import sys

import pytest
from conftest import PACKAGE, TESTS

ROOT = TESTS.parent
EXAMPLES = {path.stem: path for path in (ROOT / "examples" / "python").glob("*.py")}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: name: arguments after the model, standard input, what the output matches
RUNS = {
    "answer": (["Is it whole?"], "", r".\n$"),
    "batch_file": (["{questions}"], "", r"^One\?\n  '.*' \((stop|length)\)\nTwo\?\n  .*\n\d+ tokens, [\d.]+ tokens/s\n$"),
    "chat": ([], "Hello\nAgain\n\n", r"\[0 of \d+ tokens were known\][\s\S]*\[[1-9]\d* of \d+ tokens were known\]"),
    "evaluate": ([], "", r"^(.*: -\d+\.\d{6}\n){3}alone and in a batch: the same\nfingerprint: [0-9a-f]{16}\n$"),
    "extract_json": ([], "", r"^\{'city': '.*', 'inhabitants': \d+, 'coastal': (True|False)\}\n$"),
    "own_callables": ([], "", r"^plain: .*\nno repeats: [\s\S]*\ntwo best: [\s\S]*\nno red: [\s\S]*\nwarm: "),
    "serve_many": ([], "", r"^(Name \d animals\. '.*'\n){8}$"),
    "speculation": (["{model}"], "", r"^plain: .*, 0 of 0 .*\ndraft model: .*, [1-9]\d* of .*\nprompt lookup: .*\none text\n$"),
}


def test_every_example_is_run():
    assert set(RUNS) == set(EXAMPLES)


@pytest.mark.parametrize("name", RUNS)
def test_runs(name, tiny_folder, tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text("One?\nTwo?\n", encoding="utf-8")
    arguments, given, expected = RUNS[name]
    arguments = [a.format(model=tiny_folder, questions=questions) for a in arguments]
    command = [sys.executable, EXAMPLES[name], tiny_folder, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8",
                          env=os.environ | {"PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout), done.stdout


def test_pages_show_the_examples_as_they_are():
    texts = {path.read_text(encoding="utf-8") for path in EXAMPLES.values()}
    shown = [block for page in (ROOT / "docs").glob("*.md") for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    programs = [block for block in shown if block.startswith('"""')]
    assert programs and all(block in texts for block in programs)
