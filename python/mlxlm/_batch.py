"""Many requests at once: BatchGenerator and batch_generate."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from . import _core
from ._arrays import FloatArray, token_ids
from ._async_batch import AsyncRequests
from ._keywords import check_keywords
from ._stream import cache_options, check_model, draft_options, processor_list, sampler_options, seed_option, stop_option
from ._token_stops import TokenStops
from .model import Model
from .models.cache import PromptCache
from .tokenizer_utils import TokenizerWrapper


@dataclass(slots=True)
class PromptResponse:
    """How far a request's prompt is."""

    uid: int
    progress: tuple[int, int]  #: tokens fed, and in all
    end_of_segment: bool
    end_of_prompt: bool


@dataclass(slots=True)
class TokenResponse:
    """A request's next token; the last has a ``finish_reason``."""

    uid: int
    token: int
    logprobs: FloatArray | None = field(repr=False)  #: [V]
    finish_reason: str | None = None  #: "stop", "length", or "error"
    prompt_cache: PromptCache | None = None  #: in the last response
    all_tokens: list[int] | None = None  #: in the last response: the cached ids, the prompt and what was generated
    text: str = ""  #: the new text
    logprob: float = 0.0
    from_draft: bool = False
    error: BaseException | None = None  #: what went wrong, of a request that failed


@dataclass
class BatchStats:
    """What a generator did while a block ran. Prompt tokens leave out each prompt's last one, as in mlx-lm."""

    prompt_tokens: int = 0
    prompt_time: float = 0.0
    generation_tokens: int = 0
    generation_time: float = 0.0
    wall_time: float = 0.0
    peak_memory: float = 0.0  #: of this process, in GB
    cached_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0

    @property
    def prompt_tps(self) -> float:
        return self.prompt_tokens / self.prompt_time if self.prompt_time > 0 else 0.0

    @property
    def generation_tps(self) -> float:
        return self.generation_tokens / self.generation_time if self.generation_time > 0 else 0.0


@dataclass
class BatchResponse:
    """The results of ``batch_generate``, in the order of the prompts."""

    texts: list[str]
    stats: BatchStats
    caches: list[PromptCache] | None
    token_ids: list[list[int]] | None = None
    logprobs: list[list[float]] | None = None
    finish_reasons: list[str] = field(default_factory=list)


class BatchGenerator:
    """Continuous batching: requests join and leave at any step, and each gets the tokens that it would get alone.

    Belongs to one thread at a time; ``stream`` serves many asyncio tasks.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_tokens: int = 128,
        stop_tokens: Iterable[Sequence[int]] | None = None,
        sampler: Callable[[Any], Any] | None = None,
        logits_processors: Sequence[Callable[[Any, Any], Any]] | None = None,
        completion_batch_size: int = 32,
        prefill_batch_size: int = 8,
        prefill_step_size: int = 2048,
        max_kv_size: int | None = None,
        kv_bytes: int = 0,
        logprobs: bool = True,
    ) -> None:
        """``stop_tokens``: lists of ids; a request ends with "stop" when it has generated one of them."""
        check_model(model, model.tokenizer)
        self.model = model
        self.max_tokens = max_tokens
        self.sampler = sampler
        self.logits_processors = logits_processors or []
        self.prefill_step_size = prefill_step_size
        self.max_kv_size = max_kv_size
        self._logprobs = logprobs
        self._stops = TokenStops(stop_tokens or [])
        self._matches: dict[int, list[int]] = {}  # the last tokens of requests, where several ids make a stop
        self._fed: dict[int, int] = {}  # prompt tokens of running requests that are fed
        self._prompt_tokens = 0
        self._async = AsyncRequests(self)
        options = {
            "completion_batch_size": max(completion_batch_size, prefill_batch_size),
            "prefill_batch_size": prefill_batch_size,
            "kv_bytes": kv_bytes,
            "keep_caches": True,
        }
        self._native = _core.Batch(model.native, model.tokenizer.native, options)

    def insert(
        self,
        prompts: Sequence[Any],
        max_tokens: Sequence[int] | None = None,
        caches: Sequence[Any] | None = None,
        all_tokens: Sequence[Any] | None = None,
        samplers: Sequence[Any] | None = None,
        logits_processors: Sequence[Any] | None = None,
        *,
        seeds: Sequence[int | None] | None = None,
        **options: Any,
    ) -> list[int]:
        """Adds requests and returns their uids. Each list has an entry for each prompt; None takes the generator's own.

        ``caches`` are continued on copies. ``all_tokens`` is accepted for mlx-lm's sake: a cache knows its ids. Further
        options are those of ``stream_generate`` and count for all: stop, draft_model, num_draft_tokens, prompt_lookup,
        kv_bits and its kin, top_logprobs.
        """
        given = {
            "max_tokens": max_tokens,
            "caches": caches,
            "all_tokens": all_tokens,
            "samplers": samplers,
            "logits_processors": logits_processors,
            "seeds": seeds,
        }
        for name, values in given.items():
            if values is not None and len(values) != len(prompts):
                raise ValueError(f"{name}: expected one for each of the {len(prompts)} prompts, got {len(values)}")

        def entry(values: Sequence[Any] | None, i: int) -> Any:
            return None if values is None else values[i]

        requests = [
            self._request(
                prompt,
                max_tokens=entry(max_tokens, i),
                prompt_cache=entry(caches, i),
                sampler=entry(samplers, i),
                logits_processors=entry(logits_processors, i),
                seed=entry(seeds, i),
                **options,
            )
            for i, prompt in enumerate(prompts)
        ]
        return [self._insert(ids, request) for ids, request in requests]

    def insert_segments(self, segments: Sequence[Sequence[Any]], *args: Any, **kwargs: Any) -> list[int]:
        """As ``insert``, for prompts in parts, which are joined."""
        return self.insert([[i for part in parts for i in token_ids(part)] for parts in segments], *args, **kwargs)

    def _request(
        self,
        prompt: Any,
        *,
        max_tokens: int | None = None,
        prompt_cache: Any = None,
        sampler: Any = None,
        logits_processors: Any = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        draft_model: Model | None = None,
        num_draft_tokens: int | None = None,
        prompt_lookup: bool = False,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 0,
        top_logprobs: int = 0,
        timeout: float | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        options: dict[str, Any] = {
            "max_tokens": self.max_tokens if max_tokens is None else max_tokens,
            "prefill_step_size": self.prefill_step_size,
            "full_logprobs": self._logprobs,
            "top_logprobs": top_logprobs,
            "eos_token_ids": self._stops.single,
            "logits_processors": processor_list(
                self.logits_processors if logits_processors is None else logits_processors
            ),
            **sampler_options(self.sampler if sampler is None else sampler),
            **cache_options(
                self.model,
                prompt_cache,
                self.max_kv_size if prompt_cache is None else None,
                kv_bits,
                kv_group_size,
                quantized_kv_start,
            ),
            **draft_options(draft_model, num_draft_tokens, prompt_lookup),
            **stop_option(stop),
            **seed_option(seed),
        }
        if timeout is not None:
            options["timeout"] = timeout
        return token_ids(prompt), options

    def _insert(self, ids: Any, request: dict[str, Any]) -> int:
        uid = self._native.insert(ids, request)
        if self._stops.several:
            self._matches[uid] = []
        return uid

    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]:
        """A token for each running request, and the next part of the prompts of those that start.

        A request whose callable raises ends with the finish_reason "error" and the exception in ``error``; KeyboardInterrupt
        and its like are raised here.
        """
        return self._take(self._native.next())

    def _take(self, step: tuple[list[Any], list[Any]]) -> tuple[list[PromptResponse], list[TokenResponse]]:
        prompts = [PromptResponse(uid, (done, total), done == total, done == total) for uid, done, total in step[0]]
        for p in prompts:
            self._count(p)
        responses = [self._response(*values) for values in step[1]]
        for response in responses:
            if response.error is not None and not isinstance(response.error, Exception):
                raise response.error
        return prompts, [r for r in responses if r.token >= 0 or r.error is not None]

    def _count(self, response: PromptResponse) -> None:
        """As mlx-lm counts: a prompt's last token belongs to the generation."""
        done, total = response.progress
        self._prompt_tokens += done - self._fed.get(response.uid, 0)
        self._fed[response.uid] = done
        if done == total:
            self._prompt_tokens -= 1
            del self._fed[response.uid]

    def _response(self, uid: int, values: tuple[Any, ...], error: BaseException | None) -> TokenResponse:
        response = TokenResponse(
            uid, values[1], values[2], values[9], text=values[0], logprob=values[10], from_draft=values[3], error=error
        )
        stopped = uid in self._matches and error is None and self._stops.ends(self._matches[uid], response.token)
        if stopped or response.finish_reason is not None:
            response.prompt_cache = PromptCache(self._native.extract_cache(uid), self.model)
            response.all_tokens = response.prompt_cache.tokens
            self._matches.pop(uid, None)
        if stopped:
            response.finish_reason = "stop"
            self._native.remove(uid)
        return response

    def next_generated(self) -> list[TokenResponse]:
        """The next tokens; empty when nothing runs or waits."""
        while not self._native.idle():
            responses = self.next()[1]
            if responses:
                return responses
        return []

    def stream(self, prompt: Any, **options: Any) -> Any:
        """An asynchronous iterator over a new request's responses, for any number of tasks of one event loop.

        The options are those of ``insert`` in the singular: max_tokens, prompt_cache, sampler, logits_processors, seed, …
        Closing the iterator, or cancelling the task, removes the request.
        """
        return self._async.stream(prompt, options)

    def remove(self, uids: Iterable[int], return_prompt_caches: bool = False) -> dict[int, tuple[PromptCache, list[int]]]:
        """Ends requests without a response."""
        listed = list(uids)
        caches = self.extract_cache(listed) if return_prompt_caches else {}
        for uid in listed:
            self._native.remove(uid)
            self._matches.pop(uid, None)
            self._fed.pop(uid, None)
        return caches

    def extract_cache(self, uids: Iterable[int]) -> dict[int, tuple[PromptCache, list[int]]]:
        """Copies of the caches of running requests, and the ids that they hold."""
        found = {}
        for uid in uids:
            try:
                cache = PromptCache(self._native.extract_cache(uid), self.model)
            except FileNotFoundError:
                continue
            found[uid] = (cache, cache.tokens)
        return found

    @contextlib.contextmanager
    def stats(self) -> Iterator[BatchStats]:
        """Counts what happens while the block runs."""
        stats, before = BatchStats(), self._counters()
        try:
            yield stats
        finally:
            after = self._counters()
            for item in fields(BatchStats):
                value = after[item.name]
                setattr(stats, item.name, value if item.name == "peak_memory" else value - before[item.name])

    def _counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = self._native.stats()
        counters["prompt_tokens"] = self._prompt_tokens
        counters["wall_time"] = time.perf_counter()
        return counters

    def close(self) -> None:
        """Removes every request."""
        self._native.close()

    def __enter__(self) -> BatchGenerator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BatchGenerator of {self.model!r}>"


def batch_generate(
    model: Model,
    tokenizer: TokenizerWrapper,
    prompts: Sequence[Any],
    prompt_caches: Sequence[Any] | None = None,
    max_tokens: int | Sequence[int] = 128,
    verbose: bool = False,
    return_prompt_caches: bool = False,
    return_token_ids: bool = False,
    return_logprobs: bool = False,
    **kwargs: Any,
) -> BatchResponse:
    """Generates for many prompts at once.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        prompts: lists of token ids.
        prompt_caches: a cache for each prompt to continue, on a copy.
        max_tokens: how many tokens at most, for all or for each.
        verbose: print the rates at the end, and on a terminal the progress.
        return_prompt_caches, return_token_ids, return_logprobs: what to return beside the texts.
        kwargs: keywords of ``BatchGenerator`` (sampler, logits_processors, completion_batch_size, …).

    An exception of a request's callable is raised at once.
    """
    check_model(model, tokenizer)
    check_keywords("batch_generate", BatchGenerator, kwargs)
    stops = [[i] for i in sorted(tokenizer.eos_token_ids)]
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    ids: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    reasons = ["length" if limit == 0 else "" for limit in limits]
    caches: dict[int, PromptCache] = {}
    show_progress = verbose and sys.stdout.isatty()
    with BatchGenerator(model, stop_tokens=stops, logprobs=False, **kwargs) as batch:
        rows = {uid: i for i, uid in enumerate(batch.insert(prompts, limits, prompt_caches))}
        with batch.stats() as stats:
            while not batch._native.idle():
                for r in batch.next()[1]:
                    if r.error is not None:
                        raise r.error
                    row = rows[r.uid]
                    if r.finish_reason != "stop":
                        ids[row].append(r.token)
                        logprobs[row].append(r.logprob)
                    if r.finish_reason is not None:
                        reasons[row] = r.finish_reason
                        if return_prompt_caches and r.prompt_cache is not None:
                            caches[row] = r.prompt_cache
                if show_progress:
                    print(f"[batch_generate] Finished processing {sum(map(bool, reasons))}/{len(prompts)} ...", end="\r")
    if verbose:
        _print_stats(len(prompts), stats)
    return BatchResponse(
        [tokenizer.decode(row) for row in ids],
        stats,
        [caches[i] for i in range(len(prompts))] if return_prompt_caches else None,
        ids if return_token_ids else None,
        logprobs if return_logprobs else None,
        reasons,
    )


def _print_stats(count: int, stats: BatchStats) -> None:
    print(f"[batch_generate] Finished processing {count}/{count}    ")
    print(f"[batch_generate] Prompt: {stats.prompt_tokens} tokens, {stats.prompt_tps:.3f} tokens-per-sec")
    print(f"[batch_generate] Generation: {stats.generation_tokens} tokens, {stats.generation_tps:.3f} tokens-per-sec")
    print(f"[batch_generate] Peak memory: {stats.peak_memory:.3f} GB")
