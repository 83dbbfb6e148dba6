"""Ends of requests that are given as lists of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class TokenStops:
    """Single ids, which the library knows as EOS, and lists of several, which are looked for here."""

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        listed = [tuple(int(i) for i in sequence) for sequence in sequences]
        if any(not sequence for sequence in listed):
            raise ValueError("stop_tokens: expected lists with at least one id, got an empty one")
        self.single = sorted({sequence[0] for sequence in listed if len(sequence) == 1})
        self.several = [list(sequence) for sequence in listed if len(sequence) > 1]
        self._longest = max((len(sequence) for sequence in self.several), default=0)

    def ends(self, recent: list[int], token: int) -> bool:
        """Adds a token to a request's recent ones. True: they now end with one of the lists."""
        recent.append(token)
        del recent[: -self._longest]
        return any(recent[-len(sequence) :] == sequence for sequence in self.several)
