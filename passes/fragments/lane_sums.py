"""Keep the sum of a row as partial sums, one in each lane that shares the row, until it is used.

    for i, j: l[i] = l[i] + P[i, j]        each lane adds what it has of the row
    for i: l[i] = l[i] * f[i]              each lane scales its partial sum
    for i: L[i] = T.log(l[i])              here the lanes add up their partial sums

A sum that a loop adds to in every step needs no exchange in any of them. Zeros add up to zero, and
a factor that all lanes of the row have scales their partial sums as it scales the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tvm import tirx

from ..ir.nodes import Buffer, Expr, Stmt, Var, buffer, const_int, i32, seq, uses
from ..ir.patterns import Nest, is_element_of, is_zero
from ..threads.reductions import as_reduction
from .fragment import Fragment, unrolled_over
from .quads import of_lane_xor


def by_lane(nests: Iterable[Nest], found: Mapping[Buffer, Fragment]) -> dict[Buffer, Fragment]:
    """Return those of ``found``, one element a row, that may be partial sums by lane, marked so."""
    stored: dict[Buffer, list[Nest]] = {}
    for nest in nests:
        stored.setdefault(nest.store.buffer, []).append(nest)
    return {
        tile: replace(part, by_lane=True)
        for tile, part in found.items()
        if part.lanes > 1 and _may_be_by_lane(stored.get(tile, []), part.tile)
    }


def _may_be_by_lane(nests: Sequence[Nest], tile: Buffer) -> bool:
    """Whether each of ``nests``, all that store into ``tile``, may run on partial sums."""
    if not str(tile.dtype).startswith("float"):
        return False
    return any(adds_up(nest) for nest in nests) and all(keeps_partial_sums(nest) for nest in nests)


def adds_up(nest: Nest) -> bool:
    """Whether ``nest`` adds to the element that it stores, over other variables."""
    found = as_reduction(nest)
    return found is not None and type(nest.store.value) is tirx.Add


def keeps_partial_sums(nest: Nest) -> bool:
    """Whether ``nest`` may run on the partial sums that lanes have of what it stores."""
    store = nest.store
    if is_zero(store.value) or adds_up(nest):
        return True
    if type(store.value) is not tirx.Mul or nest.deciding_loads():
        return False
    sides = (store.value.a, store.value.b), (store.value.b, store.value.a)
    return any(
        is_element_of(own, store) and not uses(factor, [store.buffer]) for own, factor in sides
    ) and not any(uses(part, [store.buffer]) for part in nest.predicate)


def added_up(
    nest: Nest, fragments: Sequence[Fragment]
) -> tuple[list[Stmt], list[Fragment], list[Buffer]]:
    """Return what adds up the partial sums that ``nest`` reads, and where the sums are then.

    Without partial sums, and for a nest that may run on them, ``fragments`` are as they were. The
    buffers are the registers of the sums.
    """
    stmts: list[Stmt] = []
    parts: list[Fragment] = []
    buffers: list[Buffer] = []
    for part in fragments:
        own = part.tile.same_as(nest.store.buffer)
        if not part.by_lane or (own and keeps_partial_sums(nest)):
            parts.append(part)
            continue
        count = const_int(part.registers.shape[0]) or 1
        total = buffer([count], part.dtype, f"{part.tile.name}_sum", "local")
        made = replace(part, registers=total, by_lane=False)
        stmts.append(_added(part, made))
        parts.append(made)
        buffers.append(total)
    return stmts, parts, buffers


def _added(part: Fragment, made: Fragment) -> Stmt:
    """Return the sums of all lanes of a row in the registers of ``made``."""
    position = [Var(f"e{n}", "int32") for n in range(len(part.loops))]
    now: Expr = made.read(position, i32(0))
    steps = [1 << n for n in range(part.lanes.bit_length() - 1)]
    body = seq(
        made.write(position, 0, [part.read(position, i32(0))]),
        *[made.write(position, 0, [now + of_lane_xor(now, step)]) for step in steps],
    )
    return unrolled_over(dict(zip(position, part.loops)), body)


def alone(part: Fragment) -> list[Stmt]:
    """Return what makes the whole sum that all lanes of a row have the partial sum of one."""
    if not part.by_lane or part.holder is None:
        return []
    position = [Var(f"e{n}", "int32") for n in range(len(part.loops))]
    zero = part.write(position, 0, [tirx.const(0, part.dtype)])
    zeroed = unrolled_over(dict(zip(position, part.loops)), zero)
    return [tirx.IfThenElse(tirx.Not(part.holder), zeroed, None)]
