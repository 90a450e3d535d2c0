"""Every constant of the cost model, and the table that README.md has of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Final

from ..machine.constant import Constant, records

ROOMS: Final = (
    "instructions",
    "mechanisms",
    "mechanisms.stores",
    "cost",
    "cost.usage",
    "choice",
    "space",
)
"""The folders whose constants are the cost model's."""


def constants() -> tuple[Constant, ...]:
    """The constants of all modules of the cost model, by name."""
    for room in ROOMS:
        package = import_module(f"pipeliner.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    return records()


def shown(value: object) -> str:
    """``value`` as a table has it: numbers with at most five digits."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return (
            f"({', '.join(map(shown, value))})"
            if len(value) <= 10
            else (f"({shown(value[0])}, {shown(value[1])}, ... {shown(value[-1])})")
        )
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def markdown(found: Iterable[Constant]) -> str:
    """The table of ``found`` in Markdown."""
    rows = ["| constant | value | unit | meaning | formula | source | date |", "|" + " --- |" * 7]
    for one in found:
        cells = (
            f"`{one.name}`",
            shown(one.value),
            one.unit,
            one.meaning,
            f"`{one.formula}`",
            str(one.source),
            one.date,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)
