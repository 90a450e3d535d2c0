"""Whether two accesses to shared memory, by any two threads, can touch the same element.

First by slot: `(k + 3) % 4` and `k % 4` differ for every `k`, which TVM's analyzer does not prove.
Then by value: where index expressions depend on thread and lane variables of known extent, they are
evaluated for every thread, so an element that only its own thread touches needs no barrier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import prim

from . import ir

Index = tuple[Any, ...]
Lanes = Mapping[Any, int | None]
Points = npt.NDArray[np.int64]

MAX_POINTS: Final = 1 << 16
"""Elements enumerated for one access; past it two accesses count as touching."""

_MAX_SHARED: Final = 64
"""Values of a variable that both accesses share, as a loop's: past it, it may be anything. Rings
are told apart by slot before, whatever the loop's length; the values of a long one, for every
thread, took longer than all other passes."""

_MAX_ELEMENTS: Final = 1 << 22
"""Size of the box around two accesses; past it they count as touching."""

_BINARY: Final = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.BitwiseAnd: np.bitwise_and,
    prim.BitwiseOr: np.bitwise_or,
    prim.BitwiseXor: np.bitwise_xor,
    prim.LShift: np.left_shift,
    prim.RShift: np.right_shift,
}


def differ(a: Any, b: Any, local: Lanes, prover: sym.Analyzer) -> bool:
    """Whether two indices are never equal, whatever their variables are.

    ``local``: variables that differ between the two sides, because the threads differ or the
    position inside the access does.
    """
    if a is None or b is None:
        return False
    x, y = ir.const_int(a), ir.const_int(b)
    if x is not None and y is not None:
        return x != y  # most slots and rows, after unrolling
    if ir.uses(a, local) or ir.uses(b, local):
        low, high = prover.const_int_bound(a), prover.const_int_bound(b)
        return bool(low.max_value < high.min_value or high.max_value < low.min_value)
    return all(
        _residues_differ(x, y, prover) for x in _values(a, prover) for y in _values(b, prover)
    )


def apart(
    a: Index,
    a_lanes: Lanes,
    b: Index,
    b_lanes: Lanes,
    threads: Lanes,
    prover: sym.Analyzer,
    unit: int = 1,
) -> bool:
    """Whether no element is touched by one thread through ``a`` and by another through ``b``.

    ``a_lanes``, ``b_lanes``: loop variables inside each access with their extents (from 0);
    ``threads``: those that tell threads apart, slowest first. Every other variable is the same on
    both sides. ``unit``: as many threads in a row count as one. An index that is None, or that
    depends on a variable without bounds, may be any: elements are told apart by the others.
    """
    local = {**threads, **a_lanes, **b_lanes}
    known = [(x, y) for x, y in zip(a, b) if x is not None and y is not None]
    pairs = [_without_common(x, y, local, prover) for x, y in known]
    pairs = [pair for pair in pairs if _ranges(pair, local, prover) is not None]
    shared = _ranges([x for pair in pairs for x in pair], local, prover)
    if not pairs or shared is None:
        return False
    if unit > 1:
        threads, unit = _without_idle(threads, unit, [x for pair in pairs for x in pair])
    sides = [x for x, _ in pairs], [y for _, y in pairs]

    def agree(lanes: tuple[Lanes, Lanes]) -> bool:
        # What both sides agree on is one more dimension of the element.
        first = _points(sides[0], lanes[0], threads, shared)
        second = _points(sides[1], lanes[1], threads, shared)
        return first is not None and second is not None and _threads_agree(first, second, unit)

    # Most pairs that meet do so in their first lanes, which are few.
    return agree((_first_of(a_lanes), _first_of(b_lanes))) and agree((a_lanes, b_lanes))


def _first_of(lanes: Lanes) -> Lanes:
    return {var: extent and 1 for var, extent in lanes.items()}


def _without_idle(threads: Lanes, unit: int, exprs: Sequence[Any]) -> tuple[Lanes, int]:
    """``threads`` without the fastest one where that is one unit and no expression uses it."""
    *slow, (fast, extent) = threads.items() or [(None, None)]
    if extent != unit or any(ir.uses(expr, [fast]) for expr in exprs):
        return threads, unit
    return dict(slow), 1


def _without_common(x: Any, y: Any, local: Lanes, prover: sym.Analyzer) -> tuple[Any, Any]:
    """The two indices less a term that both have, where that leaves fewer variables."""
    x_base, y_base = _at_origin(x, local), _at_origin(y, local)
    shift = ir.const_int(prover.simplify(y_base - x_base))
    if shift is None:
        return x, y
    return prover.simplify(x - x_base), prover.simplify(y - y_base + shift)


def _ranges(
    exprs: Sequence[Any], local: Lanes, prover: sym.Analyzer
) -> dict[Any, tuple[int, int]] | None:
    """Bounds of every variable of ``exprs`` that is not ``local``; None where one has none."""
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


def _points(
    index: Sequence[Any], lanes: Lanes, threads: Lanes, shared: Mapping[Any, tuple[int, int]]
) -> Points | None:
    """The elements that ``index`` names, as [dimension, thread, lane]."""
    extents = [*threads.values(), *lanes.values()]
    spans = [high - low + 1 for low, high in shared.values()]
    if any(extent is None for extent in extents):
        return None
    sizes = [extent or 0 for extent in extents] + spans
    count = math.prod(sizes)
    if not 0 < count <= MAX_POINTS:
        return None
    grid = np.indices(tuple(sizes), dtype=np.int64).reshape(len(sizes), count)
    env = dict(zip([*threads, *lanes, *shared], grid))
    for var, (low, _) in shared.items():
        env[var] = env[var] + low
    rows = []
    for expr in [*index, *shared]:
        values = _evaluate(expr, env)
        if values is None:
            return None
        rows.append(np.broadcast_to(values, (count,)))
    number = math.prod(extent or 0 for extent in threads.values())
    return np.stack(rows).reshape(len(rows), number, -1)


def _threads_agree(a: Points, b: Points, unit: int) -> bool:
    """Whether each element, of points [dimension, thread, lane], belongs to one thread in both.

    ``unit``: as many threads in a row count as one.
    """
    low = np.minimum(a.min(axis=(1, 2)), b.min(axis=(1, 2)))
    high = np.maximum(a.max(axis=(1, 2)), b.max(axis=(1, 2)))
    size = tuple(int(n) for n in high - low + 1)
    if math.prod(size) > _MAX_ELEMENTS:
        return False
    at_a = np.ravel_multi_index(tuple(a - low[:, None, None]), size)
    at_b = np.ravel_multi_index(tuple(b - low[:, None, None]), size)
    owner = np.full(math.prod(size), -1)
    mine = np.arange(a.shape[1])[:, None] // unit
    owner[at_a] = mine  # the last of several threads stays
    if not np.all(owner[at_a] == mine):
        others = np.zeros(math.prod(size), bool)
        others[at_a[owner[at_a] != mine]] = True
        if np.any(others[at_b]):
            return False
    owned = owner[at_b]
    return bool(np.all((owned < 0) | (owned == mine)))


def _evaluate(expr: Any, env: Mapping[Any, Points]) -> Any | None:
    """``expr`` for every point, or None where it holds something not known per point."""
    if isinstance(expr, prim.IntImm):
        return np.int64(int(expr.value))
    if isinstance(expr, prim.Cast):
        return _evaluate(expr.value, env)
    combine = _BINARY.get(type(expr))
    if combine is not None:
        left, right = _evaluate(expr.a, env), _evaluate(expr.b, env)
        return None if left is None or right is None else combine(left, right)
    if isinstance(expr, ir.Var):
        return env.get(expr)
    return None


def _at_origin(expr: Any, local: Lanes) -> Any:
    return ir.substitute(expr, {var: ir.i32(0) for var in local})


def _values(expr: Any, prover: sym.Analyzer) -> Sequence[tuple[Any, int | None]]:
    """What ``expr`` may be: each a value and the modulus it is known by (None: exactly)."""
    expr = prover.simplify(expr)
    modulus = _modulus(expr)
    inner = expr if modulus is None else expr.a
    return [(value, modulus) for value in _clamped(inner, prover)]


def _modulus(expr: Any) -> int | None:
    """``n`` of ``x % n`` and of ``x & (n - 1)``."""
    if isinstance(expr, prim.FloorMod):
        return ir.const_int(expr.b)
    if isinstance(expr, prim.BitwiseAnd):
        mask = ir.const_int(expr.b)
        return mask + 1 if mask is not None and mask > 0 and mask & (mask + 1) == 0 else None
    return None


def _clamped(expr: Any, prover: sym.Analyzer) -> list[Any]:
    """``expr`` with each ``min`` and ``max`` in it resolved, both ways where neither is proven."""
    found: list[Any] = []
    ir.walk(expr, (prim.Min, prim.Max), found.append)
    if not found:
        return [expr]
    clamp = found[0]
    low_first = prover.can_prove(clamp.a <= clamp.b)
    low_last = not low_first and prover.can_prove(clamp.b <= clamp.a)
    if isinstance(clamp, prim.Max):
        low_first, low_last = low_last, low_first
    ways = [clamp.a] if low_first else [clamp.b] if low_last else [clamp.a, clamp.b]
    return [value for way in ways for value in _clamped(_replace(expr, clamp, way), prover)]


def _replace(expr: Any, old: Any, new: Any) -> Any:
    swap = (type(old), lambda node: new if node.same_as(old) else node)
    return tvm_ffi.structural_map(expr, [swap], order="pre")


def _residues_differ(
    a: tuple[Any, int | None], b: tuple[Any, int | None], prover: sym.Analyzer
) -> bool:
    (x, m), (y, n) = a, b
    gap = prover.simplify(y - x)
    if m is None and n is None:
        distance = ir.const_int(gap)
        return distance != 0 if distance is not None else bool(prover.can_prove(gap != 0))
    # Equal values would make x and y congruent by every divisor of both moduli.
    residue = ir.const_int(prover.simplify(tirx.floormod(gap, math.gcd(m or 0, n or 0))))
    if residue is not None:
        return residue != 0
    exact = ir.const_int(x if m is None else y) if m is None or n is None else None
    return exact is not None and not 0 <= exact < (m or n or 0)
