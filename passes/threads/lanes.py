"""The loops of a nest along which memory is contiguous, and how much one access may move there.

for i, j in T.grid(128, 32): S[i, j] = A[j, i]    =>   stores along j, loads along i
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ...machine import VECTOR_BYTES
from ..ir.indexing import alignment, conjuncts, is_uniform, offset
from ..ir.linear import affine
from ..ir.nodes import Call, Expr, Var, dtype_bytes, is_global, uses, walk
from ..ir.patterns import Nest, is_call


def store_lane(nest: Nest) -> Var | None:
    """Return the loop variable that indexes the target's contiguous dimension by ones, if any."""
    start = offset(nest.store.buffer, nest.store.indices)
    for var in reversed(nest.vars):
        known = affine(start, [var])  # by itself: others may be divided, as lines of heads are
        if known is not None and known.coefficients.get(var) == 1 and nest.extent_of[var] > 1:
            return var
    return None


def widest(nest: Nest, lane: Var | None) -> int:
    """Return how many neighbouring elements one thread may store at once."""
    if lane is None:
        return 1
    width = VECTOR_BYTES // dtype_bytes(nest.store.buffer.dtype)
    while width > 1 and not is_vector(nest, lane, width):
        width //= 2
    return max(1, width)


def is_vector(nest: Nest, lane: Var, width: int) -> bool:
    """Whether ``width`` elements along ``lane`` are one aligned store of a plain vector."""
    if nest.extent_of[lane] % width:
        return False
    if not is_contiguous(nest.store.buffer, nest.store.indices, lane, width):
        return False
    if not all(is_uniform(part, lane, width) for part in nest.predicate):
        return False
    return all(_is_straight(load, lane, width) for load in nest.loads()) and not _branches(
        nest.store.value, lane, width
    )


def is_contiguous(buf: Any, indices: Sequence[Expr], lane: Var, width: int) -> bool:
    """Whether ``width`` elements along ``lane`` are neighbours that start on a multiple of it."""
    known = affine(offset(buf, indices), [lane])
    if known is None or known.coefficients.get(lane) != 1:
        return False
    return alignment(known.base) % width == 0


def _is_straight(load: Any, lane: Var, width: int) -> bool:
    """Whether ``load`` is one vector, or one element for all lanes.

    TVM prints no vector of one element for all lanes, not a constant, that is of one byte or that
    is wider than one access.
    """
    if not uses(load, [lane]):
        each = dtype_bytes(load.source.dtype)
        return 1 < each <= VECTOR_BYTES // width
    return is_contiguous(load.source, load.indices, lane, width)


def _branches(value: Expr, lane: Var, width: int) -> bool:
    """Whether a condition inside ``value`` differs between the lanes of one vector."""
    conditions: list[Expr] = []

    def visit(node: Any) -> None:
        if is_call(node, "if_then_else"):
            conditions.append(node.args[0])
        elif isinstance(node, tirx.Select):
            conditions.append(node.condition)

    walk(value, (Call, tirx.Select), visit)
    return any(not is_uniform(part, lane, width) for part in conditions for part in conjuncts(part))


def load_lane(nest: Nest) -> Var | None:
    """Return the loop variable along which the nest's global loads are contiguous, if any.

    Each load is looked at by itself: the pixels of a convolution are not contiguous, its channels
    are.
    """
    for load in nest.loads():
        if is_global(load.source):
            start = offset(load.source, load.indices)
            for var in nest.vars:
                known = affine(start, [var])
                if known is not None and known.coefficients.get(var) == 1:
                    return var
    return None
