"""``python -m mlxlm generate …`` runs the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(*words: str) -> None:
    """Becomes the command, with these words before those of the command line."""
    command = Path(__file__).resolve().parent / "bin" / "mlxlm"
    if not command.is_file():
        sys.exit(f"{command}: the command is not part of this installation; install the package again")
    sys.stdout.flush()
    os.execv(command, [str(command), *words, *sys.argv[1:]])


if __name__ == "__main__":
    main()
