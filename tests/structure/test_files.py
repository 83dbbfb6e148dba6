"""Rules for every file: its length, and words that belong to one machine and not to the project."""

import re
import unittest

from source_tree import name_of, project_files

MAX_LINES = 500
CODE_SUFFIXES = {".h", ".cc", ".inl", ".c", ".py", ".rs", ".cmake", ".sh"}
# Made by a tool or by necessity long: "name": "why". Empty is right.
LONG_FILES = {}
GENERATED = {"rust/Cargo.lock", "tests/requirements.txt", "bench/requirements.txt"}
# Written in pieces, so that this file does not find itself.
FORBIDDEN = re.compile("|".join([
    "/wor" + r"k/(main|shared|\.)", r"\.\./" + "shared", "/ro" + "ot/", "artifact" + "-registry",
    "deb" + r"\.debian\.org", "files" + r"\.pythonhosted", "pypi" + r"\.org", "index" + r"\.crates\.io",
    "static" + r"\.crates\.io"]))


def text_files():
    for path in project_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def is_code(path, text):
    return path.suffix in CODE_SUFFIXES or path.name == "CMakeLists.txt" or text.startswith("#!")


class Files(unittest.TestCase):
    def test_no_source_file_is_too_long(self):
        long = {name_of(p): t.count("\n") for p, t in text_files() if is_code(p, t) and t.count("\n") > MAX_LINES}
        self.assertEqual({n: c for n, c in long.items() if n not in LONG_FILES}, {}, f"over {MAX_LINES} lines: split them")
        self.assertEqual(set(LONG_FILES) - set(long), set(), "no longer long: take them off the list")

    def test_no_file_names_a_machine_or_registry(self):
        found = []
        for path, text in text_files():
            if name_of(path) in GENERATED:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if FORBIDDEN.search(line):
                    found.append(f"{name_of(path)}:{number}: {line.strip()}")
        self.assertEqual(found, [], "\n".join(found))

    def test_every_text_file_ends_with_one_newline(self):
        wrong = [name_of(p) for p, t in text_files() if is_code(p, t) and t and (not t.endswith("\n") or t.endswith("\n\n"))]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
