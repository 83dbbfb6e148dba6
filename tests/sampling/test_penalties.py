"""Logit bias and the penalties against the real mlx-lm's processors, on thousands of random rows."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import sample_utils

import probe

mx.set_default_device(mx.cpu)

OPTIONS = {
    "repetition": dict(repetition_penalty=1.3),
    "repetition below 1": dict(repetition_penalty=0.7, repetition_context_size=100),
    "presence": dict(presence_penalty=0.6, presence_context_size=50),
    "frequency": dict(frequency_penalty=0.35, frequency_context_size=64),
    "negative": dict(presence_penalty=-1.5, frequency_penalty=-0.25),
    "all history": dict(repetition_penalty=1.1, repetition_context_size=0, presence_penalty=0.2,
                        presence_context_size=0, frequency_penalty=0.1, frequency_context_size=0),
    "bias": dict(logit_bias={"0": 1.5, "5": -100.0, "9": 0.001}),
    "everything": dict(logit_bias={"3": 2.0, "4": -3.0}, repetition_penalty=1.2, presence_penalty=0.4,
                       frequency_penalty=0.2, frequency_context_size=7),
}


def reference(logits, tokens, options):
    options = dict(options)
    if "logit_bias" in options:
        options["logit_bias"] = {int(k): v for k, v in options["logit_bias"].items()}
    processors = sample_utils.make_logits_processors(**options)
    rows = []
    for row, history in zip(logits, tokens):
        value = mx.array(row[None])
        for processor in processors:
            value = processor(mx.array(history, mx.int32), value)
        rows.append(np.array(value)[0])
    return np.stack(rows)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("vocab", [13, 300, 32000])
def test_processors(name, vocab):
    rng = np.random.default_rng(vocab)
    rows = 400 if vocab < 1000 else 20
    logits = (rng.standard_normal((rows, vocab)) * 4).astype(np.float32)
    # Few different ids, so that many are seen more than once.
    tokens = [rng.integers(0, min(vocab, 60), rng.integers(1, 150)).tolist() for _ in range(rows)]
    ours = probe.process(logits, tokens, **OPTIONS[name])
    theirs = reference(logits, tokens, OPTIONS[name])
    # The same operations in float32; the reference may add up repeated ids before subtracting. A logit here has a
    # magnitude of at most about 100 and loses at most half an ulp (4e-6) with each of up to 150 operations.
    assert np.abs(ours - theirs).max() <= 1e-4
    assert (ours == theirs).mean() > 0.99
    assert (ours != logits).any()


def test_the_prompt_need_not_count():
    """With penalize_prompt=false presence and frequency are the reference's over the generated tokens alone."""
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((200, 50)).astype(np.float32)
    tokens = [rng.integers(0, 50, 40).tolist() for _ in range(200)]
    options = dict(presence_penalty=0.5, frequency_penalty=0.25, frequency_context_size=12)
    ours = probe.process(logits, tokens, penalize_prompt=False, prompt_length=25, **options)
    theirs = reference(logits, [history[25:] for history in tokens], options)
    assert np.abs(ours - theirs).max() <= 1e-5  # values of about 5, 16 operations
    assert np.abs(ours - reference(logits, tokens, options)).max() > 0.1
