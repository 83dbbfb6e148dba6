"""Tiny folders as Hugging Face has them, made with the weights' names and shapes of the real mlx-lm's models."""
import json

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import utils
from reference import TEMPLATE, write_tokenizer  # noqa: F401 (TEMPLATE is for the tests)

mx.set_default_device(mx.cpu)
TYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")


def config(model_type="llama", **changes):
    """A small config; a value of None removes the key. Widths are multiples of every group size."""
    base = dict(model_type=model_type, architectures=["SomeForCausalLM"], hidden_size=128, intermediate_size=256,
                num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=256,
                max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True,
                eos_token_id=246, _name_or_path="some/where", vision_config={"a": 1}, zeta="é", empty=[], nothing={},
                odd={"__float__": "-Infinity"})
    return {k: v for k, v in (base | changes).items() if v is not None}


def hard_rows(values, huge, rng):
    """Puts rows that are constant, zero, of one sign, tiny, large or on the grid at the start of a matrix."""
    cols = values.shape[1]
    rows = [np.zeros(cols), -np.zeros(cols), np.full(cols, 0.37), np.full(cols, -0.37),
            np.abs(rng.standard_normal(cols)), -np.abs(rng.standard_normal(cols)), rng.standard_normal(cols) * 1e-6,
            rng.standard_normal(cols) * 1e-8, rng.integers(-8, 8, cols) / 16, rng.uniform(-6e4, 6e4, cols),
            1 + rng.standard_normal(cols) * 1e-3, np.where(np.arange(cols) % 32 == 5, 1000.0, 1e-3)]
    if huge:  # beyond float16, at both ends
        rows += [rng.uniform(-1, 1, cols) * 1e38, rng.standard_normal(cols) * 1e-40]
    values[:len(rows)] = rows


def shapes(conf):
    """Name → shape of every weight of mlx-lm's model of this config."""
    conf = json.loads(json.dumps(conf))
    model_class, args_class = utils._get_classes(conf)
    model = model_class(args_class.from_dict(conf))
    if conf["model_type"] == "gemma3_text" and conf.get("tie_word_embeddings", True):
        model.sanitize({})  # ties the head
    return {name: array.shape for name, array in sorted(tree_flatten(model.parameters()))}


def random_weights(conf, dtype, seed, hard):
    """Name → array, as mlx-lm's model of this config wants them."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(conf).items():
        values = rng.standard_normal(shape) * (0.1 if len(shape) > 1 else 0.5)
        if hard and len(shape) > 1:
            hard_rows(values, hard == "huge" and dtype != mx.float16, rng)
        weights[name] = mx.array(values.astype(np.float32)).astype(dtype)
    return weights


def make(folder, conf=None, dtype="float32", shards=1, seed=1, hard=None, extra=None):
    """Writes the folder. hard: "float16" (rows that every type can hold) or "huge"; extra: name → array, tensors beside
    the model's own.
    """
    conf = conf or config()
    folder.mkdir()
    weights = random_weights(conf, TYPES[dtype], seed, hard) | (extra or {})
    names = list(weights)
    weight_map = {}
    for i in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in names[i::shards]}
        mx.save_safetensors(str(folder / file), part, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    if shards > 1:
        index = {"metadata": {"total_size": sum(w.nbytes for w in weights.values())}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(conf))
    (folder / "generation_config.json").write_text('{"eos_token_id": [246, 3], "top_p": 0.9}')
    write_tokenizer(folder)
    return folder
