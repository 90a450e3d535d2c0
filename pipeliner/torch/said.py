"""What is left to PyTorch, and why: warned of once, counted, listed on demand."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from typing import Final

from ..diagnostics import Reason


class FallbackWarning(UserWarning):
    """A call was left to PyTorch, or a cache was not used; each op says each reason once."""


_LOCK: Final = threading.Lock()
_SEEN: Final[Counter[Reason]] = Counter()
_WARNED: Final[set[tuple[str, str]]] = set()


def fallbacks() -> dict[str, int]:
    """What was left to PyTorch and why, as sentences, each with the number of times."""
    with _LOCK:
        return {str(reason): count for reason, count in _SEEN.items()}


def left(op: str, why: Reason) -> None:
    """Note that a call of ``op`` is left to PyTorch; the first time for this kind of reason, warn.

    Two reasons are of one kind if they have the same code, whatever the numbers.
    """
    say(op, Reason("torch.left", op=op, why=why), why.code)


def say(subject: str, reason: Reason, kind: str = "") -> None:
    """Count ``reason``; warn of it, if ``subject`` has not said this ``kind`` (its code) before."""
    about = (subject, kind or reason.code)
    with _LOCK:
        _SEEN[reason] += 1
        first = about not in _WARNED
        _WARNED.add(about)
    if first:
        warnings.warn(FallbackWarning(reason), stacklevel=3)


def forget() -> None:
    """Forget what was said, so that it is said again."""
    with _LOCK:
        _SEEN.clear()
        _WARNED.clear()
