"""Loading models, under the names of mlx_lm.utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, overload

from . import _core
from ._progress import download_bar
from ._tokenizer_config import TokenizerConfig
from .model import Model
from .tokenizer_utils import TokenizerWrapper

__all__ = ["load", "snapshot_download"]

#: (stage, bytes_done, bytes_total, bytes_received, files_done, files_total) to anything
DownloadProgress = Callable[[str, int, int, int, int, int], object]


@overload
def load(
    path_or_hf_repo: str | PathLike[str],
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: Literal[False] = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    precision: str = "fast",
    threads: int = 0,
    kv_bytes: int = 0,
    prefix_cache_bytes: int = 256 << 20,
    isa: str | None = None,
    progress: DownloadProgress | bool = True,
) -> tuple[Model, TokenizerWrapper]: ...


@overload
def load(
    path_or_hf_repo: str | PathLike[str],
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    *,
    return_config: Literal[True],
    revision: str | None = None,
    trust_remote_code: bool = False,
    precision: str = "fast",
    threads: int = 0,
    kv_bytes: int = 0,
    prefix_cache_bytes: int = 256 << 20,
    isa: str | None = None,
    progress: DownloadProgress | bool = True,
) -> tuple[Model, TokenizerWrapper, dict[str, Any]]: ...


def load(
    path_or_hf_repo: str | PathLike[str],
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    precision: str = "fast",
    threads: int = 0,
    kv_bytes: int = 0,
    prefix_cache_bytes: int = 256 << 20,
    isa: str | None = None,
    progress: DownloadProgress | bool = True,
) -> tuple[Model, TokenizerWrapper] | tuple[Model, TokenizerWrapper, dict[str, Any]]:
    """Loads a model folder in MLX format, or a repository of the Hugging Face Hub, which is downloaded first.

    Args:
        path_or_hf_repo: a folder, or ORG/NAME.
        tokenizer_config: ``chat_template``, ``eos_token`` and ``pad_token`` instead of the folder's.
        model_config: changes of config.json; none are supported.
        adapter_path: adapters are not supported.
        lazy: accepted; weights are always mapped, and read when they are used.
        return_config: also return config.json as a dict.
        revision: branch, tag or commit of a repository.
        trust_remote_code: accepted; no code of a model folder is ever run.
        precision: ``"fast"`` (activations in 8 bits) or ``"exact"`` (float32).
        threads: 0: one for each core that this process may use.
        kv_bytes: budget for the keys and values of all generations together; 0: what the system gives.
        prefix_cache_bytes: keys and values of earlier generations kept for later ones that begin alike.
        isa: kernel set, e.g. ``"scalar"``; None: the best that this CPU has.
        progress: a bar for downloads, none (False), or a function called with (stage, bytes_done, bytes_total,
            bytes_received, files_done, files_total).

    Raises:
        FileNotFoundError: no such folder or repository, or a file is missing.
        ValueError: a file or an option is wrong.
        NotImplementedError: a model or an option that is not supported.
    """
    if not isinstance(path_or_hf_repo, (str, PathLike)):
        raise TypeError(f"path_or_hf_repo: expected a folder or ORG/NAME, got {type(path_or_hf_repo).__name__}")
    if str(path_or_hf_repo).startswith("~"):
        raise FileNotFoundError(f"{path_or_hf_repo}: '~' is not expanded here; give os.path.expanduser of it")
    if adapter_path is not None:
        raise NotImplementedError("adapter_path: adapters are not supported; fuse them into the model first")
    for name, value in (model_config or {}).items():
        if name != "quantize_activations" or value:
            raise NotImplementedError(f"model_config: {name!r} cannot be changed when loading; edit config.json")
    options: dict[str, Any] = {
        "precision": precision,
        "threads": threads,
        "kv_bytes": kv_bytes,
        "prefix_cache_bytes": prefix_cache_bytes,
    }
    if isa is not None:
        options["isa"] = isa
    kept = dict(options)
    if revision is not None:
        options["revision"] = revision
    with download_bar(progress) as on_progress:
        if on_progress is not None:
            options["progress"] = on_progress
        native, native_tokenizer = _core.load(str(path_or_hf_repo), options)
    model = Model(native, kept)
    config = TokenizerConfig(model.path, tokenizer_config)
    tokenizer = TokenizerWrapper(native_tokenizer, config, native.eos_token_ids)
    model._tokenizer = tokenizer
    return (model, tokenizer, model.config) if return_config else (model, tokenizer)


def snapshot_download(
    repo: str,
    *,
    revision: str | None = None,
    cache_dir: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    offline: bool | None = None,
    max_workers: int = 8,
    progress: DownloadProgress | bool = True,
) -> str:
    """The folder of a repository's snapshot; what is missing is downloaded into the cache that huggingface_hub uses."""
    given = {
        "revision": revision,
        "cache_dir": cache_dir,
        "token": token,
        "endpoint": endpoint,
        "offline": offline,
        "max_workers": max_workers,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with download_bar(progress) as on_progress:
        if on_progress is not None:
            options["progress"] = on_progress
        return _core.snapshot_download(repo, options)
