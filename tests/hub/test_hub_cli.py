"""The command mlxlm with the name of a repository in the place of a folder."""

import os
import pty
import select
import signal
import subprocess
import time

import pytest

import tiny_model
from conftest import BINARY, BUILD, REPO, TIMEOUT

GENERATE = ("generate", "--model", REPO, "--prompt", "Hello", "-m", "8", "--verbose", "false")


@pytest.fixture
def model(hub, tmp_path):
    """The folder of a tiny model that the Hub has too."""
    folder = tmp_path / "tiny"
    tiny_model.write_model(folder)
    hub.add(REPO, {p.name: p.read_bytes() for p in folder.iterdir()})
    return folder


@pytest.fixture
def run(machine, tmp_path):
    def run(*args, cwd=tmp_path, **environment):
        return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT, cwd=cwd,
                              env=machine.environment | environment)
    return run


def test_the_same_text_as_from_a_folder(hub, run, model):
    local = run("generate", "--model", model, *GENERATE[3:])
    assert local.returncode == 0, local.stderr
    done = run(*GENERATE)
    assert (done.returncode, done.stdout, done.stderr) == (0, local.stdout, "")
    assert run(*GENERATE, HF_HUB_OFFLINE="1").stdout == local.stdout


def test_a_folder_of_that_name_comes_first(hub, run, model, tmp_path):
    (tmp_path / "org").mkdir()
    model.rename(tmp_path / "org" / "model")
    assert run(*GENERATE, cwd=tmp_path).returncode == 0
    assert hub.requests == []


def test_revision(hub, run, model):
    hub.revisions[REPO, "v1"] = hub.revisions.pop((REPO, "main"))
    assert run(*GENERATE, "--revision", "v1").returncode == 0
    done = run(*GENERATE, "--revision", "v2")
    assert (done.returncode, done.stderr) == (1, f"mlxlm: error: {REPO}: no such branch, tag or commit: 'v2'\n")


def test_one_line_of_error(hub, run, model):
    done = run("info", "org/modle")
    assert done.returncode == 1
    assert done.stderr.startswith("mlxlm: error: org/modle: ") and done.stderr.count("\n") == 1


def slow(hub):
    hub.piece, hub.pause = 2048, 0.1


def test_a_bar_on_a_terminal(hub, machine, model):
    slow(hub)
    fd, child = pty.openpty()
    with subprocess.Popen([BINARY, *GENERATE], stdin=child, stdout=subprocess.PIPE, stderr=child,
                          env=machine.environment) as process:
        os.close(child)
        seen, deadline = b"", time.monotonic() + TIMEOUT
        while process.poll() is None or select.select([fd], [], [], 0)[0]:
            assert time.monotonic() < deadline, seen
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    seen += os.read(fd, 65536)
                except OSError:
                    break
        assert process.stdout.read() and process.wait() == 0, seen
    os.close(fd)
    assert b"Downloading [" in seen and b" KB of " in seen and b"/s, " in seen and b"100 %" in seen
    assert seen.rstrip().endswith(b"\x1b[K"), "the bar is gone in the end"


#: The commands that catch Ctrl-C themselves, each with the name of a repository where a folder may stand.
COMMANDS = {
    "generate": lambda folder, tmp: GENERATE,
    "draft": lambda folder, tmp: ("generate", "--model", folder, "--draft-model", REPO, *GENERATE[3:]),
    "batch": lambda folder, tmp: ("batch", "--model", folder, "--draft-model", REPO, "--input", tmp / "requests.jsonl",
                                  "--verbose", "false"),
    "cache-prompt": lambda folder, tmp: ("cache-prompt", "--model", REPO, "--prompt", "Hello", "--prompt-cache-file",
                                         tmp / "cache.safetensors"),
    "convert": lambda folder, tmp: ("convert", "--hf-path", REPO, "--mlx-path", tmp / "converted"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_leaves_what_arrived(hub, machine, run, model, tmp_path, name):
    slow(hub)
    (tmp_path / "requests.jsonl").write_text('{"prompt": "Hello", "max_tokens": 4}\n')
    command = [str(word) for word in COMMANDS[name](model, tmp_path)]
    with subprocess.Popen([BINARY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=machine.environment) as process:
        deadline = time.monotonic() + TIMEOUT
        while not any(p.stat().st_size > 8192 for p in machine.cache.rglob("*.incomplete")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (130, b"", b"")
    left = {p: p.stat().st_size for p in machine.cache.rglob("*.incomplete")}
    assert sum(left.values()) > 8192
    assert not any(p.name in ("converted", "cache.safetensors") for p in tmp_path.iterdir())
    hub.pause = 0
    hub.requests.clear()
    done = run(*command)
    assert done.returncode == 0, done.stderr
    asked = {r.headers.get("range") for r in hub.contents()}
    assert {f"bytes={size}-" for size in left.values() if size} <= asked


def test_the_library_loads_names_too(hub, machine, model, tmp_path):
    """mlxlm::load, through the probe of tests/parity."""
    def logits(name, **environment):
        return subprocess.run([BUILD / "bin" / "logits_probe", name, "exact", "8", "1", "scalar"], input=b"1 2 3",
                              capture_output=True, timeout=TIMEOUT, cwd=tmp_path, env=machine.environment | environment)
    assert logits(REPO).stdout == logits(model).stdout != b""
    hub.requests.clear()
    assert logits(REPO, HF_HUB_OFFLINE="1").returncode == 0 and hub.requests == []
    refused = logits("../nothing")
    assert refused.returncode == 1 and b"no such model folder" in refused.stderr
