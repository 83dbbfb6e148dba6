"""Logits processors of the library: banned ids and texts, prefixes, lengths, thinking budgets and grammars.

Each is passed in ``logits_processors`` like a function of one's own, and runs without Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import as_floats, token_ids

if TYPE_CHECKING:
    from .tokenizer_utils import TokenizerWrapper

__all__ = [
    "LogitsProcessor",
    "ban_token_ids",
    "choice",
    "forbid_strings",
    "force_prefix",
    "json_object",
    "json_schema",
    "lark",
    "min_length",
    "regex",
    "thinking_budget",
]


class LogitsProcessor:
    """A processor of the library. Each generation works on a copy of its own.

    Called as a function, ``processor(tokens, logits)``, it returns the changed logits [1, V]: those given where they are
    a float32 numpy array, which is changed in place, else a new array.
    """

    __slots__ = ("_description", "native")

    def __init__(self, native: _core.Processor, description: str) -> None:
        self.native = native
        self._description = description

    def __call__(self, tokens: Any, logits: Any) -> Any:
        row = as_floats(logits, "logits")
        if not row.flags.writeable:
            row = row.copy()
        self.native.process(token_ids(np.reshape(tokens, -1), "tokens"), row)
        return row

    def __repr__(self) -> str:
        return f"<LogitsProcessor {self._description}>"


def ban_token_ids(ids: Iterable[int]) -> LogitsProcessor:
    """The ids never appear."""
    listed = [int(i) for i in ids]
    return LogitsProcessor(_core.ban_token_ids(listed), f"ban_token_ids {listed}")


def forbid_strings(tokenizer: TokenizerWrapper, texts: Sequence[str]) -> LogitsProcessor:
    """None of the texts appears in what is generated, however it is cut into tokens."""
    if isinstance(texts, str):
        raise TypeError(f"texts: expected a list of strings, got one string; write [{texts!r}]")
    return LogitsProcessor(_core.forbid_strings(_native(tokenizer), list(texts)), f"forbid_strings {list(texts)}")


def force_prefix(tokenizer: TokenizerWrapper, text: str) -> LogitsProcessor:
    """What is generated begins with this text."""
    return LogitsProcessor(_core.force_prefix(_native(tokenizer), text), f"force_prefix {text!r}")


def min_length(tokens: int) -> LogitsProcessor:
    """No end before this many tokens have been generated."""
    return LogitsProcessor(_core.min_length(tokens), f"min_length {tokens}")


def thinking_budget(tokenizer: TokenizerWrapper, tokens: int) -> LogitsProcessor:
    """After this many tokens of thinking the end marker is forced."""
    return LogitsProcessor(_core.thinking_budget(_native(tokenizer), tokens), f"thinking_budget {tokens}")


def json_schema(
    tokenizer: TokenizerWrapper, schema: str | Mapping[str, Any] | bool, compact: bool = False
) -> LogitsProcessor:
    """What is generated is JSON that follows the schema: a dict, or its text.

    ``compact``: no whitespace between the parts; else the model may indent as it likes. A keyword that is not supported
    is an error.
    """
    _native(tokenizer)  # swapped arguments are told before the schema is read
    if compact:
        given = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(given, Mapping):
            raise ValueError("schema: expected an object where compact is true")
        schema = {"x-guidance": {"whitespace_flexible": False}, **given}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return _grammar(tokenizer, "json_schema", text)


def json_object(tokenizer: TokenizerWrapper) -> LogitsProcessor:
    """What is generated is a JSON object."""
    return _grammar(tokenizer, "json_object", "")


def regex(tokenizer: TokenizerWrapper, pattern: str) -> LogitsProcessor:
    """What is generated matches the whole pattern, in the syntax of Rust's regular expressions."""
    return _grammar(tokenizer, "regex", pattern)


def lark(tokenizer: TokenizerWrapper, grammar: str) -> LogitsProcessor:
    """What is generated follows a Lark grammar in the dialect of llguidance."""
    return _grammar(tokenizer, "lark", grammar)


def choice(tokenizer: TokenizerWrapper, texts: Sequence[str]) -> LogitsProcessor:
    """What is generated is one of the texts."""
    if isinstance(texts, str):
        raise TypeError(f"texts: expected a list of strings, got one string; write [{texts!r}]")
    native = _core.constrain(_native(tokenizer), "choice", "", list(texts))
    return LogitsProcessor(native, f"choice {list(texts)}")


def _grammar(tokenizer: TokenizerWrapper, kind: str, source: str) -> LogitsProcessor:
    native = _core.constrain(_native(tokenizer), kind, source, [])
    shown = source if len(source) <= 60 else source[:57] + "..."
    return LogitsProcessor(native, f"{kind} {shown}".rstrip())


def _native(tokenizer: Any) -> _core.Tokenizer:
    native = getattr(tokenizer, "native", None)
    if not isinstance(native, _core.Tokenizer):
        raise TypeError(f"tokenizer: expected what mlxlm.load returns, got {type(tokenizer).__name__}")
    return native
