"""Making model folders, under the name of mlx_lm.convert."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from . import _core
from ._progress import download_bar
from .utils import snapshot_download

__all__ = ["convert", "convert_gguf"]

QuantPredicate = Callable[..., "bool | Mapping[str, Any]"]


def convert(
    hf_path: str | PathLike[str],
    mlx_path: str | PathLike[str] = "mlx_model",
    quantize: bool = False,
    q_group_size: int | None = None,
    q_bits: int | None = None,
    q_mode: str = "affine",
    dtype: str | None = None,
    upload_repo: str | None = None,
    revision: str | None = None,
    dequantize: bool = False,
    quant_predicate: QuantPredicate | str | None = None,
    trust_remote_code: bool = False,
) -> dict[str, Any]:
    """Converts a Hugging Face folder or repository into a new model folder, and says what was made.

    Args:
        hf_path: a folder, or ORG/NAME of the Hub.
        mlx_path: the new folder; it must not exist.
        quantize: quantise the weights.
        q_group_size: weights that share a scale; None: 64.
        q_bits: bits of a weight; None: 4.
        q_mode: only "affine".
        dtype: "float16", "bfloat16" or "float32" for what is not quantised; None: as config.json says.
        upload_repo: uploading is not supported.
        revision: of a repository.
        dequantize: make a quantised folder dense.
        quant_predicate: a recipe ("mixed_3_6", …), or a function of a module's path that returns a bool or a dict with
            bits and group_size.
        trust_remote_code: accepted; no code of a model folder is ever run.
    """
    if upload_repo is not None:
        raise NotImplementedError("upload_repo: uploading is not supported; use the program hf of huggingface_hub")
    options: dict[str, Any] = {"quantize": quantize, "dequantize": dequantize, "q_mode": q_mode}
    for name, value in (("q_group_size", q_group_size), ("q_bits", q_bits), ("dtype", dtype)):
        if value is not None:
            options[name] = value
    if isinstance(quant_predicate, str):
        options["quant_predicate"] = quant_predicate
    elif quant_predicate is not None:
        options["choose"] = _of_path(quant_predicate)
    source = str(hf_path)
    if not Path(source).exists() and source.count("/") == 1:
        source = snapshot_download(source, revision=revision)
    with download_bar(True) as bar:
        if bar is not None:
            options["progress"] = lambda done, total: bar("writing", done, total)
        return _core.convert(source, str(mlx_path), options)


def convert_gguf(gguf: str | PathLike[str], mlx_path: str | PathLike[str] = "mlx_model") -> dict[str, Any]:
    """Converts a GGUF file into a new model folder without loss, and says what was made."""
    return _core.convert_gguf(str(gguf), str(mlx_path))


class _Module:
    """What a predicate gets in place of mlx's module: something that can be quantised."""

    def to_quantized(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("a quant_predicate decides; the conversion quantises")


def _of_path(predicate: QuantPredicate) -> Callable[[str], Any]:
    """The function of the path alone; mlx-lm's predicates also take the module, and earlier ones the config."""
    try:
        count = len(inspect.signature(predicate).parameters)
    except (TypeError, ValueError):
        count = 2
    extra: tuple[Any, ...] = (_Module(), {})[: max(count - 1, 0)]
    return lambda path: predicate(path, *extra)
