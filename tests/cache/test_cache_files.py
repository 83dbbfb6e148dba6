"""Prompt cache files go from the real mlx-lm to ours and back, and both continue with the same tokens."""
import json
import struct

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import cache as mlx_cache

import probe
import reference

# Both sides compute in float32 with different orders of summation.
TOLERANCE = 1e-4
GROUP = 32
NEXT = [72, 105, 33]
STEPS = 12

MODELS = {
    "llama": reference.config("llama", head_dim=32),
    "qwen3": reference.config("qwen3", head_dim=32, tie_word_embeddings=True),
    "gemma3": reference.config("gemma3_text", tie_word_embeddings=None, **reference.GEMMA3),
}


def prompt(n):
    return [(i * i + 3 * i + 7) % 240 for i in range(n)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder and the reference's model, made when they are first asked for."""
    made = {}

    def get(name):
        if name not in made:
            folder = reference.make(tmp_path_factory.mktemp("models") / name, MODELS[name])
            made[name] = folder, reference.load_float32(folder)
        return made[name]

    return get


#: kind: model, max_kv_size, keep, kv_bits, and prompt lengths before, at and past what the cache holds
KINDS = {
    "llama": ("llama", 0, 4, 0, (1, 40, 90)),
    "qwen3": ("qwen3", 0, 4, 0, (40,)),
    "gemma3": ("gemma3", 0, 4, 0, (1, 5, 8, 75)),
    "rotating": ("qwen3", 16, 4, 0, (1, 9, 16, 17, 90)),
    "rotating-llama": ("llama", 16, 4, 0, (40,)),
    "rotating-keep-0": ("qwen3", 12, 0, 0, (12, 40)),
    "rotating-gemma3": ("gemma3", 16, 4, 0, (5, 40)),
    "8bit": ("qwen3", 0, 4, 8, (2, 90)),
    "4bit": ("llama", 0, 4, 4, (2, 40)),
}
CASES = [pytest.param(*kind[:4], n, id=f"{name}-{n}") for name, kind in KINDS.items() for n in kind[4]]


def make_cache(model, max_kv_size, keep, kv_bits):
    """What the reference uses; a ring also where a model's own make_cache ignores max_kv_size."""
    caches = mlx_cache.make_prompt_cache(model)
    if max_kv_size:
        caches = [mlx_cache.RotatingKVCache(max_size=max_kv_size, keep=keep) if type(c) is mlx_cache.KVCache else c
                  for c in caches]
    if kv_bits:
        caches = [mlx_cache.QuantizedKVCache(group_size=GROUP, bits=kv_bits) for _ in caches]
    return caches


def feed(model, cache, ids, step=1):
    """The last logits. One token at a time is the rule where a cache forgets."""
    for i in range(0, len(ids), step):
        logits = model(mx.array([ids[i:i + step]]), cache=cache)
    return np.array(logits[0, -1])


def greedy(model, cache, ids, n=STEPS):
    tokens = []
    logits = feed(model, cache, ids)
    while True:
        tokens.append(int(logits.argmax()))
        if len(tokens) == n:
            return tokens, logits
        logits = feed(model, cache, tokens[-1:])


def same(ours, theirs, tolerance=TOLERANCE):
    assert ours[0] == theirs[0]
    worst = np.abs(ours[1] - theirs[1]).max()
    assert worst <= tolerance * max(1, np.abs(theirs[1]).max()), worst


@pytest.mark.parametrize("name,max_kv_size,keep,kv_bits,n", CASES)
@pytest.mark.parametrize("step", [1, 7])
def test_from_the_reference(models, tmp_path, name, max_kv_size, keep, kv_bits, n, step):
    folder, model = models(name)
    cache = make_cache(model, max_kv_size, keep, kv_bits)
    # A prompt fed in chunks leaves a ring of another shape; what it holds depends on the chunks only where it forgets,
    # so the continuation is compared with the reference's own from the same file.
    feed(model, cache, prompt(n), step)
    path = str(tmp_path / "cache.safetensors")
    mlx_cache.save_prompt_cache(path, cache, {"model": "m", "tokenizer_config": "{}"})
    lines = probe.run(folder, f"load {path}", "size", probe.append(NEXT), f"greedy {STEPS}", "size")
    assert lines[0] == str(n), "the ids of the file are not known"
    assert lines[-1].split()[0] == str(n + len(NEXT) + STEPS)
    loaded, metadata = mlx_cache.load_prompt_cache(path, return_metadata=True)
    assert metadata == {"model": "m", "tokenizer_config": "{}"}
    same(probe.greedy(lines[1:3]), greedy(model, loaded, NEXT))
    assert sorted(probe.run(folder, f"metadata {path}")) == ["", "model=m", "tokenizer_config={}"]


@pytest.mark.parametrize("name,max_kv_size,keep,kv_bits,n", CASES)
def test_to_the_reference(models, tmp_path, name, max_kv_size, keep, kv_bits, n):
    folder, model = models(name)
    path = tmp_path / "cache.safetensors"
    lines = probe.run(folder, probe.new(max_kv_size, keep, kv_bits), probe.append(prompt(n)),
                      f"save {path} model=m", probe.append(NEXT), f"greedy {STEPS}")
    loaded, metadata = mlx_cache.load_prompt_cache(str(path), return_metadata=True)
    assert metadata["model"] == "m"
    assert [int(i) for i in metadata["mlxlm_tokens"].split()] == prompt(n)
    # As generate does it: the first token is fed before the conversion, so its own query reads no codes.
    expected = make_cache(model, max_kv_size, keep, 0)
    feed(model, expected, prompt(1))
    if kv_bits:
        expected = [c.to_quantized(group_size=GROUP, bits=kv_bits) for c in expected]
    if n > 1:
        feed(model, expected, prompt(n)[1:])
    assert [type(c) for c in loaded] == [type(c) for c in expected]
    assert [c.offset for c in loaded] == [n] * len(loaded)
    same(probe.greedy(lines), greedy(model, loaded, NEXT))
    # A value on the edge between two codes may be rounded either way when each side computes it: a step of one code.
    same(probe.greedy(lines), greedy(model, expected, NEXT), tolerance=2.0**-kv_bits if kv_bits else TOLERANCE)


@pytest.mark.parametrize("name,max_kv_size,keep,kv_bits,n", CASES)
def test_there_and_back(models, tmp_path, name, max_kv_size, keep, kv_bits, n):
    """A file of ours that mlx-lm continued comes back to us."""
    folder, model = models(name)
    first, second = tmp_path / "first", str(tmp_path / "second")
    whole = probe.run(folder, probe.new(max_kv_size, keep, kv_bits), probe.append(prompt(n)), f"save {first}.safetensors",
                      probe.append([1, 2, 3, 4, 5]), probe.append(NEXT), f"greedy {STEPS}")
    loaded = mlx_cache.load_prompt_cache(f"{first}.safetensors")
    feed(model, loaded, [1, 2, 3, 4, 5])
    mlx_cache.save_prompt_cache(f"{second}.safetensors", loaded)
    back = probe.run(folder, f"load {second}.safetensors", probe.append(NEXT), f"greedy {STEPS}")
    same(probe.greedy(back), probe.greedy(whole))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "rotating", "8bit"])
@pytest.mark.parametrize("with_step", [False, True], ids=["", "step"])
def test_files_of_earlier_versions(models, tmp_path, kind, with_step):
    """Numbers of the state as text in the metadata, plain caches cut to their length."""
    name, max_kv_size, keep, kv_bits, _ = KINDS[kind]
    folder, model = models(name)
    cache = make_cache(model, max_kv_size, keep, kv_bits)
    feed(model, cache, prompt(40))
    state, numbers = [], []
    step = ["256"] if with_step else []
    for c in cache:
        keys, values = c.keys_and_values()
        state.append((keys, values))
        if isinstance(c, mlx_cache.RotatingKVCache):
            numbers.append([str(c.keep), str(c.max_size)] + step + [str(c.offset), str(c._idx)])
        elif isinstance(c, mlx_cache.QuantizedKVCache):
            numbers.append(step + [str(c.offset), str(c.group_size), str(c.bits)])
        else:
            numbers.append("")
    path = str(tmp_path / "cache.safetensors")
    metadata = [numbers, {"model": "m"}, [type(c).__name__ for c in cache]]
    mx.save_safetensors(path, dict(tree_flatten(state)), dict(tree_flatten(metadata)))
    lines = probe.run(folder, f"load {path}", f"metadata {path}", probe.append(NEXT), f"greedy {STEPS}")
    assert lines[0] == "model=m"
    same(probe.greedy(lines[2:]), greedy(model, cache, NEXT))


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_llama3_rope_at_position_8192(tmp_path, key):
    """A ring far into a text with the figures of Llama 3.1: the next positions are 8190 and on."""
    scaling = {key: "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
    conf = dict(MODELS["qwen3"], rope_theta=500000.0, max_position_embeddings=131072)
    answers = {}
    for name, config in (("scaled", conf | {"rope_scaling": scaling}), ("plain", conf)):
        folder = reference.make(tmp_path / name, config)
        model = reference.load_float32(folder)
        cache = make_cache(model, 16, 4, 0)
        feed(model, cache, prompt(40))
        for c in cache:
            c.offset += 8190 - 40
        path = saved(tmp_path / f"{name}.safetensors", cache)
        lines = probe.run(folder, f"load {path}", probe.append(NEXT), f"greedy {STEPS}", "size")
        assert lines[-1].split()[0] == str(8190 + len(NEXT) + STEPS)
        answers[name] = probe.greedy(lines[:2])
        same(answers[name], greedy(model, mlx_cache.load_prompt_cache(str(path)), NEXT))
    assert answers["scaled"][0] != answers["plain"][0], "the scaling should matter"


def test_an_empty_cache(models, tmp_path):
    folder, model = models("gemma3")
    path = str(tmp_path / "cache.safetensors")
    mlx_cache.save_prompt_cache(path, mlx_cache.make_prompt_cache(model), {"model": "m"})
    lines = probe.run(folder, f"load {path}", "size", probe.append(NEXT), f"greedy {STEPS}")
    assert lines[0] == "0"
    same(probe.greedy(lines[1:]), greedy(model, mlx_cache.make_prompt_cache(model), NEXT))
    probe.run(folder, probe.new(), f"save {path}")
    same(probe.greedy(lines[1:]), greedy(model, mlx_cache.load_prompt_cache(path), NEXT))


def test_half_precision(tmp_path):
    """A bfloat16 model's cache: exact widens it, fast takes it as it is, and a float32 one does not fit fast."""
    folder = reference.make(tmp_path / "model", MODELS["llama"], dtype=mx.bfloat16)
    model = reference.utils.load_model(folder)[0]
    cache = mlx_cache.make_prompt_cache(model)
    model(mx.array([prompt(40)]), cache=cache)
    path = str(tmp_path / "cache.safetensors")
    mlx_cache.save_prompt_cache(path, cache)
    float32 = reference.load_float32(folder)
    widened = mlx_cache.load_prompt_cache(path)
    for c in widened:
        c.keys, c.values = c.keys.astype(mx.float32), c.values.astype(mx.float32)
    lines = probe.run(folder, f"load {path}", probe.append(NEXT), f"greedy {STEPS}")
    same(probe.greedy(lines), greedy(float32, widened, NEXT))
    assert probe.run(folder, f"load {path}", "size", precision="fast") == ["40"]
    cache = mlx_cache.make_prompt_cache(float32)
    float32(mx.array([prompt(40)]), cache=cache)
    mlx_cache.save_prompt_cache(path, cache)
    assert "tensor '0.0': expected BF16" in probe.fails(folder, f"load {path}", precision="fast")
    # What fast writes has the model's own type.
    probe.run(folder, probe.new(), probe.append(prompt(40)), f"save {path}", precision="fast")
    assert [c.keys.dtype for c in mlx_cache.load_prompt_cache(path)] == [mx.bfloat16] * 3


def saved(path, cache, metadata=None):
    mlx_cache.save_prompt_cache(str(path), cache, metadata or {})
    return path


def test_files_that_do_not_fit(models, tmp_path):
    folder, model = models("qwen3")
    gemma_folder, gemma = models("gemma3")
    path = tmp_path / "cache.safetensors"

    def fed(caches, n=20, runs=model):
        feed(runs, caches, prompt(n))
        return caches

    def message(where=folder):
        return probe.fails(where, f"load {path}")

    plain = fed(mlx_cache.make_prompt_cache(model))
    saved(path, plain[:2])
    assert "expected the 3 layers of qwen3, got 2" in message()
    saved(path, fed(mlx_cache.make_prompt_cache(gemma), runs=gemma))
    assert "layers" in message()
    mixed = fed([mlx_cache.KVCache(), mlx_cache.RotatingKVCache(16, 4), mlx_cache.KVCache()])
    saved(path, mixed)
    assert "layer 0: expected a cache of class RotatingKVCache" in message()
    saved(path, fed([mlx_cache.RotatingKVCache(16, 4), mlx_cache.RotatingKVCache(12, 4), mlx_cache.RotatingKVCache(16, 4)]))
    assert "layer 1: max_size: expected 16, got 12" in message()
    saved(path, fed([mlx_cache.ChunkedKVCache(8) for _ in range(3)]))
    assert "got 'ChunkedKVCache'" in message()
    saved(path, fed([mlx_cache.QuantizedKVCache(GROUP, 2) for _ in range(3)]))
    assert "layer 0: bits: expected 4 or 8, got 2" in message()
    other = fed(mlx_cache.make_prompt_cache(model))
    other[2].trim(1)
    saved(path, other)
    assert "layer 2: offset: expected 20, got 19" in message()
    for c in plain:
        c.values = c.values[..., :16]
    saved(path, plain)
    assert "tensor '0.1': expected [1, 2, 256, 32] of F32, F16 or BF16, got [1, 2, 256, 16] of F32" in message()
    two = mlx_cache.make_prompt_cache(model)
    model(mx.array([prompt(5)] * 2), cache=two)
    saved(path, two)
    assert "tensor '0.0': expected [1, heads, rows, width]" in message()
    short = fed(mlx_cache.make_prompt_cache(gemma), 40, gemma)
    short[0].max_size = 9
    saved(path, short)
    assert "layer 0" in message(gemma_folder)


def test_not_a_cache_file(models, tmp_path):
    folder, _ = models("llama")
    path = tmp_path / "cache.safetensors"
    assert "metadata has no entry" in probe.fails(folder, f"load {folder}/model.safetensors")
    path.write_bytes(b"hello")
    assert "not a safetensors file" in probe.fails(folder, f"load {path}")
    assert "cache.safetensors" in probe.fails(folder, f"load {tmp_path / 'none' / 'cache.safetensors'}")


@pytest.mark.parametrize("offset", [-1, 257, 2**24 + 1, 2**31 - 1])
def test_lying_numbers(models, tmp_path, offset):
    folder, model = models("gemma3")
    cache = mlx_cache.make_prompt_cache(model)
    feed(model, cache, prompt(40))
    for c in cache:
        c.offset = offset
    path = saved(tmp_path / "cache.safetensors", cache)
    message = probe.fails(folder, f"load {path}")
    assert "layer" in message and str(offset) in message


def test_the_header_is_plain(models, tmp_path):
    """What other readers see: a JSON header with every tensor named by layer and place."""
    folder, _ = models("gemma3")
    path = tmp_path / "cache.safetensors"
    probe.run(folder, probe.new(), probe.append(prompt(40)), f"save {path}")
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    assert header["0.0"]["shape"] == [1, 2, 8, 32] and header["2.0"]["shape"] == [1, 2, 40, 32]
    assert header["__metadata__"]["1.0"] == "RotatingKVCache" and header["__metadata__"]["1.2"] == "KVCache"
