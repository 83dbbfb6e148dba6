"""mlxlm itself, measured as the rivals are."""

import json
import subprocess
from pathlib import Path

NAME = "mlxlm"
COMMAND = Path(__file__).resolve().parents[2] / "build" / "bin" / "mlxlm"
PROMPT = "Why is the sky blue?"


def prepare():
    """Nothing: make build has made it."""


def speed(settings):
    command = [COMMAND, "bench", "--json", "-m", settings.model, "-p", settings.prefill, "-g", settings.decode,
               "-d", settings.depth, "-b", settings.batch, "-t", settings.threads, "-n", 1]
    result = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(result.stdout)


def start_command(settings):
    return [COMMAND, "generate", "--model", settings.model, "--prompt", PROMPT, "--max-tokens", 1,
            "--threads", settings.threads]
