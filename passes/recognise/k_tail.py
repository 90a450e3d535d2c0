"""Compute the K tail: how much of K the last iteration of a tile loop has, if tiles are padded.

    for k in range(64):
        for i, j in grid(128, 64): A_shared[i, j] = A[i, k * 64 + j] if k * 64 + j < 4040 else 0

has 8 of 64 in the last iteration. The rest is zero in both operands and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.indexing import comparison
from ..ir.linear import affine
from ..ir.nodes import Var, const_int, uses
from ..ir.patterns import Copy, Matmul, MatmulOperand


def k_in_last(matmul: Matmul, copies: Sequence[Copy], loop: Any) -> int:
    """Return how many elements of K both operands of ``matmul`` have in the last iteration.

    All of the tile's if that is unknown: K is made of several loops, the trip count is dynamic, or
    an operand is not copied in the loop.
    """
    whole, trip = matmul.extent(matmul.k), const_int(loop.extent)
    if trip is None or len(matmul.k) != 1 or const_int(loop.min) != 0:
        return whole
    return max(
        _valid(side, matmul.k[0], copies, loop.loop_var, trip, whole)
        for side in (matmul.a, matmul.b)
    )


def _valid(
    side: MatmulOperand, k: Var, copies: Sequence[Copy], step: Var, trip: int, whole: int
) -> int:
    """Return where the zeros of one operand begin along K in the last iteration."""
    copy = next((copy for copy in copies if copy.dst.same_as(side.buffer)), None)
    walked = [index for index in side.indices if const_int(index) is None]
    dims = [dim for dim, index in enumerate(walked) if index.same_as(k)]
    if copy is None or len(dims) != 1 or len(copy.order) != len(walked):
        return whole
    walker = copy.order[dims[0]]
    valid = whole
    for part in copy.mask:
        compared = comparison(part)
        if compared is None or (trip > 1 and not uses(part, [step])):
            continue
        left, right, slack = compared
        known = affine(left - right - slack, [walker, step])
        base = None if known is None else const_int(known.base)
        if known is None or base is None or known.coefficients.get(walker) != 1:
            continue
        valid = min(valid, max(0, -base - known.coefficients.get(step, 0) * (trip - 1)))
    return valid
