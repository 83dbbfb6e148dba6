"""Running the programs under test."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("MLXLM_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROBE = BUILD / "bin" / "logits_probe"
CLI = Path(os.environ.get("MLXLM_BIN", BUILD / "bin" / "mlxlm"))


def logits(folder, ids, precision="exact", chunk=512, threads=2, isa="best"):
    """[len(ids), vocab] float32 logits of our executor."""
    run = subprocess.run([PROBE, folder, precision, str(chunk), str(threads), isa], capture_output=True,
                         input=" ".join(map(str, ids)).encode(), check=False)
    assert run.returncode == 0, run.stderr.decode()
    return np.frombuffer(run.stdout, np.float32).reshape(len(ids), -1)


def generate(folder, **flags):
    """The object that `mlxlm generate --json` prints. Flags: underscores become dashes, lists repeat."""
    command = [CLI, "generate", "--model", str(folder), "--json"]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        else:
            for one in value if isinstance(value, list) else [value]:
                command += [flag, str(one)]
    run = subprocess.run(command, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)
