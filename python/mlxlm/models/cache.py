"""Prompt caches, under the names of mlx_lm.models.cache.

A cache belongs to a model. One that comes from a file or a pickle finds it when it is first used.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from .. import _core
from ..model import Model, live_models

__all__ = [
    "KVCache",
    "LayerCache",
    "PromptCache",
    "QuantizedKVCache",
    "RotatingKVCache",
    "can_trim_prompt_cache",
    "load_prompt_cache",
    "make_prompt_cache",
    "save_prompt_cache",
    "trim_prompt_cache",
]


class LayerCache:
    """One layer's view of a prompt cache."""

    def __init__(self) -> None:
        self._owner: PromptCache | None = None

    @classmethod
    def _of(cls, owner: PromptCache) -> LayerCache:
        layer = cls.__new__(cls)
        layer._owner = owner
        return layer

    @property
    def offset(self) -> int:
        """Tokens that the cache has seen."""
        return self._owner.size if self._owner is not None else 0

    def size(self) -> int:
        return self.offset

    def empty(self) -> bool:
        return self.offset == 0

    @property
    def nbytes(self) -> int:
        return self._owner.nbytes // len(self._owner) if self._owner is not None else 0

    def is_trimmable(self) -> bool:
        return self._owner is None or self._owner.can_trim(self._owner.size)

    def trim(self, n: int) -> int:
        raise NotImplementedError("a layer cannot be trimmed alone: use trim_prompt_cache(cache, n)")

    def _options(self) -> dict[str, int]:
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.offset} tokens>"


class KVCache(LayerCache):
    """Keys and values of every position."""


class RotatingKVCache(LayerCache):
    """Keys and values of the first ``keep`` positions and the newest ones, ``max_size`` in all."""

    def __init__(self, max_size: int, keep: int = 0) -> None:
        super().__init__()
        self._max_size, self._keep = max_size, keep

    @property
    def max_size(self) -> int:
        return self._max_size

    @property
    def keep(self) -> int:
        return self._keep

    def _options(self) -> dict[str, int]:
        return {"max_kv_size": self._max_size, "keep": self._keep}


class QuantizedKVCache(LayerCache):
    """Keys and values as codes of ``bits`` bits with a scale for each ``group_size`` values."""

    def __init__(self, group_size: int = 64, bits: int = 8) -> None:
        super().__init__()
        self._group_size, self._bits = group_size, bits

    @property
    def group_size(self) -> int:
        return self._group_size

    @property
    def bits(self) -> int:
        return self._bits

    def _options(self) -> dict[str, int]:
        return {"kv_bits": self._bits, "kv_group_size": self._group_size}


class PromptCache(Sequence[LayerCache]):
    """The keys and values of a conversation, one ``LayerCache`` for each layer.

    Belongs to one generation at a time, which continues it; ``copy.deepcopy`` makes a second one that shares memory
    until either grows. Caches can be pickled.
    """

    def __init__(self, native: _core.PromptCache | None, model: Model | None, data: bytes | None = None) -> None:
        self._native = native
        self._model = model
        self._data = data  # a cache file's content, while it is not known which model it belongs to
        self._layers: list[LayerCache] | None = None

    # Belonging to a model

    def bind(self, model: Model) -> _core.PromptCache:
        """What the extension uses. Raises ValueError where the cache is another model's."""
        if self._native is None:
            assert self._data is not None
            self._native = _load_bytes(model, self._data)
            self._model, self._data = model, None
        return self._native

    def _bound(self) -> _core.PromptCache:
        if self._native is not None:
            return self._native
        models = list(live_models)
        if len(models) == 1:
            return self.bind(models[0])
        raise ValueError(
            f"this cache does not know its model yet, and {len(models)} models are loaded: use it in a generation first, "
            "or call cache.bind(model)"
        )

    def renew(self, options: Mapping[str, Any]) -> None:
        """Makes an empty cache one with other options; does nothing where it has them."""
        native = self._bound()
        have = native.options
        if len(native) > 0 or all(have[name] == value for name, value in options.items()):
            return
        assert self._model is not None
        self._native = _core.make_prompt_cache(self._model.native, dict(options))
        self._layers = None

    # What it holds

    @property
    def size(self) -> int:
        """Tokens held."""
        return len(self._bound())

    @property
    def tokens(self) -> list[int]:
        """Their ids; of a file of mlx-lm's, which has none, only those that followed."""
        return self._bound().tokens

    @property
    def nbytes(self) -> int:
        return self._bound().nbytes

    @property
    def options(self) -> dict[str, Any]:
        return self._bound().options

    def can_trim(self, n: int) -> bool:
        return self._bound().can_trim(n)

    def trim(self, n: int) -> int:
        """Forgets the last n tokens, at most all, and returns how many it forgot."""
        return self._bound().trim(n)

    def save(self, file_name: str, metadata: Mapping[str, str] | None = None) -> None:
        self._bound().save(str(file_name), dict(metadata or {}))

    # A list of layers

    def _list(self) -> list[LayerCache]:
        if self._layers is None:
            if self._native is None:
                assert self._data is not None
                return [KVCache._of(self) for _ in range(_count_layers(self._data))]
            windows = self._model.info["windows"] if self._model is not None else []
            self._layers = [_layer(self, window, self._native.options) for window in windows]
        return self._layers

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> LayerCache: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerCache]: ...
    def __getitem__(self, index: int | slice) -> LayerCache | list[LayerCache]:
        return self._list()[index]

    def __iter__(self) -> Iterator[LayerCache]:
        return iter(self._list())

    def __add__(self, other: Sequence[LayerCache]) -> list[LayerCache]:
        """Layers of two caches in one list, as mlx-lm's speculative decoding wants them."""
        return [*self, *other]

    # Copies

    def __copy__(self) -> PromptCache:
        if self._native is None:
            return PromptCache(None, None, self._data)
        return PromptCache(self._native.fork(), self._model)

    def __deepcopy__(self, memo: dict[int, Any]) -> PromptCache:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return PromptCache, (None, None, self._data if self._native is None else _save_bytes(self._native))

    def __repr__(self) -> str:
        if self._native is None:
            return f"<PromptCache of {len(self)} layers, of no model yet>"
        return f"<PromptCache of {self.size} tokens, {len(self)} layers, {self.nbytes / 1e6:.1f} MB>"


def _layer(owner: PromptCache, window: int, options: Mapping[str, Any]) -> LayerCache:
    max_size = window or options["max_kv_size"]
    layer: LayerCache
    if options["kv_bits"]:
        layer = QuantizedKVCache(options["kv_group_size"], options["kv_bits"])
    elif max_size:
        layer = RotatingKVCache(max_size, 0 if window else options["keep"])
    else:
        layer = KVCache()
    layer._owner = owner
    return layer


def resolve_cache(cache: Any, model: Model) -> _core.PromptCache:
    """The cache that a ``prompt_cache`` argument means: a PromptCache, or a list of layers of one (layers of a draft
    model's cache may follow), or layers made by hand, which become a new cache's."""
    owner = cache if isinstance(cache, PromptCache) else _owner_of(cache, model)
    native = owner.bind(model)
    if owner._model is not None and not owner._model.native.same_as(model.native):
        raise ValueError("prompt_cache: it was made for another model")
    return native


def _owner_of(cache: Any, model: Model) -> PromptCache:
    n = len(model.info["windows"])
    if not isinstance(cache, (list, tuple)) or not all(isinstance(layer, LayerCache) for layer in cache):
        raise TypeError(f"prompt_cache: expected what make_prompt_cache returns, got {type(cache).__name__}")
    layers: list[LayerCache] = list(cache)[:n]
    if len(layers) < n:
        raise ValueError(f"prompt_cache: expected {n} layers, got {len(layers)}")
    owner = layers[0]._owner
    if owner is None:
        options = layers[0]._options()
        owner = PromptCache(_core.make_prompt_cache(model.native, options), model)
        owner._layers = layers
        for layer in layers:
            layer._owner = owner
    if any(layer._owner is not owner for layer in layers):
        raise ValueError("prompt_cache: its layers belong to different caches")
    return owner


def make_prompt_cache(
    model: Model,
    max_kv_size: int | None = None,
    *,
    keep: int = 4,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = 0,
) -> PromptCache:
    """An empty cache for a model.

    Args:
        model: the model whose keys and values it holds.
        max_kv_size: bounds the cache: a query sees the first ``keep`` positions and the newest ones, this many in all.
        keep: see ``max_kv_size``.
        kv_bits: 4 or 8: hold keys and values as codes.
        kv_group_size: values that share a scale.
        quantized_kv_start: position from which on queries read codes.
    """
    options: dict[str, Any] = {}
    if max_kv_size is not None:
        options.update(max_kv_size=max_kv_size, keep=min(keep, max(max_kv_size - 1, 0)))
    if kv_bits is not None:
        options.update(kv_bits=kv_bits, kv_group_size=kv_group_size, quantized_kv_start=quantized_kv_start)
    return PromptCache(_core.make_prompt_cache(model.native, options), model)


def save_prompt_cache(
    file_name: str | os.PathLike[str], cache: Sequence[LayerCache], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a cache in mlx-lm's format."""
    if not isinstance(cache, PromptCache):
        owner = cache[0]._owner if cache else None
        if owner is None:
            raise ValueError("cache: nothing was generated with it yet, so it belongs to no model")
        cache = owner
    cache.save(str(file_name), metadata)


@overload
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: Literal[False] = False, *, model: Model | None = None
) -> PromptCache: ...
@overload
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: Literal[True], *, model: Model | None = None
) -> tuple[PromptCache, dict[str, str]]: ...
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: bool = False, *, model: Model | None = None
) -> PromptCache | tuple[PromptCache, dict[str, str]]:
    """Reads a cache file of ours or of mlx-lm's.

    Without ``model`` the cache takes the model of the first generation that continues it. Raises ValueError, here or
    there, where the file does not fit.
    """
    if model is None and len(live_models) == 1:
        model = next(iter(live_models))
    path = str(file_name)
    if model is not None:
        native, metadata = _core.load_prompt_cache(model.native, path)
        cache = PromptCache(native, model)
    else:
        metadata = _core.read_prompt_cache_metadata(path)
        cache = PromptCache(None, None, Path(path).read_bytes())
    return (cache, metadata) if return_metadata else cache


def can_trim_prompt_cache(cache: Sequence[LayerCache]) -> bool:
    """Whether the cache can forget its last tokens."""
    return all(layer.is_trimmable() for layer in cache)


def trim_prompt_cache(cache: Sequence[LayerCache], num_tokens: int) -> int:
    """Forgets the last tokens, and returns how many it forgot."""
    if len(cache) == 0:
        return 0
    owner = cache if isinstance(cache, PromptCache) else cache[0]._owner
    return owner.trim(num_tokens) if owner is not None else 0


def _save_bytes(native: _core.PromptCache) -> bytes:
    with tempfile.TemporaryDirectory(prefix="mlxlm-") as folder:
        path = Path(folder) / "cache.safetensors"
        native.save(str(path), {})
        return path.read_bytes()


def _load_bytes(model: Model, data: bytes) -> _core.PromptCache:
    with tempfile.TemporaryDirectory(prefix="mlxlm-") as folder:
        path = Path(folder) / "cache.safetensors"
        path.write_bytes(data)
        return _core.load_prompt_cache(model.native, str(path))[0]


def _count_layers(data: bytes) -> int:
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return len({name.split(".")[0] for name in header if name != "__metadata__"})
