"""Spread unbound nests over the threads of a CTA, in vectors where memory is contiguous.

    for i, j in T.grid(128, 32): S[i, j] = A[i, j]
    =>
    for it in T.unroll(4):
      for v in T.vectorized(8):
        S[it * 32 + tx // 4, tx % 4 * 8 + v] = A[it * 32 + tx // 4, tx % 4 * 8 + v]

Neighbouring threads take neighbouring vectors of the stored row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from .indexing import affine, alignment, conjunction, conjuncts, is_uniform, offset, unproven
from .ir import (
    Expr,
    Stmt,
    Var,
    dtype_bytes,
    i32,
    loop,
    substitute,
    unrolled,
    uses,
    vectorized,
    walk,
)
from .patterns import Nest, is_call

VECTOR_BYTES: Final = 16
UNROLL_LIMIT: Final = 64
"""Iterations per thread up to which the spread loop is unrolled; registers and code bound it."""


@dataclass(frozen=True)
class Threads:
    """The CTA that a tile function is mapped to, and what is known of the variables in scope."""

    var: Var
    count: int
    analyzer: Any


def spread(nest: Nest, threads: Threads, vector: int | None = None) -> Stmt:
    """``nest`` shared out over the threads; ``vector``: elements at once (None: what is legal)."""
    lane = store_lane(nest)
    width = vector or widest(nest, lane, threads.analyzer)
    order = [var for var in nest.vars if lane is None or not var.same_as(lane)]
    if lane is not None:
        order.append(lane)
    sizes = [nest.extent_of[var] for var in order]
    if lane is None:
        width = 1
    elif sizes:
        sizes[-1] //= width
    total = 1
    for size in sizes:
        total *= size
    rounds = -(-total // threads.count)

    def body(it: Expr) -> Stmt:
        digits = split_index(it, threads, sizes)

        def one(v: Expr) -> Stmt:
            values = dict(zip(order, digits))
            if lane is not None:
                values[lane] = values[lane] * width + v
            return substitute(nest.store, values)

        values = dict(zip(order, digits))
        if lane is not None:
            values[lane] = values[lane] * width
        guards = [substitute(part, values) for part in nest.predicate]
        if total % threads.count:
            guards.insert(0, it * threads.count + threads.var < total)
        guard = conjunction(unproven_all(guards, threads.analyzer))
        moved = vectorized("v", width, one)
        return moved if guard is None else tirx.IfThenElse(guard, moved, None)

    if rounds == 1:
        return body(i32(0))
    return unrolled("it", rounds, body) if rounds <= UNROLL_LIMIT else loop("it", rounds, body)


def unproven_all(parts: Sequence[Expr], analyzer: Any) -> list[Expr]:
    """What is left to check of ``parts``."""
    return [rest for part in parts for rest in unproven(part, analyzer)]


def split_index(it: Expr, threads: Threads, sizes: Sequence[int]) -> list[Expr]:
    """The position of vector ``it * threads + thread`` in a box of ``sizes``, by dimension.

    Written so that what does not depend on ``it`` is a separate term: nvcc then keeps one address
    and adds constants.
    """
    if not sizes:
        return []
    step, thread = threads.count, threads.var
    high: Expr = it  # the flat index is high * step + low
    low: Expr = thread
    digits: list[Expr] = []
    for size in reversed(sizes[1:]):
        if step % size == 0:
            digits.append(tirx.floormod(low, size))
            low, step = tirx.floordiv(low, size), step // size
        elif size % step == 0:
            ratio = size // step
            digits.append(tirx.floormod(high, ratio) * step + low)
            high, low, step = tirx.floordiv(high, ratio), i32(0), 1
        else:
            flat = high * step + low
            digits.append(tirx.floormod(flat, size))
            high, low, step = tirx.floordiv(flat, size), i32(0), 1
    digits.append(high * step + low)
    return [threads.analyzer.simplify(digit) for digit in reversed(digits)]


def store_lane(nest: Nest) -> Var | None:
    """The loop variable that walks the stored buffer's contiguous dimension by ones, if any."""
    known = affine(offset(nest.store.buffer, nest.store.indices), nest.vars)
    if known is None:
        return None
    for var in reversed(nest.vars):
        if known.coefficients.get(var) == 1 and nest.extent_of[var] > 1:
            return var
    return None


def widest(nest: Nest, lane: Var | None, analyzer: Any) -> int:
    """The most neighbouring elements that one thread may store at once."""
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
    return not uses(load, [lane]) or is_contiguous(load.source, load.indices, lane, width)


def _branches(value: Expr, lane: Var, width: int) -> bool:
    """Whether a condition inside ``value`` differs between the lanes of one vector."""
    conditions: list[Expr] = []

    def visit(node: Any) -> None:
        if is_call(node, "if_then_else"):
            conditions.append(node.args[0])
        elif isinstance(node, tirx.Select):
            conditions.append(node.condition)

    walk(value, (tirx.Call, tirx.Select), visit)
    return any(not is_uniform(part, lane, width) for part in conditions for part in conjuncts(part))
