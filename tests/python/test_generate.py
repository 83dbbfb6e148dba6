"""generate, stream_generate and generate_step: fields, settings, errors."""

import copy
import dataclasses
import gc
import inspect
import json

import mlxlm
import numpy as np
import pytest
from mlxlm import processors
from mlxlm.generate import GenerationResponse, generate_step, speculative_generate_step, stream_generate
from mlxlm.sample_utils import make_sampler


def ids_of(stream):
    return [r.token for r in stream]


def test_names_of_mlx_lm():
    """The parameters of mlx-lm's functions, in its order and with its defaults, but for its device streams."""
    import mlx_lm
    from mlx_lm import generate as _  # noqa: F401
    import sys

    theirs, ours = sys.modules["mlx_lm.generate"], sys.modules["mlxlm.generate"]
    for name in ("generate_step", "speculative_generate_step", "stream_generate", "generate", "batch_generate"):
        expected = dict(inspect.signature(getattr(theirs, name)).parameters)
        got = inspect.signature(getattr(ours, name)).parameters
        expected.pop("stream", None)
        for parameter in expected.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue  # ours are written out, so that a misspelt one is an error
            assert parameter.name in got, f"{name}: {parameter.name}"
            assert got[parameter.name].default == parameter.default, f"{name}: {parameter.name}"
    for name in ("load", "convert"):
        expected = inspect.signature(getattr(mlx_lm, name)).parameters.values()
        got = inspect.signature(getattr(mlxlm, name)).parameters
        for parameter in expected:
            ours_default = got[parameter.name].default
            assert ours_default == parameter.default, f"{name}: {parameter.name}"


def test_fields(model, tokenizer):
    responses = list(stream_generate(model, tokenizer, "abc", max_tokens=5))
    assert [r.generation_tokens for r in responses] == [1, 2, 3, 4, 5]
    assert [r.finish_reason for r in responses] == [None] * 4 + ["length"]
    last = responses[-1]
    assert dataclasses.is_dataclass(last) and last.prompt_tokens == 3 and last.peak_memory > 0
    assert last.logprobs.shape == (model.info["vocab_size"],) and last.logprobs.dtype == np.float32
    assert last.logprobs[last.token] == np.float32(last.logprob)
    assert abs(np.exp(last.logprobs.astype(np.float64)).sum() - 1) < 1e-3
    names = [f.name for f in dataclasses.fields(GenerationResponse)]
    import mlx_lm.generate  # noqa: F401
    import sys

    theirs = sys.modules["mlx_lm.generate"].GenerationResponse
    assert names[: len(dataclasses.fields(theirs))] == [f.name for f in dataclasses.fields(theirs)]
    assert " logprobs=" not in repr(last) and "token=" in repr(last)


def test_generate_is_function_and_module(model, tokenizer):
    assert mlxlm.generate(model, tokenizer, "ab", max_tokens=3)
    assert mlxlm.generate.stream_generate is stream_generate
    import mlxlm.generate as module

    assert module.generate_step is generate_step


def test_text_is_what_was_streamed(model, tokenizer, capsys):
    text = mlxlm.generate(model, tokenizer, "abc", max_tokens=20)
    assert text == "".join(r.text for r in stream_generate(model, tokenizer, "abc", max_tokens=20))
    assert mlxlm.generate(model, tokenizer, "abc", max_tokens=20, verbose=True) == text
    printed = capsys.readouterr().out
    assert text in printed and "tokens-per-sec" in printed


def test_seeds(model, tokenizer):
    hot = make_sampler(temp=1.5)

    def run(**kwargs):
        return ids_of(stream_generate(model, tokenizer, "abc", max_tokens=12, sampler=hot, **kwargs))

    assert run(seed=1) == run(seed=1) != run(seed=2)
    mlxlm.random.seed(5)
    first = [run(), run()]
    mlxlm.random.seed(5)
    assert [run(), run()] == first and first[0] != first[1]
    response = next(stream_generate(model, tokenizer, "abc", max_tokens=12, sampler=hot))
    assert run(seed=response.seed)[0] == response.token
    mlxlm.random._state = None
    assert run() != run()


def test_a_sampler_called_by_a_function_draws_the_same(model, tokenizer):
    hot = make_sampler(temp=1.2, top_p=0.9)
    plain = ids_of(stream_generate(model, tokenizer, "abc", max_tokens=20, sampler=hot, seed=3))
    wrapped = ids_of(stream_generate(model, tokenizer, "abc", max_tokens=20, sampler=lambda x: hot(x), seed=3))
    assert wrapped == plain


def test_stop_and_eos(model, tokenizer):
    text = mlxlm.generate(model, tokenizer, "abc", max_tokens=30)
    stop = text[4:6]
    responses = list(stream_generate(model, tokenizer, "abc", max_tokens=30, stop=stop))
    assert "".join(r.text for r in responses) == text[: text.index(stop)]
    assert responses[-1].finish_reason == "stop"
    ids = ids_of(stream_generate(model, tokenizer, "abc", max_tokens=30))
    end = next(i for i in range(3, 30) if ids[i] not in ids[:i])
    ended = list(stream_generate(model, tokenizer, "abc", max_tokens=30, extra_eos_token=str(ids[end])))
    assert [r.token for r in ended] == ids[: end + 1] and ended[-1].finish_reason == "stop"
    other = copy.copy(tokenizer)
    other.eos_token_ids = {ids[end]}
    assert ids_of(stream_generate(model, other, "abc", max_tokens=30)) == ids[: end + 1]


def test_limits(model, tokenizer):
    (only,) = stream_generate(model, tokenizer, "abc", max_tokens=0)
    assert (only.text, only.finish_reason, only.generation_tokens, only.logprobs) == ("", "length", 0, None)
    last = list(stream_generate(model, tokenizer, "abc", max_tokens=10**6, timeout=0.2))[-1]
    assert last.finish_reason in ("deadline", "stop")
    stream = stream_generate(model, tokenizer, "abc", max_tokens=100)
    next(stream)
    stream.cancel()
    assert [r.finish_reason for r in stream][-1] == "cancelled"
    stream.close()
    assert list(stream) == []


@pytest.mark.parametrize(
    ("keyword", "advice"),
    [
        ("temp", "; give sampler=make_sampler(temp=...)"),
        ("temperature", "; give sampler=make_sampler(temp=...)"),
        ("logit_bias", "; give logits_processors=make_logits_processors(logit_bias=...)"),
        ("prefill_step_sze", "; did you mean 'prefill_step_size'?"),
        ("zzz", ""),
    ],
)
@pytest.mark.parametrize(("function", "prompt"), [(mlxlm.generate, "ab"), (mlxlm.batch_generate, [[1, 2]])])
def test_unknown_keywords(model, tokenizer, function, prompt, keyword, advice):
    with pytest.raises(TypeError) as error:
        function(model, tokenizer, prompt, **{keyword: 1})
    assert str(error.value) == f"{function.__name__}() got an unexpected keyword argument {keyword!r}{advice}"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, "got NoneType"),
        (5, "got int"),
        (b"hi", "got bytes"),
        (["hi", "there"], "a list of texts"),
        ([{"role": "user", "content": "hi"}], "tokenizer.apply_chat_template"),
    ],
)
def test_prompts_of_another_kind(model, tokenizer, prompt, words):
    with pytest.raises(TypeError) as error:
        mlxlm.generate(model, tokenizer, prompt)
    assert words in str(error.value)


def test_paths_of_another_kind():
    with pytest.raises(TypeError, match="path_or_hf_repo: expected a folder or ORG/NAME, got NoneType"):
        mlxlm.load(None)
    with pytest.raises(FileNotFoundError, match="'~' is not expanded"):
        mlxlm.load("~/models/a")


def test_a_misspelt_flag_of_the_template_is_warned_of(tokenizer):
    messages = [{"role": "user", "content": "hi"}]
    with pytest.warns(UserWarning, match="was 'add_generation_prompt' meant?"):
        tokenizer.apply_chat_template(messages, add_generation_promt=True, chat_template="{{ messages[0].content }}")


def test_processors_check_their_tokenizer(tokenizer):
    for make in (processors.json_schema, processors.forbid_strings):
        with pytest.raises(TypeError, match="tokenizer: expected what mlxlm.load returns, got list"):
            make(["a"], tokenizer)


def test_compact_json(model, tokenizer):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    for given in (schema, json.dumps(schema)):
        constraint = processors.json_schema(tokenizer, given, compact=True)
        text = mlxlm.generate(model, tokenizer, "ab", max_tokens=6, logits_processors=[constraint])
        assert text.startswith('{"a":') and not text[5:6].isspace()
    with pytest.raises(ValueError, match="expected an object"):
        processors.json_schema(tokenizer, True, compact=True)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"max_tokns": 5}, TypeError, "max_tokns"),
        ({"temp": 0.5}, TypeError, "temp"),
        ({"max_tokens": -2}, ValueError, "max_tokens"),
        ({"max_tokens": "5"}, TypeError, "max_tokens: expected an int, got '5'"),
        ({"max_tokens": True}, TypeError, "max_tokens"),
        ({"seed": -1}, TypeError, "seed"),
        ({"sampler": 0.7}, TypeError, "sampler"),
        ({"sampler": make_sampler}, TypeError, "call it"),
        ({"logits_processors": lambda t, x: x}, TypeError, "logits_processors"),
        ({"logits_processors": [3]}, TypeError, "logits_processors[0]"),
        ({"logits_processors": [lambda logits: logits]}, TypeError, "a function of (tokens, logits), got one of (logits)"),
        ({"sampler": lambda: 1}, TypeError, "sampler: expected a function of (logprobs), got one of ()"),
        ({"kv_bits": 3}, ValueError, "kv_bits"),
        ({"prompt_cache": [1, 2]}, TypeError, "prompt_cache"),
        ({"extra_eos_token": "no such token"}, ValueError, "no such token"),
        ({"draft_model": "tiny"}, TypeError, "draft_model"),
        ({"prefill_step_size": 0}, ValueError, "prefill_step_size"),
        ({"stop": [""]}, ValueError, "stop"),
    ],
)
def test_errors_come_from_the_call(model, tokenizer, settings, kind, words):
    with pytest.raises(kind) as error:
        stream_generate(model, tokenizer, "abc", **settings)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [("", ValueError), ([], ValueError), ([9999], ValueError), ([-1], ValueError), ([1.5], TypeError),
     ([[1, 2]], ValueError), (None, (TypeError, ValueError)), (b"abc", (TypeError, ValueError))],
)
def test_wrong_prompts(model, tokenizer, prompt, kind):
    with pytest.raises(kind):
        stream_generate(model, tokenizer, prompt)


def test_prompts_of_many_kinds(model, tokenizer):
    import mlx.core as mx

    expected = ids_of(stream_generate(model, tokenizer, [97, 98, 99], max_tokens=4))
    for prompt in ("abc", (97, 98, 99), np.array([97, 98, 99]), np.array([97, 98, 99], np.uint16), mx.array([97, 98, 99])):
        assert ids_of(stream_generate(model, tokenizer, prompt, max_tokens=4)) == expected


def test_wrong_model_and_tokenizer(model, tokenizer):
    with pytest.raises(TypeError, match="model: expected"):
        stream_generate("tiny", tokenizer, "abc")
    with pytest.raises(TypeError, match="tokenizer: expected"):
        stream_generate(model, model, "abc")


def test_load_errors(tmp_path, tiny_folder):
    with pytest.raises(FileNotFoundError, match="no such"):
        mlxlm.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        mlxlm.load(tmp_path)
    with pytest.raises(ValueError, match="precision"):
        mlxlm.load(tiny_folder, precision="half")
    with pytest.raises(NotImplementedError, match="adapter"):
        mlxlm.load(tiny_folder, adapter_path="adapters")
    with pytest.raises(NotImplementedError, match="rope_theta"):
        mlxlm.load(tiny_folder, model_config={"rope_theta": 1e6})
    with pytest.raises(TypeError, match="threads"):
        mlxlm.load(tiny_folder, threads="2")
    with pytest.raises(ValueError, match="instruction set"):
        mlxlm.load(tiny_folder, isa="mmx")
    _, _, config = mlxlm.load(tiny_folder, return_config=True)
    assert config["model_type"] == "llama"


def test_generate_step_goes_past_eos(model, tokenizer):
    ids = [token for token, _ in generate_step(np.array([97, 98]), model, max_tokens=50)]
    assert len(ids) == 50
    other = copy.copy(tokenizer)
    other.eos_token_ids = ()
    assert ids == ids_of(stream_generate(model, other, [97, 98], max_tokens=50))
    drafted = list(speculative_generate_step([97, 98], model, model, max_tokens=50))
    assert [token for token, _, _ in drafted] == ids and any(guessed for _, _, guessed in drafted)
    with pytest.raises(NotImplementedError):
        generate_step([1], model, input_embeddings=np.zeros((1, 64)))
    with pytest.raises(NotImplementedError, match="input_embeddings"):
        model([1], input_embeddings=np.zeros((1, 64)))


def test_calling_the_model(model):
    ids = [97, 98, 99, 100]
    row = model(ids)
    assert row.shape == (4, model.info["vocab_size"]) and row.dtype == np.float32
    both = model([ids, ids[::-1]])
    assert both.shape[0] == 2 and np.array_equal(both[0], row)
    cache = mlxlm.models.cache.make_prompt_cache(model)
    parts = np.concatenate([model(np.array([ids[:1]]), cache=cache)[0], model([ids[1:]], cache=cache)[0]])
    assert np.array_equal(parts, row) and cache[0].offset == 4
    for wrong in ([], [[]], 5, [[1], [2, 3]], [10**6]):
        with pytest.raises((ValueError, TypeError)):
            model(wrong, cache=cache)
    assert cache[0].offset == 4, "a call that failed leaves the cache alone"


def test_reprs(model, tokenizer):
    stream = stream_generate(model, tokenizer, "a", max_tokens=1)
    for thing in (model, tokenizer, stream, make_sampler(0.7, top_p=0.9), model.layers[0], tokenizer.detokenizer):
        assert " at 0x" not in repr(thing) and len(repr(thing)) < 200


def test_streams_are_collected(model, tokenizer):
    """A callable that refers to its own stream is a cycle through the extension."""
    import weakref

    class Processor:
        stream = None

        def __call__(self, tokens, logits):
            return logits

    processor = Processor()
    processor.stream = stream_generate(model, tokenizer, "abc", logits_processors=[processor], sampler=lambda x: 5)
    next(processor.stream)
    gone = weakref.ref(processor)
    del processor
    gc.collect()
    assert gone() is None
