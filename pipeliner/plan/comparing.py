"""Where two plans differ, field by field, but for what only estimates or explains."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from ..diagnostics import Reason

ESTIMATES: Final = frozenset(
    {
        "cycle",
        "ii",
        "latency",
        "limiter",
        "live_cycles",
        "machine",
        "occupancy",
        "pipe",
        "predicted_us",
        "predicted_within",
        "rec_mii",
        "res_mii",
    }
)
"""Fields in model time, which decide nothing about the code: made anew, whoever hands in a plan."""

WORDS: Final = frozenset({"reason", "reasons"})
"""Fields that anybody may write anything into."""

FREE: Final = ESTIMATES | WORDS
"""Fields by which plans may differ and be of the same code."""


def difference(given: Any, made: Any, where: str, skip: frozenset[str] = FREE) -> Reason | None:
    """The first field of ``given`` that ``made`` has otherwise, with both values; None: none.

    ``where``: the place in the plan that ``given`` comes from, such as ``plan.copies``.
    """
    if dataclasses.is_dataclass(given) and type(given) is type(made):
        for field in dataclasses.fields(given):
            if field.name not in skip:
                name = f"{where}.{field.name}"
                found = difference(
                    getattr(given, field.name), getattr(made, field.name), name, skip
                )
                if found is not None:
                    return found
        return None
    if isinstance(given, tuple) and isinstance(made, tuple):
        if len(given) != len(made) and any(map(dataclasses.is_dataclass, (*given, *made))):
            counts = {"entries": len(given), "expected": len(made)}
            names = _names(made)
            if names:
                return Reason("difference.entries", where=where, **counts, names=names)
            return Reason("difference.count", where=where, **counts)
        if len(given) == len(made):
            pairs = zip(given, made)
            each = (difference(a, b, f"{where}[{at}]", skip) for at, (a, b) in enumerate(pairs))
            return next(filter(None, each), None)
    if given == made:
        return None
    return Reason("difference.value", where=where, value=_shown(given), expected=_shown(made))


def _names(parts: tuple[Any, ...]) -> tuple[str, ...]:
    """The parts by their names; empty where they have none."""
    names = [str(getattr(part, "name", getattr(part, "op", ""))) for part in parts]
    return tuple(names) if all(names) else ()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
