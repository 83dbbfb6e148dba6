"""Windows with a kept start and quantised keys and values against the real mlx-lm's caches.

mlx-lm's answers depend on how a prompt is cut into chunks here; one token at a time is the rule that ours follow whatever
the chunks.
"""
import subprocess

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import KVCache, RotatingKVCache

import ours
import reference

IDS = [(i * i + 3 * i) % 240 for i in range(90)]
FAMILIES = {
    "llama": reference.config("llama", head_dim=64),
    "qwen3": reference.config("qwen3", head_dim=64, num_key_value_heads=1),
    "gemma3": dict(reference.FAMILIES["gemma3"], head_dim=64),
}


def probe(folder, *options, precision="exact", chunk=512, layer=None):
    """Raw output of kv_probe. Options: max_size, keep, bits, group_size, start."""
    command = [ours.BUILD / "bin" / "kv_probe", folder, precision, chunk, *options]
    command += [] if layer is None else [layer]
    run = subprocess.run([str(c) for c in command], capture_output=True, check=False,
                         input=" ".join(map(str, IDS)).encode())
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def logits(*args, **kwargs):
    return np.frombuffer(probe(*args, **kwargs), np.float32).reshape(len(IDS), -1)


def expected(model, caches, after=lambda caches: None):
    """The reference's logits, one token at a time; `after` is called after each."""
    rows = []
    for token in IDS:
        rows.append(np.array(model(mx.array([[token]]), cache=caches)[0, -1].astype(mx.float32)))
        after(caches)
    return np.stack(rows)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("max_size,keep", [(20, 4), (20, 0), (70, 4), (66, 65)])
def test_window_with_a_kept_start(tmp_path, name, max_size, keep):
    folder = reference.make(tmp_path / "model", FAMILIES[name])
    model = reference.load_float32(folder)
    want = expected(model, [RotatingKVCache(max_size, keep) for _ in model.layers])
    for chunk in (1, 7, 512):
        worst = np.abs(logits(folder, max_size, keep, 0, 64, 0, chunk=chunk) - want).max()
        # Float32 with different orders of summation, as in test_tiny_models.
        assert worst <= 1e-4 * max(1, np.abs(want).max()), f"chunk {chunk}: differs by {worst}"


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("bits,group_size,start", [(8, 64, 0), (8, 32, 5), (4, 64, 0), (4, 32, 5), (8, 32, 70)])
def test_quantised(tmp_path, name, bits, group_size, start):
    folder = reference.make(tmp_path / "model", FAMILIES[name])
    model = reference.load_float32(folder)
    plain = expected(model, [KVCache() for _ in model.layers])
    want = expected(model, [KVCache() for _ in model.layers],
                    lambda caches: maybe_quantize_kv_cache(caches, start, group_size, bits))
    effect = np.abs(want - plain).max(-1)
    assert (effect[:max(1, start)] == 0).all() and (effect[max(1, start):] > 1e-3).mean() > 0.9, "it should matter"
    for chunk in (1, 7, 512):
        got = logits(folder, 0, 4, bits, group_size, start, chunk=chunk)
        error = np.abs(got - want).max(-1)
        # Both sides round values that differ in the last bits of float32: one in some hundred thousand falls to the
        # other side of a code's edge (a step of 1/255 or 1/15 of the range) and all later rows read it. The effect of
        # quantising is that of every value's rounding, so a few flips are a small part of it.
        assert error.max() <= 0.15 * effect.max(), f"chunk {chunk}: {error.max()} of {effect.max()}"
        first = max(1, start)
        typical = np.median(error[first:])
        assert typical <= 0.05 * np.median(effect[first:]), f"chunk {chunk}: {typical}"
        assert (error[:first] <= 1e-4 * max(1, np.abs(want).max())).all()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("bits,group_size", [(8, 64), (8, 32), (4, 64), (4, 32)])
def test_codes_are_those_of_mlx(tmp_path, dtype, bits, group_size):
    """The first layer's rows do not depend on attention: our floats, quantised by MLX, are our codes bit for bit."""
    folder = reference.make(tmp_path / "model", FAMILIES["llama"], dtype=dtype)
    precision = "exact" if dtype == mx.float32 else "fast"
    heads, n = 2, len(IDS)
    floats = np.frombuffer(probe(folder, 0, 4, 0, 64, 0, precision=precision, layer=0), np.float32)
    raw = probe(folder, 0, 4, bits, group_size, 5, precision=precision, layer=0)
    for rows in floats.reshape(2, heads, n, 64):
        for want in mx.quantize(mx.array(rows).astype(dtype), group_size=group_size, bits=bits):
            want = np.array(want.view(mx.uint8) if want.dtype != mx.uint32 else want)
            assert raw[:want.nbytes] == want.tobytes()
            raw = raw[want.nbytes:]
    assert raw == b""


def test_models_own_windows_stay(tmp_path):
    """max_size and codes on a model with windows, which mlx-lm cannot do together: windows apply, codes cost little."""
    folder = reference.make(tmp_path / "model", FAMILIES["gemma3"])
    model = reference.load_float32(folder)
    caches = model.make_cache()
    own = [type(cache) for cache in caches]
    assert RotatingKVCache in own and KVCache in own
    want = expected(model, [RotatingKVCache(20, 4) if kind is KVCache else cache for kind, cache in zip(own, caches)])
    got = logits(folder, 20, 4, 0, 64, 0)
    assert np.abs(got - want).max() <= 1e-4 * max(1, np.abs(want).max())
    coded = logits(folder, 20, 4, 8, 64, 0)
    assert 0 < np.abs(coded - want).max() < 0.1 * np.abs(want).max()  # 8 bits: some hundredths at most
