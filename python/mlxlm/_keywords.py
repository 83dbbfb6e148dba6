"""Keywords that a function hands on to another: a wrong one is refused under the name that the caller used."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .sample_utils import make_logits_processors, make_sampler


ADVICE = {
    "seed": "for a batch call mlxlm.random.seed(n), or give BatchGenerator.insert a list of seeds",
    "samplers": "BatchGenerator.insert takes one for each prompt",
}


def check_keywords(function: str, target: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """Raises TypeError for the first of ``keywords`` that ``target``, to which ``function`` hands them, does not take."""
    known = inspect.signature(target).parameters
    for name in keywords:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_advice(name, known)}")


def _advice(name: str, known: Iterable[str]) -> str:
    if name in ADVICE:
        return f"; {ADVICE[name]}"
    meant = {"temperature": "temp"}.get(name, name)
    for argument, maker in (("sampler", make_sampler), ("logits_processors", make_logits_processors)):
        if meant in inspect.signature(maker).parameters:
            return f"; give {argument}={maker.__name__}({meant}=...)"
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
