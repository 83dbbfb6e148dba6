#!/usr/bin/env python3
"""What streaming through Python costs: decode speed of the package beside the command's, in the same run.

    bench/python_overhead.py MODEL COMMAND [ROUNDS]

The package comes from PYTHONPATH or an installation. The ways take turns, so that a slow minute of the machine meets all of
them; a figure is the median of the rounds' ratios to the command.
"""

import json
import statistics
import subprocess
import sys

from mlxlm import load, stream_generate

TOKENS = 200
PROMPT = "Write a long story about a lighthouse keeper."
WAYS = {
    "package": {},
    "package, without logprobs": {"logprobs": False},
    "package, no-op processor and sampler": {
        "logits_processors": [lambda tokens, logits: logits],
        "sampler": lambda logprobs: logprobs.argmax(axis=-1),
    },
    "package, no-op processor": {"logits_processors": [lambda tokens, logits: logits]},
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


def main():
    path, command, *rest = sys.argv[1:]
    model, tokenizer = load(path)
    package_rate(model, tokenizer, {})  # maps the weights and fills the caches
    ratios = {name: [] for name in WAYS}
    rates = []
    for _ in range(int(rest[0]) if rest else 9):
        base = command_rate(command, path)
        rates.append(base)
        for name, settings in WAYS.items():
            ratios[name].append(package_rate(model, tokenizer, settings) / base)
    print(f"command: {statistics.median(rates):.1f} tokens/s")
    for name, values in ratios.items():
        print(f"{name}: {100 * statistics.median(values):.1f} % of it")


if __name__ == "__main__":
    main()
