"""Talks to a program that drives a part in C++, such as text_probe: one JSON request per line, one answer per line."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_probe(name):
    if name == "text_probe" and (named := os.environ.get("MLXLM_TEXT_PROBE")):
        return named
    build = pathlib.Path(os.environ.get("MLXLM_BUILD_DIR", ROOT / "build"))
    probe = build / "bin" / name
    assert probe.exists(), f"{probe} is not built; set MLXLM_BUILD_DIR"
    return str(probe)


class Refused(Exception):
    """The C++ side answered with an error."""


class Probe:
    def __init__(self, name="text_probe"):
        self.process = subprocess.Popen(
            [find_probe(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"}
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
