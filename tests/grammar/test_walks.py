"""Random walks: whatever a model chooses among the admitted tokens, the text follows the grammar."""

import ast
import json
import re

import jsonschema
import pytest

from probe_client import Refused

SEEDS = range(4)

SCHEMAS = {
    "object": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "é": {"type": "integer", "minimum": -5, "maximum": 1200},
            "x": {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
            "kind": {"enum": ["cat", "dog\n", None, 7, {"deep": [1]}]},
        },
        "required": ["name", "é", "kind"],
        "additionalProperties": False,
    },
    "open object": {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": {"type": "null"}},
    "list": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"const": "😀"}, {"type": "boolean"}], "items": False, "minItems": 2},
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
    "any of": {"anyOf": [{"type": "string", "pattern": "^[a-f]{2,4}$"}, {"type": "integer", "multipleOf": 7}]},
    "one of": {"oneOf": [{"type": "object", "properties": {"k": {"const": c}}, "required": ["k"],
                          "additionalProperties": False} for c in "ab"]},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]},
                         {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
    "formats": {"type": "array", "prefixItems": [{"type": "string", "format": f} for f in
                                                 ("date", "date-time", "uuid", "ipv4")],
                "minItems": 4, "items": False},
    "pattern keys": {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}},
                     "additionalProperties": False, "minProperties": 1, "maxProperties": 3},
    "anything": True,
}

EXPRESSIONS = [
    r"[0-9]{3}-[A-Z]{2}",
    r"(foo|bar)+(baz)?",
    r"é+ü{1,3}|日本",
    r"[0-9]{1,3}(\.[0-9]{1,3}){3}",
    r"^Answer: (yes|no)\.$",
    r"a*",
    r"[^a-z\n]{1,5}",
    r"(?i)hello",
    r"\s?[a-zé_]{1,8}\s?",
]

CALCULATOR = r"""
start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: NUMBER | "(" sum ")"
NUMBER: /[1-9][0-9]{0,2}/
"""


def texts(model, **grammar):
    return [model.walk(seed, **grammar)["text"] for seed in SEEDS]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(model, name):
    schema = SCHEMAS[name]
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for text in texts(model, kind="json_schema", source=json.dumps(schema)):
        checker.validate(json.loads(text))


def test_compact_schema(model):
    schema = {"x-guidance": {"whitespace_flexible": False}, **SCHEMAS["tree"]}
    for text in texts(model, kind="json_schema", source=json.dumps(schema)):
        assert isinstance(json.loads(text), dict) and not re.search(r"\s", text)


def test_any_object(model):
    for text in texts(model, kind="json_object"):
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(model, expression):
    for text in texts(model, length=10, kind="regex", source=expression):
        assert re.fullmatch(expression, text), f"{expression} does not match {text!r}"


def test_lark(model):
    for text in texts(model, kind="lark", source=CALCULATOR):
        assert re.fullmatch(r"[0-9+*/()-]+", text)
        ast.parse(text, mode="eval")  # it is an expression of Python too


CHOICES = ["yes", " no", "é", "日本語", "😀 ok", "", "</s>", 'a"\\\n']


def test_choices(model):
    seen = {model.walk(seed, kind="choice", choices=CHOICES)["text"] for seed in range(20)}
    assert seen <= set(CHOICES)
    assert len(seen) >= 3
    for choice in CHOICES:
        assert model.walk(1, kind="choice", choices=[choice])["text"] == choice


def test_forced_tokens_are_those_of_the_tokenizer(forcing_model):
    """Where the grammar leaves one text, the tokens are the tokenizer's own cut of it."""
    text = '{"leading": "  The quick brown fox", "é": 12}'
    answer = forcing_model.walk(1, kind="choice", choices=[text])
    assert answer["text"] == text
    assert answer["ids"] == forcing_model.tokenizer.encode(text, add_special_tokens=False).ids
    assert answer["forced"] == len(answer["ids"]) + 1  # and the end


def test_a_vocabulary_without_some_characters(incomplete_model):
    assert set(texts(incomplete_model, kind="choice", choices=["et", "tea"])) == {"et", "tea"}
    with pytest.raises(Refused, match="it admits no text that the tokens can write"):
        incomplete_model.walk(1, kind="choice", choices=["\u4e02"])
