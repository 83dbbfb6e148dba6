"""Samplers, filters and penalties, under the names of mlx_lm.sample_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _core, random
from ._arrays import FloatArray, TokenArray, as_floats
from .processors import LogitsProcessor

__all__ = [
    "LogitsProcessor",
    "Sampler",
    "apply_min_p",
    "apply_top_k",
    "apply_top_p",
    "apply_xtc",
    "categorical_sampling",
    "greedy_sampler",
    "make_frequency_penalty",
    "make_logits_processors",
    "make_presence_penalty",
    "make_repetition_penalty",
    "make_sampler",
]


class Sampler:
    """A sampler of the library. A generation runs it without Python; called with log-probabilities [1, V] or [V], it
    returns the ids chosen."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any]) -> None:
        _core.check_sampler(dict(options))
        self._options = dict(options)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    def __call__(self, logprobs: Any) -> TokenArray:
        rows = as_floats(logprobs, "logprobs")
        ids = [_core.sample_row(row, self._options, *random.next_draw()) for row in _rows(rows)]
        return np.array(ids, np.int32).reshape(rows.shape[:-1])

    def __repr__(self) -> str:
        return f"Sampler({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"


def make_sampler(
    temp: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    min_tokens_to_keep: int = 1,
    top_k: int = 0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_special_tokens: Sequence[int] | None = None,
) -> Sampler:
    """A sampler for ``generate`` and its kin.

    Args:
        temp: the temperature; 0 is greedy, and nothing else applies then.
        top_p: in (0, 1): keep the smallest set of most likely tokens with this mass.
        min_p: drop tokens less likely than this share of the most likely one's probability.
        min_tokens_to_keep: how many tokens min_p leaves at least.
        top_k: keep this many of the most likely tokens; 0: all.
        xtc_probability: the chance, at each token, that XTC acts.
        xtc_threshold: XTC removes all but the least likely of the tokens above this probability.
        xtc_special_tokens: ids that XTC spares, beside the newline and the ids that end a generation.

    Raises:
        ValueError: for options out of range.
    """
    options: dict[str, Any] = {"temp": temp}
    settings = {
        "top_p": (top_p, 0.0),
        "min_p": (min_p, 0.0),
        "min_tokens_to_keep": (min_tokens_to_keep, 1),
        "top_k": (top_k, 0),
        "xtc_probability": (xtc_probability, 0.0),
        "xtc_threshold": (xtc_threshold, 0.1),
    }
    options.update({name: value for name, (value, default) in settings.items() if value != default})
    if xtc_special_tokens:
        options["xtc_special_tokens"] = [int(i) for i in xtc_special_tokens]
    return Sampler(options)


greedy_sampler = make_sampler()


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None,
    repetition_penalty: float | None = None,
    repetition_context_size: int | None = 20,
    presence_penalty: float | None = None,
    presence_context_size: int | None = 20,
    frequency_penalty: float | None = None,
    frequency_context_size: int | None = 20,
    *,
    penalize_prompt: bool = True,
) -> list[Callable[[Any, Any], Any]]:
    """The processors for these options, applied in this order; None and 0 leave one out.

    The windows count the last tokens of prompt and generated text; None or 0 counts all. ``penalize_prompt=False``
    limits presence and frequency to what was generated.
    """
    options: dict[str, Any] = {
        "repetition_penalty": repetition_penalty or 0.0,
        "repetition_context_size": repetition_context_size or 0,
        "presence_penalty": presence_penalty or 0.0,
        "presence_context_size": presence_context_size or 0,
        "frequency_penalty": frequency_penalty or 0.0,
        "frequency_context_size": frequency_context_size or 0,
        "penalize_prompt": penalize_prompt,
    }
    if logit_bias:
        options["logit_bias"] = list(logit_bias.items())
    described = {
        "logit_bias": f"logit_bias={dict(logit_bias or {})}",
        "repetition_penalty": f"repetition_penalty={repetition_penalty}",
        "presence_penalty": f"presence_penalty={presence_penalty}",
        "frequency_penalty": f"frequency_penalty={frequency_penalty}",
    }
    return [
        LogitsProcessor(native, described.get(native.name, native.name))
        for native in _core.make_logits_processors(options)
    ]


def make_repetition_penalty(penalty: float, context_size: int = 20) -> Callable[[Any, Any], Any]:
    """The processor of ``make_logits_processors(repetition_penalty=penalty)``."""
    return _only(make_logits_processors(repetition_penalty=penalty, repetition_context_size=context_size))


def make_presence_penalty(penalty: float, context_size: int = 20) -> Callable[[Any, Any], Any]:
    """The processor of ``make_logits_processors(presence_penalty=penalty)``."""
    return _only(make_logits_processors(presence_penalty=penalty, presence_context_size=context_size))


def make_frequency_penalty(penalty: float, context_size: int = 20) -> Callable[[Any, Any], Any]:
    """The processor of ``make_logits_processors(frequency_penalty=penalty)``."""
    return _only(make_logits_processors(frequency_penalty=penalty, frequency_context_size=context_size))


def _only(processors: list[Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
    return processors[0] if processors else _unchanged


def _unchanged(tokens: Any, logits: Any) -> Any:
    return logits


def apply_top_p(logprobs: Any, top_p: float) -> FloatArray:
    """-inf for all but the smallest set of most likely tokens with the mass ``top_p``."""
    return _filter(logprobs, {"top_p": top_p})


def apply_min_p(logprobs: Any, min_p: float, min_tokens_to_keep: int = 1) -> FloatArray:
    """-inf for tokens less likely than ``min_p`` times the most likely one; ``min_tokens_to_keep`` stay."""
    return _filter(logprobs, {"min_p": min_p, "min_tokens_to_keep": min_tokens_to_keep})


def apply_top_k(logprobs: Any, top_k: int) -> FloatArray:
    """-inf for all but the ``top_k`` most likely tokens, lower ids first among equals."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"top_k: expected an integer of at least 1, got {top_k!r}")
    return _filter(logprobs, {"top_k": top_k})


def apply_xtc(
    logits: Any, xtc_probability: float, xtc_threshold: float, xtc_special_tokens: Sequence[int]
) -> FloatArray:
    """With the chance ``xtc_probability``: -inf for all but the least likely of the tokens above ``xtc_threshold``."""
    options = {
        "xtc_probability": xtc_probability,
        "xtc_threshold": xtc_threshold,
        "xtc_special_tokens": [int(i) for i in xtc_special_tokens],
    }
    return _filter(logits, options)


def categorical_sampling(logits: Any, temp: float) -> TokenArray:
    """Ids drawn from the distribution at a temperature, one for each row."""
    if temp <= 0:
        raise ValueError(f"temp: expected more than 0, got {temp}")
    return Sampler({"temp": temp})(logits)


def _rows(array: FloatArray) -> FloatArray:
    if array.ndim == 0:
        raise ValueError("expected log-probabilities [V] or [rows, V], got a single number")
    return array.reshape(-1, array.shape[-1])


def _filter(logprobs: Any, options: dict[str, Any]) -> FloatArray:
    given = as_floats(logprobs, "logprobs")
    result = given.copy()
    draw = random.next_draw() if "xtc_probability" in options else (0, 0)
    for row in _rows(result):
        normalised = row - np.float32(_excess(row))
        _core.filter_row(normalised, options, *draw)
        row[np.isneginf(normalised)] = -np.inf
    return result


def _excess(row: FloatArray) -> float:
    """What makes logits of log-probabilities; 0 where the row is normalised but for rounding."""
    top = float(row.max())
    if not np.isfinite(top):
        return 0.0  # the filter says what is wrong
    excess = top + float(np.log(np.exp(row.astype(np.float64) - top).sum()))
    return excess if abs(excess) > 1e-3 else 0.0
