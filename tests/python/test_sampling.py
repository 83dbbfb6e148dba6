"""mlxlm.sample_utils against mlx_lm.sample_utils."""

import mlx.core as mx
import mlx_lm.sample_utils as theirs
import mlxlm
import numpy as np
import pytest
from mlxlm import sample_utils as ours


def rows(seed=0, vocab=200):
    logits = np.random.default_rng(seed).standard_normal((3, vocab)).astype(np.float32) * 3
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("apply_top_k", (5,)), ("apply_top_k", (150,)), ("apply_top_p", (0.3,)), ("apply_top_p", (0.95,)), ("apply_min_p", (0.1,)),
     ("apply_min_p", (0.9, 4)), ("apply_xtc", (1.0, 0.05, [])), ("apply_xtc", (1.0, 0.02, [1, 2, 3])), ("apply_xtc", (0.0, 0.05, []))],
)
def test_filters(name, arguments):
    for seed in range(5):
        given = rows(seed)
        # A row at a time: for several mlx-lm's top_p and XTC are not needed, and ours treat each as its own.
        for row in (given[:1], given[1:2]):
            expected = np.array(getattr(theirs, name)(mx.array(row), *arguments))
            got = getattr(ours, name)(row, *arguments)
            assert np.array_equal(got, expected), f"{name}{arguments}, seed {seed}"
        assert getattr(ours, name)(given, *arguments).shape == given.shape
        assert np.isfinite(given).all(), "the caller's array is as it was"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ours.apply_top_k(x, 0), "top_k"),
        (lambda x: ours.apply_top_k(x, 200), "top_k"),
        (lambda x: ours.apply_top_k(x, 2.5), "top_k"),
        (lambda x: ours.apply_min_p(x, 1.5), "min_p"),
        (lambda x: ours.apply_min_p(x, 0.5, 0), "min_tokens_to_keep"),
        (lambda x: ours.apply_xtc(x, 0.5, 0.9, []), "xtc_threshold"),
        (lambda x: ours.categorical_sampling(x, 0.0), "temp"),
        (lambda x: ours.make_sampler(temp=-1), "temp"),
        (lambda x: ours.make_sampler(0.5, top_p=2), "top_p"),
        (lambda x: ours.make_sampler(0.5, xtc_probability=0.5, xtc_threshold=0), "xtc_threshold"),
        (lambda x: ours.make_logits_processors({1: float("inf")}), "logit_bias"),
        (lambda x: ours.make_logits_processors(repetition_penalty=-1.0), "repetition_penalty"),
        (lambda x: ours.apply_top_p(x * np.nan, 0.5), "NaN"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(rows())


def test_samplers_are_functions():
    given = rows()
    assert ours.make_sampler()(given).tolist() == given.argmax(-1).tolist()
    assert ours.make_sampler()(given[0]).shape == ()
    sampler = ours.make_sampler(1.0, top_k=2)
    allowed = np.argsort(given, axis=-1)[:, -2:]
    drawn = np.array([sampler(given) for _ in range(200)])
    assert all(set(drawn[:, i]) == set(allowed[i]) for i in range(3))
    mlxlm.random.seed(1)
    first = [sampler(given).tolist() for _ in range(5)]
    mlxlm.random.seed(1)
    assert [sampler(given).tolist() for _ in range(5)] == first
    mlxlm.random._state = None


def test_categorical_frequencies():
    logits = np.log(np.array([[0.5, 0.3, 0.2]], np.float32))
    mlxlm.random.seed(7)
    drawn = np.array([ours.categorical_sampling(logits, 1.0)[0] for _ in range(4000)])
    mlxlm.random._state = None
    # Five standard deviations of a share of 4000 draws are below 0.04.
    assert np.allclose(np.bincount(drawn, minlength=3) / 4000, [0.5, 0.3, 0.2], atol=0.04)


def test_penalties():
    tokens = np.array([3, 5, 3, 9, 3])
    given = rows()[:1]
    for settings in ({"repetition_penalty": 1.3}, {"presence_penalty": 0.7}, {"frequency_penalty": 0.4},
                     {"repetition_penalty": 0.8, "repetition_context_size": 2}, {"logit_bias": {3: 1.0, 7: -2.0}}):
        (mine,) = ours.make_logits_processors(**settings)
        (other,) = theirs.make_logits_processors(**settings)
        expected = np.array(other(mx.array(tokens), mx.array(given)))
        # One rounding of float32 apart at most: the library multiplies where mlx divides, or the other way round.
        assert np.allclose(mine(tokens, given.copy()), expected, rtol=1e-6), settings
    assert ours.make_logits_processors(repetition_penalty=None, presence_penalty=0.0) == []
