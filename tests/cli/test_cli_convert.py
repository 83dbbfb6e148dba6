"""mlxlm convert: a GGUF file becomes a folder that generate runs."""

import random
import struct

import pytest
import tiny_model

HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 32, 64, 2, 1, 259
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9  # value types of the format


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        item, items = content
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, i) for i in items)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], content)


def metadata():
    alphabet = tiny_model.byte_alphabet()
    tokens = [alphabet[byte] for byte in range(256)] + ["<s>", "</s>", "ab"]
    return {
        "general.architecture": (STRING, "llama"), "general.alignment": (U32, 32),
        "llama.block_count": (U32, 1), "llama.context_length": (U32, 512), "llama.embedding_length": (U32, HIDDEN),
        "llama.feed_forward_length": (U32, INNER), "llama.attention.head_count": (U32, HEADS),
        "llama.attention.head_count_kv": (U32, KV_HEADS), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.freq_base": (F32, 10000.0), "llama.rope.dimension_count": (U32, HIDDEN // HEADS),
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (U32, [1] * 256 + [3, 3, 1])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["a b"])),
        "tokenizer.ggml.bos_token_id": (U32, 256), "tokenizer.ggml.eos_token_id": (U32, 257),
    }


def tensor_shapes():
    kv = HIDDEN // HEADS * KV_HEADS
    return {
        "token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,), "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HIDDEN, HIDDEN), "blk.0.attn_k.weight": (kv, HIDDEN), "blk.0.attn_v.weight": (kv, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, HIDDEN), "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.ffn_gate.weight": (INNER, HIDDEN), "blk.0.ffn_up.weight": (INNER, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, INNER),
    }


def write_gguf(path):
    rng = random.Random(3)
    keys, shapes = metadata(), tensor_shapes()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(keys))
    for key, (kind, content) in keys.items():
        head += text(key) + struct.pack("<I", kind) + value(kind, content)
    data = b""
    for name, shape in shapes.items():
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        spread = [1.0] * count if len(shape) == 1 else [rng.gauss(0, 0.2) for _ in range(count)]
        data += struct.pack(f"<{count}f", *spread)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def test_convert_and_generate(mlxlm, tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "folder"
    done = mlxlm("convert", "--gguf", tmp_path / "tiny.gguf", "--mlx-path", folder, check=0)
    assert done.out.startswith(f"{folder}: llama (llama in the GGUF file), 11 weights") and done.err == ""
    answer = mlxlm.json("generate", "--model", folder, "--prompt", "ab c", "--ignore-chat-template", "-m", 4)
    assert answer["prompt_token_ids"][-3:] == [258, 32, 99]
    assert answer["generation_tokens"] >= 1
    message = mlxlm.fails(1, "convert", "--gguf", tmp_path / "tiny.gguf", "--mlx-path", folder)
    assert str(folder) in message


def test_convert_errors(mlxlm, tmp_path):
    out = tmp_path / "out"
    assert "missing.gguf" in mlxlm.fails(1, "convert", "--gguf", tmp_path / "missing.gguf", "--mlx-path", out)
    (tmp_path / "text.gguf").write_text("not a model")
    assert "text.gguf" in mlxlm.fails(1, "convert", "--gguf", tmp_path / "text.gguf", "--mlx-path", out)
    assert "give --hf-path DIR or --gguf FILE" in mlxlm.fails(2, "convert")
    assert "not both" in mlxlm.fails(2, "convert", "--gguf", "x", "--hf-path", "y")
    assert not out.exists()


def test_quantise_and_generate(mlxlm, model, tmp_path):
    dense, again = tmp_path / "dense", tmp_path / "again"
    done = mlxlm("convert", "--model", model, "--mlx-path", dense, "-d", "--threads", 2, check=0)
    assert done.out.startswith(f"{dense}: llama, ") and "not quantised, 16.000 bits per weight" in done.out
    done = mlxlm("convert", "--hf-path", dense, "--mlx-path", again, "-q", "--q-bits", 8, "--q-group-size", 32, check=0)
    assert "8-bit group 32" in done.out and done.err == ""
    answer = mlxlm.json("generate", "--model", again, "--prompt", "ab c", "-m", 4)
    assert answer["generation_tokens"] >= 1
    done = mlxlm("convert", "--hf-path", again, "--mlx-path", tmp_path / "copy", check=0)
    assert "quantised already and stay as they are" in done.err


@pytest.mark.parametrize("flags, expected", [
    (["-q"], "--quantize: a GGUF file keeps its own types"), (["-d"], "--dequantize: a GGUF file keeps its own types"),
    (["--dtype", "float16"], "--dtype: a GGUF file keeps its own types"), (["--q-bits", "4"], "--q-bits needs --quantize"),
    (["--upload-repo", "x/y"], "uploads are not built yet"), (["--trust-remote-code"], "never run"),
    (["--max-shard-size", "5XB"], "expected a size like 2GB or 500MiB, got '5XB'"),
    (["--max-shard-size", "99999999999GB"], "expected a size like 2GB"),
])
def test_flags_that_do_not_fit(mlxlm, flags, expected):
    assert expected in mlxlm.fails(2, "convert", "--gguf", "x.gguf", *flags)


def test_values_that_do_not_fit(mlxlm, model, tmp_path):
    base = ("convert", "--hf-path", model, "--mlx-path", tmp_path / "out")
    assert "expected one of 2, 3, 4, 5, 6, 8, got 7" in mlxlm.fails(1, *base, "-q", "--q-bits", 7)
    assert "'mxfp4' is not built yet; supported: affine" in mlxlm.fails(1, *base, "-q", "--q-mode", "mxfp4")
    assert "mixed_2_6" in mlxlm.fails(1, *base, "-q", "--quant-predicate", "mixed_1_2")
    assert "got 'int8'" in mlxlm.fails(1, *base, "--dtype", "int8")
    assert "exists already" in mlxlm.fails(1, "convert", "--hf-path", model, "--mlx-path", model)
    assert not (tmp_path / "out").exists()
