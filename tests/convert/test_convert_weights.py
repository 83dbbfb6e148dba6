"""A converted folder loads in mlx-lm, and its weights are exactly those of the GGUF file."""
import json

import mlx.core as mx
import numpy as np
import pytest
import tiny_gguf
from gguf import GGMLQuantizationType as Quant
from gguf import RopeScalingType
from mlx_lm import load

GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}


def folder_name(name, arch):
    module, _, kind = name.rpartition(".")
    if not module.startswith("blk."):
        return f"{GLOBAL[module]}.{kind}"
    _, layer, part = module.split(".")
    hf = "pre_feedforward_layernorm" if arch == "gemma3" and part == "ffn_norm" else LAYER[part]
    return f"model.layers.{layer}.{hf}.{kind}"


def read_folder(folder):
    """Name → float32 weights; quantised ones by MLX's own dequantize."""
    config = json.loads((folder / "config.json").read_text())
    quantization = config.get("quantization")
    raw = {}
    for file in folder.glob("model*.safetensors"):
        raw |= mx.load(str(file))
    result = {}
    for name, value in raw.items():
        module = name.rpartition(".")[0]
        if name.endswith((".scales", ".biases")):
            continue
        if name.endswith(".weight") and f"{module}.scales" in raw:
            how = quantization.get(module) or quantization
            value = mx.dequantize(value, raw[f"{module}.scales"].astype(mx.float32), raw[f"{module}.biases"].astype(mx.float32),
                                  group_size=how["group_size"], bits=how["bits"])
        elif name.endswith(".weight") and value.ndim == 2:
            assert quantization is None or quantization[module] is False
        result[name] = np.array(value.astype(mx.float32))
    return config, raw, result


def assert_same(expected, folder, arch):
    config, raw, got = read_folder(folder)
    assert set(got) == {folder_name(name, arch) for name in expected}
    for name, values in expected.items():
        np.testing.assert_array_equal(got[folder_name(name, arch)], values, err_msg=name)
    return config, raw


@pytest.mark.parametrize("quant", [Quant.Q4_0, Quant.Q4_1, Quant.Q8_0, Quant.F16, Quant.BF16, Quant.F32], ids=lambda q: q.name)
@pytest.mark.parametrize("arch", tiny_gguf.ARCHITECTURES)
def test_weights_are_exact_and_mlx_lm_loads_them(arch, quant, tmp_path, convert):
    expected = tiny_gguf.write(tmp_path / "m.gguf", arch, quant)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config, _ = assert_same(expected, tmp_path / "out", arch)
    assert config["num_hidden_layers"] == tiny_gguf.LAYERS and config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    model, tokenizer = load(str(tmp_path / "out"))
    logits = model(mx.array([tokenizer.encode("a cab, that one")]))
    assert logits.shape[-1] == tiny_gguf.VOCAB and bool(mx.isfinite(logits).all())


def test_untied_and_mixed_widths(tmp_path, convert):
    expected = tiny_gguf.write(tmp_path / "m.gguf", quant=Quant.Q4_1, embedding=Quant.F16, tied=False)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    config, _ = assert_same(expected, tmp_path / "out", "llama")
    assert config["tie_word_embeddings"] is False
    assert config["quantization"] == {"group_size": 32, "bits": 4, "mode": "affine", "model.embed_tokens": False, "lm_head": False}
    model, _ = load(str(tmp_path / "out"))
    assert "scales" not in model.lm_head and "scales" in model.layers[0].mlp.up_proj


def test_biases_beyond_float16_become_float32(tmp_path, convert):
    # −8 · d leaves float16 from |d| = 8190 on; d itself fits up to 65504.
    expected = tiny_gguf.write(tmp_path / "m.gguf", quant=Quant.Q4_0, d_scale=8e5)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    _, raw = assert_same(expected, tmp_path / "out", "llama")
    assert raw["model.layers.0.mlp.up_proj.biases"].dtype == mx.float32


def test_index_and_generation_config(tmp_path, convert):
    tiny_gguf.write(tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "out/")
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    weights = mx.load(str(tmp_path / "out/model.safetensors"))
    assert list(index["weight_map"]) == sorted(weights) and set(index["weight_map"].values()) == {"model.safetensors"}
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in weights.values())
    assert index["metadata"]["total_parameters"] == sum(int(np.prod(s)) for s in tiny_gguf.shapes("llama").values())
    generation = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert generation["eos_token_id"] == json.loads((tmp_path / "out/config.json").read_text())["eos_token_id"]


def llama3_factors(factor, low, high, original, theta=10000.0):
    half = tiny_gguf.head_dim("llama") // 2
    wavelength = 2 * np.pi * theta ** (np.arange(half) / half)
    smooth = (original / wavelength - low) / (high - low)
    mixed = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelength < original / high, 1, np.where(wavelength > original / low, factor, mixed)).astype(np.float32)


def with_factors(factors):
    return lambda writer: writer.add_tensor("rope_freqs.weight", factors)


@pytest.mark.parametrize("factor, high, original", [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (4.0, 64.0, 2048), (16.0, 8.0, 1024)])
def test_llama3_rope_factors(factor, high, original, tmp_path, convert):
    factors = llama3_factors(factor, 1.0, high, original)
    tiny_gguf.write(tmp_path / "m.gguf", edit=with_factors(factors))
    convert(tmp_path / "m.gguf", tmp_path / "out")
    scaling = json.loads((tmp_path / "out/config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "llama3"
    again = llama3_factors(scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"],
                           scaling["original_max_position_embeddings"])
    np.testing.assert_allclose(again, factors, rtol=1e-4)


def test_rope_scaling_keys(tmp_path, convert):
    def yarn(writer):
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(128)

    def linear(writer):
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(2.0)

    for name, edit, want in [("yarn", yarn, {"factor": 4.0, "original_max_position_embeddings": 128, "rope_type": "yarn"}),
                             ("linear", linear, {"factor": 2.0, "rope_type": "linear"})]:
        tiny_gguf.write(tmp_path / f"{name}.gguf", "qwen3", edit=edit)
        convert(tmp_path / f"{name}.gguf", tmp_path / name)
        assert json.loads((tmp_path / name / "config.json").read_text())["rope_scaling"] == want
        load(str(tmp_path / name))


def test_errors_name_the_place(tmp_path, convert):
    path, out = tmp_path / "m.gguf", tmp_path / "out"
    cases = [
        (dict(drop=["blk.1.attn_k.weight"]), "tensor 'blk.1.attn_k.weight' is missing"),
        (dict(extra={"blk.0.surprise.weight": (64, 64)}), "tensor 'blk.0.surprise.weight' is not part of"),
        (dict(extra={"blk.0.ffn_up.weight": (64, 64)}), "expected shape [96, 64], got [64, 64]"),
        (dict(quant=Quant.Q5_0), "is Q5_0; supported: F32, F16, BF16, Q4_0, Q4_1, Q8_0"),
        (dict(arch="qwen3", edit=lambda w: w.add_expert_count(8)), "mixtures of experts"),
        (dict(edit=lambda w: w.add_logit_scale(2.0)), "key 'llama.logit_scale' is not understood"),
        (dict(edit=with_factors(np.linspace(1, 9, 8, dtype=np.float32))), "not of Llama 3's form"),
        (dict(edit=with_factors(np.ones(3, np.float32))), "'rope_freqs.weight': expected F32 of shape [8]"),
    ]
    for arguments, message in cases:
        tiny_gguf.write(path, **arguments)
        assert message in convert.fails(path, out)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert "is the file truncated?" in convert.fails(path, out)
    path.write_bytes(b"{}")
    assert "not a GGUF file" in convert.fails(path, out)
    assert "none.gguf: cannot open" in convert.fails(tmp_path / "none.gguf", out)


def test_other_architectures_are_refused(tmp_path, convert):
    tiny_gguf.write(tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
    assert "architecture 'mamba' cannot be converted; supported: llama, qwen2, qwen3, gemma3" in convert.fails(tmp_path / "m.gguf", tmp_path / "out")


def test_an_existing_folder_is_kept(tmp_path, convert):
    tiny_gguf.write(tmp_path / "m.gguf")
    (tmp_path / "empty").mkdir()
    assert "exists already" in convert.fails(tmp_path / "m.gguf", tmp_path / "empty")
    convert(tmp_path / "m.gguf", tmp_path / "out")
    before = (tmp_path / "out/config.json").read_bytes()
    process = convert(tmp_path / "m.gguf", tmp_path / "out", check=False)
    assert process.returncode == 1 and "exists already" in process.stderr
    assert (tmp_path / "out/config.json").read_bytes() == before
