"""Memory stays flat over many generations, abandoned streams and callables that raise."""

import gc
import resource
import sys
import weakref
from pathlib import Path

import mlxlm
import pytest
from mlxlm.generate import BatchGenerator, stream_generate
from mlxlm.models.cache import make_prompt_cache
from mlxlm.sample_utils import make_sampler

ROUNDS = 1000
# What the allocators of two libraries and Python's may still spread after the warm-up; a leak of one row of logits per
# round, the smallest thing that matters, would be as much as this in 200 rounds of this tiny model.
ALLOWED = 4 << 20


@pytest.fixture(scope="module")
def loaded(tiny_folder):
    """Without known prefixes, which are meant to grow up to their budget."""
    return mlxlm.load(tiny_folder, prefix_cache_bytes=0)


@pytest.fixture(scope="module")
def model(loaded):
    return loaded[0]


@pytest.fixture(scope="module")
def tokenizer(loaded):
    return loaded[1]


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def finished(model, tokenizer, i):
    return [r.token for r in stream_generate(model, tokenizer, "abc", max_tokens=4, seed=i, sampler=make_sampler(1.0))]


def with_callables(model, tokenizer, i):
    kept = []

    def processor(tokens, logits):
        kept.append(logits)
        return logits - 1.0

    return list(stream_generate(model, tokenizer, "abc", max_tokens=3, logits_processors=[processor], sampler=lambda x: i % 9))


def abandoned(model, tokenizer, i):
    stream = stream_generate(model, tokenizer, "abc", max_tokens=50, prompt_cache=make_prompt_cache(model),
                             logits_processors=[lambda t, x: x])
    next(stream)


def raising(model, tokenizer, i):
    def failing(tokens, logits):
        raise LookupError(logits)

    with pytest.raises(LookupError):
        next(stream_generate(model, tokenizer, "abc", logits_processors=[failing]))


def cyclic(model, tokenizer, i):
    class Holder:
        def __call__(self, tokens, logits):
            return logits

    holder = Holder()
    holder.stream = stream_generate(model, tokenizer, "abc", logits_processors=[holder])
    next(holder.stream)


def batched(model, tokenizer, i):
    batch = BatchGenerator(model, max_tokens=2)
    batch.insert([[97], [98, 99]], logits_processors=[[], [lambda t, x: x]])
    batch.next()
    if i % 2:
        while batch.next_generated():
            pass


@pytest.mark.parametrize("work", [finished, with_callables, abandoned, raising, cyclic, batched], ids=lambda f: f.__name__)
def test_memory_is_flat(model, tokenizer, work):
    for i in range(100):
        work(model, tokenizer, i)
    gc.collect()
    before, objects = resident(), len(gc.get_objects())
    for i in range(ROUNDS):
        work(model, tokenizer, i)
    gc.collect()
    assert resident() - before < ALLOWED
    assert len(gc.get_objects()) - objects < 100


def test_what_was_raised_keeps_nothing(model, tokenizer):
    """The error's traceback leads to frames that hold the stream: the stream must not hold the error."""

    class Failing:
        def __call__(self, tokens, logits):
            raise LookupError("mine")

    failing = Failing()
    gone = weakref.ref(failing)

    def use():
        stream = stream_generate(model, tokenizer, "abc", logits_processors=[failing])
        try:
            next(stream)
        except LookupError:
            pass

    gc.disable()
    try:
        use()
        del failing
        assert gone() is None, "freed without the garbage collector's help"
    finally:
        gc.enable()


def test_none_is_not_overreleased(model, tokenizer):
    before = sys.getrefcount(None)
    for i in range(200):
        finished(model, tokenizer, i)
    assert abs(sys.getrefcount(None) - before) < 100
