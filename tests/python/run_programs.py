"""Runs the programs of a folder: run_programs.py mlx_lm|mlxlm MODEL DRAFT_MODEL PROGRAM…

Prints a JSON object with what each printed. Programs are written for mlx_lm. For mlxlm the import changes, the lines
behind "# mlxlm: " become code, and models are loaded in exact precision; nothing else.
"""

import contextlib
import functools
import io
import json
import re
import sys
from pathlib import Path


def source_for(package, text):
    if package == "mlxlm":
        text = re.sub(r"^(\s*)# mlxlm: ", r"\1", text, flags=re.MULTILINE)
        text = re.sub(r"\bmlx_lm\b", "mlxlm", text)
    return text


def run(package, path, arguments):
    output = io.StringIO()
    sys.argv = [str(path), *arguments]
    code = compile(source_for(package, path.read_text(encoding="utf-8")), str(path), "exec")
    with contextlib.redirect_stdout(output):
        exec(code, {"__name__": "__main__"})
    return output.getvalue()


def main():
    package, model, draft, *programs = sys.argv[1:]
    if package == "mlxlm":
        import mlxlm

        mlxlm.load = functools.partial(mlxlm.load, precision="exact")
    else:
        import mlx.core as mx

        mx.set_default_device(mx.cpu)
    outputs = {Path(p).stem: run(package, Path(p), [model, draft]) for p in programs}
    print(json.dumps(outputs))


if __name__ == "__main__":
    main()
