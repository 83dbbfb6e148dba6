"""Ctrl-C, closed pipes and terminals."""

import json
import os
import signal
import subprocess
import time

import pytest
from cli_support import encode, rendered
from terminal import PATIENCE, Terminal

def test_closed_pipe_is_quiet(mlxlm, endless_model):
    process = subprocess.Popen([mlxlm.path, "generate", "--model", str(endless_model), "-m", "-1", "--temp", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"==========\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(PATIENCE) == 0
    process.stderr.close()


@pytest.mark.parametrize("extra", [[], ["--verbose", "false"]])
def test_interrupted_generation_reports_so_far(mlxlm, endless_model, extra):
    process = subprocess.Popen([mlxlm.path, "generate", "--model", str(endless_model), "-m", "-1", *extra],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(40)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    lines = err.decode().splitlines()
    assert [line.split(":")[0] for line in lines] == ["Prompt", "Generation", "Peak memory"]
    assert int(lines[1].split()[1]) >= 1


def test_interrupted_json_is_complete(mlxlm, endless_model):
    process = subprocess.Popen([mlxlm.path, "generate", "--model", str(endless_model), "-m", "-1", "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    answer = json.loads(out)
    assert answer["finish_reason"] == "cancelled"
    assert len(answer["token_ids"]) == len(answer["logprobs"]) == answer["generation_tokens"] > 0


def test_interrupted_prefill(mlxlm, endless_model):
    ids = ",".join(["65"] * 30000)
    process = subprocess.Popen(
        [mlxlm.path, "generate", "--model", str(endless_model), "--prompt-ids", ids, "--prefill-step-size", "16",
         "-m", "1", "--isa", "scalar", "--verbose", "false"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"\n")


def test_chat_interrupt_stops_the_answer_only(mlxlm, endless_model):
    """After a stopped answer the conversation holds what was shown, and goes on from there."""
    terminal = Terminal([mlxlm.path, "chat", "--model", endless_model, "-m", -1])
    terminal.type("One\n")
    at = terminal.wait_for("One\r\n")
    terminal.wait_for_more(at, 30)
    terminal.type("\x03")
    time.sleep(0.5)
    terminal.type("/exit\n")
    terminal.wait_for("/exit\r\n", at)
    assert terminal.close() == 0
    err = terminal.process.stderr.read().decode()
    assert ">> " in err and "(stopped)" in err and "error" not in err
    terminal.process.stderr.close()


def test_chat_goes_on_after_a_stopped_answer(mlxlm, endless_model):
    sampling = ("--temp", "3", "--seed", "5")
    process = subprocess.Popen([mlxlm.path, "chat", "--model", str(endless_model), "-m", "-1", *sampling],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"One\n")
    process.stdin.flush()
    first = os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.stdin.write(b"/help\n")
    process.stdin.flush()
    while b"/reset" not in process.stderr.readline():
        pass
    first += os.read(process.stdout.fileno(), 1 << 20)
    assert first.endswith(b"\n")
    stopped = first[:-1].decode()
    # The second answer, stopped too, begins as one made without a cache from what was shown.
    process.stdin.write(b"Two\n")
    process.stdin.flush()
    second = b""
    while len(second) < 100:
        second += os.read(process.stdout.fileno(), 4096)
    process.send_signal(signal.SIGINT)
    process.stdin.close()
    second += process.stdout.read()
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    process.stderr.close()
    ids = encode(rendered(("user", "One"), ("assistant", stopped), ("user", "Two")))
    cold = mlxlm.json("generate", "--model", endless_model, "--prompt-ids", ",".join(map(str, ids)), "-m", 16, *sampling)
    assert second.startswith(cold["text"].rstrip("\ufffd").encode())  # the last character may not be complete yet


def test_chat_prompt_interrupts(mlxlm, model):
    terminal = Terminal([mlxlm.path, "chat", "--model", model], join_errors=True)
    at = terminal.wait_for(">> ")
    terminal.type("half a line\x03")
    at = terminal.wait_for("Ctrl-C again", at)
    at = terminal.wait_for(">> ", at)
    terminal.type("h\n")  # anything between the two counts as going on
    at = terminal.wait_for(">> ", terminal.wait_for("/reset", at))
    terminal.type("\x03")
    at = terminal.wait_for(">> ", terminal.wait_for("Ctrl-C again", at))
    terminal.type("\x03")
    assert terminal.close() == 130


def test_chat_ends_with_the_input(mlxlm, model):
    terminal = Terminal([mlxlm.path, "chat", "--model", model], join_errors=True)
    terminal.wait_for(">> ")
    terminal.press("\x04")
    assert terminal.close() == 0


def test_progress_only_on_a_terminal(mlxlm, endless_model):
    ids = ",".join(["65"] * 30000)
    args = [mlxlm.path, "generate", "--model", endless_model, "--prompt-ids", ids, "--prefill-step-size", "16", "-m", "1",
            "--isa", "scalar", "--verbose", "false"]
    terminal = Terminal(args, join_errors=True)
    terminal.wait_for("Reading the prompt [")
    terminal.type("\x03")
    assert terminal.close() == 130
