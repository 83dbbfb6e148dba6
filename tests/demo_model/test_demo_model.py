"""The demo model, a real one: our greedy tokens and logits against the real mlx-lm's, and `fast` against `exact`."""
import json
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import utils

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import ours  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 64
# The reference's own top two may lie this close: then rounding decides, and either token is right.
NEAR_TIE = 1e-3
LOGIT_TOLERANCE = 1e-3
PROMPTS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a haiku about autumn rain.",
    "Translate to French: The cat sleeps on the warm roof.",
    "Write a Python function that reverses a string.",
    "List three uses of a paper clip.",
    "What is 17 times 23? Show your steps.",
    "Summarise in one sentence: The meeting was moved from Monday to Thursday because the hall was flooded.",
    "Erkläre kurz, was ein Vulkan ist.",
    "¿Cuál es el río más largo de América del Sur?",
    "日本の首都はどこですか？",
    "Réponds en une phrase : pourquoi les feuilles tombent-elles en automne ?",
    "Give me a JSON object with the keys name and age.",
    "SELECT name FROM users WHERE age > 30; -- explain this query",
    "Continue the story: The lighthouse keeper opened the door and",
    "Correct the spelling: I recieved teh leter yesturday.",
    "😀🎉 What do these emoji mean?",
    "    def f(x):\n        return x ** 2\n\nWhat does f(7) return?",
    "Name a prime number between 90 and 100.",
    "Is a tomato a fruit or a vegetable?",
    "x",
]


@pytest.fixture(scope="module")
def demo_folder():
    given = os.environ.get("MLXLM_DEMO_MODEL")
    return Path(given or subprocess.run([ROOT / "scripts" / "demo-model"], check=True, stdout=subprocess.PIPE,
                                        text=True).stdout.strip())


def float32_model(folder):
    """The folder's model with float32 activations, dequantised in float32: the same numbers, much faster in mlx-lm."""
    model, _ = utils.load_model(folder)
    model.set_dtype(mx.float32)  # before, or the products code · scale would be rounded to 16 bits
    model = utils.dequantize_model(model)
    model.set_dtype(mx.float32)
    return model


def test_greedy_tokens_and_logits_are_the_references(demo_folder, record_property):
    model = float32_model(demo_folder)
    worst, ties, compared = 0.0, 0, 0
    for prompt in PROMPTS:
        answer = ours.generate(demo_folder, prompt=prompt, max_tokens=TOKENS, precision="exact")
        start, new = len(answer["prompt_token_ids"]), answer["token_ids"]
        ids = answer["prompt_token_ids"] + new
        # The reference on our own text: where it would choose our token at every step, its greedy text is ours.
        reference = np.array(model(mx.array([ids]))[0])
        worst = max(worst, np.abs(ours.logits(demo_folder, ids) - reference).max())
        for i, token in enumerate(new):
            row = reference[start - 1 + i]
            compared += 1
            if row.argmax() != token:
                assert row.max() - row[token] <= NEAR_TIE, f"{prompt!r}: token {i} is {token}, not {row.argmax()}"
                ties += 1
        assert len(new) == TOKENS or answer["finish_reason"] == "stop"
    print(f"\n{compared} tokens of {len(PROMPTS)} prompts, {ties} near ties, largest logit difference {worst:.1e}")
    record_property("largest_logit_difference", float(worst))
    assert worst <= LOGIT_TOLERANCE


def negative_log_likelihood(folder, windows, precision):
    total, count = 0.0, 0
    for ids in windows:
        rows = ours.logits(folder, ids, precision=precision)[:-1]
        largest = rows.max(-1, keepdims=True)
        normalizer = largest[:, 0] + np.log(np.exp(rows - largest).sum(-1, dtype=np.float64))
        total += (normalizer - rows[np.arange(len(ids) - 1), ids[1:]]).sum()
        count += len(ids) - 1
    return total / count


@pytest.mark.parametrize("quantize", [None, (4, 64), (8, 64)], ids=["4bit-g32", "4bit-g64", "8bit-g64"])
def test_fast_keeps_the_perplexity(demo_folder, tmp_path, quantize):
    folder = demo_folder
    if quantize:
        bits, group_size = quantize
        conf = json.loads((demo_folder / "config.json").read_text())
        conf = {k: v for k, v in conf.items() if not k.startswith("quantization")}
        model = float32_model(demo_folder)
        model.set_dtype(mx.float16)
        model, conf = utils.quantize_model(model, conf, group_size, bits)
        folder = tmp_path / "model"
        utils.save_model(folder, model)
        utils.save_config(conf, folder / "config.json")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((demo_folder / name).read_bytes())
    text = (ROOT / "tests" / "data" / "english.txt").read_text(encoding="utf-8")
    ids = utils.load_tokenizer(folder).encode(text)
    windows = [ids[i:i + 1024] for i in range(0, len(ids), 1024)]
    assert sum(len(w) - 1 for w in windows) >= 4000
    exact, fast = (np.exp(negative_log_likelihood(folder, windows, p)) for p in ("exact", "fast"))
    print(f"\nperplexity: exact {exact:.4f}, fast {fast:.4f}, {100 * (fast / exact - 1):+.2f} %")
    assert abs(fast / exact - 1) < 0.005
