#!/usr/bin/env python3
"""Makes a model of a known shape with random weights, to measure speed: its answers mean nothing.

    bench/random_model.py 1B FOLDER                               affine 4-bit, group 64
    bench/random_model.py 8B FOLDER --bits 8 --group-size 32
    bench/random_model.py 1B FOLDER --gguf FILE                   the same weights for llama.cpp too: 4-bit (or 8), group 32

Speed depends on a weight's place and width, not on its value, so codes are random bytes.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

import environment  # noqa: E402

if __name__ == "__main__" and Path(sys.prefix) != environment.VENV:
    environment.prepare()
    os.execv(environment.PYTHON, [environment.PYTHON, *sys.argv])

import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType as Quant  # noqa: E402
from gguf import GGUFWriter, TokenType  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool


SHAPES = {
    "0.1B": Shape(30, 576, 1536, 9, 3, 64, 49_152, True),  # SmolLM2-135M
    "1B": Shape(16, 2048, 8192, 32, 8, 64, 128_256, True),  # Llama-3.2-1B
    "3B": Shape(28, 3072, 8192, 24, 8, 128, 128_256, True),  # Llama-3.2-3B
    "8B": Shape(32, 4096, 14_336, 32, 8, 128, 128_256, False),  # Llama-3.1-8B
}
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
PRODUCTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down"}
CONTEXT = 16_384
ROPE_BASE = 500_000.0


def product_shape(shape, name):
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {"self_attn.q_proj": (q, shape.hidden), "self_attn.k_proj": (kv, shape.hidden),
            "self_attn.v_proj": (kv, shape.hidden), "self_attn.o_proj": (shape.hidden, q),
            "mlp.gate_proj": (shape.ffn, shape.hidden), "mlp.up_proj": (shape.ffn, shape.hidden),
            "mlp.down_proj": (shape.hidden, shape.ffn)}[name]


def tables(shape):
    """The embedding and, where it is not tied to it, the head: names in a folder and in a GGUF file."""
    names = {"model.embed_tokens": "token_embd"}
    return names if shape.tied else names | {"lm_head": "output"}


def vocabulary(shape):
    """The bytes in GPT-2's printable stand-ins, what one merge makes, fillers, and two control tokens."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    rest = [b for b in range(256) if b not in plain]
    bytes_ = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]
    return [*bytes_, "fi", *(f"filler{i}" for i in range(shape.vocab - 259)), "<s>", "</s>"]


# ---- a folder in MLX format

def affine(rng, rows, cols, bits, group_size):
    """Codes around 0 after scale and bias, small enough for deep stacks of layers."""
    scale = np.full((rows, cols // group_size), 0.05 / 2**bits, np.float16)
    codes = rng.integers(0, 2**32, (rows, cols * bits // 32), np.uint32)
    return {"weight": codes, "scales": scale, "biases": (-(2**bits - 1) / 2 * scale).astype(np.float16)}


def config_of(shape, bits, group_size):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": shape.hidden,
            "intermediate_size": shape.ffn, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": shape.vocab,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": ROPE_BASE,
            "tie_word_embeddings": shape.tied, "bos_token_id": shape.vocab - 2, "eos_token_id": shape.vocab - 1,
            "quantization": {"bits": bits, "group_size": group_size}}


def tokenizer_of(shape):
    tokens = vocabulary(shape)
    special = [{"id": shape.vocab - 2 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, text in enumerate(tokens[-2:])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {text: i for i, text in enumerate(tokens)}, "merges": [], "byte_fallback": False}
    return {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level, "model": model}


def write_folder(shape, folder, bits, group_size):
    rng = np.random.default_rng(1)
    tensors = {}
    folder.mkdir(parents=True, exist_ok=True)
    products = {name: (shape.vocab, shape.hidden) for name in tables(shape)}
    for layer in range(shape.layers):
        products |= {f"model.layers.{layer}.{name}": product_shape(shape, name) for name in PRODUCTS}
        for name in NORMS:
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(shape.hidden, np.float16)
    tensors["model.norm.weight"] = np.ones(shape.hidden, np.float16)
    for name, (rows, cols) in products.items():
        tensors |= {f"{name}.{part}": data for part, data in affine(rng, rows, cols, bits, group_size).items()}
    save_file(tensors, folder / "model.safetensors", {"format": "mlx"})
    for name, value in {"config.json": config_of(shape, bits, group_size), "tokenizer.json": tokenizer_of(shape),
                        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>"}}.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")


# ---- the same shape as GGUF

def blocks(rng, rows, cols, bits):
    """[rows, bytes] of Q4_1 blocks (scale, minimum, 16 bytes) or Q8_0 blocks (scale, 32 bytes)."""
    parts = [("d", np.float16), ("m", np.float16), ("q", np.uint8, 16)] if bits == 4 else [("d", np.float16), ("q", np.uint8, 32)]
    data = np.zeros((rows, cols // 32), parts)
    data["d"] = 0.05 / 2**bits
    if bits == 4:
        data["m"] = -7.5 * 0.05 / 16
    data["q"] = rng.integers(0, 256, data["q"].shape, np.uint8)
    return data.view(np.uint8).reshape(rows, -1)


def write_gguf(shape, path, bits):
    rng = np.random.default_rng(1)
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary(shape))
    writer.add_token_types([TokenType.NORMAL] * (shape.vocab - 2) + [TokenType.CONTROL] * 2)
    writer.add_token_merges(["f i"])
    writer.add_bos_token_id(shape.vocab - 2)
    writer.add_eos_token_id(shape.vocab - 1)
    kind = Quant.Q4_1 if bits == 4 else Quant.Q8_0
    for name in tables(shape).values():
        writer.add_tensor(f"{name}.weight", blocks(rng, shape.vocab, shape.hidden, bits), raw_dtype=kind)
    for layer in range(shape.layers):
        for name in NORMS.values():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(shape.hidden, np.float32))
        for name, short in PRODUCTS.items():
            writer.add_tensor(f"blk.{layer}.{short}.weight", blocks(rng, *product_shape(shape, name), bits), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES, help="number of parameters")
    parser.add_argument("folder", type=Path, help="new model folder")
    parser.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4, help="default: 4")
    parser.add_argument("--group-size", type=int, choices=(32, 64, 128), help="default: 64; 32 with --gguf")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="write this first and convert it")
    settings = parser.parse_args()
    shape = SHAPES[settings.shape]
    if settings.folder.exists():
        parser.error(f"{settings.folder} exists already")
    if settings.gguf is None:
        write_folder(shape, settings.folder, settings.bits, settings.group_size or 64)
        return
    if settings.bits not in (4, 8) or settings.group_size not in (None, 32):
        parser.error("--gguf: its blocks hold 4 or 8 bits with a scale for every 32 values")
    write_gguf(shape, settings.gguf, settings.bits)
    subprocess.run([BENCH.parent / "build" / "bin" / "mlxlm", "convert", "--gguf", settings.gguf, "--mlx-path", settings.folder],
                   check=True)


if __name__ == "__main__":
    main()
