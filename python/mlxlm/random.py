"""Seeds for generations that give none of their own.

After ``seed(n)`` the first generation, the second and so on draw from seeds that follow from n, so a program repeats
itself. Without it each generation gets a seed from the operating system; a response tells which one.
"""

from __future__ import annotations

import hashlib
import os
import threading

from . import _core

_lock = threading.Lock()
_state: tuple[int, int] | None = None  # the seed, and how many were derived from it
_draws = 0
_process_seed = int.from_bytes(os.urandom(8), "little")


def seed(seed: int) -> None:
    """Makes everything that follows repeatable."""
    global _state, _draws
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed: expected an int, got {seed!r}")
    with _lock:
        _state, _draws = (seed, 0), 0


def _derive(base: int, purpose: str, number: int) -> int:
    text = f"{base} {purpose} {number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def next_seed() -> int | None:
    """The seed of the next generation; None: it draws one itself."""
    global _state
    with _lock:
        if _state is None:
            return None
        base, number = _state
        _state = (base, number + 1)
    return _derive(base, "request", number)


def next_draw() -> tuple[int, int]:
    """(seed, position) of a draw: those of the token that a sampler called by a generation chooses, else the next of
    this module's."""
    global _draws
    draw = _core.draw_of_this_call()
    if draw is not None:
        return draw
    with _lock:
        number, _draws = _draws, _draws + 1
        base = _state[0] if _state is not None else None
    return _derive(_process_seed if base is None else base, "draw", 0), number
