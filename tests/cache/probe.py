"""Running cache_probe."""
import os
import subprocess
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("MLXLM_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROBE = BUILD / "bin" / "cache_probe"


def run(folder, *commands, precision="exact"):
    """The lines that the commands print."""
    done = subprocess.run([PROBE, folder, precision], input="\n".join(commands) + "\n", capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def fails(folder, *commands, precision="exact"):
    """The message of a run that must fail."""
    done = subprocess.run([PROBE, folder, precision], input="\n".join(commands) + "\n", capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr.removeprefix("cache_probe: ")


def append(ids):
    return "append " + " ".join(map(str, ids))


def new(max_kv_size=0, keep=4, kv_bits=0, kv_group_size=32, quantized_kv_start=0):
    return f"new {max_kv_size} {keep} {kv_bits} {kv_group_size} {quantized_kv_start}"


def greedy(lines):
    """The tokens and the last logits of the two lines that `greedy` prints."""
    return [int(word) for word in lines[0].split()], np.array([float(word) for word in lines[1].split()], np.float32)
