"""Tables of the results, in Markdown."""

import statistics
from pathlib import Path

# measure, heading, unit, larger is better
SPEED = [("decode_tps", "decode", "tokens/s", True), ("prefill_tps", "prefill", "tokens/s", True)]
START = [("wall_ms", "one token, cold process", "ms", False), ("peak_rss_mb", "peak memory", "MB", False)]
OURS = "mlxlm"


def plain(settings):
    """The settings as JSON can hold them."""
    def convert(value):
        if isinstance(value, list):
            return [getattr(item, "NAME", str(item)) for item in value]
        return str(value) if isinstance(value, Path) else value
    return {key: convert(value) for key, value in vars(settings).items()}


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values):
    """median (smallest–largest)"""
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))}–{number(max(values))})"


def ratios(ours, theirs, larger_is_better):
    """How many times better we are, round by round; rounds that the rival sat out are left out."""
    return [a / b if larger_is_better else b / a for a, b in zip(ours, theirs)]


def table(results, measures):
    lines = ["| measure | " + " | ".join(results) + " | " + " | ".join(f"against {n}" for n in results if n != OURS) + " |"]
    lines.append("|" + "---|" * (2 * len(results)))
    for key, heading, unit, larger in measures:
        values = {name: [r[key] for r in rounds if r.get(key) is not None] for name, rounds in results.items()}
        cells = [spread(v) if v else "–" for v in values.values()]
        cells += [f"×{spread(ratios(values[OURS], v, larger))}" if v else "–" for n, v in values.items() if n != OURS]
        lines.append(f"| {heading}, {unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def limits(rounds):
    """What our own benchmark says about the hardware's limits, where it says it."""
    lines = []
    for key, heading, unit, scale in [("decode_share_of_limit", "decode, share of the memory limit", "%", 100),
                                      ("prefill_share_of_limit", "prefill, share of the arithmetic limit", "%", 100),
                                      ("read_gb_per_s", "plain read", "GB/s", 1),
                                      ("int8_gmac_per_s", "int8 products", "GMAC/s", 1),
                                      ("float32_gmac_per_s", "float32 products", "GMAC/s", 1)]:
        values = [r[key] * scale for r in rounds if r.get(key) is not None]
        if values:
            lines.append(f"| {heading}, {unit} | {spread(values)} |")
    return "\n".join(["| limits of this machine, in the same rounds | |", "|---|---|", *lines]) if lines else ""


def markdown(results):
    machine, settings = results["machine"], results["settings"]
    head = (f"{machine['cpu']}, {settings['threads']} of {machine['cores']} cores; prefill {settings['prefill']}, decode "
            f"{settings['decode']}, depth {settings['depth']}, batch {settings['batch']}; {settings['rounds']} rounds, alternating; median (range); "
            f"commit {machine['commit']}, load before {machine['load']}")
    parts = [head, table(results["speed"], SPEED),
             table(results["start"], START) if "start" in results else "", limits(results["speed"][OURS])]
    return "\n\n".join(part for part in parts if part)
