"""Running the C++ filters and penalties on rows of numbers."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("MLXLM_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))
PROBE = BUILD / "bin" / "sampling_probe"


def ask(mode, rows, options):
    rows = np.ascontiguousarray(rows, np.float32)
    command = [PROBE, mode, str(rows.shape[1]), json.dumps(options)]
    run = subprocess.run(command, input=rows.tobytes(), capture_output=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def kept(logprobs, **options):
    """[rows, vocab] bool: which tokens may be drawn."""
    return np.frombuffer(ask("filter", logprobs, options), np.uint8).reshape(logprobs.shape).astype(bool)


def process(logits, tokens, **options):
    """[rows, vocab] logits after the penalties; tokens: one list of ids for each row."""
    return np.frombuffer(ask("process", logits, dict(options, tokens=tokens)), np.float32).reshape(logits.shape)
