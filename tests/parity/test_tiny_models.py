"""Our logits against the real mlx-lm's on tiny random models of every architecture and width."""
import json

import mlx.core as mx
import numpy as np
import pytest

import ours
import reference

# Both sides compute in float32 with different orders of summation; the bound is what the project promises.
TOLERANCE = 1e-4


def check(folder, step, ids=tuple(reference.PROMPT)):
    ids = list(ids)
    expected = reference.logits(reference.load_float32(folder), ids, step)
    assert np.isfinite(expected).all() and expected.std() > 0.2, "the reference's logits should be alive"
    for chunk in (1, 7, 512):
        got = ours.logits(folder, ids, chunk=chunk)
        worst = np.abs(got - expected).max()
        assert worst <= TOLERANCE * max(1, np.abs(expected).max()), f"chunk {chunk}: differs by {worst}"


@pytest.mark.parametrize("name", reference.FAMILIES)
@pytest.mark.parametrize("quantize", [None, (4, 32)], ids=["dense", "4bit"])
def test_architecture(tmp_path, name, quantize):
    folder = reference.make(tmp_path / "model", reference.FAMILIES[name], quantize)
    # Windows and dynamic rope make the reference depend on its chunk size; one token at a time is the rule.
    check(folder, step=1)
    if "dynamic" not in name:
        check(folder, step=len(reference.PROMPT))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=["f32", "bf16", "f16"])
def test_width(tmp_path, bits, group_size, dtype):
    conf = reference.config("qwen3", hidden_size=128, head_dim=32, tie_word_embeddings=bits % 2 == 0)
    check(reference.make(tmp_path / "model", conf, (bits, group_size), dtype=dtype), step=40)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bf16", "f16"])
def test_dense_half(tmp_path, dtype):
    check(reference.make(tmp_path / "model", reference.FAMILIES["llama-biases"], dtype=dtype), step=40)


def test_mixed_widths_and_dense_modules(tmp_path):
    def predicate(path, module):
        if "v_proj" in path or "down_proj" in path:
            return {"bits": 6, "group_size": 64}
        if "layers.1" in path or not hasattr(module, "to_quantized"):
            return False
        return {"bits": 8, "group_size": 32} if "embed" in path or "lm_head" in path else True

    folder = reference.make(tmp_path / "model", reference.FAMILIES["llama-tied"], (4, 32), predicate)
    check(folder, step=40)


def test_five_bit_rows_of_640_words(tmp_path):
    """640 words of 32 bits hold 4096 codes of 5 bits, which straddle the words."""
    conf = reference.config("llama", num_hidden_layers=1, intermediate_size=4096)
    folder = reference.make(tmp_path / "model", conf, (5, 64))
    weights = mx.load(str(folder / "model.safetensors"))
    assert weights["model.layers.0.mlp.down_proj.weight"].shape == (64, 640)
    check(folder, step=40)
    # The same weights, dense: every one of the 4096 values of a row is read from its place.
    dense = {name: array for name, array in weights.items() if not name.endswith((".scales", ".biases"))}
    for name in weights:
        if name.endswith(".scales"):
            path = name.removesuffix(".scales")
            dense[f"{path}.weight"] = mx.dequantize(weights[f"{path}.weight"], weights[name], weights[f"{path}.biases"],
                                                    group_size=64, bits=5)
    mx.save_safetensors(str(folder / "model.safetensors"), dense)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "config.json").write_text(json.dumps(conf))
    quantised = reference.make(tmp_path / "again", conf, (5, 64))
    difference = np.abs(ours.logits(folder, reference.PROMPT) - ours.logits(quantised, reference.PROMPT)).max()
    assert difference <= TOLERANCE


def test_long_prompt_past_partitions(tmp_path):
    """Past the window, several KV blocks (64 keys) and attention partitions (256 keys)."""
    ids = [(i * i + 3 * i) % 240 for i in range(600)]
    for name in ("llama-llama3", "gemma3"):
        conf = dict(reference.FAMILIES[name])
        if name == "gemma3":
            conf["sliding_window"] = 100
        folder = reference.make(tmp_path / name, conf)
        expected = reference.logits(reference.load_float32(folder), ids, 1)
        got = ours.logits(folder, ids)
        assert np.abs(got - expected).max() <= TOLERANCE * max(1, np.abs(expected).max())


def test_fast_stays_close_to_exact(tmp_path):
    """`fast` rounds activations to 8 bits: on a random model the top token should mostly agree, and not be the same bits."""
    folder = reference.make(tmp_path / "model", reference.FAMILIES["llama-tied"], (4, 32))
    exact, fast = (ours.logits(folder, reference.PROMPT, precision=p) for p in ("exact", "fast"))
    assert (exact != fast).any()
    assert (exact.argmax(-1) == fast.argmax(-1)).mean() >= 0.9
    assert np.abs(exact - fast).max() < 0.15 * np.abs(exact).max()
