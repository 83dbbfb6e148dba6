"""Tokenizers, under the names of mlx_lm.tokenizer_utils."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from . import _core
from ._arrays import token_ids
from ._tokenizer_config import TokenizerConfig

__all__ = ["StreamingDetokenizer", "TokenizerWrapper", "load"]


class StreamingDetokenizer:
    """The text of a growing list of tokens: ``last_segment`` is what became known since it was last asked for."""

    def __init__(self, tokenizer: TokenizerWrapper) -> None:
        self._native = _core.StreamingDetokenizer(tokenizer.native, False)
        self.reset()

    def reset(self) -> None:
        self._native.reset()
        self._text = ""
        self.tokens: list[int] = []
        self.offset = 0

    def add_token(self, token: int) -> None:
        self._native.add_token(int(token))
        self.tokens.append(int(token))
        self._text += self._native.take_segment()

    def finalize(self) -> None:
        self._native.finalize()
        self._text += self._native.take_segment()

    @property
    def text(self) -> str:
        return self._text

    @property
    def last_segment(self) -> str:
        segment = self._text[self.offset :]
        self.offset = len(self._text)
        return segment

    def __repr__(self) -> str:
        return f"<StreamingDetokenizer of {len(self.tokens)} tokens>"


class TokenizerWrapper:
    """A model folder's tokenizer: encode, decode, chat templates, and the attributes that Hugging Face tokenizers have.

    Safe to use from many threads. ``eos_token_ids`` is the set of ids that end a generation; it can be changed.
    """

    def __init__(
        self,
        native: _core.Tokenizer,
        config: TokenizerConfig,
        eos_token_ids: Iterable[int] | None = None,
    ) -> None:
        self.native = native
        self._config = config
        self._eos_token_ids = set(native.eos_token_ids() if eos_token_ids is None else eos_token_ids)
        if self.eos_token_id is not None:
            self._eos_token_ids.add(self.eos_token_id)
        self._vocab: dict[str, int] | None = None

    # Text and ids

    def encode(self, text: str, add_special_tokens: bool = True, **kwargs: Any) -> list[int]:
        """Ids of a text. ``add_special_tokens``: let the tokenizer add BOS and the like."""
        _refuse(kwargs, "encode")
        return self.native.encode(text, add_special_tokens)

    def decode(self, token_ids_: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """The text of an id or of many; special tokens are rendered unless skipped."""
        if kwargs.pop("clean_up_tokenization_spaces", False):
            raise NotImplementedError("decode: clean_up_tokenization_spaces is always off")
        _refuse(kwargs, "decode")
        ids = [token_ids_] if isinstance(token_ids_, (int, np.integer)) else token_ids_
        return self.native.decode(token_ids(ids, "token_ids"), skip_special_tokens)

    def batch_decode(self, sequences: Iterable[Any], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """``{"input_ids": …, "attention_mask": …}`` of a text or of several."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        rows = [self.encode(one, add_special_tokens) for one in text]
        return {"input_ids": rows, "attention_mask": [[1] * len(ids) for ids in rows]}

    def tokenize(self, text: str) -> list[str]:
        return [self.native.id_to_token(i) or "" for i in self.encode(text, add_special_tokens=False)]

    # Chat templates

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], *, tokenize: Literal[False], **kwargs: Any
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: Literal[True] = True,
        **kwargs: Any,
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> str | list[int]:
        """A conversation as the model expects it: ids, or the text with ``tokenize=False``.

        Further keywords are variables of the template; ``enable_thinking`` is true where the vocabulary has think markers.
        """
        if return_dict:
            raise NotImplementedError("apply_chat_template: return_dict=True is not supported; the ids come as a list")
        for name in kwargs:
            if nearest := difflib.get_close_matches(name, ("add_generation_prompt", "continue_final_message"), 1, 0.85):
                warnings.warn(f"apply_chat_template: {name!r} is taken as a variable of the template; was {nearest[0]!r} meant?",
                              stacklevel=2)
        variables = {"enable_thinking": self.has_thinking} | kwargs
        text = self.native.render(
            _as_json(list(conversation), "conversation"),
            add_generation_prompt,
            continue_final_message,
            _as_json(list(tools), "tools") if tools is not None else "",
            _as_json(list(documents), "documents") if documents is not None else "",
            _as_json(variables, "variables of the template"),
            chat_template or self._config.chat_template or "",
        )
        return self.native.encode(text, False) if tokenize else text

    @property
    def has_chat_template(self) -> bool:
        return self._config.chat_template is not None or self.native.has_chat_template()

    @property
    def chat_template(self) -> str | None:
        return self._config.template_text()

    @chat_template.setter
    def chat_template(self, value: str | None) -> None:
        self._config.chat_template = value

    # Ids with a meaning

    @property
    def eos_token_ids(self) -> set[int]:
        return self._eos_token_ids

    @eos_token_ids.setter
    def eos_token_ids(self, value: Iterable[int] | int | None) -> None:
        ids = [] if value is None else [value] if isinstance(value, int) else value
        self._eos_token_ids = {int(i) for i in ids}

    def add_eos_token(self, token: str | int) -> None:
        """Ends generations at this token too: its text, or its id."""
        self._eos_token_ids.add(self.find_token(token))

    def find_token(self, token: str | int) -> int:
        """The id of a token given by its text or id. Raises ValueError where there is none."""
        text = str(token)
        token_id = int(text) if text.isdecimal() else self.native.token_to_id(text)
        if token_id is None or not 0 <= token_id < self.vocab_size:
            raise ValueError(f"{token!r} is not a token of this tokenizer")
        return token_id

    @property
    def vocab_size(self) -> int:
        return self.native.vocab_size()

    def __len__(self) -> int:
        return self.vocab_size

    def get_vocab(self) -> dict[str, int]:
        if self._vocab is None:
            tokens = ((self.native.id_to_token(i), i) for i in range(self.vocab_size))
            self._vocab = {text: i for text, i in tokens if text is not None}
        return dict(self._vocab)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        if isinstance(tokens, str):
            return self.native.token_to_id(tokens)
        return [self.native.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> Any:
        if isinstance(ids, (int, np.integer)):
            return self.native.id_to_token(int(ids))
        return [self.native.id_to_token(int(i)) for i in ids]

    # Thinking and tool calls

    @property
    def has_thinking(self) -> bool:
        return self.native.has_thinking()

    @property
    def think_start(self) -> str | None:
        markers = self._config.think_markers(self.native)
        return markers[0] if markers else None

    @property
    def think_end(self) -> str | None:
        markers = self._config.think_markers(self.native)
        return markers[1] if markers else None

    @property
    def think_start_tokens(self) -> tuple[int, ...] | None:
        return self._marker_ids(self.think_start)

    @property
    def think_end_tokens(self) -> tuple[int, ...] | None:
        return self._marker_ids(self.think_end)

    @property
    def think_start_id(self) -> int | None:
        return _single(self.think_start_tokens, "start")

    @property
    def think_end_id(self) -> int | None:
        return _single(self.think_end_tokens, "end")

    @property
    def has_tool_calling(self) -> bool:
        return self.tool_call_start is not None

    @property
    def tool_call_start(self) -> str | None:
        markers = self._config.tool_markers()
        return markers[0] if markers else None

    @property
    def tool_call_end(self) -> str | None:
        markers = self._config.tool_markers()
        return markers[1] if markers else None

    def _marker_ids(self, marker: str | None) -> tuple[int, ...] | None:
        return None if marker is None else tuple(self.native.encode(marker, False))

    @property
    def detokenizer(self) -> StreamingDetokenizer:
        """A new streaming detokenizer."""
        return StreamingDetokenizer(self)

    def __getattr__(self, name: str) -> Any:
        # The names of special tokens and whatever else tokenizer_config.json says.
        if not name.startswith("_"):
            found, value = self._config.attribute(name, self.native)
            if found:
                return value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<TokenizerWrapper {self._config.name} of {self.vocab_size} tokens, eos {sorted(self._eos_token_ids)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._config.folder, dict(self._config.overrides), self._eos_token_ids)


def load(
    model_path: str | Path,
    tokenizer_config_extra: Mapping[str, Any] | None = None,
    eos_token_ids: Iterable[int] | None = None,
) -> TokenizerWrapper:
    """The tokenizer of a model folder."""
    config = TokenizerConfig(str(model_path), tokenizer_config_extra)
    return TokenizerWrapper(_core.Tokenizer.from_folder(str(model_path)), config, eos_token_ids)


def _restore(folder: str, overrides: dict[str, Any], eos: set[int]) -> TokenizerWrapper:
    tokenizer = load(folder, overrides)
    tokenizer.eos_token_ids = eos
    return tokenizer


def _as_json(value: Any, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(f"apply_chat_template: {name}: {error}") from error


def _single(ids: tuple[int, ...] | None, name: str) -> int | None:
    if ids is None:
        return None
    if len(ids) != 1:
        raise ValueError(f"the {name} of thinking is {len(ids)} tokens; see think_{name}_tokens")
    return ids[0]


def _refuse(kwargs: dict[str, Any], function: str) -> None:
    for name in kwargs:
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
