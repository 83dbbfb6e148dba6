"""A loaded model."""

from __future__ import annotations

import json
import types
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import FloatArray, as_numpy, token_ids

if TYPE_CHECKING:
    from .tokenizer_utils import TokenizerWrapper

__all__ = ["Layer", "Model"]

#: Models that are alive, so that a cache file can find its own.
live_models: weakref.WeakSet[Model] = weakref.WeakSet()


@dataclass(frozen=True)
class Layer:
    """One of a model's layers."""

    index: int
    window: int  #: how many of the last positions it sees; 0: all

    def __repr__(self) -> str:
        return f"Layer({self.index}{f', window={self.window}' if self.window else ''})"


class Model:
    """A loaded model. Immutable, and safe to use from many threads; generations share its weights and known prefixes.

    ``model(ids, cache=cache)`` feeds ids and returns the logits after each of them.
    """

    def __init__(self, native: _core.Model, load_options: Mapping[str, Any] | None = None) -> None:
        self.native = native
        self.info: dict[str, Any] = native.info
        self._load_options = dict(load_options or {})
        self._tokenizer: TokenizerWrapper | None = None
        self._config: dict[str, Any] | None = None
        live_models.add(self)

    def __call__(self, inputs: Any, cache: Any = None, input_embeddings: Any = None) -> FloatArray:
        """The logits after each id, in float32: ids [T] give [T, V], ids [B, T] give [B, T, V].

        With a cache (for one row) the ids continue what it holds, and it keeps them.
        """
        from .models.cache import resolve_cache

        if input_embeddings is not None:
            raise NotImplementedError("input_embeddings are not supported; give token ids")
        ids = as_numpy(inputs)
        rows = [ids] if ids.ndim == 1 else list(ids)
        if ids.ndim not in (1, 2) or not rows:
            raise ValueError(f"expected ids of the shape [T] or [B, T], got {ids.shape}")
        if cache is not None and len(rows) != 1:
            raise ValueError(f"cache: it belongs to one row of ids, and there are {len(rows)}")
        logits = []
        for row in rows:
            held = resolve_cache(cache, self) if cache is not None else _core.make_prompt_cache(self.native, {})
            logits.append(_core.compute_logits(self.native, token_ids(row, "inputs"), held))
        return logits[0] if ids.ndim == 1 else np.stack(logits)

    @property
    def layers(self) -> list[Layer]:
        return [Layer(i, window) for i, window in enumerate(self.info["windows"])]

    @property
    def config(self) -> dict[str, Any]:
        """config.json."""
        config = self._config
        if config is None:
            path = Path(self.info["path"]) / "config.json"
            config = self._config = dict(json.loads(path.read_text(encoding="utf-8")))
        return config

    @property
    def args(self) -> types.SimpleNamespace:
        """config.json as attributes."""
        return types.SimpleNamespace(**self.config)

    @property
    def model_type(self) -> str:
        return str(self.info["model_type"])

    @property
    def path(self) -> str:
        return str(self.info["path"])

    @property
    def tokenizer(self) -> TokenizerWrapper:
        """The tokenizer that was loaded with the model."""
        assert self._tokenizer is not None
        return self._tokenizer

    def eval(self) -> Model:
        return self

    def __repr__(self) -> str:
        i = self.info
        return (
            f"<Model {Path(i['path']).name}: {i['model_type']}, {i['parameters'] / 1e6:,.0f}M parameters, "
            f"{i['quantization']}, {i['precision']}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.path, self._load_options)


def _restore(path: str, load_options: dict[str, Any]) -> Model:
    from .utils import load

    model: Model = load(path, **load_options)[0]
    return model
