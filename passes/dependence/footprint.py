"""Prove, by enumeration, that two threads never touch the same element of shared memory.

    S[tx] and S[tx]              proven: each element belongs to one thread
    S[tx] and S[tx ^ 1]          not proven
    S[tx] and S[tx + 20]         proven where both are under the condition tx < 20

Indices that depend on thread and lane variables of known extent are evaluated for every thread. So
an element that only its own thread touches needs no barrier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, Final, TypeAlias

import numpy as np
from tvm import sym

from ..ir import nodes as ir
from ..ir.indexing import Numbers, conjuncts, evaluate, holding

Index: TypeAlias = "tuple[Any, ...]"
"""One expression for each dimension; None stands for any value."""

Lanes: TypeAlias = "Mapping[Any, int | None]"
"""Variables, with their extents from 0 if constant."""

Guards: TypeAlias = "Sequence[Any]"
"""Conditions that hold whenever an access is made."""

MAX_POINTS: Final = 1 << 16
"""Most elements enumerated for one access; beyond, two accesses count as touching."""

_MAX_SHARED: Final = 64
"""Most values enumerated of a variable that both accesses share; beyond, it may be anything.

Such a variable is a loop's. Rings are distinguished by slot before this, whatever the loop's
length, and enumerating a long loop for every thread took longer than all other passes.
"""

_MAX_ELEMENTS: Final = 1 << 22
"""Most elements in the bounding box of two accesses; beyond, they count as touching."""


def disjoint(
    a: Index,
    a_lanes: Lanes,
    b: Index,
    b_lanes: Lanes,
    threads: Lanes,
    prover: sym.Analyzer,
    unit: int = 1,
    guards: tuple[Guards, Guards] = ((), ()),
) -> bool:
    """Whether no element is touched by one thread through ``a`` and by another through ``b``.

    ``a_lanes``, ``b_lanes``: loop variables inside each access with their extents (from 0);
    ``threads``: the thread axes, slowest first. Every other variable is the same on both sides.
    ``unit``: so many consecutive threads count as one. ``guards``: the conditions that each access
    is made under; one that other variables decide is as if it held. An index that is None, or that
    depends on a variable without bounds, may be any: the other indices tell elements apart.
    """
    local = {**threads, **a_lanes, **b_lanes}
    pairs: list[tuple[Any, Any]] = []
    shared: dict[Any, tuple[int, int]] = {}
    for x, y in zip(a, b):
        if x is None or y is None:
            continue
        pair = _without_common(x, y, local, prover)
        ranges = _ranges(pair, local, prover)
        if ranges is not None:
            pairs.append(pair)
            shared.update(ranges)
    if not pairs:
        return False
    if unit > 1:
        read = [x for pair in pairs for x in pair] + [x for side in guards for x in side]
        threads, unit = _without_idle(threads, unit, read)
    sides = [x for x, _ in pairs], [y for _, y in pairs]
    alike = len(guards[0]) == len(guards[1]) and all(map(is_, *guards))
    one_side = a is b and a_lanes is b_lanes and alike

    def agree(lanes: tuple[Lanes, Lanes]) -> bool:
        first = _points(sides[0], lanes[0], threads, shared, guards[0])
        second = first if one_side else _points(sides[1], lanes[1], threads, shared, guards[1])
        return first is not None and second is not None and _threads_agree(first, second, unit)

    # Most pairs that meet do so in their first lanes, which are few.
    return agree((_first_of(a_lanes), _first_of(b_lanes))) and agree((a_lanes, b_lanes))


def _first_of(lanes: Lanes) -> Lanes:
    return {var: extent and 1 for var, extent in lanes.items()}


def _without_idle(threads: Lanes, unit: int, exprs: Sequence[Any]) -> tuple[Lanes, int]:
    """Return ``threads`` without the fastest one if that is one unit and no expression uses it."""
    *slow, (fast, extent) = threads.items() or [(None, None)]
    if extent != unit or any(ir.uses(expr, [fast]) for expr in exprs):
        return threads, unit
    return dict(slow), 1


def _without_common(x: Any, y: Any, local: Lanes, prover: sym.Analyzer) -> tuple[Any, Any]:
    """Return the two indices less a common term, if fewer variables are left then."""
    if all(var in local for var in ir.variables(x) | ir.variables(y)):
        return x, y  # they share at most a number
    x_base, y_base = _at_origin(x, local), _at_origin(y, local)
    shift = ir.const_int(prover.simplify(y_base - x_base))
    if shift is None:
        return x, y
    return prover.simplify(x - x_base), prover.simplify(y - y_base + shift)


def _ranges(
    exprs: Sequence[Any], local: Lanes, prover: sym.Analyzer
) -> dict[Any, tuple[int, int]] | None:
    """Return bounds of every variable of ``exprs`` that is not ``local``; None if one has none."""
    found = frozenset[Any]().union(*map(ir.variables, exprs))
    ranges: dict[Any, tuple[int, int]] = {}
    for var in found - set(local):
        if ir.is_buffer_var(var):
            return None  # an element of it is loaded
        bound = prover.const_int_bound(var)
        low, high = int(bound.min_value), int(bound.max_value)
        if high - low >= _MAX_SHARED:
            return None
        ranges[var] = (low, high)
    return ranges


@dataclass(frozen=True)
class _Points:
    """The elements that an access touches: an array for each dimension of the element.

    Each array can be broadcast to ``shape``, whose first axes count ``threads``, the others lanes.
    ``made``: where the access is made, as [thread, lane]; None: everywhere.
    """

    rows: Sequence[Any]
    shape: tuple[int, ...]
    threads: int
    made: Any = None

    def numbered(
        self, low: Sequence[int], size: Sequence[int], unit: int
    ) -> tuple[Numbers, Numbers]:
        """Return the number of each element in a box of ``size`` from ``low``, and whose it is."""
        number: Any = np.int64(0)
        for row, start, extent in zip(self.rows, low, size):
            number = number * extent + (row - start)
        at = np.broadcast_to(number, self.shape).reshape(self.threads, -1)
        mine = np.arange(self.threads)[:, None] // unit
        return (
            (at, mine)
            if self.made is None
            else (at[self.made], np.broadcast_to(mine, at.shape)[self.made])
        )


def _points(
    index: Sequence[Any],
    lanes: Lanes,
    threads: Lanes,
    shared: Mapping[Any, tuple[int, int]],
    guards: Guards,
) -> _Points | None:
    """Return the elements that ``index`` names, together with the values of ``shared``."""
    extents = [*threads.values(), *lanes.values()]
    if any(extent is None for extent in extents):
        return None
    spans = [(0, extent or 0) for extent in extents]
    spans += [(low, high - low + 1) for low, high in shared.values()]
    shape = tuple(size for _, size in spans)
    if not 0 < math.prod(shape) <= MAX_POINTS:
        return None
    # Each variable along an axis of its own: what depends on few of them is evaluated for few.
    env = {
        var: np.arange(low, low + size).reshape(-1, *(1 for _ in shape[axis + 1 :]))
        for axis, (var, (low, size)) in enumerate(zip([*threads, *lanes, *shared], spans))
    }
    rows = [evaluate(expr, env) for expr in [*index, *shared]]
    if any(row is None for row in rows):
        return None
    made: Any = None
    for part in (part for guard in guards for part in conjuncts(guard)):
        where = holding(part, env)
        if where is not None:
            made = where if made is None else made & where
    count = math.prod(extent or 0 for extent in threads.values())
    if made is not None:
        made = np.broadcast_to(made, shape).reshape(count, -1)
    return _Points(rows, shape, count, made)


def _threads_agree(a: _Points, b: _Points, unit: int) -> bool:
    """Whether each element belongs to one thread in both.

    ``unit``: so many consecutive threads count as one.
    """
    rows = list(zip(a.rows, b.rows))
    low = [min(int(x.min()), int(y.min())) for x, y in rows]
    high = [max(int(x.max()), int(y.max())) for x, y in rows]
    size = [last - first + 1 for first, last in zip(low, high)]
    if math.prod(size) > _MAX_ELEMENTS:
        return False
    at_a, of_a = a.numbered(low, size, unit)
    at_b, of_b = (at_a, of_a) if b is a else b.numbered(low, size, unit)
    owner = np.full(math.prod(size), -1)
    owner[at_a] = of_a  # the last of several threads stays
    if not np.all(owner[at_a] == of_a):
        others = np.zeros(math.prod(size), bool)
        others[at_a[owner[at_a] != of_a]] = True
        if np.any(others[at_b]):
            return False
    owned = owner[at_b]
    return bool(np.all((owned < 0) | (owned == of_b)))


def _at_origin(expr: Any, local: Lanes) -> Any:
    return ir.substitute(expr, {var: ir.i32(0) for var in local})
