"""The line editor of the chat: where it is used, its keys, its history, and Ctrl-C and Ctrl-D in it."""

import pytest
from terminal import Terminal

HELP = "/reset (r)"


@pytest.fixture
def chat(mlxlm, model):
    terminals = []

    def start(kind="xterm"):
        terminals.append(Terminal([mlxlm.path, "chat", "--model", model, "-m", 2], join_errors=True, kind=kind))
        terminals[-1].at = terminals[-1].wait_for(">> ")
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.process.kill()


def sends(terminal, keys):
    """Types the keys and Enter; the line they make must be /help."""
    terminal.press(keys + "\r")
    terminal.at = terminal.wait_for(">> ", terminal.wait_for(HELP, terminal.at))


@pytest.mark.parametrize("keys", [
    "elp\x01/h",  # Ctrl-A: to the beginning
    "/hxp\x1b[D\x7fel",  # left arrow, backspace
    "✓é/\x1b[D\x7f\x7f\x05help",  # characters of several bytes; Ctrl-E: to the end
    "abc\x15/help",  # Ctrl-U: the line away
    "/helpxyz\x1b[D\x1b[D\x1b[D\x0b",  # Ctrl-K: the rest away
    "/helpx\x1b[D\x1b[3~",  # the Delete key
])
def test_keys(chat, keys):
    sends(chat(), keys)


def test_history(chat):
    terminal = chat()
    sends(terminal, "/help")
    terminal.press("/nonsense\r")
    terminal.at = terminal.wait_for(">> ", terminal.wait_for("unknown command", terminal.at))
    sends(terminal, "\x1b[A\x1b[A")  # up twice
    sends(terminal, "\x12elp\x1b")  # Ctrl-R: search


def test_a_message_of_several_bytes_arrives_whole(chat):
    terminal = chat()
    terminal.press("/héllo✓😀\r")
    terminal.wait_for("unknown command '/héllo✓😀'", terminal.at)


def test_interrupts_and_end(chat):
    terminal = chat()
    terminal.press("half a line\x03")
    terminal.at = terminal.wait_for(">> ", terminal.wait_for("Ctrl-C again", terminal.at))
    sends(terminal, "/help")  # the half line is gone
    terminal.press("\x03")
    terminal.at = terminal.wait_for(">> ", terminal.wait_for("Ctrl-C again", terminal.at))
    terminal.press("\x04")
    assert terminal.close() == 0


def test_simple_terminals_edit_themselves(chat):
    terminal = chat(kind="dumb")
    terminal.type("/help\n")
    terminal.at = terminal.wait_for(HELP, terminal.at)
    terminal.type("/exit\n")
    assert terminal.close() == 0
