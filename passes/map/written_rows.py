"""Write a staged box of results by the threads of a warpgroup, neighbours of a row each.

    for i in T.unroll(64 * 64 // 128):
        C[row, column] = staged[row, column]            # the i-th of 128 neighbours by thread i

where it is inside the tensor. A thread moves vectors as wide as all rows begin at, and has many
reads of shared memory in flight: what is outside the tensor is read, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...instructions.wgmma_shapes import WARPGROUP
from ..copy.layouts import CHUNK_BYTES
from ..ir.indexing import conjunction, is_uniform
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    Var,
    block,
    buffer,
    dtype_bytes,
    i32,
    seq,
    unrolled,
    vectorized,
)
from ..threads.lanes import is_contiguous
from ..threads.spread import Threads

READ_TOGETHER: Final = 8
"""Reads of shared memory that a thread has in flight before it writes what they are."""


@dataclass(frozen=True)
class WrittenRows:
    """A box of ``rows`` by ``columns`` of ``stage`` that a warpgroup writes to ``target``.

    ``place``: where a row and column of the box, or the vector that begins there, lies in
    ``stage``. ``indices``: where it is stored.
    """

    stage: Buffer
    target: Buffer
    rows: int
    columns: int
    threads: Threads
    place: Callable[[Expr, Expr], list[Expr]]
    indices: Callable[[Expr, Expr], list[Expr]]

    def stmt(self) -> Stmt:
        """Return what every thread of the warpgroup runs."""
        width = self.width
        count = self.rows * self.columns // (WARPGROUP * width)
        together = math.gcd(count, READ_TOGETHER)
        values = buffer([together * width], str(self.target.dtype), "values", "local")

        def some(n: Expr) -> Stmt:
            def read(u: Expr) -> Stmt:
                *outer, start = self.place(*self._vector(n * together + u, width))
                return vectorized(
                    "v",
                    width,
                    lambda v: tirx.BufferStore(
                        values,
                        tirx.BufferLoad(self.stage, [*outer, start + v]),
                        [u * width + v],
                    ),
                )

            def write(u: Expr) -> Stmt:
                at = self.indices(*self._vector(n * together + u, width))
                *outer, start = at
                moved = vectorized(
                    "v",
                    width,
                    lambda v: tirx.BufferStore(
                        self.target,
                        tirx.BufferLoad(values, [u * width + v]),
                        [*outer, start + v],
                    ),
                )
                guard = self._guard(at)
                return moved if guard is None else tirx.IfThenElse(guard, moved, None)

            reads, writes = unrolled("u", together, read), unrolled("u", together, write)
            return block("rows", seq(reads, writes), [values])

        return unrolled("i", count // together, some)

    @property
    def width(self) -> int:
        """How many neighbours of a row of the result a thread may store at once."""
        row, at, lane = (Var(name, "int32") for name in ("r", "u", "v"))
        width = CHUNK_BYTES // dtype_bytes(self.target.dtype)
        while width > 1:
            indices = self.indices(row, at * width + lane)
            inside = indices[-1] < self.target.shape[-1]
            whole = self.rows * self.columns % (WARPGROUP * width) == 0
            together = is_contiguous(self.target, indices, lane, width)
            if whole and together and is_uniform(inside, lane, width):
                break
            width //= 2
        return width

    def _vector(self, i: Expr, width: int) -> tuple[Expr, Expr]:
        """Return the row and first column of a thread's vector ``i``."""
        lane = tirx.floormod(self.threads.var, WARPGROUP)
        at = (i * WARPGROUP + lane) * width
        return tirx.floordiv(at, i32(self.columns)), tirx.floormod(at, i32(self.columns))

    def _guard(self, indices: list[Expr]) -> Any:
        """Return whether a vector is inside the tensor, or None where it always is."""
        return conjunction(
            [
                index < extent
                for index, extent in zip(indices, self.target.shape, strict=True)
                if not self.threads.analyzer.can_prove(index < extent)
            ]
        )
