"""top_p, min_p, XTC and top_k against the real mlx-lm: the same tokens survive.

Both sides start from the same float32 log-probabilities. They may differ in two ways, and only these are let pass, counted
and reported (run pytest with -s): a token whose cumulative mass (or share, for XTC) lies within rounding of the threshold,
and which of exactly equal tokens top_k and min_tokens_to_keep choose. Rounding is 1e-5, but the reference adds up to
151,936 numbers in float32, one after another: where its own sums are further than that from the exact ones, the distance
is measured for each row. Ours are exact, so they are compared with the exact ones too.
"""

import math

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import sample_utils

import probe

mx.set_default_device(mx.cpu)
NEAR = 1e-5
EXACT = 2e-6  # the float32 log-probabilities' masses need not add up to 1 any better
#: vocabulary size: rows of each shape
SIZES = {17: 250, 256: 250, 5003: 60, 32000: 12, 151936: 3}


def rows_of(vocab, rows):
    """Float32 log-probabilities, from nearly flat to peaked, some with a few strong tokens, some with equal ones."""
    rng = np.random.default_rng(vocab)
    shapes = [rng.standard_normal((rows, vocab)) * spread for spread in (0.05, 1.0, 3.0, 10.0)]
    heads = rng.standard_normal((rows, vocab)) * 2
    strong = rng.integers(0, vocab, (rows, min(vocab, 40)))
    np.put_along_axis(heads, strong, 16 - 2 * np.log1p(np.arange(strong.shape[1])) * np.ones_like(strong), axis=1)
    shapes += [heads, np.round(rng.standard_normal((rows, vocab)) * 2)]
    logits = np.concatenate(shapes)
    # In float64: a normaliser summed in float32 is off by up to 4e-4 for the largest vocabulary.
    return (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module", params=SIZES)
def logprobs(request):
    return rows_of(request.param, SIZES[request.param])


def reference(logprobs, function, *args):
    return np.isfinite(np.array(function(mx.array(logprobs), *args)))


def compare(name, logprobs, ours, theirs, excuse):
    """excuse(row) → [vocab] bool: where this row's tokens may differ."""
    different = np.flatnonzero((ours != theirs).any(axis=1))
    for row in different:
        unexplained = (ours[row] != theirs[row]) & ~excuse(row)
        assert not unexplained.any(), f"{name}: row {row}, tokens {np.flatnonzero(unexplained)[:10]}"
    assert ours.any(axis=1).all()
    print(f"\n{name}: {len(logprobs)} rows of {logprobs.shape[1]}, {len(different)} differ near a threshold or by a tie")
    return len(different)


def mass_above(row):
    """Exact mass of the more likely tokens, for each token."""
    order = np.argsort(-row, kind="stable")
    p = np.exp(row[order].astype(np.float64))
    above = np.empty(len(row))
    above[order] = (np.cumsum(p) - p) / p.sum()
    return above


def reference_error(row):
    """How far the reference's cumulative sums are from the exact ones: the same operations, and float64."""
    values = mx.sort(mx.array(row))
    p = mx.exp(values)
    above = mx.cumsum(p, reverse=True, inclusive=False)
    above = np.array(above / (above[:1] + p[:1]), np.float64)
    exact = np.exp(np.array(values, np.float64))
    exact = (np.cumsum(exact[::-1])[::-1] - exact) / exact.sum()
    return np.abs(above - exact).max()


def near_mass(row, top_p, distance):
    """Tokens whose value is one at which the exact cumulative mass passes top_p, give or take the distance."""
    near = np.abs(mass_above(row) - top_p) <= distance
    return np.isin(row, row[near])


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.95, 0.999])
def test_top_p(logprobs, top_p):
    ours = probe.kept(logprobs, top_p=top_p)
    theirs = reference(logprobs, sample_utils.apply_top_p, top_p)
    # Equal tokens stand or fall together, at the mass of the first of them.
    compare(f"top_p {top_p}", logprobs, ours, theirs,
            lambda row: near_mass(logprobs[row], top_p, max(NEAR, reference_error(logprobs[row]))))
    exact = np.stack([np.isin(row, row[mass_above(row) < top_p]) for row in logprobs])
    compare(f"top_p {top_p} exact", logprobs, ours, exact, lambda row: near_mass(logprobs[row], top_p, EXACT))


@pytest.mark.parametrize("min_p, keep", [(0.01, 1), (0.05, 5), (0.3, 1), (1.0, 5)])
def test_min_p(logprobs, min_p, keep):
    theirs = reference(logprobs, sample_utils.apply_min_p, min_p, keep)
    ours = probe.kept(logprobs, min_p=min_p, min_tokens_to_keep=keep)
    limit = logprobs.max(axis=1) + np.float32(math.log(min_p))
    fifth = np.sort(logprobs, axis=1)[:, -keep]
    compare(f"min_p {min_p} keep {keep}", logprobs, ours, theirs,
            lambda row: (logprobs[row] == fifth[row]) | (np.abs(logprobs[row] - limit[row]) <= 2e-6))
    assert (ours.sum(axis=1) == theirs.sum(axis=1)).mean() > 0.99


@pytest.mark.parametrize("top_k", [1, 16])
def test_top_k(logprobs, top_k):
    theirs = reference(logprobs, sample_utils.apply_top_k, top_k)
    ours = probe.kept(logprobs, top_k=top_k)
    last = np.sort(logprobs, axis=1)[:, -top_k]
    assert (ours.sum(axis=1) == top_k).all()
    compare(f"top_k {top_k}", logprobs, ours, theirs, lambda row: logprobs[row] == last[row])


@pytest.mark.parametrize("threshold, special", [(0.002, []), (0.05, []), (0.1, [0, 3]), (0.4, [0, 3])])
def test_xtc(logprobs, threshold, special):
    theirs = reference(logprobs, sample_utils.apply_xtc, 1.0, threshold, special)
    ours = probe.kept(logprobs, xtc_probability=1.0, xtc_threshold=threshold, xtc_special_tokens=special)
    share = np.exp(logprobs.astype(np.float64))
    share /= share.sum(axis=1, keepdims=True)
    # Where the least token above the threshold is in doubt, so are all that are more likely.
    compare(f"xtc {threshold} {special}", logprobs, ours, theirs,
            lambda row: np.full(len(share[row]), (np.abs(share[row] - threshold) <= NEAR).any() or
                                equal_after_softmax(share[row], threshold)))
    assert (~theirs).any() or threshold > share.max() or logprobs.shape[1] > 10000


def equal_after_softmax(share, threshold):
    """Whether the reference's float32 softmax may not tell the least token above the threshold from the next."""
    above = np.sort(share[share > threshold])[:2]
    return len(above) == 2 and above[1] - above[0] <= 2e-7 * above[0]


@pytest.mark.parametrize("options", [dict(top_p=0.9, min_p=0.02), dict(top_p=0.95, min_p=0.1, top_k=8),
                                     dict(top_p=0.8, xtc_probability=1.0, xtc_threshold=0.05, top_k=10),
                                     dict(min_p=0.05, xtc_probability=1.0, xtc_threshold=0.1)])
def test_chain(options):
    """The filters one after another, each seeing what the ones before it left."""
    for vocab in (17, 256, 5003):
        logprobs = rows_of(vocab, 150)[:5 * 150]  # without the rows of equal tokens
        masked = mx.array(logprobs)
        if "top_p" in options:
            masked = sample_utils.apply_top_p(masked, options["top_p"])
        if "min_p" in options:
            masked = sample_utils.apply_min_p(masked, options["min_p"])
        if "xtc_probability" in options:
            masked = sample_utils.apply_xtc(masked, 1.0, options["xtc_threshold"], [])
        if "top_k" in options:
            masked = sample_utils.apply_top_k(masked, options["top_k"])
        theirs = np.isfinite(np.array(masked))
        ours = probe.kept(logprobs, **options)
        differ = (ours != theirs).any(axis=1).sum()
        print(f"\n{options}: {len(logprobs)} rows of {vocab}, {differ} differ")
        # A threshold is hit within rounding in a few rows of a thousand (XTC compares two: the threshold, and the least
        # token above it); a wrong order shows in most rows.
        assert differ <= 0.01 * len(logprobs)
