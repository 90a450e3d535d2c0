"""Reduce rows of a tile in registers: the threads that share a row combine what each has of it.

    for i, j in T.grid(64, 128): m[i] = T.max(m[i], S[i, j])
 => for each row of this thread:
      most = min_value
      for each of its elements: most = T.max(most, S_frag[..])
      most = T.max(most, that of lane ^ 1);  most = T.max(most, that of lane ^ 2)
      m_frag[row] = T.max(m_frag[row], most)

The result has one element for each row that a thread has elements of, the same in all lanes that
share the row. What is combined may be computed of several tiles and of other such results. A
floating-point sum is made in another order than the nest's, as by every matmul instruction.

Does not handle: rows of which lanes of several warps have elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...errors import LoweringError
from ..ir.indexing import conjunction
from ..ir.nodes import Expr, Stmt, Var, block, buffer, i32, seq, substitute
from ..ir.patterns import Nest
from ..threads.reductions import ReductionNest, as_reduction
from ..threads.spread import unproven_all
from .combined import Combined, touched
from .fragment import Fragment, RowShare, unrolled_over
from .quads import of_lane_xor


def reduces_rows(nest: Nest, fragments: Sequence[Fragment]) -> bool:
    """Whether ``nest`` stores one element for each row of a tile that it reads in registers."""
    stored = [part for part in fragments if part.tile.same_as(nest.store.buffer)]
    return any(own.is_of_rows(part) for own in stored for part in fragments)


def reduce_rows(nest: Nest, fragments: Sequence[Fragment], analyzer: Any) -> Stmt:
    """Return ``nest``, of which ``reduces_rows`` holds, for the elements of a thread.

    Raises LoweringError if its iterations cannot be made in any order, or if lanes of several warps
    share a row.
    """
    found = as_reduction(nest)
    if found is None:
        raise refused(nest, Reason("registers.order", buffer=str(nest.store.buffer.name)))
    (own,) = (part for part in fragments if part.tile.same_as(nest.store.buffer))
    others = [part for part in fragments if part is not own]
    tiles = Combined.of(of_value(nest, found), others, analyzer)
    rows = tiles.fragment.rows
    if rows is None or not own.is_of_rows(tiles.fragment):
        raise refused(nest, Reason("registers.unlike", buffers=names_of(own, tiles.fragment)))
    if not rows.whole:
        raise refused(nest, Reason("registers.row", buffer=str(tiles.fragment.tile.name)))
    check_element(nest, own, tiles, analyzer)
    return _reduced(nest, found, own, tiles, rows, analyzer)


def names_of(*parts: Fragment) -> tuple[str, ...]:
    """Return the names of the tiles of ``parts``."""
    return tuple(str(part.tile.name) for part in parts)


def of_value(nest: Nest, found: ReductionNest) -> Nest:
    """Return a nest that stores what each iteration of ``nest`` adds, in no tile."""
    nowhere = buffer([1], str(nest.store.buffer.dtype), "added", "local")
    store = tirx.BufferStore(nowhere, found.value, [i32(0)])
    return Nest(nest.name, nest.vars, nest.extents, nest.predicate, store, nest.annotations)


def check_element(nest: Nest, own: Fragment, tiles: Combined, analyzer: Any) -> None:
    """Raise LoweringError unless each iteration stores the element beside those that it reads."""
    position, lane = (
        [Var(f"e{n}", "int32") for n in range(len(tiles.fragment.loops))],
        Var("v", "int32"),
    )
    values, _ = tiles.at(tiles.fragment.coordinates(position, lane))
    stored = [substitute(index, values) for index in touched(nest, own.tile)]
    element = own.coordinates(*own.place_beside(position, lane))
    if not all(map(analyzer.can_prove_equal, stored, element)):
        raise refused(nest, Reason("registers.apart", buffers=names_of(own, tiles.fragment)))


def _reduced(
    nest: Nest, found: ReductionNest, own: Fragment, tiles: Combined, rows: RowShare, analyzer: Any
) -> Stmt:
    """Return the rows of a thread reduced, one after the other."""
    part = tiles.fragment
    position = [Var(f"e{n}", "int32") for n in range(len(part.loops))]
    for var, extent in zip(position, part.loops):
        analyzer.bind(var, Range(0, extent))
    outer, inner = position[: rows.loops], position[rows.loops :]
    partial = buffer([1], str(own.tile.dtype), f"{own.tile.name}_part", "local")
    now = tirx.BufferLoad(partial, [i32(0)])

    def combined(value: Expr) -> Stmt:
        return tirx.BufferStore(partial, found.combine(now, value), [i32(0)])

    mine = seq(*[combined(added_at(found, tiles, position, v, analyzer)) for v in range(part.run)])
    steps = [1 << n for n in range(rows.lanes.bit_length() - 1)]
    before = own.read(outer, i32(0))
    # The maximum so far, or a partial sum: all lanes may begin with it.
    begins = own.by_lane or _is_idempotent(found)
    if own.by_lane:
        steps = []
    result = own.write(outer, 0, [now if begins else found.combine(before, now)])
    body = seq(
        tirx.BufferStore(partial, before if begins else found.identity, [i32(0)]),
        unrolled_over(dict(zip(inner, part.loops[rows.loops :])), mine),
        *[combined(of_lane_xor(now, step)) for step in steps],
        result,
    )
    return unrolled_over(dict(zip(outer, part.loops)), block("row", body, [partial]))


def _is_idempotent(found: ReductionNest) -> bool:
    return isinstance(found.nest.store.value, (tirx.Max, tirx.Min))


def added_at(
    found: ReductionNest, tiles: Combined, position: Sequence[Expr], v: int, analyzer: Any
) -> Expr:
    """Return what element ``v`` of a run adds, the identity if the nest skips it."""
    values, inside = tiles.at(tiles.fragment.coordinates(position, i32(v)))
    values = {var: analyzer.simplify(value) for var, value in values.items()}
    parts = [analyzer.simplify(part) for part in inside]
    parts += [substitute(part, values) for part in found.nest.predicate]
    guard = conjunction(unproven_all(parts, analyzer))
    value = tiles.on_registers(tiles.nest.store, position, i32(v), values).value
    return value if guard is None else tirx.if_then_else(guard, value, found.identity)


def refused(nest: Nest, why: Reason) -> LoweringError:
    """Return the error that ``nest`` cannot run on registers."""
    return LoweringError("block.to_registers", block=nest.name, why=why)
