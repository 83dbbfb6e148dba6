"""mlx-lm on MLX's CPU backend: the reference, on the very same folder.

It is slow there, so it runs one round with few tokens: a rate needs no more.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

NAME = "mlx-lm (CPU)"
MAX_ROUNDS = 1
PREFILL_TOKENS = 32
DECODE_TOKENS = 4


def python():
    import environment  # bench/run put bench/ on the path

    return environment.PYTHON


def prepare():
    """Nothing: the environment holds it."""


def speed(settings):
    command = [str(python()), __file__, str(settings.model)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def start_command(settings):
    return [python(), "-m", "mlx_lm", "generate", "--model", settings.model, "--prompt", "Why is the sky blue?",
            "--max-tokens", 1]


def main(path):
    # This file bears the package's name: without this the import would find itself.
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
    from mlx_lm import load
    from mlx_lm.generate import generate_step

    import mlx.core as mx

    model, _ = load(path)
    prompt = mx.array([1000 + i for i in range(PREFILL_TOKENS)])
    started = time.perf_counter()
    times = []
    for _ in generate_step(prompt, model, max_tokens=DECODE_TOKENS + 1):
        times.append(time.perf_counter())
    print(json.dumps({"prefill_tps": PREFILL_TOKENS / (times[0] - started),
                      "decode_tps": (len(times) - 1) / (times[-1] - times[0])}))


if __name__ == "__main__":
    main(sys.argv[1])
