"""Reduce columns of a tile in registers: a thread keeps what it has of a column until it is read.

    for i, j in T.grid(64, 128): c[j] = c[j] + S[i, j]
 => each thread adds what it has of its columns to its partial sums, without any exchange
    for j in range(128): L[j] = c[j]
 => part = c_frag[..];  part = part + that of lane ^ 4;  ... ^ 8;  ... ^ 16
    one lane of each quad column: P[warp, j] = part              # in shared memory
    barrier of those who share the tile
    c_sum[..] = P[0, j] + P[1, j] + ..;  L[j] = c_sum[..]

Eight lanes of each warp, and all warps that have rows of the tile, have elements of a column. A
loop that adds to columns in each of its steps so needs one exchange behind it. Warps are added in
their order: every run gives the same bits.

Does not handle: a result of columns that anything but such a reduction changes, or that begins
with anything but what changes nothing (a maximum may begin with any value).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ..ir.nodes import Buffer, Expr, Stmt, Var, buffer, const_int, i32, seq, uses
from ..ir.patterns import Nest
from ..threads.reductions import as_reduction
from ..threads.spread import Threads
from .combined import Combined
from .fragment import ElementIndex, Fragment, Partial, unrolled_over
from .lane_sums import keeps_partial_sums
from .quads import of_lane_xor
from .row_reductions import added_at, check_element, names_of, of_value, refused

_KEPT = {tirx.Add, tirx.Max, tirx.Min}


def columns_of(
    base: Fragment, tile: Buffer, coordinates: Callable[[ElementIndex, Expr], Sequence[Expr]]
) -> Fragment | None:
    """Return the fragment of ``tile``, one element for each column that a thread has of ``base``.

    ``coordinates``: the indices of ``tile`` at an element of ``base``.
    """
    share = base.columns
    if share is None:
        return None
    rows, loops = [i32(0)] * share.loops, base.loops[share.loops :]

    def register(at: ElementIndex, v: Expr) -> Expr:
        place: Expr = i32(0)
        for index, extent in zip(at, loops):
            place = place * extent + index
        return place * base.run + v

    count = base.run
    for extent in loops:
        count *= extent
    registers = buffer([count], str(tile.dtype), f"{tile.name}_frag", "local")
    return Fragment(
        tile,
        registers,
        loops,
        base.run,
        lambda at, v: coordinates([*rows, *at], v),
        register,
        holder=share.first,
        of_columns=share,
    )


def in_parts(made: Fragment, nests: Sequence[Nest]) -> Fragment | None:
    """Return ``made``, of columns, with what threads keep of an element, where ``nests`` reduce.

    ``nests``: all that store into it. None if they do more than parts of an element allow.
    """
    found = [one for nest in nests if (one := as_reduction(nest)) is not None]
    if not found:
        return replace(made, part=None)
    kinds = {type(one.nest.store.value) for one in found}
    if len(kinds) > 1 or not kinds <= _KEPT:
        return None
    repeats = kinds != {tirx.Add}
    others = [nest for nest in nests if as_reduction(nest) is None]
    if not all(_keeps(nest, repeats=repeats) for nest in others):
        return None
    return replace(made, part=Partial(found[0].combine, found[0].identity, repeats))


def _keeps(nest: Nest, *, repeats: bool) -> bool:
    """Whether threads may run ``nest`` on the parts that they have of what it stores.

    ``repeats``: all threads may begin with the same.
    """
    if not repeats:
        return keeps_partial_sums(nest)
    return not nest.deciding_loads() and not uses(nest.store.value, [nest.store.buffer])


def reduces_columns(nest: Nest, fragments: Sequence[Fragment]) -> bool:
    """Whether ``nest`` stores parts of one element for each column of a tile in registers."""
    stored = [part for part in fragments if part.tile.same_as(nest.store.buffer)]
    return any(
        own.part is not None and own.is_of_columns(part) for own in stored for part in fragments
    )


def reduce_columns(nest: Nest, fragments: Sequence[Fragment], analyzer: Any) -> Stmt:
    """Return ``nest``, of which ``reduces_columns`` holds, for the elements of a thread.

    Raises LoweringError if it combines tiles that threads hold in different ways.
    """
    found = as_reduction(nest)
    assert found is not None  # or nobody would keep parts
    (own,) = (part for part in fragments if part.tile.same_as(nest.store.buffer))
    others = [part for part in fragments if part is not own]
    tiles = Combined.of(of_value(nest, found), others, analyzer)
    base = tiles.fragment
    if not own.is_of_columns(base):
        raise refused(nest, Reason("registers.unlike", buffers=names_of(own, base)))
    check_element(nest, own, tiles, analyzer)
    position = {Var(f"e{n}", "int32"): extent for n, extent in enumerate(base.loops)}
    for var, extent in position.items():
        analyzer.bind(var, Range(0, extent))
    at = list(position)
    own_at, _ = own.place_beside(at, i32(0))
    adding = [
        own.write(
            own_at,
            v,
            [found.combine(own.read(own_at, i32(v)), added_at(found, tiles, at, v, analyzer))],
        )
        for v in range(base.run)
    ]
    return unrolled_over(position, seq(*adding))


def stage_of(part: Fragment, threads: Threads) -> Buffer | None:
    """Return shared memory for the parts that warps have; None where one warp has all of a column.

    Groups that alternate on tiles have a piece each.
    """
    share = part.of_columns
    if share is None or share.warps == 1:
        return None
    shape = [threads.groups * share.warps, *part.tile.shape]
    return buffer(shape, part.dtype, f"{part.tile.name}_parts", "shared")


def put_together(
    part: Fragment,
    stage: Buffer | None,
    threads: Threads,
    barrier: Stmt | None = None,
    *,
    again: bool = False,
) -> tuple[Stmt, Fragment]:
    """Return what makes whole elements of the parts that ``threads`` have, and where those are.

    ``stage``: as of ``stage_of``; ``again``: which may be read from before. ``barrier``: of all
    that share the tile, None where the passes place barriers.
    """
    share, kept = part.of_columns, part.part
    assert share is not None
    assert kept is not None
    count = const_int(part.registers.shape[0]) or 1
    total = buffer([count], part.dtype, f"{part.tile.name}_whole", "local")
    made = replace(part, registers=total, part=None)
    position = {Var(f"e{n}", "int32"): extent for n, extent in enumerate(part.loops)}
    at = list(position)

    def over(each: Callable[[int], Sequence[Stmt]]) -> Stmt:
        return unrolled_over(position, seq(*[one for v in range(part.run) for one in each(v)]))

    def combined(v: int, other: Expr) -> Stmt:
        return made.write(at, v, [kept.combine(made.read(at, i32(v)), other)])

    def of_warp(v: int) -> list[Stmt]:
        now = made.read(at, i32(v))
        begin = made.write(at, v, [part.read(at, i32(v))])
        return [begin, *[combined(v, of_lane_xor(now, step)) for step in share.steps]]

    if stage is None:
        return over(of_warp), made
    first = i32(0) if threads.groups == 1 else tirx.floordiv(threads.var, threads.count)

    def warp(number: Expr) -> Expr:
        return number if threads.groups == 1 else first * share.warps + number

    def place(number: Expr, v: int) -> list[Expr]:
        return [warp(number), *part.coordinates(at, i32(v))]

    def shown(v: int) -> list[Stmt]:
        return [tirx.BufferStore(stage, made.read(at, i32(v)), place(share.warp, v))]

    def read(v: int) -> list[Stmt]:
        parts = [tirx.BufferLoad(stage, place(i32(w), v)) for w in range(share.warps)]
        rest = [combined(v, one) for one in parts[1:]]
        return [made.write(at, v, parts[:1]), *rest]

    shows = tirx.IfThenElse(share.leads, over(shown), None)
    return seq(over(of_warp), barrier if again else None, shows, barrier, over(read)), made


def left_to_one(part: Fragment) -> list[Stmt]:
    """Return what makes the whole element, which all threads have, the part of one of them."""
    if part.part is None or part.part.repeats or part.holder is None:
        return []
    position = {Var(f"e{n}", "int32"): extent for n, extent in enumerate(part.loops)}
    nothing = [part.write(list(position), v, [part.part.identity]) for v in range(part.run)]
    return [tirx.IfThenElse(tirx.Not(part.holder), unrolled_over(position, seq(*nothing)), None)]
