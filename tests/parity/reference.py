"""Tiny random models in MLX format, made and run by the real mlx-lm.

Token id equals byte, norm epsilon is 1e-3 so that a wrong one shows, and weights are scaled so that activations keep a
sensible size.
"""
import json
import math
import shutil
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.models.cache import make_prompt_cache
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

mx.set_default_device(mx.cpu)
EOS = 246
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
PROMPT = list(b"The five boxing wizards jump quickly; 42")


def config(model_type, **changes):
    """A small config; a value of None removes the key."""
    base = dict(model_type=model_type, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=2, vocab_size=256, max_position_embeddings=4096,
                rms_norm_eps=1e-3, rope_theta=10000.0, tie_word_embeddings=False, eos_token_id=EOS)
    return {k: v for k, v in (base | changes).items() if v is not None}


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=1024, beta_fast=32.0, beta_slow=1.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
DYNAMIC = dict(type="dynamic", rope_type="dynamic", factor=2.0)
LONGROPE = dict(type="longrope", short_factor=[1 + 0.05 * i for i in range(8)],
                long_factor=[1 + 0.5 * i for i in range(8)], original_max_position_embeddings=512)
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA3 = dict(head_dim=32, hidden_act="gelu_pytorch_tanh", sliding_window=8, query_pre_attn_scalar=256,
              num_hidden_layers=6, sliding_window_pattern=3, rope_theta=1e6, rope_local_base_freq=10000.0,
              rope_scaling=dict(rope_type="linear", factor=8.0))

#: name: config; each is compared dense and quantised
FAMILIES = {
    "llama-tied": config("llama", tie_word_embeddings=True),
    "llama-llama3": config("llama", rope_scaling=LLAMA3),
    "llama-linear": config("llama", rope_scaling=dict(type="linear", factor=4.0)),
    "llama-yarn": config("llama", rope_scaling=YARN),
    "llama-yarn-mscale": config("llama", rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=0.7)),
    "llama-dynamic": config("llama", max_position_embeddings=28, rope_scaling=DYNAMIC),
    "llama-longrope": config("llama", rope_scaling=LONGROPE),
    "llama-traditional": config("llama", rope_traditional=True),
    "llama-biases": config("llama", attention_bias=True, mlp_bias=True, head_dim=32),
    "llama-sliding": config("llama", sliding_window=8, num_hidden_layers=4, layer_types=[SLIDING, FULL] * 2),
    "llama-one-kv-head": config("llama", num_key_value_heads=1),
    "llama-no-gqa": config("llama", num_key_value_heads=None),
    "mistral": config("mistral", head_dim=32, sliding_window=8),
    "qwen2": config("qwen2", tie_word_embeddings=True, rope_theta=1e6, sliding_window=8, use_sliding_window=False),
    "qwen2-yarn": config("qwen2", rope_scaling=YARN),
    "qwen3": config("qwen3", tie_word_embeddings=True, head_dim=32),
    "qwen3-rope-parameters": config("qwen3", head_dim=32, rope_theta=None, rope_parameters=dict(YARN, rope_theta=1e6)),
    "gemma3": config("gemma3_text", tie_word_embeddings=None, **GEMMA3),
    "gemma3-untied": config("gemma3_text", tie_word_embeddings=None, untied=True, **GEMMA3),
}


def random_weights(model, rng):
    new = []
    modules = dict(model.named_modules())
    for path, old in sorted(tree_flatten(model.parameters())):
        module, normal = modules[path.rpartition(".")[0]], rng.standard_normal(old.shape)
        if "Norm" in type(module).__name__ and path.endswith("weight"):
            value = (0.0 if "gemma3" in type(module).__module__ else 1.0) + 0.1 * normal
        elif len(old.shape) < 2:
            value = 0.1 * normal
        elif isinstance(module, nn.Embedding):
            value = (0.06 if "gemma3" in type(model).__module__ else 0.25) * normal
        else:
            value = (2.0 if "lm_head" in path else 1.2) * normal / math.sqrt(old.shape[-1])
        new.append((path, mx.array(value.astype(np.float32))))
    model.load_weights(new)


def write_tokenizer(folder):
    """A byte-level BPE without merges: every byte is the token of the same number."""
    chars = {b: chr(b) for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b}
    chars |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in chars)}
    tok = Tokenizer(models.BPE(vocab={c: b for b, c in chars.items()}, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE)))


def make(folder, conf, quantize=None, predicate=None, dtype=mx.float32, seed=1):
    """Write a model folder. quantize: None or (bits, group_size); predicate: mlx-lm's quant_predicate."""
    shutil.rmtree(folder, ignore_errors=True)
    conf = json.loads(json.dumps(conf))
    untied = conf.pop("untied", False)
    model_class, args_class = utils._get_classes(conf)
    model = model_class(args_class.from_dict(conf))
    if conf["model_type"] == "gemma3_text" and not untied:
        model.sanitize({})  # ties the head
    random_weights(model, np.random.default_rng(seed))
    model.set_dtype(dtype)
    if quantize:
        bits, group_size = quantize
        model, conf = utils.quantize_model(model, conf, group_size, bits, quant_predicate=predicate)
    utils.save_model(folder, model)
    utils.save_config(dict(conf), Path(folder) / "config.json")
    write_tokenizer(Path(folder))
    return Path(folder)


def load_float32(folder):
    """The real mlx-lm's model of a folder with float32 activations."""
    model, _ = utils.load_model(Path(folder))
    model.set_dtype(mx.float32)
    return model


def logits(model, ids, step):
    """[len(ids), vocab] logits, fed `step` tokens at a time on a fresh cache."""
    cache = make_prompt_cache(model)
    rows = [np.array(model(mx.array([ids[i:i + step]]), cache=cache)[0].astype(mx.float32))
            for i in range(0, len(ids), step)]
    return np.concatenate(rows)
