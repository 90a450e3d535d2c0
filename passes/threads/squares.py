"""Transpose from memory to memory in squares: rows of one are loaded, its columns are stored.

    for p, c in T.grid(64, 128): Y[p, c] = X[c, p]
 => for r in T.unroll(8): for v in T.vectorized(8): square[r * 8 + v] = X[c + r, p + v]
    for r in T.unroll(8):
      for v in T.unroll(8): row[v] = square[v * 8 + r]
      for v in T.vectorized(8): Y[p + r, c + v] = row[v]

Each thread does so with a square of its own, in registers, so that every access is as wide as one
can be. Without that the one or the other is of single elements.

Does not handle: loads under a condition, and values other than a loaded element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...machine import VECTOR_BYTES
from ..ir.nodes import (
    Expr,
    Stmt,
    TensorLoad,
    Var,
    block,
    buffer,
    dtype_bytes,
    is_global,
    seq,
    substitute,
    unrolled,
    uses,
    vectorized,
)
from ..ir.patterns import Nest
from .lanes import is_contiguous, load_lane, store_lane

LINE: Final = 8
"""Neighbouring threads that load one line of memory together, 16 bytes each."""


@dataclass(frozen=True)
class Square:
    """``side`` times ``side`` elements of ``nest``, along the loops that it stores and loads by."""

    nest: Nest
    stored: Var
    loaded: Var
    side: int

    def moved(self, start: Mapping[Var, Expr]) -> Stmt:
        """Return the copy of the square that begins at ``start``."""
        store, side = self.nest.store, self.side
        load = store.value
        kind = str(load.source.dtype)
        square, row = (
            buffer([size], kind, name, "local")
            for name, size in (("square", side * side), ("row", side))
        )

        def at(expr: Any, stored: Any, loaded: Any) -> Any:
            here = {self.stored: start[self.stored] + stored}
            here[self.loaded] = start[self.loaded] + loaded
            return substitute(expr, {**start, **here})

        def load_row(r: Expr) -> Stmt:
            def one(v: Expr) -> Stmt:
                return tirx.BufferStore(square, at(load, r, v), [r * side + v])

            return vectorized("v", side, one)

        def store_column(r: Expr) -> Stmt:
            def taken(v: Expr) -> Stmt:
                return tirx.BufferStore(row, tirx.BufferLoad(square, [v * side + r]), [v])

            def one(v: Expr) -> Stmt:
                indices = [at(index, v, r) for index in store.indices]
                return tirx.BufferStore(store.buffer, tirx.BufferLoad(row, [v]), indices)

            return seq(unrolled("v", side, taken), vectorized("v", side, one))

        steps = unrolled("r", side, load_row), unrolled("r", side, store_column)
        return block("square", seq(*steps), [square, row])


def square_of(nest: Nest, most: int | None = None) -> Square | None:
    """Return the squares that a thread may transpose, of ``most`` elements at most, or None."""
    load, target = nest.store.value, nest.store.buffer
    if not isinstance(load, TensorLoad) or len(nest.loads()) != 1:
        return None
    if not is_global(target) or not is_global(load.source) or target.same_as(load.source):
        return None
    stored, loaded = store_lane(nest), load_lane(nest)
    if stored is None or loaded is None or stored.same_as(loaded):
        return None
    if any(uses(part, [stored, loaded]) for part in nest.predicate):
        return None
    side = VECTOR_BYTES // dtype_bytes(target.dtype)
    sizes = nest.extent_of
    side = math.gcd(side, sizes[stored], sizes[loaded])
    while side > 1 and not (
        side * side <= (most or side * side)
        and is_contiguous(target, nest.store.indices, stored, side)
        and is_contiguous(load.source, load.indices, loaded, side)
    ):
        side //= 2
    return Square(nest, stored, loaded, side) if side > 1 else None
