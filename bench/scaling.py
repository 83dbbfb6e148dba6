#!/usr/bin/env python3
"""How speed follows threads, batch, context, width and size: measures and plots.

    bench/scaling.py                             every curve, for the sizes that fit this machine
    bench/scaling.py --sizes 0.1B,1B --curves batch,context
    bench/scaling.py --json out.json --svg out.svg

Each point is `mlxlm bench` on a model with random weights (bench/random_model.py), made once in a folder of the user's
cache. The plots show the share of the machine's limit, measured in the same run, beside the tokens per second. Points
that would take more multiply-adds than --most are left out; widths other than 4 bits are measured up to 1B.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

import environment  # noqa: E402

if __name__ == "__main__" and Path(sys.prefix) != environment.VENV:
    environment.prepare()
    os.execv(environment.PYTHON, [environment.PYTHON, *sys.argv])

import matplotlib  # noqa: E402
from random_model import PRODUCTS, SHAPES, product_shape  # noqa: E402

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text, not shapes of letters
from matplotlib import pyplot  # noqa: E402

COMMAND = BENCH.parent / "build" / "bin" / "mlxlm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mlxlm" / "bench"
CORES = len(os.sched_getaffinity(0))

SMALL = ("0.1B", "1B")  # of these every width is made; of larger ones they would fill a disk and show the same


@dataclass(frozen=True)
class Curve:
    axis: str
    values: list
    point: Callable  # value: what differs from Point's defaults
    sizes: tuple = tuple(SHAPES)


@dataclass(frozen=True)
class Point:
    """What `mlxlm bench` is run with."""

    threads: int = CORES
    batch: int = 1
    depth: int = 0
    prompt: int = 512
    generated: int = 64
    bits: int = 4

    def flags(self):
        return ["-t", self.threads, "-b", self.batch, "-d", self.depth, "-p", self.prompt, "-g", self.generated]

    def multiply_adds(self, size):
        return parameters(SHAPES[size]) * self.batch * (self.depth + self.prompt + self.generated)


CURVES = {
    "threads": Curve("threads", sorted({1, 2, CORES // 2 or 1, CORES}), lambda n: {"threads": n}),
    "batch": Curve("requests at once", [1, 2, 4, 8, 16, 32, 64], lambda n: {"batch": n, "prompt": 64, "generated": 32}),
    "context": Curve("tokens before", [0, 512, 1024, 2048, 4096, 8192],
                     lambda n: {"depth": n, "prompt": 256, "generated": 32}),
    "bits": Curve("bits of a weight", [2, 3, 4, 5, 6, 8], lambda n: {"bits": n}, SMALL),
}


def parameters(shape):
    """Of the products of a layer, times the layers; the head counts once a token that is generated, and is left out."""
    return shape.layers * sum(rows * columns for rows, columns in (product_shape(shape, name) for name in PRODUCTS))


def model_folder(size, bits, group_size=64):
    folder = CACHE / f"{size}-{bits}bit-g{group_size}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([BENCH / "random_model.py", size, folder, "--bits", str(bits), "--group-size", str(group_size)],
                       check=True)
    return folder


def measure(size, curve, value, repeats):
    point = Point(**CURVES[curve].point(value))
    command = [COMMAND, "bench", "--json", "-m", model_folder(size, point.bits), "-n", repeats, *point.flags()]
    run = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(run.stdout)
    environment.say(f"{size} {curve} {value}: prefill {result['prefill_tps']:.0f}, decode {result['decode_tps']:.1f} tokens/s")
    return {"value": value, **{key: result[key] for key in (
        "prefill_tps", "decode_tps", "prefill_share_of_limit", "decode_share_of_limit", "read_gb_per_s", "int8_gmac_per_s")}}


def measure_curve(name, size, settings):
    """The points of a curve that are worth their time."""
    points = []
    for value in CURVES[name].values if size in CURVES[name].sizes else []:
        work = Point(**CURVES[name].point(value)).multiply_adds(size) * settings.repeats
        if work > settings.most * 1e12:
            environment.say(f"{size} {name} {value}: left out, {work / 1e12:.0f} T multiply-adds")
        else:
            points.append(measure(size, name, value, settings.repeats))
    return points


def plot(results, path):
    measures = [("decode_tps", "decode, tokens/s"), ("decode_share_of_limit", "decode, share of the limit"),
                ("prefill_tps", "prefill, tokens/s"), ("prefill_share_of_limit", "prefill, share of the limit")]
    curves = list(results)
    figure, axes = pyplot.subplots(len(measures), len(curves), figsize=(3.4 * len(curves), 2.6 * len(measures)), squeeze=False)
    for column, curve in enumerate(curves):
        for row, (key, label) in enumerate(measures):
            axis = axes[row][column]
            for size, points in results[curve].items():
                if not points:
                    continue
                axis.plot([p["value"] for p in points], [p[key] for p in points], marker="o", label=size)
            if key.endswith("limit"):
                axis.set_ylim(0, 1)
            else:
                axis.set_yscale("log")
            if curve == "batch":
                axis.set_xscale("log", base=2)
            if curve != "context":
                axis.set_xticks(CURVES[curve].values, [str(value) for value in CURVES[curve].values])
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
            if row == len(measures) - 1:
                axis.set_xlabel(CURVES[curve].axis)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0.1B,1B", help=f"of: {', '.join(SHAPES)} (default: 0.1B,1B)")
    parser.add_argument("--curves", default=",".join(CURVES), help=f"of: {', '.join(CURVES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point, of which the median counts; default: 3")
    parser.add_argument("--most", type=float, default=50, metavar="T",
                        help="leave out points of more than this many tera multiply-adds; default: 50, some minutes on two cores")
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
    results = {curve: {size: measure_curve(curve, size, settings) for size in settings.sizes} for curve in settings.curves}
    if settings.json:
        settings.json.write_text(json.dumps({"machine": environment.describe(), "curves": results}, indent=1) + "\n",
                                 encoding="utf-8")
    plot(results, settings.svg)
    print(f"wrote {settings.svg}")


if __name__ == "__main__":
    main()
