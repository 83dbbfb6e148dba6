#!/usr/bin/env python3
"""Writes a tiny random model in MLX format: tiny_model.py FOLDER. Standard library only.

A llama with 2 layers, hidden size 64, 4-bit weights in groups of 32 and a tokenizer whose 256 tokens are the bytes. The
same bytes every time, so that a test may compare two runs.
"""

import json
import random
import struct
import sys
from pathlib import Path

BITS = 4
GROUP_SIZE = 32
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 259,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "quantization": {"group_size": GROUP_SIZE, "bits": BITS},
}
SPECIAL_TOKENS = ["<s>", "</s>", "<|turn|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant: {% endif %}"
)


def float16(values):
    return struct.pack(f"<{len(values)}e", *values)


def quantized(tensors, rng, path, rows, columns):
    """Random codes; scales and biases that make the weights spread around zero."""
    groups = rows * columns // GROUP_SIZE
    scales = [0.02 * (0.5 + rng.random()) for _ in range(groups)]
    tensors[f"{path}.weight"] = ("U32", [rows, columns * BITS // 32], rng.randbytes(rows * columns * BITS // 8))
    tensors[f"{path}.scales"] = ("F16", [rows, columns // GROUP_SIZE], float16(scales))
    tensors[f"{path}.biases"] = ("F16", [rows, columns // GROUP_SIZE], float16([-7.5 * s for s in scales]))


def make_tensors():
    rng = random.Random(7)
    tensors = {}
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv_width = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    ones = ("F16", [hidden], float16([1.0] * hidden))
    quantized(tensors, rng, "model.embed_tokens", CONFIG["vocab_size"], hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q", hidden), ("k", kv_width), ("v", kv_width), ("o", hidden)):
            quantized(tensors, rng, f"{prefix}.self_attn.{name}_proj", rows, hidden)
        quantized(tensors, rng, f"{prefix}.mlp.gate_proj", inner, hidden)
        quantized(tensors, rng, f"{prefix}.mlp.up_proj", inner, hidden)
        quantized(tensors, rng, f"{prefix}.mlp.down_proj", hidden, inner)
        tensors[f"{prefix}.input_layernorm.weight"] = ones
        tensors[f"{prefix}.post_attention_layernorm.weight"] = ones
    tensors["model.norm.weight"] = ones
    return tensors


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "mlx"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def byte_alphabet():
    """The printable character that byte-level BPE writes for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            alphabet[byte] = chr(byte)
        else:
            alphabet[byte] = chr(256 + extra)
            extra += 1
    return alphabet


def tokenizer():
    vocab = {character: byte for byte, character in byte_alphabet().items()}
    added = [
        {"id": 256 + i, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, token in enumerate(SPECIAL_TOKENS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    }


def write_model(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", make_tensors())
    files = {
        "config.json": CONFIG,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                  "eos_token": "</s>", "chat_template": CHAT_TEMPLATE},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tiny_model.py FOLDER")
    write_model(sys.argv[1])
