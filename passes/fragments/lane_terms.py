"""Share out the terms of a row's sum among the lanes that have partial sums of it.

    for j in range(64): l[i] = l[i] + S[i, j]
 => for u in range(1):                                  each of four lanes: 32 bytes in a row
      for w in range(2):
        for v in T.vectorized(8): S_term[v] = S[i, (u * 4 + lane) * 16 + w * 8 + v]
        for v in range(8): l[i] = l[i] + S_term[v]

Eight lanes load 16 bytes each at once, those of two neighbouring rows. In a tile whose chunks of 16
bytes change places from row to row (swizzled), the even chunks of one row and those of the next lie
in different banks; neighbouring chunks of both would share half of the banks.

Does not handle: vectors of what a condition inside the term guards, which may not exist.
"""

from __future__ import annotations

import math
from typing import Final

import tvm_ffi
from tvm import tirx

from ...machine import VECTOR_BYTES
from ..ir.indexing import at_lane
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    Stmt,
    TensorLoad,
    Var,
    block,
    buffer,
    collect,
    dtype_bytes,
    has,
    i32,
    is_private,
    loop,
    seq,
    substitute,
    uses,
    vectorized,
)
from ..ir.patterns import is_call
from ..threads.lanes import is_contiguous
from .fragment import Fragment

RUN: Final = 16
"""Neighbouring terms of a sum that one lane adds: 32 bytes of 16-bit elements."""


def terms_of_lane(part: Fragment, var: Var, extent: int, body: Stmt) -> Stmt:
    """Return ``body``, which adds a term to a partial sum of ``part``, for the terms of a lane.

    Terms that lanes cannot share out alike are the first lane's.
    """
    if part.lane is None or extent % part.lanes:
        every = tirx.For(var, i32(0), i32(extent), tirx.ForKind.SERIAL, body)
        return every if part.holder is None else tirx.IfThenElse(part.holder, every, None)
    each = extent // part.lanes
    run = math.gcd(each, RUN)
    outer, inner = Var("u", "int32"), Var("v", "int32")
    place = (outer * part.lanes + part.lane) * run + inner
    own = _in_vectors(substitute(body, {var: place}), inner, run)
    return tirx.For(outer, i32(0), i32(each // run), tirx.ForKind.SERIAL, own)


def _in_vectors(body: Stmt, inner: Var, run: int) -> Stmt:
    """Return ``body`` for each value of ``inner``, with what it loads of memory in vectors."""
    loads = [] if has(body, (Call, tirx.Select), _decides) else _loads(body, inner)
    widths = [math.gcd(run, VECTOR_BYTES // dtype_bytes(load.source.dtype)) for load in loads]
    width = min(widths, default=1)
    if width == 1 or not all(
        is_contiguous(load.source, load.indices, inner, width) for load in loads
    ):
        return tirx.For(inner, i32(0), i32(run), tirx.ForKind.SERIAL, body)
    terms = [
        buffer([width], str(load.source.dtype), f"{load.source.name}_term", "local")
        for load in loads
    ]

    def vectors(w: Expr) -> Stmt:
        def filled(term: Buffer, load: Expr) -> Stmt:
            def one(v: Expr) -> Stmt:
                return tirx.BufferStore(term, at_lane(load, inner, w * width + v), [v])

            return vectorized("v", width, one)

        def added(v: Expr) -> Stmt:
            def from_term(load: Expr) -> Expr:
                at = next((n for n, known in enumerate(loads) if _same(known, load)), None)
                return load if at is None else tirx.BufferLoad(terms[at], [v])

            kept = tvm_ffi.structural_map(body, [(TensorLoad, from_term)], order="post")
            return at_lane(kept, inner, w * width + v)

        return seq(*map(filled, terms, loads), loop("v", width, added))

    return block("terms", loop("w", run // width, vectors), terms)


def _loads(body: Stmt, inner: Var) -> list[Expr]:
    """Return the different loads of memory in ``body`` that ``inner`` chooses."""
    found: list[Expr] = []
    for load in collect(body, TensorLoad, lambda node: uses(node, [inner])):
        if not is_private(load.source) and not any(_same(load, known) for known in found):
            found.append(load)
    return found


def _same(one: Expr, other: Expr) -> bool:
    return bool(tvm_ffi.structural_equal(one, other))


def _decides(node: Expr) -> bool:
    return isinstance(node, tirx.Select) or is_call(node, "if_then_else")
