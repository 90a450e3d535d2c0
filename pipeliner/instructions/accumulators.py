"""Say which accumulators a CTA keeps at once, and which are spread over its threads in one way.

for k: acc += A B; gate += A G      acc and gate are kept at once, spread in one way
C = acc * gate                      so a thread has both factors of each of its elements
"""

from __future__ import annotations

from collections.abc import Sequence

from ..plan import MatmulPlan
from ..values.facts import KernelInfo, LoopInfo, MatmulInfo
from .dtypes import element_bytes


def words_beside(op: str, info: KernelInfo) -> int:
    """Words of the tiles that a CTA keeps in registers beside the accumulator of ``op``.

    Those are the accumulators of the same loops, and what lives across loops without being one.
    """
    loops = info.loops
    together = _together(op, loops)
    own = {other.acc for other in together if other.op == op}
    words = {other.acc: _words(other) for other in together if other.acc not in own}
    return sum(words.values()) + _words_kept(info)


def _words_kept(info: KernelInfo) -> int:
    """Words of the tiles in registers around the loops to which no matmul adds.

    Such as the sums of a product whose steps are scaled before they are added. An element for each
    row, such as a maximum, is among the registers that are wanted beside accumulators anyway.
    """
    every = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    added_to = {op.acc for op in every}
    least = min((_words(op) for op in every), default=0)
    kept = [
        nbytes // element_bytes("uint32")
        for name, scope, nbytes in info.accumulators
        if scope == "local" and name not in added_to
    ]
    return sum(words for words in kept if words >= least)


def spread_alike(op: MatmulInfo, loops: Sequence[LoopInfo]) -> list[MatmulInfo]:
    """``op`` and the matmuls whose accumulators are to be spread over threads as its own is.

    Those are the ones that add to its accumulator, and those of its loops with accumulators of its
    shape and type, or of as many rows where something is computed row by row.
    """
    every = [other for loop in loops for other in loop.ops if isinstance(other, MatmulInfo)]
    same = [other for other in every if other.acc == op.acc and other.op != op.op]
    shape = (op.m, op.n, op.acc_dtype)
    beside = [
        other
        for other in _together(op.op, loops)
        if other.acc != op.acc
        and ((other.m, other.n, other.acc_dtype) == shape or _share_rows(op, other))
    ]
    return [op, *same, *beside]


def shared_row_bytes(info: KernelInfo, plans: Sequence[MatmulPlan]) -> int:
    """Bytes of shared memory through which warps pass rows that several of them have parts of.

    Between two matmuls: the sums of the first, once to compute of their rows and once to change
    them, and what the second multiplies. Shared memory that is planned too small is refused when
    it is placed, so this need not be all of it.
    """
    every = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    planned = {plan.op: plan for plan in plans}
    if len({op.acc for op in every}) < 2 or any(op.op not in planned for op in every):
        return 0
    sums = sum(
        2 * op.m * (op.n + 1) * element_bytes(op.acc_dtype)
        for op in every
        if op.by_rows and not op.computed and _shares_rows(planned[op.op])
    )
    operands = sum(
        op.m * op.k * element_bytes(op.a_dtype)
        for op in every
        if op.computed and planned[op.op].operand == "shared"
    )
    return sums + operands


def _shares_rows(plan: MatmulPlan) -> bool:
    """Whether several warps have parts of each row of a tile, or several threads, by FMA."""
    return plan.warps[1] > 1 or plan.instruction == "simt"


def _words(op: MatmulInfo) -> int:
    """Words of the accumulator of ``op``."""
    return op.m * op.n * element_bytes(op.acc_dtype) // element_bytes("uint32")


def _share_rows(op: MatmulInfo, other: MatmulInfo) -> bool:
    """Whether what belongs to a row of one accumulator is used with that of the other."""
    return op.by_rows and other.by_rows and op.m == other.m


def _together(op: str, loops: Sequence[LoopInfo]) -> list[MatmulInfo]:
    """The matmuls of every loop that has ``op``."""
    found: list[MatmulInfo] = []
    for loop in loops:
        matmuls = [other for other in loop.ops if isinstance(other, MatmulInfo)]
        if any(other.op == op for other in matmuls):
            found += matmuls
    return found
