"""Text generation, under the names of mlx_lm.generate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _core
from ._arrays import FloatArray, token_ids
from ._batch import BatchGenerator, BatchResponse, BatchStats, batch_generate
from ._keywords import check_keywords
from ._progress import prefill_bar
from ._stream import (
    QUANTIZED_KV_START,
    GenerationResponse,
    ProcessorFunction,
    SamplerFunction,
    TokenStream,
    cache_options,
    check_model,
    draft_options,
    eos_options,
    processor_list,
    prompt_ids,
    sampler_options,
    seed_option,
    stop_option,
)
from .model import Model
from .tokenizer_utils import TokenizerWrapper

__all__ = [
    "BatchGenerator",
    "BatchResponse",
    "BatchStats",
    "GenerationResponse",
    "TokenStream",
    "batch_generate",
    "generate",
    "generate_step",
    "speculative_generate_step",
    "stream_generate",
]

# Prompts with fewer tokens than this get no progress bar.
LONG_PROMPT = 512


def stream_generate(
    model: Model,
    tokenizer: TokenizerWrapper,
    prompt: Any,
    max_tokens: int = 256,
    draft_model: Model | None = None,
    *,
    sampler: SamplerFunction | None = None,
    logits_processors: Sequence[ProcessorFunction] | None = None,
    max_kv_size: int | None = None,
    prompt_cache: Any = None,
    prefill_step_size: int = 2048,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = QUANTIZED_KV_START,
    prompt_progress_callback: Callable[[int, int], object] | None = None,
    num_draft_tokens: int | None = None,
    prompt_lookup: bool = False,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    extra_eos_token: str | int | Sequence[str | int] | None = None,
    logprobs: bool = True,
    top_logprobs: int = 0,
    timeout: float | None = None,
    reuse_prefix: bool = True,
) -> TokenStream:
    """Generates text, a response for each token.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        prompt: text, or token ids in a list or an array.
        max_tokens: how many tokens at most; -1: until the model ends, 0: one empty response.
        draft_model: a smaller model that guesses ahead; the text stays the same.
        sampler: chooses tokens: what ``make_sampler`` returns, or a function from log-probabilities [1, V] to an id.
            None takes the most likely.
        logits_processors: functions of (tokens [n], logits [1, V]) that return logits, and processors of the library.
        max_kv_size: bounds the keys and values held: the first 4 and the newest positions, this many in all.
        prompt_cache: what ``make_prompt_cache`` returned; the prompt is its continuation.
        prefill_step_size: tokens of the prompt in one forward pass; never changes a result.
        kv_bits: 4 or 8: keys and values as codes, from ``quantized_kv_start`` on.
        kv_group_size: values that share a scale.
        quantized_kv_start: see ``kv_bits``.
        prompt_progress_callback: called with (done, total) tokens of the prompt.
        num_draft_tokens: guesses at once, at most; None: the library's choice.
        prompt_lookup: guess that what followed the last tokens earlier follows again.
        seed: makes sampling repeatable; None: the next seed of ``mlxlm.random``.
        stop: texts that end the generation; they are not part of the text.
        extra_eos_token: tokens that end the generation too, beside ``tokenizer.eos_token_ids``.
        logprobs: whether responses carry ``logprobs``.
        top_logprobs: how many of the most likely tokens responses carry.
        timeout: seconds after which the generation ends with the finish_reason "deadline".
        reuse_prefix: begin with the keys and values of an earlier generation that began alike.

    Raises:
        ValueError: for options out of range, an empty prompt, or ids outside the vocabulary.
        TypeError: for values of a wrong kind and unknown keywords. All errors come from the call itself.
    """
    check_model(model, tokenizer)
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "prefill_step_size": prefill_step_size,
        "full_logprobs": logprobs,
        "top_logprobs": top_logprobs,
        "reuse_prefix": reuse_prefix,
        "logits_processors": processor_list(logits_processors),
        **sampler_options(sampler),
        **cache_options(model, prompt_cache, max_kv_size, kv_bits, kv_group_size, quantized_kv_start),
        **eos_options(tokenizer, extra_eos_token),
        **draft_options(draft_model, num_draft_tokens, prompt_lookup),
        **stop_option(stop),
    }
    if prompt_progress_callback is not None:
        options["prompt_progress"] = prompt_progress_callback
    if timeout is not None:
        options["timeout"] = timeout
    ids = prompt_ids(tokenizer, prompt)
    return TokenStream(_core.Stream(model.native, tokenizer.native, ids, options | seed_option(seed)), model)


def generate(model: Model, tokenizer: TokenizerWrapper, prompt: Any, verbose: bool = False, **kwargs: Any) -> str:
    """Generates text and returns all of it.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        prompt: text, or token ids in a list or an array.
        verbose: print the text as it comes, and the rates at the end.
        kwargs: as for ``stream_generate``.
    """
    check_keywords("generate", stream_generate, kwargs)
    kwargs.setdefault("logprobs", False)
    if not verbose:
        return "".join(response.text for response in stream_generate(model, tokenizer, prompt, **kwargs))
    return _generate_verbose(model, tokenizer, prompt, kwargs)


def _generate_verbose(model: Model, tokenizer: TokenizerWrapper, prompt: Any, kwargs: dict[str, Any]) -> str:
    check_model(model, tokenizer)
    ids = prompt_ids(tokenizer, prompt)
    text, response = "", None
    print("=" * 10)
    with prefill_bar() as bar:
        if bar is not None and len(ids) >= LONG_PROMPT:
            kwargs.setdefault("prompt_progress_callback", bar)
        for response in stream_generate(model, tokenizer, ids, **kwargs):
            print(response.text, end="", flush=True)
            text += response.text
    print()
    print("=" * 10)
    if response is not None:
        if not text:
            print("No text generated for this prompt")
        print(f"Prompt: {response.prompt_tokens} tokens, {response.prompt_tps:.3f} tokens-per-sec")
        print(f"Generation: {response.generation_tokens} tokens, {response.generation_tps:.3f} tokens-per-sec")
        print(f"Peak memory: {response.peak_memory:.3f} GB")
    return text


def generate_step(
    prompt: Any,
    model: Model,
    *,
    max_tokens: int = 256,
    sampler: SamplerFunction | None = None,
    logits_processors: Sequence[ProcessorFunction] | None = None,
    max_kv_size: int | None = None,
    prompt_cache: Any = None,
    prefill_step_size: int = 2048,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = QUANTIZED_KV_START,
    prompt_progress_callback: Callable[[int, int], object] | None = None,
    input_embeddings: Any = None,
    seed: int | None = None,
) -> Iterator[tuple[int, FloatArray]]:
    """Token ids and their log-probabilities [V], one by one; no token ends it, ``max_tokens`` does (-1: the context).

    The arguments are those of ``stream_generate``. Errors come from the call itself.
    """
    if input_embeddings is not None:
        raise NotImplementedError("input_embeddings are not supported; give token ids")
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "prefill_step_size": prefill_step_size,
        "logits_processors": processor_list(logits_processors),
        **sampler_options(sampler),
        **cache_options(model, prompt_cache, max_kv_size, kv_bits, kv_group_size, quantized_kv_start),
    }
    if prompt_progress_callback is not None:
        options["prompt_progress"] = prompt_progress_callback
    stream = _token_stream(model, prompt, options, seed)
    return ((r.token, _known(r.logprobs)) for r in stream if r.token >= 0)


def speculative_generate_step(
    prompt: Any,
    model: Model,
    draft_model: Model,
    *,
    num_draft_tokens: int = 2,
    max_tokens: int = 256,
    sampler: SamplerFunction | None = None,
    logits_processors: Sequence[ProcessorFunction] | None = None,
    prompt_cache: Any = None,
    prefill_step_size: int = 512,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = QUANTIZED_KV_START,
    seed: int | None = None,
) -> Iterator[tuple[int, FloatArray, bool]]:
    """As ``generate_step``, with a draft model that guesses ahead; also yields whether a token was guessed."""
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "prefill_step_size": prefill_step_size,
        "logits_processors": processor_list(logits_processors),
        **sampler_options(sampler),
        **cache_options(model, prompt_cache, None, kv_bits, kv_group_size, quantized_kv_start),
        **draft_options(draft_model, num_draft_tokens, False),
    }
    stream = _token_stream(model, prompt, options, seed)
    return ((r.token, _known(r.logprobs), r.from_draft) for r in stream if r.token >= 0)


def _token_stream(model: Model, prompt: Any, options: dict[str, Any], seed: int | None) -> TokenStream:
    check_model(model, model.tokenizer)
    options |= {"eos_token_ids": [], "full_logprobs": True, **seed_option(seed)}
    return TokenStream(_core.Stream(model.native, model.tokenizer.native, token_ids(prompt), options), model)


def _known(logprobs: FloatArray | None) -> FloatArray:
    assert logprobs is not None
    return logprobs


# The package's attribute `generate` is the function, so `import mlxlm.generate as g` gives the function too: it leads to
# what the module holds.
for _name in __all__:
    if _name != "generate":
        setattr(generate, _name, globals()[_name])


if __name__ == "__main__":  # python -m mlxlm.generate, as python -m mlx_lm.generate
    from .__main__ import main

    main("generate")
