#!/usr/bin/env python3
"""How speed follows threads, batch, context, width and size: measures and plots.

    bench/scaling.py                             every curve, for the sizes that fit this machine
    bench/scaling.py --sizes 0.1B,1B --curves batch,context
    bench/scaling.py --json out.json --svg out.svg

Each point is `mlxlm bench` on a model with random weights (bench/random_model.py), made once in a folder of the user's
cache. The plots show the share of the machine's limit, measured in the same run, beside the tokens per second.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

import environment  # noqa: E402

if __name__ == "__main__" and Path(sys.prefix) != environment.VENV:
    environment.prepare()
    os.execv(environment.PYTHON, [environment.PYTHON, *sys.argv])

import matplotlib  # noqa: E402
from random_model import SHAPES  # noqa: E402

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

COMMAND = BENCH.parent / "build" / "bin" / "mlxlm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mlxlm" / "bench"
CORES = len(os.sched_getaffinity(0))

# curve: (axis, values, flags of `mlxlm bench` for a value)
CURVES = {
    "threads": ("threads", sorted({1, 2, CORES // 2 or 1, CORES}), lambda n: ["-t", n]),
    "batch": ("requests at once", [1, 2, 4, 8, 16, 32, 64], lambda n: ["-b", n, "-p", 64, "-g", 32]),
    "context": ("tokens before", [0, 512, 1024, 2048, 4096, 8192], lambda n: ["-d", n, "-p", 256, "-g", 32]),
    "bits": ("bits of a weight", [2, 3, 4, 5, 6, 8], lambda n: []),
}


def model_folder(size, bits, group_size=64):
    folder = CACHE / f"{size}-{bits}bit-g{group_size}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([BENCH / "random_model.py", size, folder, "--bits", str(bits), "--group-size", str(group_size)],
                       check=True)
    return folder


def measure(size, curve, value, repeats):
    flags = CURVES[curve][2](value)
    folder = model_folder(size, value if curve == "bits" else 4)
    command = [COMMAND, "bench", "--json", "-m", folder, "-n", repeats, "-p", 512, "-g", 64]
    # A flag that is given twice would be refused: those of the curve stand for the general ones.
    for name in flags[::2]:
        if name in command:
            at = command.index(name)
            del command[at:at + 2]
    run = subprocess.run([str(word) for word in [*command, *flags]], check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(run.stdout)
    environment.say(f"{size} {curve} {value}: prefill {result['prefill_tps']:.0f}, decode {result['decode_tps']:.1f} tokens/s")
    return {"value": value, **{key: result[key] for key in (
        "prefill_tps", "decode_tps", "prefill_share_of_limit", "decode_share_of_limit", "read_gb_per_s", "int8_gmac_per_s")}}


def plot(results, path):
    measures = [("decode_tps", "decode, tokens/s"), ("decode_share_of_limit", "decode, share of the limit"),
                ("prefill_tps", "prefill, tokens/s"), ("prefill_share_of_limit", "prefill, share of the limit")]
    curves = list(results)
    figure, axes = pyplot.subplots(len(measures), len(curves), figsize=(3.4 * len(curves), 2.6 * len(measures)), squeeze=False)
    for column, curve in enumerate(curves):
        for row, (key, label) in enumerate(measures):
            axis = axes[row][column]
            for size, points in results[curve].items():
                axis.plot([p["value"] for p in points], [p[key] for p in points], marker="o", label=size)
            if key.endswith("limit"):
                axis.set_ylim(0, 1)
            else:
                axis.set_yscale("log")
            if curve == "batch":
                axis.set_xscale("log", base=2)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
            if row == len(measures) - 1:
                axis.set_xlabel(CURVES[curve][0])
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0.1B,1B", help=f"of: {', '.join(SHAPES)} (default: 0.1B,1B)")
    parser.add_argument("--curves", default=",".join(CURVES), help=f"of: {', '.join(CURVES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point, of which the median counts; default: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every point here")
    parser.add_argument("--svg", type=Path, metavar="FILE", default=Path("scaling.svg"), help="default: scaling.svg")
    settings = parser.parse_args()
    for name, known in (("sizes", SHAPES), ("curves", CURVES)):
        values = getattr(settings, name).split(",")
        unknown = [value for value in values if value not in known]
        if unknown:
            parser.error(f"--{name}: unknown {unknown[0]!r}; expected any of {', '.join(known)}")
        setattr(settings, name, values)
    return settings


def main():
    settings = parse_arguments()
    if not COMMAND.exists():
        sys.exit(f"bench: {COMMAND} is missing; run make build")
    results = {curve: {size: [measure(size, curve, value, settings.repeats) for value in CURVES[curve][1]]
                       for size in settings.sizes} for curve in settings.curves}
    if settings.json:
        settings.json.write_text(json.dumps({"machine": environment.describe(), "curves": results}, indent=1) + "\n",
                                 encoding="utf-8")
    plot(results, settings.svg)
    print(f"wrote {settings.svg}")


if __name__ == "__main__":
    main()
