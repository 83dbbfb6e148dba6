"""Running engines in turn, and the wall time and memory of a whole process."""

import os
import subprocess
import sys
import time


def alternate(what, engines, rounds, run):
    """{engine name: [result of each round]}. An engine with a limit of its own sits out the later rounds."""
    results = {engine.NAME: [] for engine in engines}
    for number in range(rounds):
        # Every other round goes backward, so that no engine always follows the same one.
        for engine in engines if number % 2 == 0 else reversed(engines):
            if number < getattr(engine, "MAX_ROUNDS", rounds):
                print(f"bench: {what}, round {number + 1} of {rounds}: {engine.NAME}", file=sys.stderr, flush=True)
                results[engine.NAME].append(run(engine))
    return results


def cold_process(command):
    """Runs a command once: seconds from start to exit, and the most memory it held."""
    started = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read()  # until the process closes it, which it does by ending
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}\nexit status {process.returncode}: {errors.decode(errors='replace')}")
    return {"wall_ms": seconds * 1e3, "peak_rss_mb": usage.ru_maxrss * 1024 / 1e6}
