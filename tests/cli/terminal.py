"""Programs on a pseudo-terminal."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time

import pytest

PATIENCE = 60  # seconds before a wait counts as failed


class Terminal:
    """The program on a pseudo-terminal; standard error is a pipe unless `join_errors`."""

    def __init__(self, args, join_errors=False, kind=None):
        """kind: the TERM that the program sees; none: that of the tests."""
        self.fd, child = pty.openpty()
        self.process = subprocess.Popen(
            [str(a) for a in args], stdin=child, stdout=child, stderr=child if join_errors else subprocess.PIPE,
            env=os.environ | ({"TERM": kind} if kind else {}), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(child)
        self.seen = b""

    def wait_for(self, text, after=0):
        """Reads until `text` stands behind offset `after`; returns the offset behind it."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.seen[after:]:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; seen: {self.seen[-300:]!r}"
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                pytest.fail(f"the program ended before {text!r}; seen: {self.seen[-300:]!r}")
        return self.seen.index(text.encode(), after) + len(text.encode())

    def wait_for_more(self, after, count):
        deadline = time.monotonic() + PATIENCE
        while len(self.seen) < after + count:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no output; seen: {self.seen[-300:]!r}"
            self.seen += os.read(self.fd, 65536)

    def type(self, text):
        os.write(self.fd, text.encode())

    def press(self, keys):
        """Types once the program reads key by key, without the terminal's own editing."""
        deadline = time.monotonic() + PATIENCE
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < deadline, "the program does not read keys"
            time.sleep(0.01)
        self.type(keys)

    def close(self):
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            os.close(self.fd)
        return self.process.returncode
