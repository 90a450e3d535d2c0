"""Where two plans differ, field by field, but for what only estimates or explains."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

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
        "rec_mii",
        "res_mii",
    }
)
"""Fields in model time, which decide nothing about the code: made anew, whoever hands in a plan."""

WORDS: Final = frozenset({"reason", "reasons"})
"""Fields that anybody may write anything into."""

FREE: Final = ESTIMATES | WORDS
"""Fields by which plans may differ and be of the same code."""


def difference(given: Any, made: Any, where: str, skip: frozenset[str] = FREE) -> str:
    """The first field of ``given`` that ``made`` has otherwise, with both values; empty: none.

    ``where``: the place in the plan that ``given`` comes from, such as ``plan.copies``.
    """
    if dataclasses.is_dataclass(given) and type(given) is type(made):
        for field in dataclasses.fields(given):
            if field.name not in skip:
                name = f"{where}.{field.name}"
                found = difference(
                    getattr(given, field.name), getattr(made, field.name), name, skip
                )
                if found:
                    return found
        return ""
    if isinstance(given, tuple) and isinstance(made, tuple):
        if len(given) != len(made) and any(map(dataclasses.is_dataclass, (*given, *made))):
            return f"{where} has {len(given)} entries, expected {len(made)}{_names(made)}"
        if len(given) == len(made):
            pairs = zip(given, made)
            each = (difference(a, b, f"{where}[{at}]", skip) for at, (a, b) in enumerate(pairs))
            return next(filter(None, each), "")
    return "" if given == made else f"{where} is {_shown(given)}, expected {_shown(made)}"


def _names(parts: tuple[Any, ...]) -> str:
    """The parts by their names, in brackets; empty where there are none."""
    names = [getattr(part, "name", getattr(part, "op", "")) for part in parts]
    return f" ({', '.join(map(str, names))})" if all(names) and names else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
