"""Numbers as records: value, unit, meaning, formula, source and date.

``constant`` registers a record and returns the bare value, so that arithmetic with it costs nothing
more than with a literal. Formulas name constants as the code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

T = TypeVar("T")

SourceKind: TypeAlias = Literal["documented", "measured", "counted", "fitted", "derived", "chosen"]
"""Where a number is from.

``documented``: a vendor's document. ``measured``: kernels timed on a GPU. ``counted``: instructions
or registers in compiled code. ``fitted``: the value that leaves the least error over many
measurements. ``derived``: from another number of this list. ``chosen``: a policy of ours.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number is from, and how well it is known."""

    kind: SourceKind
    where: str
    """The document and its section, the command, the log, or the reason of a choice."""
    residual: str = ""
    """The error that a fit leaves, or the range of values that serve as well; empty: not known."""

    def __str__(self) -> str:
        left = f"; {self.residual}" if self.residual else ""
        return f"{self.kind}: {self.where}{left}"


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of the cost model."""

    name: str
    """The name that code and formulas have for it."""
    value: Any
    """A number, a tuple of numbers, or a mapping from a number to one."""
    unit: str
    """``cycles``, ``bytes``, ``1`` where it has no dimension."""
    meaning: str
    """What it is, in a phrase."""
    formula: str
    """What it multiplies, in which formula or decision."""
    source: Source
    date: str
    """When the value entered the model (YYYY-MM-DD)."""


_RECORDS: Final[dict[str, Constant]] = {}


def constant(
    name: str, value: T, unit: str, meaning: str, *, formula: str, source: Source, date: str
) -> T:
    """``value``, after a record of it was registered; ValueError: another has that name."""
    record = Constant(name, value, unit, meaning, formula, source, date)
    if _RECORDS.setdefault(name, record) != record:
        raise ValueError(f"two constants are called {name}")
    return value


def records() -> tuple[Constant, ...]:
    """The records of all modules that are imported, by name."""
    return tuple(_RECORDS[name] for name in sorted(_RECORDS))


def documented(where: str) -> Source:
    """A vendor's document says so."""
    return Source("documented", where)


def measured(where: str, residual: str = "") -> Source:
    """Kernels were timed."""
    return Source("measured", where, residual)


def counted(where: str, residual: str = "") -> Source:
    """Instructions or registers were counted in compiled code."""
    return Source("counted", where, residual)


def fitted(where: str, residual: str = "") -> Source:
    """The value with the least error over many measurements."""
    return Source("fitted", where, residual)


def derived(where: str) -> Source:
    """It follows from another number."""
    return Source("derived", where)


def chosen(where: str, residual: str = "") -> Source:
    """A policy of ours, for the reason given."""
    return Source("chosen", where, residual)
