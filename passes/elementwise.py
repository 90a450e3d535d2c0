"""Map elementwise kernels, which stand beside the one with loops, to threads and vectors.

    for blockIdx.x in 784:                   for blockIdx.x in 784:
      for i, j in T.grid(1, 512):      =>      for threadIdx.x in 128:
        C[...] = f(P[0, ...] + ...)              for v in T.vectorized(4): C[...] = f(...)

They occur in functions that bind nothing to threadIdx, beside the kernel with the loops. A thread
computes as many neighbouring outputs at once as one access to the widest input holds.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range

from ..diagnostics import Reason
from ..errors import LoweringError
from ..kernel import NOTE, ElementwiseInfo
from ..plan import KernelPlan
from .ir import Stmt, Var, const_int, dtype_bytes, is_global, thread_loop, walk
from .kernels import inside_grid, map_kernels, thread_tag
from .op_form import thread_extents
from .patterns import Nest, as_nest
from .spread import VECTOR_BYTES, Threads, spread, store_lane, widest


def elementwise_info(kernel: Stmt) -> ElementwiseInfo | None:
    """Return the description of an unbound kernel's outputs; None if it is no single nest."""
    nest = _nest_of(kernel)
    if nest is None:
        return None
    grid = _grid_of(kernel)
    elements = math.prod(nest.extents)
    return ElementwiseInfo(
        op=nest.name,
        ctas=None if None in grid else math.prod(extent or 1 for extent in grid),
        elements=elements,
        vector=_most_at_once(nest),
        global_bytes=elements * _bytes_of_one(nest),
        note=str(nest.annotations.get(NOTE, "")),
    )


def map_elementwise(func: Any, plan: KernelPlan) -> Any:
    """Return ``func`` with every kernel of ``plan.elementwise`` mapped to its threads.

    Raises LoweringError if the plan omits a kernel to which no threads are bound.
    """
    planned = {found.op: found for found in plan.elementwise}
    if not planned:
        return func

    def mapped(kernel: Stmt) -> Stmt:
        nest = None if thread_extents(kernel) else _nest_of(kernel)
        if nest is None:
            return kernel
        found = planned.get(nest.name)
        if found is None:
            raise LoweringError("block.unmapped", block=nest.name, why=Reason("block.omitted"))
        var = Var("threadIdx_x", "int32")
        analyzer = _ranges(kernel)
        analyzer.bind(var, Range(0, found.threads))
        body = spread(nest, Threads(var, found.threads, analyzer), found.vector)
        return inside_grid(kernel, lambda _: thread_loop(var, found.threads, "threadIdx.x", body))

    return map_kernels(func, mapped)


def _nest_of(kernel: Stmt) -> Nest | None:
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


def _ranges(kernel: Stmt) -> Any:
    """Return an analyzer that knows the loops of the grid."""
    analyzer = sym.Analyzer()

    def bind(loop: Any) -> None:
        if thread_tag(loop) is not None:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(kernel, tirx.For, bind)
    return analyzer


def _bytes_of_one(nest: Nest) -> int:
    """Return how many bytes one output moves; a value used twice is loaded once."""
    loads = {tvm_ffi.structural_hash(load): load for load in nest.loads()}
    touched = [nest.store.buffer, *(load.source for load in loads.values())]
    return sum(dtype_bytes(buf.dtype) for buf in touched if is_global(buf))


def _most_at_once(nest: Nest) -> int:
    """Return how many neighbouring outputs need at most one access to each buffer."""
    lane = store_lane(nest)
    sizes = [dtype_bytes(load.source.dtype) for load in nest.loads()]
    widest_access = VECTOR_BYTES // max([dtype_bytes(nest.store.buffer.dtype), *sizes])
    return min(widest_access, widest(nest, lane))
