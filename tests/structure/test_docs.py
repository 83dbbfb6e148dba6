"""The documents tell the truth: links lead somewhere, commands, subcommands and options exist, and the programs they
show are those of examples/cpp, which the test installed_package builds and runs.

Checked are the fenced blocks marked console (lines that start with "$ ") and sh (every line). Environment: MLXLM_COMMAND,
the built command.
"""

import functools
import json
import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

from source_tree import ROOT, name_of, project_files

FENCE = re.compile(r"^ *```([a-z+]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
SEPARATORS = {"|", "||", "&&", ";", "&"}
MLXLM = ("mlxlm", "build/bin/mlxlm", "./build/bin/mlxlm")


def documents():
    return [p for p in project_files() if p.suffix == ".md"]


def without_fences(text):
    return FENCE.sub("", text)


def anchors(path):
    """GitHub's anchors: lower case, punctuation dropped, spaces to hyphens."""
    text = without_fences(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in HEADING.findall(text)}


def shell_lines(text):
    for language, body in FENCE.findall(text):
        body = body.replace("\\\n", " ")
        if language == "console":
            yield from (line.strip()[2:] for line in body.splitlines() if line.strip().startswith("$ "))
        elif language in ("sh", "bash"):
            yield from (line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("#"))


def commands(line):
    """The simple commands of a shell line, those inside $(…) too; redirections and assignments dropped."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from commands(inner)
    line = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    current = []
    for word in [*lexer, ";"]:
        if word in SEPARATORS:
            while current and re.match(r"^\w+=", current[0]):
                current.pop(0)
            if current:
                yield current
            current = []
        else:
            current.append(word)


@functools.lru_cache(maxsize=None)
def help_of(*subcommand):
    command = [os.environ["MLXLM_COMMAND"], *subcommand, "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def check_mlxlm(words):
    """What is wrong with the arguments of the mlxlm command, or None."""
    if not words or words[0].startswith("-"):
        subcommand, arguments = (), words
    else:
        subcommand, arguments = (words[0],), words[1:]
        if not re.search(rf"^\s+{re.escape(words[0])}\b", help_of(), re.MULTILINE):
            return f"mlxlm has no command {words[0]}"
    for word in arguments:
        option = word.split("=")[0]
        if re.match(r"^--?[a-zA-Z]", option) and not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])",
                                                               help_of(*subcommand)):
            return f"mlxlm {' '.join(subcommand)} has no option {option}"
    return None


def make_targets():
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def presets():
    data = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    return {preset["name"] for kind in data if kind.endswith("Presets") for preset in data[kind]}


def check_command(words):
    program, arguments = words[0], words[1:]
    if program in MLXLM:
        return check_mlxlm(arguments)
    if program == "make":
        unknown = [a for a in arguments if "=" not in a and not a.startswith("-") and a not in make_targets()]
        return f"the Makefile has no target {unknown[0]}" if unknown else None
    if program in ("cmake", "ctest") and "--preset" in arguments:
        preset = arguments[arguments.index("--preset") + 1]
        return None if preset in presets() else f"CMakePresets.json has no preset {preset}"
    if program.startswith(("scripts/", "bench/", "tests/", ".ci/", "examples/")) and not (ROOT / program).is_file():
        return "no such file"
    return None


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        dead = []
        for path in documents():
            for match in LINK.finditer(without_fences(path.read_text(encoding="utf-8"))):
                target = match.group(1) or match.group(2)
                if re.match(r"^[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                destination = (path.parent / file).resolve() if file else path
                if not destination.exists():
                    dead.append(f"{name_of(path)}: {target}: no such file")
                elif anchor and destination.suffix == ".md" and anchor not in anchors(destination):
                    dead.append(f"{name_of(path)}: {target}: no such heading")
        self.assertEqual(dead, [], "\n".join(dead))

    def test_commands_exist(self):
        wrong, seen = [], 0
        for path in documents():
            for line in shell_lines(path.read_text(encoding="utf-8")):
                for words in commands(line):
                    seen += 1
                    problem = check_command(words)
                    if problem:
                        wrong.append(f"{name_of(path)}: {line}: {problem}")
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertGreater(seen, 10, "the documents show hardly any command; is the fence pattern right?")

    def test_the_readme_shows_the_first_steps(self):
        shown = [words for line in shell_lines((ROOT / "README.md").read_text(encoding="utf-8")) for words in commands(line)]
        self.assertTrue(any(words[0] == "make" for words in shown))
        self.assertTrue(any(Path(words[0]).name == "mlxlm" for words in shown))


class Programs(unittest.TestCase):
    def setUp(self):
        self.examples = {p.read_text(encoding="utf-8"): p for p in project_files()
                         if name_of(p).startswith("examples/cpp/") and p.suffix == ".cc"}

    def test_programs_are_the_examples(self):
        shown, wrong = set(), []
        for path in documents():
            for language, body in FENCE.findall(path.read_text(encoding="utf-8")):
                if language == "cpp" and body in self.examples:
                    shown.add(self.examples[body])
                elif language == "cpp" and "int main(" in body:
                    wrong.append(f"{name_of(path)}: a program that is no file of examples/cpp:\n{body}")
        self.assertEqual(wrong, [], "\n".join(wrong))
        missing = sorted(name_of(p) for p in set(self.examples.values()) - shown)
        self.assertEqual(missing, [], "no document shows these, or shows another version of them")

    def test_examples_are_short(self):
        long = [name_of(p) for text, p in self.examples.items() if text.count("\n") > 60]
        self.assertEqual(long, [], "an example shows one thing")

    def test_the_index_names_every_page(self):
        pages = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
        linked = {m.group(1).partition("#")[0] for m in LINK.finditer((ROOT / "docs/README.md").read_text(encoding="utf-8"))}
        self.assertEqual(pages - linked, set())


class Checker(unittest.TestCase):
    """The checker itself finds what is wrong."""

    def test_reads_commands(self):
        text = "```console\n$ make demo PROMPT=x && scripts/setup test\noutput\n$ mlxlm chat \\\n  --model \"$(make y)\"\n```\n"
        found = [words for line in shell_lines(text) for words in commands(line)]
        self.assertEqual(found, [["make", "demo", "PROMPT=x"], ["scripts/setup", "test"], ["make", "y"],
                                 ["mlxlm", "chat", "--model", "SUBSTITUTED"]])

    def test_refuses_what_does_not_exist(self):
        self.assertIn("no target", check_command(["make", "no-such-target"]))
        self.assertIn("no preset", check_command(["cmake", "--preset", "no-such-preset"]))
        self.assertIn("no such file", check_command(["scripts/no-such-script"]))
        self.assertIn("no command", check_command(["mlxlm", "no-such-command"]))
        self.assertIn("no option", check_command(["mlxlm", "generate", "--no-such-option"]))


if __name__ == "__main__":
    unittest.main()
