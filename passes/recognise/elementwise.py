"""Say what an elementwise kernel beside the loops makes, in plain values for the cost model."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx

from ...machine import VECTOR_BYTES
from ...values.facts import ElementwiseInfo
from ...values.notes import note_in
from ..ir.kernels import inside_grid, thread_tag
from ..ir.nodes import Stmt, const_int, dtype_bytes, is_global, uses, walk
from ..ir.patterns import Nest, as_nest
from ..threads.lanes import store_lane, widest
from ..threads.squares import square_of


def elementwise_info(kernel: Stmt) -> ElementwiseInfo | None:
    """Return the description of an unbound kernel's outputs; None if it is no single nest."""
    nest = nest_of(kernel)
    if nest is None:
        return None
    grid = _grid_of(kernel)
    elements = math.prod(nest.extents)
    return ElementwiseInfo(
        op=nest.name,
        ctas=None if None in grid else math.prod(extent or 1 for extent in grid),
        elements=elements,
        vector=_most_at_once(nest),
        global_bytes=_bytes_of(nest),
        note=note_in(nest.annotations),
    )


def nest_of(kernel: Stmt) -> Nest | None:
    """Return the one nest inside the grid of ``kernel``."""
    found: list[Stmt] = []

    def keep(stmt: Stmt) -> Stmt:
        found.append(stmt)
        return stmt

    inside_grid(kernel, keep)
    return as_nest(found[0])


def _grid_of(kernel: Stmt) -> list[int | None]:
    grid: list[int | None] = []

    def visit(loop: Any) -> None:
        if (thread_tag(loop) or "").startswith("blockIdx"):
            grid.append(const_int(loop.extent))

    walk(kernel, tirx.For, visit)
    return grid


def _bytes_of(nest: Nest) -> int:
    """Return how many bytes the outputs move; a value used several times is loaded once."""
    loads = {tvm_ffi.structural_hash(load): load for load in nest.loads()}
    elements = math.prod(nest.extents)
    moved = elements * dtype_bytes(nest.store.buffer.dtype) if is_global(nest.store.buffer) else 0
    for load in loads.values():
        if is_global(load.source):
            count = math.prod(nest.extent_of[var] for var in nest.vars if uses(load, [var]))
            moved += count * dtype_bytes(load.source.dtype)
    return moved


def _most_at_once(nest: Nest) -> int:
    """Return how many outputs a thread may make with accesses that are all as wide as can be."""
    square = square_of(nest)
    if square is not None:
        return square.side * square.side
    lane = store_lane(nest)
    sizes = [dtype_bytes(load.source.dtype) for load in nest.loads()]
    widest_access = VECTOR_BYTES // max([dtype_bytes(nest.store.buffer.dtype), *sizes])
    return min(widest_access, widest(nest, lane))
