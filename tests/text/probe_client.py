"""Talks to the program text_probe, which drives the C++ text layer: one JSON request per line, one answer per line."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_probe():
    if named := os.environ.get("MLXLM_TEXT_PROBE"):
        return named
    build = pathlib.Path(os.environ.get("MLXLM_BUILD_DIR", ROOT / "build"))
    probe = build / "bin" / "text_probe"
    assert probe.exists(), f"{probe} is not built; set MLXLM_BUILD_DIR or MLXLM_TEXT_PROBE"
    return str(probe)


class Refused(Exception):
    """The C++ side answered with an error."""


class Probe:
    def __init__(self):
        self.process = subprocess.Popen(
            [find_probe()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"}
        )

    def ask(self, op, **request):
        line = json.dumps({"op": op, **request}, ensure_ascii=False) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
