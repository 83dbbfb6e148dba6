"""Kernels execute about as many instructions as when their counts were last written down: a guard against a change that
slows one unnoticed, which no machine's noise can disturb.

valgrind counts the instructions of one call on fixed data (kernels_count). instruction_counts.json holds what is expected,
with the compiler that it holds for. Environment: MLXLM_COUNT, the program; MLXLM_COMPILER, name and version of the compiler
that built it. After a change on purpose: python3 test_instruction_counts.py --write
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXPECTED = Path(__file__).parent / "instruction_counts.json"
ISA = "avx2"
# A compiler's next patch changes a few instructions of a loop; another version may lay loops out anew.
SLACK, SLACK_OF_ANOTHER_COMPILER = 0.05, 0.30


def count(name):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no",
               "--toggle-collect=mlxlm_counted", os.environ["MLXLM_COUNT"], ISA, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found or found[1] == "0":
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return int(found[1])


def count_all():
    listed = subprocess.run([os.environ["MLXLM_COUNT"], ISA], capture_output=True, text=True, check=True)
    names = listed.stdout.splitlines()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(zip(names, pool.map(count, names)))


class Counts(unittest.TestCase):
    def test_counts(self):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed (scripts/setup test installs it)")
        expected = json.loads(EXPECTED.read_text())
        same = expected["compiler"] == os.environ["MLXLM_COMPILER"]
        slack = SLACK if same else SLACK_OF_ANOTHER_COMPILER
        got = count_all()
        self.assertEqual(set(got), set(expected["counts"]), "the cases have changed: write the counts anew (--write)")
        more = {name: f"{expected['counts'][name]} expected, {n} counted" for name, n in got.items()
                if n > expected["counts"][name] * (1 + slack)}
        self.assertFalse(more, f"more than {slack:.0%} above {EXPECTED.name}; if that is meant, write it anew (--write)")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        EXPECTED.write_text(json.dumps({"compiler": os.environ["MLXLM_COMPILER"], "counts": count_all()}, indent=1) + "\n")
    else:
        unittest.main()
