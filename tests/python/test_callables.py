"""Logits processors, samplers and callbacks written in Python."""

import mlxlm
import numpy as np
import pytest
from mlxlm.generate import stream_generate
from mlxlm.processors import ban_token_ids, choice, json_schema, min_length, regex
from mlxlm.sample_utils import make_logits_processors


def run(model, tokenizer, max_tokens=6, prompt="abc", **kwargs):
    return [r.token for r in stream_generate(model, tokenizer, prompt, max_tokens=max_tokens, **kwargs)]


def test_what_a_processor_sees(model, tokenizer):
    seen = []

    def look(tokens, logits):
        seen.append((tokens.tolist(), tokens.dtype, tokens.flags.writeable, logits.shape, logits.dtype, logits.flags))
        return logits

    ids = run(model, tokenizer, logits_processors=[look])
    assert [s[0] for s in seen] == [[97, 98, 99, *ids[:i]] for i in range(6)]
    for _, dtype, writeable, shape, logits_dtype, flags in seen:
        assert (dtype, writeable, shape, logits_dtype) == (np.int32, False, (1, model.info["vocab_size"]), np.float32)
        assert flags.writeable and flags.c_contiguous and not flags.owndata


def test_no_copies(model, tokenizer):
    """The next processor's array lies in the same memory, and sees what the first one changed."""
    places = []

    def first(tokens, logits):
        logits[0, 7] = 50.0
        places.append((logits.ctypes.data, tokens.ctypes.data))
        return logits

    def second(tokens, logits):
        assert logits[0, 7] == 50.0
        places.append((logits.ctypes.data, tokens.ctypes.data))
        return logits

    assert run(model, tokenizer, logits_processors=[first, second]) == [7] * 6
    assert places[::2] == places[1::2]
    assert len(set(places)) == 1, "nobody keeps the arrays, so every step uses the same memory"


def test_kept_arrays_stay(model, tokenizer):
    kept, copies = [], []

    def keep(tokens, logits):
        kept.append((tokens, logits))
        copies.append((tokens.copy(), logits.copy()))
        return logits

    def keep_sampler(logprobs):
        kept.append((logprobs, logprobs[0, ::2]))
        copies.append((logprobs.copy(), logprobs[0, ::2].copy()))
        return logprobs.argmax(axis=-1)

    run(model, tokenizer, max_tokens=20, logits_processors=[keep], sampler=keep_sampler)
    for arrays, values in zip(kept, copies):
        assert all(np.array_equal(a, b) for a, b in zip(arrays, values))


def test_a_sampler_may_change_its_array(model, tokenizer):
    plain = next(stream_generate(model, tokenizer, "abc"))

    def sampler(logprobs):
        logprobs[0, plain.token] = -np.inf
        return logprobs.argmax(axis=-1)

    response = next(stream_generate(model, tokenizer, "abc", sampler=sampler))
    assert response.token != plain.token
    assert response.logprob == plain.logprobs[response.token], "the reported value is the distribution's"


class Exporter:
    """An array of another library, known by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_array_likes_come_back(model, tokenizer):
    import mlx.core as mx

    expected = run(model, tokenizer, logits_processors=[lambda t, x: x - 2.0])
    returns = {
        "a list": lambda x: x.tolist(),
        "a row": lambda x: x[0],
        "float64": lambda x: x.astype(np.float64),
        "DLPack": Exporter,
        "an mlx array": mx.array,
        "a strided array": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        "a memoryview": memoryview,
    }
    for name, convert in returns.items():
        assert run(model, tokenizer, logits_processors=[lambda t, x: convert(x - 2.0)]) == expected, name
    ids = {
        "an int": int,
        "numpy's int": np.int64,
        "an array": lambda i: np.array([i]),
        "two dimensions": lambda i: np.array([[i]]),
        "a list": lambda i: [i],
        "an mlx array": lambda i: mx.array([i]),
    }
    for name, convert in ids.items():
        assert run(model, tokenizer, sampler=lambda x: convert(int(x.argmax()))) == expected, name


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda x: None, TypeError, "None"),
        (lambda x: x[:, :-1], ValueError, "shape"),
        (lambda x: np.stack([x, x]), ValueError, "shape"),
        (lambda x: x.astype(np.int64), TypeError, "int64"),
        (lambda x: x * np.nan, ValueError, "NaN"),
        (lambda x: np.full_like(x, np.inf), ValueError, "NaN or +inf"),
        (lambda x: "text", TypeError, "floats"),
        (lambda x: np.full_like(x, -np.inf), ValueError, "-inf"),
    ],
)
def test_wrong_logits_name_the_processor(model, tokenizer, wrong, kind, words):
    def culprit(tokens, logits):
        return wrong(logits)

    with pytest.raises(kind) as error:
        run(model, tokenizer, logits_processors=[lambda t, x: x, culprit])
    assert "culprit" in str(error.value) and words in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (None, TypeError), (1.5, TypeError), (np.array([0.5]), TypeError), (True, TypeError), ([1, 2], ValueError),
        ([], (TypeError, ValueError)), (-1, ValueError), (10**6, ValueError), (2**40, ValueError), ("a", TypeError),
    ],
)
def test_wrong_tokens_name_the_sampler(model, tokenizer, wrong, kind):
    def culprit(logprobs):
        return wrong

    with pytest.raises(kind) as error:
        run(model, tokenizer, sampler=culprit)
    assert "sampler" in str(error.value)


class Odd(BaseException):
    pass


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, KeyboardInterrupt, SystemExit, Odd])
def test_exceptions_come_through(model, tokenizer, kind):
    calls = []

    def failing(tokens, logits):
        calls.append(len(tokens))
        if len(calls) == 3:
            raise kind("from the processor")
        return logits

    cache = mlxlm.models.cache.make_prompt_cache(model)
    stream = stream_generate(model, tokenizer, "abc", logits_processors=[failing], prompt_cache=cache)
    assert [next(stream).generation_tokens, next(stream).generation_tokens] == [1, 2]
    with pytest.raises(kind, match="from the processor") as error:
        next(stream)
    assert error.traceback[-1].name == "failing"
    assert len(calls) == 3 and list(stream) == []
    assert len(run(model, tokenizer, prompt_cache=cache)) == 6, "the cache can be used again"


def test_stop_iteration_is_an_error(model, tokenizer):
    def failing(logprobs):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(model, tokenizer, sampler=failing)


def test_progress(model, tokenizer):
    calls = []
    run(model, tokenizer, prompt=[5] * 40, prefill_step_size=16, reuse_prefix=False,
        prompt_progress_callback=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 40), (16, 40), (32, 40), (40, 40)]

    def failing(done, total):
        raise OSError("no progress")

    with pytest.raises(OSError, match="no progress"):
        run(model, tokenizer, prompt_progress_callback=failing)


def test_processors_of_the_library(model, tokenizer):
    plain = run(model, tokenizer, 12)
    banned = run(model, tokenizer, 12, logits_processors=[ban_token_ids(plain[:2])])
    assert not set(banned) & set(plain[:2])
    text = mlxlm.generate(model, tokenizer, "abc", logits_processors=[choice(tokenizer, ["yes", "no"])])
    assert text in ("yes", "no")
    text = mlxlm.generate(model, tokenizer, "abc", logits_processors=[regex(tokenizer, "[0-9]{3}-[a-f]{2}")])
    assert len(text) == 6 and text[3] == "-"
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    import json

    text = mlxlm.generate(model, tokenizer, "abc", max_tokens=600, logits_processors=[json_schema(tokenizer, schema)])
    assert json.loads(text)["n"] in (1, 2)
    with pytest.raises(ValueError):
        json_schema(tokenizer, '{"type": 5}')
    assert "min_length 5" in repr(min_length(5))
    one = make_logits_processors(repetition_penalty=1.5)
    assert run(model, tokenizer, 12, logits_processors=one) == run(model, tokenizer, 12, logits_processors=one)


def test_calling_a_processor_of_the_library(model):
    (penalty,) = make_logits_processors(repetition_penalty=2.0)
    logits = np.array([[1.0, -1.0, 3.0]], np.float32)
    result = penalty(np.array([0, 1]), logits)
    assert result is logits and logits.tolist() == [[0.5, -2.0, 3.0]]
    (bias,) = make_logits_processors({2: 1.0})
    assert bias([], [[0.0, 0.0, 0.0]]).tolist() == [[0.0, 0.0, 1.0]]
    with pytest.raises(ValueError):
        make_logits_processors(repetition_penalty=-1.0)


def test_the_wrapper_for_mlx(model, tokenizer):
    import mlx.core as mx
    from mlxlm.interop import mlx_callable

    @mlx_callable
    def soften(tokens, logits):
        assert isinstance(tokens, mx.array) and isinstance(logits, mx.array)
        return (logits * 0.5).astype(mx.bfloat16)

    @mlx_callable
    def best(logprobs):
        return mx.argmax(logprobs, axis=-1)

    assert soften.__name__ == "soften"
    assert len(run(model, tokenizer, logits_processors=[soften], sampler=best)) == 6
