"""The accesses that no barrier orders yet, at one point of a function.

Barrier placement visits statements in program order with a ``BarrierState``. A barrier empties it,
an access adds a ``Pending`` to it, and the functions below say how a pending access changes when
control enters a loop, goes on to its next iteration, or leaves it:

    for k: { S[k % 3] = ..; .. }     after the first iteration, pending: a write of S[(k - 1) % 3]

So slots of a ring are compared exactly, iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from ..ir import nodes as ir
from .ordering import Item, Node, Path

EXACT_ITERATIONS: Final = 3
"""Iterations back for which a loop-carried access is exact; beyond, it is any earlier iteration."""

_MOST_GROUPS: Final = 8
"""Groups of wgmma that are counted: a thread never has more in flight."""


@dataclass(frozen=True, eq=False)
class Pending:
    """An access since the last barrier, as seen from the current iteration of every loop.

    ``index``, ``guards``: those of the item, with loop variables moved to the iteration that made
    it. ``path``: of its leaf. ``first``: variables of loops entered since, which are still in their
    first iteration. ``crossed``: for each loop that carried it, the loop's depth and how many
    iterations ago. ``gone``: loops left since, and how many iterations before their last it was
    made. ``groups``: how many groups of wgmma were committed since, for a read by wgmma.
    """

    item: Item
    index: tuple[Any, ...]
    guards: tuple[Any, ...]
    path: Path
    first: frozenset[Any] = frozenset()
    crossed: tuple[tuple[int, int], ...] = ()
    gone: tuple[tuple[Path, int], ...] = ()
    groups: int = 0

    @cached_property
    def key(self) -> Any:
        """What identifies it: two pending accesses with one key have one index."""
        return (self.item, self.first, self.crossed, self.gone, self.groups)


@dataclass(frozen=True)
class BarrierState:
    """The accesses since the last barrier, and the copies and wgmma reads in flight.

    All are in the order in which they were made, so that the outcome is deterministic.
    """

    pending: Mapping[Any, Pending] = field(default_factory=dict)
    in_flight: Mapping[Item, None] = field(default_factory=dict)
    reading: Mapping[Any, Pending] = field(default_factory=dict)

    def __or__(self, other: BarrierState) -> BarrierState:
        return BarrierState(
            {**self.pending, **other.pending},
            {**self.in_flight, **other.in_flight},
            {**self.reading, **other.reading},
        )

    def within(self, other: BarrierState) -> bool:
        """Whether everything in this state is in ``other``."""
        kept = self.pending.keys() <= other.pending.keys()
        known = self.in_flight.keys() <= other.in_flight.keys()
        return kept and known and self.reading.keys() <= other.reading.keys()

    def each(self, change: Callable[[Pending], Pending]) -> BarrierState:
        """Return this state with ``change`` applied to every pending access and wgmma read."""
        pending, reading = (
            {entry.key: entry for entry in map(change, entries.values())}
            for entries in (self.pending, self.reading)
        )
        return replace(self, pending=pending, reading=reading)


def entered(entry: Pending, var: Any | None) -> Pending:
    """Return ``entry`` as seen in the first iteration of the loop over ``var``."""
    return entry if var is None else replace(entry, first=entry.first | {var})


def committed(entry: Pending) -> Pending:
    """Return ``entry`` after one more commit of wgmma."""
    return replace(entry, groups=min(entry.groups + 1, _MOST_GROUPS))


def carried(entry: Pending, loop: Node) -> Pending:
    """Return ``entry`` at the end of an iteration of ``loop``, as the next iteration sees it."""
    var = getattr(loop.stmt, "loop_var", None)
    if not _inside(entry, loop):
        return replace(entry, first=entry.first - {var})
    crossed = dict(entry.crossed)
    depth = len(loop.path)
    ago = crossed.get(depth, 0)
    crossed[depth] = min(ago + 1, EXACT_ITERATIONS + 1)
    entry = replace(entry, crossed=tuple(sorted(crossed.items())))
    if var is None:
        return entry
    step = getattr(loop.stmt, "step", None)
    any_earlier = ir.Var(f"{var.name}_earlier", "int32")
    value = var - (1 if step is None else step) if ago < EXACT_ITERATIONS else any_earlier
    return _moved(entry, var, value)


def left(entry: Pending, loop: Node, last: Any) -> Pending:
    """Return ``entry`` as seen after ``loop``, whose variable was ``last`` at the end."""
    var = loop.stmt.loop_var
    first = entry.first - {var}
    if not _inside(entry, loop):
        return replace(entry, first=first)
    crossed = dict(entry.crossed)
    ago = crossed.pop(len(loop.path), 0)
    return replace(
        _moved(entry, var, last),
        first=first,
        crossed=tuple(sorted(crossed.items())),
        gone=(*entry.gone, (loop.path, ago)),
    )


def _inside(entry: Pending, loop: Node) -> bool:
    """Whether an iteration of ``loop`` made ``entry``, since control last entered the loop."""
    has_left = any(path == loop.path for path, _ in entry.gone)
    return entry.path[: len(loop.path)] == loop.path and not has_left


def _moved(entry: Pending, var: Any, value: Any) -> Pending:
    """Return ``entry`` with ``value`` for ``var``: what it was when the access was made."""
    at = {var: value}
    return replace(entry, index=placed(entry.index, at), guards=placed(entry.guards, at))


def placed(exprs: tuple[Any, ...], values: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return expressions with variables replaced; None stays None."""
    if not values:
        return exprs
    return tuple(x if x is None else ir.substitute(x, values) for x in exprs)
