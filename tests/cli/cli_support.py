"""What the tests of the command share: the program, and the tiny model's tokenizer and template in Python."""

import json
import os
import subprocess
from pathlib import Path

import tiny_model

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("MLXLM_BIN", str(ROOT / "build" / "bin" / "mlxlm"))
TIMEOUT = 120


class Command:
    """Runs the program with arguments; text is decoded as UTF-8."""

    path = BINARY

    def __call__(self, *args, stdin=None, check=None):
        args = [a if isinstance(a, bytes) else str(a) for a in args]
        done = subprocess.run([self.path, *args], input=stdin, capture_output=True, timeout=TIMEOUT)
        done.out, done.err = done.stdout.decode(), done.stderr.decode()
        if check is not None:
            assert done.returncode == check, done.err
        return done

    def json(self, *args, **kwargs):
        return json.loads(self(*args, "--json", check=0, **kwargs).out)

    def fails(self, code, *args, **kwargs):
        """The message of a run that must fail with this exit code and one line of error."""
        done = self(*args, check=code, **kwargs)
        assert done.err.startswith("mlxlm: error: ") and done.err.count("\n") == 1, done.err
        return done.err.removeprefix("mlxlm: error: ").rstrip("\n")


def edit_json(path, **changes):
    """Changes keys of a JSON file; None removes a key."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(changes)
    content = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def encode(text):
    """Ids of a text under the tiny tokenizer: bytes, and the special tokens."""
    ids = []
    while text:
        for offset, token in enumerate(tiny_model.SPECIAL_TOKENS):
            if text.startswith(token):
                ids.append(256 + offset)
                text = text[len(token):]
                break
        else:
            ids.extend(text[0].encode())
            text = text[1:]
    return ids


def rendered(*messages, prompt=True):
    """The tiny model's chat template, for (role, content) pairs."""
    text = "".join(f"<|turn|>{role}: {content}\n" for role, content in messages)
    return text + ("<|turn|>assistant: " if prompt else "")
