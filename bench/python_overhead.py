#!/usr/bin/env python3
"""What streaming through Python costs: decode speed of the package beside the command's, in the same run.

    bench/python_overhead.py MODEL COMMAND [ROUNDS]

The package comes from PYTHONPATH or an installation. The ways take turns, so that a slow minute of the machine meets all of
them. A figure compares the best rounds, which other work on the machine has disturbed least; the command's two figures show
what still spreads. Behind them: the CPU time that a token takes of the calling thread, which other work hardly touches, on a
tiny model with a vocabulary of 49,152.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mlxlm import load, stream_generate

TOKENS = 100
PROMPT = "Write a long story about a lighthouse keeper."
WAYS = {
    "package": {},
    "package, without logprobs": {"logprobs": False},
    "package, no-op processor and sampler": {
        "logits_processors": [lambda tokens, logits: logits],
        "sampler": lambda logprobs: logprobs.argmax(axis=-1),
    },
}


def command_rate(command, model):
    arguments = ["generate", "--model", model, "--prompt", PROMPT, "--max-tokens", str(TOKENS), "--json"]
    done = subprocess.run([command, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["generation_tps"]


def package_rate(model, tokenizer, settings):
    ids = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True)
    for response in stream_generate(model, tokenizer, ids, max_tokens=TOKENS, **settings):
        pass
    return response.generation_tps


def cpu_times():
    """Microseconds for each way, the best of a dozen runs."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    import tiny_model

    tiny_model.CONFIG["vocab_size"] = 49152
    with tempfile.TemporaryDirectory() as folder:
        tiny_model.write_model(folder)
        model, tokenizer = load(folder, threads=1)
        best = dict.fromkeys(WAYS, float("inf"))
        for _ in range(12):
            for name, settings in WAYS.items():
                start = time.thread_time()
                count = sum(1 for _ in stream_generate(model, tokenizer, [97, 98], max_tokens=TOKENS, **settings))
                best[name] = min(best[name], (time.thread_time() - start) / count * 1e6)
    return best


def main():
    path, command, *rest = sys.argv[1:]
    model, tokenizer = load(path)
    package_rate(model, tokenizer, {})  # maps the weights and fills the caches
    ways = {"command": lambda: command_rate(command, path), "command, once more": lambda: command_rate(command, path)}
    for name, settings in WAYS.items():
        ways[name] = lambda settings=settings: package_rate(model, tokenizer, settings)
    best = dict.fromkeys(ways, 0.0)
    for _ in range(int(rest[0]) if rest else 15):
        for name, measure in ways.items():
            best[name] = max(best[name], measure())
    for name, rate in best.items():
        print(f"{name}: {rate:.1f} tokens/s, {100 * rate / best['command']:.1f} %")
    times = cpu_times()
    for name, microseconds in times.items():
        print(f"{name}: {microseconds - min(times.values()):.0f} us of CPU time per token beyond the cheapest")


if __name__ == "__main__":
    main()
