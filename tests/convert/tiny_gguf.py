"""Tiny GGUF files of each architecture, written with the gguf package, and what they mean in Hugging Face's order."""
import numpy as np
from gguf import GGMLQuantizationType as Quant
from gguf import GGUFWriter, TokenType
from gguf.quants import dequantize, quantize

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 7, 4, 2, 32, 288
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def byte_chars():
    """GPT-2's printable stand-in for each byte."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def byte_level_tokenizer(writer, pre="smollm", merges=("a b", "Ġ t", "Ġt h"), extra=()):
    """All bytes, the merges' results, <s>, </s> (control), <think> (user defined), and padding up to VOCAB."""
    tokens = list(byte_chars().values()) + [m.replace(" ", "") for m in merges]
    types = [TokenType.NORMAL] * len(tokens)
    for text, kind in [("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL), ("<think>", TokenType.USER_DEFINED), *extra]:
        tokens.append(text)
        types.append(kind)
    while len(tokens) < VOCAB:
        tokens.append(f"[PAD{len(tokens)}]")
        types.append(TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(merges))
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    return tokens


def shapes(arch, tied=True):
    """GGUF name → row-major shape, the rows of q and k still in Hugging Face's order."""
    q, kv = HEADS * head_dim(arch), KV_HEADS * head_dim(arch)
    layer = {"attn_norm.weight": (HIDDEN,), "attn_q.weight": (q, HIDDEN), "attn_k.weight": (kv, HIDDEN),
             "attn_v.weight": (kv, HIDDEN), "attn_output.weight": (HIDDEN, q), "ffn_gate.weight": (FFN, HIDDEN),
             "ffn_up.weight": (FFN, HIDDEN), "ffn_down.weight": (HIDDEN, FFN), "ffn_norm.weight": (HIDDEN,)}
    if arch == "qwen2":
        layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if arch in ("qwen3", "gemma3"):
        layer |= {"attn_q_norm.weight": (head_dim(arch),), "attn_k_norm.weight": (head_dim(arch),)}
    if arch == "gemma3":
        layer |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
    result = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        result["output.weight"] = (VOCAB, HIDDEN)
    for i in range(LAYERS):
        result |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return result


def head_dim(arch):
    return HIDDEN // HEADS if arch in ("llama", "qwen2") else HEAD_DIM


def interleave(rows, heads):
    """Row 2i + half of a head's rows in the file is row half · D/2 + i of the checkpoint."""
    out = np.empty_like(rows)
    size = rows.shape[0] // heads
    for h in range(heads):
        for i in range(size // 2):
            for half in range(2):
                out[h * size + 2 * i + half] = rows[h * size + half * (size // 2) + i]
    return out


def add_keys(writer, arch):
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if head_dim(arch) * HEADS != HIDDEN:
        writer.add_key_length(head_dim(arch))
        writer.add_value_length(head_dim(arch))
    if arch == "gemma3":
        writer.add_sliding_window(16)


def write(path, arch="llama", quant=Quant.Q4_0, embedding=Quant.Q8_0, tied=True, tokenizer=byte_level_tokenizer,
          edit=lambda writer: None, drop=(), extra=None, d_scale=1.0):
    """Writes the file; returns GGUF name → the float32 weights that it stands for, in Hugging Face's order."""
    rng = np.random.default_rng(7)
    writer = GGUFWriter(path, arch)
    add_keys(writer, arch)
    tokenizer(writer)
    edit(writer)
    expected = {}
    for name, shape in (shapes(arch, tied) | (extra or {})).items():
        values = (rng.standard_normal(shape) * 0.1 * d_scale).astype(np.float32)
        if len(shape) == 1 and name.endswith("weight"):
            values = (1 + rng.integers(-64, 64, shape) / 256).astype(np.float32)  # as from bfloat16
        kind = Quant.F32 if len(shape) == 1 else embedding if name in ("token_embd.weight", "output.weight") else quant
        data = quantize(values, kind)
        meaning = dequantize(data, kind)
        expected[name] = meaning - 1 if arch == "gemma3" and name.endswith("norm.weight") else meaning
        if arch == "llama" and ("attn_q." in name or "attn_k." in name):
            data = interleave(data, HEADS if "attn_q." in name else KV_HEADS)
        if name not in drop:
            writer.add_tensor(name, data, raw_shape=data.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected
