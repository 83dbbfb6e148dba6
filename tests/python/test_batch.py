"""BatchGenerator and batch_generate."""

import asyncio

import mlxlm
import pytest
from mlxlm.generate import BatchGenerator, batch_generate, stream_generate
from mlxlm.sample_utils import make_sampler

PROMPTS = [[97], [98, 99, 100], [101] * 40]


def alone(model, tokenizer, prompt, **kwargs):
    return [r.token for r in stream_generate(model, tokenizer, prompt, **kwargs)]


def drain(batch):
    tokens, last = {}, {}
    while responses := batch.next_generated():
        for r in responses:
            tokens.setdefault(r.uid, []).append(r.token)
            last[r.uid] = r
    return tokens, last


def test_as_alone(model, tokenizer):
    settings = [{}, {"sampler": make_sampler(1.3), "seed": 4}, {"sampler": lambda x: int(x.argmin())}]
    with BatchGenerator(model, max_tokens=10, stop_tokens=[[i] for i in tokenizer.eos_token_ids]) as batch:
        uids = [
            batch.insert([p], samplers=[s.get("sampler")], seeds=[s.get("seed")])[0] for p, s in zip(PROMPTS, settings)
        ]
        tokens, last = drain(batch)
    for uid, prompt, s in zip(uids, PROMPTS, settings):
        assert tokens[uid] == alone(model, tokenizer, prompt, max_tokens=10, **s)
        assert last[uid].all_tokens == prompt + tokens[uid] and last[uid].prompt_cache.size == len(prompt) + 10
        assert last[uid].logprobs[last[uid].token] == pytest.approx(last[uid].logprob)


def test_stop_sequences(model):
    with BatchGenerator(model, max_tokens=30) as batch:
        batch.insert([[97]])
        ids = drain(batch)[0][0]
    with BatchGenerator(model, max_tokens=30, stop_tokens=[ids[4:7], [300 % 259]]) as batch:
        batch.insert([[97]])
        tokens, last = drain(batch)
    end = next(i for i in range(3, 30) if ids[i - 3 : i] == ids[4:7])
    assert tokens[0] == ids[:end] and last[0].finish_reason == "stop"
    assert last[0].prompt_cache.tokens == [97, *ids[:end]]


def test_progress_and_leaving(model):
    batch = BatchGenerator(model, max_tokens=10, prefill_step_size=16)
    first, second = batch.insert([[5] * 40, [6] * 3])
    prompts, _ = batch.next()
    assert {p.uid for p in prompts} == {first, second} and all(p.progress[0] <= p.progress[1] for p in prompts)
    while not (responses := batch.next()[1]):
        pass
    caches = batch.remove([second], return_prompt_caches=True)
    assert caches[second][1][:3] == [6, 6, 6]
    assert set(drain(batch)[0]) == {first}
    assert batch.extract_cache([second]) == {} and batch.next_generated() == []
    batch.close()
    with pytest.raises(ValueError, match="closed"):
        batch.insert([[1]])


def test_a_request_that_fails_leaves_the_others(model, tokenizer):
    def failing(tokens, logits):
        if len(tokens) > 5:
            raise LookupError("mine")
        return logits

    with BatchGenerator(model, max_tokens=10) as batch:
        good, bad, plain = batch.insert([[97], [98, 99], [100]], logits_processors=[[], [failing], None])
        tokens, last = drain(batch)
    assert last[bad].finish_reason == "error" and isinstance(last[bad].error, LookupError)
    assert len(tokens[good]) == len(tokens[plain]) == 10 and last[good].error is None
    with pytest.raises(LookupError, match="mine"):
        batch_generate(model, tokenizer, PROMPTS, logits_processors=[failing])


def test_keyboard_interrupt_is_raised_at_once(model):
    def interrupted(tokens, logits):
        raise KeyboardInterrupt

    with BatchGenerator(model) as batch:
        batch.insert([[97], [98]], logits_processors=[[interrupted], []])
        with pytest.raises(KeyboardInterrupt):
            drain(batch)


def test_batch_generate(model, tokenizer):
    result = batch_generate(model, tokenizer, PROMPTS, max_tokens=[4, 5, 6], return_token_ids=True, return_logprobs=True,
                            return_prompt_caches=True)
    for prompt, limit, text, ids, logprobs, cache in zip(
        PROMPTS, (4, 5, 6), result.texts, result.token_ids, result.logprobs, result.caches
    ):
        assert ids == alone(model, tokenizer, prompt, max_tokens=limit) and len(logprobs) == len(ids)
        assert text == tokenizer.decode(ids) and cache.size == len(prompt) + limit
    assert result.finish_reasons == ["length"] * 3
    assert result.stats.generation_tokens == 15 and result.stats.generation_tps > 0
    assert result.stats.prompt_tokens == sum(map(len, PROMPTS)) - 3
    again = batch_generate(model, tokenizer, [[1], [2], [3]], prompt_caches=result.caches, max_tokens=2)
    assert len(again.texts) == 3 and again.token_ids is None and [c.size for c in result.caches] == [5, 8, 46]
    assert batch_generate(model, tokenizer, []).texts == []
    assert batch_generate(model, tokenizer, [[1], [2]], max_tokens=[0, 2]).finish_reasons == ["length", "length"]
    with pytest.raises(TypeError, match="BatchGenerator.insert takes one for each prompt"):
        batch_generate(model, tokenizer, [[1]], samplers=[None])
    with pytest.raises(TypeError, match="mlxlm.random.seed"):
        batch_generate(model, tokenizer, [[1]], seed=1)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [({"max_tokens": [1]}, ValueError), ({"samplers": [None]}, ValueError), ({"max_tokens": [-3, 1, 1]}, ValueError),
     ({"logits_processors": [[1], [], []]}, TypeError), ({"temp": 1}, TypeError)],
)
def test_wrong_inserts(model, arguments, kind):
    with BatchGenerator(model) as batch:
        with pytest.raises(kind):
            batch.insert(PROMPTS, **arguments)
        assert batch.next_generated() == []


def test_many_tasks(model, tokenizer):
    async def ask(batch, i):
        tokens = []
        async for response in batch.stream([97 + i], max_tokens=5 + i, seed=i, sampler=make_sampler(1.0)):
            tokens.append(response.token)
            if i == 3 and len(tokens) == 2:
                break
        return tokens

    async def endless(batch, started):
        async for _ in batch.stream([97], max_tokens=1500, sampler=lambda x: 98):
            started.set()

    async def all_of_them():
        with BatchGenerator(model, stop_tokens=[[i] for i in tokenizer.eos_token_ids]) as batch:
            results = await asyncio.gather(*(ask(batch, i) for i in range(20)))
            again = await ask(batch, 1)
            assert again == results[1]
            started = asyncio.Event()
            cancelled = asyncio.create_task(endless(batch, started))
            await started.wait()
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(ValueError, match="max_tokens"):
                await anext(batch.stream([1], max_tokens=-9))
            return results

    results = asyncio.run(all_of_them())
    for i, tokens in enumerate(results):
        expected = alone(model, tokenizer, [97 + i], max_tokens=5 + i, seed=i, sampler=make_sampler(1.0))
        assert tokens == (expected[:2] if i == 3 else expected)


def test_a_failing_task(model):
    async def run():
        def failing(tokens, logits):
            raise OSError("mine")

        async def collect(stream):
            return [r async for r in stream]

        with BatchGenerator(model, max_tokens=4) as batch:
            good = asyncio.create_task(collect(batch.stream([1])))
            with pytest.raises(OSError, match="mine"):
                await collect(batch.stream([2], logits_processors=[failing]))
            assert len(await good) == 4

    asyncio.run(run())


def test_drafts_in_a_batch(model, tokenizer):
    with BatchGenerator(model, max_tokens=12) as batch:
        uids = batch.insert(PROMPTS, draft_model=model)
        tokens, _ = drain(batch)
        counts = batch._native.stats()
    assert counts["accepted_tokens"] > 0
    for uid, prompt in zip(uids, PROMPTS):
        assert tokens[uid] == [t for t, _ in mlxlm.generate.generate_step(prompt, model, max_tokens=12)]
