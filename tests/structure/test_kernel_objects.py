"""Objects built for one instruction set export no inline or weak symbol.

The linker keeps one copy of such a symbol for the whole program. If it kept a copy compiled for AVX2, code that runs before
the choice of kernels would use instructions the processor may lack, and two sets could no longer differ.
Environment: MLXLM_BUILD_DIR (an optimised build), MLXLM_NM (nm of that build's compiler).
"""

import os
import subprocess
import unittest
from pathlib import Path

# V, W: weak object and other; u: unique. Lower-case v and w are weak references to something defined elsewhere.
WEAK = {"V", "W", "u"}
# The compiler's own pointer to the C++ runtime's unwinder: data, the same in every object.
HARMLESS = "DW.ref.__gxx_personality_v0"
BUILD = Path(os.environ["MLXLM_BUILD_DIR"])


def kernel_objects():
    folders = BUILD.glob("src/kernels/CMakeFiles/mlxlm_kernels*.dir")
    objects = [o for f in folders for isa in ("avx2", "avx512", "neon", "neon_dot", "scalar") for o in f.glob(f"{isa}/*.o")]
    return sorted(objects)


class KernelObjects(unittest.TestCase):
    def test_no_weak_symbols(self):
        objects = kernel_objects()
        sets = {path.parent.name for path in objects}
        self.assertGreaterEqual(len(sets), 2, f"expected objects of two instruction sets below {BUILD}, found {sets}")
        weak = []
        for path in objects:
            command = [os.environ.get("MLXLM_NM", "nm"), "--demangle", str(path)]
            listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for line in listing.splitlines():
                kind, name = line[17:18], line[19:]
                if kind in WEAK and name != HARMLESS:
                    weak.append(f"{path.parent.name}/{path.name}: {kind} {name}")
        self.assertEqual(weak, [], "move these into an anonymous namespace or mark them static:\n" + "\n".join(weak))


if __name__ == "__main__":
    unittest.main()
