"""Threads, asyncio and signals."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import mlxlm
import pytest
from conftest import PACKAGE, write_tiny
from mlxlm.generate import stream_generate
from mlxlm.sample_utils import make_sampler

LONG = 60_000  # tokens of a prompt that takes many seconds


def run(model, tokenizer, seed, **kwargs):
    stream = stream_generate(model, tokenizer, [97 + seed], max_tokens=30, sampler=make_sampler(1.1), seed=seed, **kwargs)
    return [r.token for r in stream]


def test_threads_stream_from_one_model(model, tokenizer):
    expected = [run(model, tokenizer, seed) for seed in range(8)]
    got, calls = [None] * 8, [0] * 8

    def work(seed):
        def count(tokens, logits):
            calls[seed] += 1
            return logits

        got[seed] = run(model, tokenizer, seed, logits_processors=[count])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == expected and calls == [len(ids) for ids in expected]


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("models") / "patient", max_position_embeddings=10**6)


def test_python_goes_on_while_the_model_runs(patient):
    model, tokenizer = mlxlm.load(patient)
    stream = stream_generate(model, tokenizer, [5] * LONG, max_tokens=1)
    thread = threading.Thread(target=lambda: list(stream))
    thread.start()
    turns, end = 0, time.monotonic() + 0.3
    while time.monotonic() < end:
        turns += 1
    alive = thread.is_alive()
    with pytest.raises(ValueError, match="another thread"):
        next(stream)
    stream.cancel()
    thread.join(10)
    assert alive and not thread.is_alive(), "the pass takes longer than this, and ends soon after cancel()"
    # A loop that has to wait for the GIL makes a turn in 5 ms.
    assert turns > 1000


def test_ctrl_c_in_a_long_prompt(patient):
    program = (
        "import sys, mlxlm\n"
        "model, tokenizer = mlxlm.load(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        f"mlxlm.generate(model, tokenizer, [5] * {LONG}, max_tokens=1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, patient], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=os.environ | {"PYTHONPATH": str(PACKAGE)}, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt") and process.returncode != 0
    assert time.monotonic() - start < 5, "a pass is left between two layers; the whole prompt takes far longer"


def test_async_stream(model, tokenizer):
    expected = run(model, tokenizer, 1)

    async def collect():
        stream = stream_generate(model, tokenizer, [98], max_tokens=30, sampler=make_sampler(1.1), seed=1)
        return [r.token async for r in stream]

    async def several():
        return await asyncio.gather(*(collect() for _ in range(5)))

    assert asyncio.run(several()) == [expected] * 5


def test_closing_and_cancelling_async_streams(patient):
    model, tokenizer = mlxlm.load(patient)

    async def closed():
        cache = mlxlm.models.cache.make_prompt_cache(model)
        async with stream_generate(model, tokenizer, [5] * 10, max_tokens=-1, prompt_cache=cache) as stream:
            async for response in stream:
                if response.generation_tokens == 3:
                    break
        async for response in stream_generate(model, tokenizer, [6], max_tokens=2, prompt_cache=cache):
            last = response
        return last.finish_reason

    async def cancelled():
        cache = mlxlm.models.cache.make_prompt_cache(model)
        stream = stream_generate(model, tokenizer, [5] * LONG, max_tokens=1, prompt_cache=cache)
        task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.2)
        task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 5
        stream_generate(model, tokenizer, [6], max_tokens=1, prompt_cache=cache).close()

    assert asyncio.run(closed()) == "length"
    asyncio.run(cancelled())


def test_async_exceptions(model, tokenizer):
    async def collect():
        def failing(logprobs):
            raise LookupError("mine")

        return [r async for r in stream_generate(model, tokenizer, "abc", sampler=failing)]

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(collect())
