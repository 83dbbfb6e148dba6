"""``python -m mlxlm generate …`` runs the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    command = Path(__file__).resolve().parent / "bin" / "mlxlm"
    if not command.is_file():
        sys.exit(f"{command}: the command is not part of this installation; install the package again")
    sys.stdout.flush()
    os.execv(command, [str(command), *sys.argv[1:]])


if __name__ == "__main__":
    main()
