"""MLXLanguageModel: what vllm_mlx's class of this name does with mlx_lm, and the better rules of ours."""

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.sample_utils import make_sampler
from mlxlm.models.llm import GenerationOutput, MLXLanguageModel, StreamingOutput

MESSAGES = [{"role": "user", "content": "What is it?"}]


@pytest.fixture(scope="module")
def llm(float_folder):
    return MLXLanguageModel(str(float_folder), precision="exact")


@pytest.fixture(scope="module")
def theirs(float_folder):
    mx.set_default_device(mx.cpu)
    return mlx_lm.load(str(float_folder))


def test_loads_when_needed(float_folder):
    llm = MLXLanguageModel(str(float_folder))
    assert llm.get_model_info() == {"loaded": False, "model_name": str(float_folder)} and "not loaded" in repr(llm)
    llm.load()
    info = llm.get_model_info()
    assert info["loaded"] and info["vocab_size"] == 256 and info["num_layers"] == 3 and "status=loaded" in repr(llm)
    with pytest.raises(FileNotFoundError):
        MLXLanguageModel("no/such/model/folder").generate("a")


def test_generate(llm, theirs):
    for prompt, n in (("A first prompt", 20), ("Another", 7)):
        output = llm.generate(prompt, max_tokens=n, temperature=0.0)
        assert isinstance(output, GenerationOutput)
        assert output.text == mlx_lm.generate(*theirs, prompt, max_tokens=n, sampler=make_sampler(0.0))
        assert len(output.tokens) == n and output.finish_reason == "length"


def test_stream_generate(llm, theirs):
    expected = [(r.text, r.token) for r in mlx_lm.stream_generate(*theirs, "Stream it", max_tokens=15)]
    outputs = list(llm.stream_generate("Stream it", max_tokens=15, temperature=0.0))
    assert all(isinstance(o, StreamingOutput) for o in outputs)
    assert [(o.text, o.token) for o in outputs] == expected and expected
    assert [o.finished for o in outputs] == [False] * 14 + [True] and outputs[-1].finish_reason == "length"
    assert {o.prompt_tokens for o in outputs} == {len("Stream it")}


def test_chat(llm, theirs):
    prompt = theirs[1].apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    expected = mlx_lm.generate(*theirs, theirs[1].encode(prompt, add_special_tokens=False), max_tokens=9)
    assert llm.chat(MESSAGES, max_tokens=9, temperature=0.0).text == expected


def test_processors_precede_penalties(llm):
    seen = []

    def processor(tokens, logits):
        seen.append(logits.copy())
        return logits

    llm.generate("aaaa", max_tokens=2, temperature=0.0, repetition_penalty=5.0, logits_processors=[processor])
    plain = []
    llm.generate("aaaa", max_tokens=1, temperature=0.0, logits_processors=[lambda t, x: plain.append(x.copy()) or x])
    assert (seen[0] == plain[0]).all()


def test_stop_seed_and_unknown_keywords(llm):
    text = llm.generate("Count", max_tokens=30, temperature=0.0).text
    stop = text[5:7]
    stopped = llm.generate("Count", max_tokens=30, temperature=0.0, stop=[stop])
    assert stopped.text == text[: text.index(stop)] and stopped.finish_reason == "stop"
    assert llm.generate("Count", seed=3).tokens == llm.generate("Count", seed=3).tokens
    for call in (llm.generate, llm.stream_generate):
        with pytest.raises(TypeError, match="temprature"):
            call("Count", temprature=1.0)
    with pytest.raises(NotImplementedError, match="mtp"):
        MLXLanguageModel(llm.model_name, mtp=True).load()
