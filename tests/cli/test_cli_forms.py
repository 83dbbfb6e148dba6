"""Answers of a given form: JSON, regular expressions, grammars, choices."""

import json
import re

import pytest

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"],
          "additionalProperties": False}
GRAMMAR = 'start: "ab" ("c" | "d")+ "!"\n'


@pytest.fixture
def generate(mlxlm, model):
    def run(*args):
        return mlxlm.json("generate", "--model", model, "-m", 300, "--temp", 1, "--seed", 5, *args)

    return run


def test_json_schema(generate, tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    inline = generate("--json-schema", json.dumps(SCHEMA))
    assert generate("--json-schema", tmp_path / "schema.json")["token_ids"] == inline["token_ids"]
    assert inline["finish_reason"] == "stop"
    value = json.loads(inline["text"])
    assert isinstance(value["a"], int) and value["b"] in ("x", "y") and len(value) == 2


def test_json_object(generate):
    text = generate("--json-object", "-m", 40)["text"]
    assert text.lstrip().startswith("{")


def test_regex_choice_and_grammar(generate, tmp_path):
    assert re.fullmatch("[0-9]{3}-(yes|no)", generate("--regex", "[0-9]{3}-(yes|no)")["text"])
    texts = {generate("--choice", "red", "--choice", "dark blue", "--seed", seed)["text"] for seed in range(12)}
    assert texts == {"red", "dark blue"}
    (tmp_path / "g.lark").write_text(GRAMMAR)
    assert re.fullmatch("ab[cd]+!", generate("--grammar", tmp_path / "g.lark", "--logit-bias", '{"33": 5}')["text"])


def test_batch_lines_have_forms(mlxlm, model, tmp_path):
    lines = [{"prompt": "a", "json_schema": SCHEMA, "max_tokens": 300}, {"prompt": "a", "regex": "[0-9]{3}"},
             {"prompt": "a", "choice": ["red", "dark blue"]}, {"prompt": "a", "grammar": GRAMMAR, "logit_bias": {"33": 5}},
             {"prompt": "a", "regex": "("}]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = mlxlm("batch", "--model", model, "--input", tmp_path / "in", "--temp", 1, "--seed", 5, check=1)
    schema, regex, choice, grammar, wrong = map(json.loads, done.out.splitlines())
    assert set(json.loads(schema["text"])) == {"a", "b"}
    assert re.fullmatch("[0-9]{3}", regex["text"]) and choice["text"] in ("red", "dark blue")
    assert re.fullmatch("ab[cd]+!", grammar["text"])
    assert wrong["error"].startswith("line 5: ")


def test_wrong_forms(mlxlm, model):
    base = ("generate", "--model", model)
    for option in (("--regex", "("), ("--json-schema", '{"type": "no such type"}')):
        err = mlxlm(*base, *option, check=1).err  # the place in the grammar may take some lines
        assert err.startswith("mlxlm: error: grammar: ")
