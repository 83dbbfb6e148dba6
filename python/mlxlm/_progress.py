"""Progress bars in terminals and notebooks, on standard error; none where nobody watches."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

INTERVAL = 0.2  # seconds between two drawings
WIDTH = 24


def somebody_watches() -> bool:
    """Whether standard error is a terminal or a notebook's cell."""
    stream = sys.stderr
    return stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel"))


class Bar:
    """One line that is drawn over itself. Safe to call from any thread."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._start = self._last = time.monotonic()
        self._shown = 0
        self._lock = threading.Lock()

    def update(self, label: str, done: int, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last < INTERVAL or total <= 0:
                return
            self._last = now
            share = min(1.0, done / total)
            filled = round(WIDTH * share)
            bar = "█" * filled + "░" * (WIDTH - filled)
            rate = done / max(now - self._start, 1e-9)
            self._draw(f"{label} {bar} {share:4.0%}  {self._amount(done)} of {self._amount(total)}, {self._amount(rate)}/s")

    def _amount(self, value: float) -> str:
        if self._unit != "B":
            return f"{value:,.0f} {self._unit}"
        for unit in ("B", "kB", "MB"):
            if value < 1000:
                return f"{value:.1f} {unit}"
            value /= 1000
        return f"{value:.2f} GB"

    def _draw(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(line)

    def close(self) -> None:
        with self._lock:
            if self._shown:
                sys.stderr.write("\r" + " " * self._shown + "\r")
                sys.stderr.flush()
                self._shown = 0


@contextlib.contextmanager
def download_bar(progress: Callable[..., object] | bool) -> Iterator[Callable[..., object] | None]:
    """The progress function to use: the caller's, a bar's, or none."""
    if callable(progress):
        yield progress
        return
    if not progress or not somebody_watches():
        yield None
        return
    bar = Bar("B")

    def update(stage: str, done: int, total: int, *_: Any) -> None:
        bar.update(stage, done, total)

    try:
        yield update
    finally:
        bar.close()


@contextlib.contextmanager
def prefill_bar() -> Iterator[Callable[[int, int], None] | None]:
    """For a prompt's progress callback."""
    if not somebody_watches():
        yield None
        return
    bar = Bar("tokens")
    try:
        yield lambda done, total: bar.update("prompt", done, total) if done < total else bar.close()
    finally:
        bar.close()
