"""One generation as a stream of responses, and the options that all generations have."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core, random
from ._arrays import FloatArray, TokenArray, token_ids
from .model import Model
from .models.cache import PromptCache, resolve_cache
from .processors import LogitsProcessor
from .sample_utils import Sampler, make_sampler
from .tokenizer_utils import TokenizerWrapper

QUANTIZED_KV_START = 5000

#: Called with the ids so far, [n] int32, and the logits [1, V] float32, which it may change; returns logits.
ProcessorFunction = Callable[[Any, Any], Any]
#: Called with log-probabilities [1, V]; returns the id chosen, or an array that holds it.
SamplerFunction = Callable[[Any], Any]


@dataclass(slots=True)
class GenerationResponse:
    """One step of ``stream_generate``; the last has a ``finish_reason``."""

    text: str  #: the new text; may be empty
    token: int
    logprobs: FloatArray | None = field(repr=False)  #: [V], after all processors
    from_draft: bool  #: the token was guessed ahead
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    peak_memory: float  #: of this process, in GB
    finish_reason: str | None = None  #: "stop", "length", "cancelled" or "deadline"
    logprob: float = 0.0  #: of the token
    top_logprobs: list[tuple[int, float]] = field(default_factory=list)  #: most likely first
    cached_tokens: int = 0  #: of the history, how many did not have to be computed
    draft_tokens: int = 0  #: guesses put to the model so far
    accepted_tokens: int = 0  #: of those, how many were right
    seed: int = 0  #: the seed in use


class TokenStream:
    """The responses of a generation, as an iterator and as an asynchronous iterator.

    Work happens as it is iterated. Leaving it, ``close()`` or ``aclose()`` ends the generation; ``cancel()`` from any
    thread makes the next response the last.
    """

    __slots__ = ("__weakref__", "_model", "_native")

    def __init__(self, native: _core.Stream, model: Model) -> None:
        self._native = native
        self._model = model

    def __iter__(self) -> TokenStream:
        return self

    def __next__(self) -> GenerationResponse:
        try:
            values = self._native.next()
        except StopIteration as error:  # it would end the caller's loop as if all were well
            raise RuntimeError("a callable of the generation raised StopIteration") from error
        if values is None:
            raise StopIteration
        return GenerationResponse(*values)

    def cancel(self) -> None:
        self._native.cancel()

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> GenerationResponse:
        step = asyncio.get_running_loop().run_in_executor(None, self._native.next)
        try:
            values = await asyncio.shield(step)
        except asyncio.CancelledError:
            await self._end(step)
            raise
        if values is None:
            raise StopAsyncIteration
        return GenerationResponse(*values)

    async def _end(self, step: asyncio.Future[Any]) -> None:
        """Waits for the step that runs in a thread, which the cancelled pass soon ends."""
        self._native.cancel()
        with contextlib.suppress(Exception):
            await step
        self._native.close()

    async def aclose(self) -> None:
        self._native.close()

    async def __aenter__(self) -> TokenStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<TokenStream of {self._model!r}>"


def check_model(model: Any, tokenizer: Any) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model: expected what mlxlm.load returns, got {type(model).__name__}")
    if not isinstance(tokenizer, TokenizerWrapper):
        raise TypeError(f"tokenizer: expected what mlxlm.load returns, got {type(tokenizer).__name__}")


def prompt_ids(tokenizer: TokenizerWrapper, prompt: Any) -> TokenArray:
    """Text gets the tokenizer's special tokens, unless it already starts with its BOS."""
    if isinstance(prompt, str):
        bos = tokenizer.bos_token
        return token_ids(tokenizer.encode(prompt, not (bos and prompt.startswith(bos))))
    return token_ids(prompt)


def sampler_options(sampler: Any) -> dict[str, Any]:
    if sampler is None:
        return {}
    if isinstance(sampler, Sampler):
        return sampler.options
    if sampler is make_sampler:
        raise TypeError("sampler: expected what make_sampler(...) returns, got make_sampler itself; call it")
    if not callable(sampler):
        raise TypeError(f"sampler: expected a function, or what make_sampler returns, got {sampler!r}")
    _check_arguments(sampler, "sampler", "logprobs")
    return {"sampler_function": sampler}


def _check_arguments(function: Callable[..., Any], name: str, arguments: str) -> None:
    """Raises TypeError where the function cannot be called with so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        signature.bind(*arguments.split(", "))
    except TypeError as error:
        raise TypeError(f"{name}: expected a function of ({arguments}), got one of {signature}") from error


def processor_list(processors: Sequence[Any] | None) -> list[Any]:
    if processors is None:
        return []
    if callable(processors) or isinstance(processors, (str, bytes)):
        raise TypeError(f"logits_processors: expected a list of functions, got {processors!r}")
    native = []
    for i, processor in enumerate(processors):
        if not callable(processor):
            raise TypeError(f"logits_processors[{i}]: expected a function, got {processor!r}")
        _check_arguments(processor, f"logits_processors[{i}]", "tokens, logits")
        native.append(processor.native if isinstance(processor, LogitsProcessor) else processor)
    return native


def cache_options(
    model: Model,
    prompt_cache: Any,
    max_kv_size: int | None,
    kv_bits: int | None,
    kv_group_size: int,
    quantized_kv_start: int,
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if max_kv_size is not None:
        options["max_kv_size"] = max_kv_size
        options["keep"] = min(4, max(max_kv_size - 1, 0))
    if kv_bits is not None:
        options.update(kv_bits=kv_bits, kv_group_size=kv_group_size, quantized_kv_start=quantized_kv_start)
    if prompt_cache is None:
        return options
    native = resolve_cache(prompt_cache, model)
    if options and isinstance(prompt_cache, PromptCache):
        prompt_cache.renew(options)
        native = resolve_cache(prompt_cache, model)
    return options | {"prompt_cache": native}


def eos_options(tokenizer: TokenizerWrapper, extra_eos_token: Any) -> dict[str, Any]:
    ids = set(tokenizer.eos_token_ids)
    if extra_eos_token is not None:
        extra = [extra_eos_token] if isinstance(extra_eos_token, (str, int)) else extra_eos_token
        ids.update(tokenizer.find_token(token) for token in extra)
    return {"eos_token_ids": sorted(ids)}


def seed_option(seed: int | None) -> dict[str, Any]:
    seed = random.next_seed() if seed is None else seed
    return {} if seed is None else {"seed": seed}


def stop_option(stop: str | Sequence[str] | None) -> dict[str, Any]:
    if not stop:
        return {}
    return {"stop": [stop] if isinstance(stop, str) else list(stop)}


def draft_options(draft_model: Any, num_draft_tokens: int | None, prompt_lookup: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if draft_model is not None:
        if not isinstance(draft_model, Model):
            raise TypeError(f"draft_model: expected a model that mlxlm.load returned, got {type(draft_model).__name__}")
        options["draft_model"] = draft_model.native
    if prompt_lookup:
        options["prompt_lookup"] = True
    if options and num_draft_tokens is not None:
        options["num_draft_tokens"] = num_draft_tokens
    return options
