"""Map elementwise kernels, which stand beside the one with loops, to threads and vectors.

``pipeliner/choice/elementwise.py`` chooses the threads.

    for blockIdx.x in 784:                   for blockIdx.x in 784:
      for i, j in T.grid(1, 512):      =>      for threadIdx.x in 128:
        C[...] = f(P[0, ...] + ...)              for v in T.vectorized(4): C[...] = f(...)

They occur in functions that bind nothing to threadIdx, beside the kernel with the loops. A thread
computes as many neighbouring outputs at once as one access to the widest input holds.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...errors import LoweringError
from ...plan import KernelPlan
from ..ir.kernels import inside_grid, map_kernels, thread_tag
from ..ir.named_pass import named_pass
from ..ir.nodes import Stmt, Var, thread_loop, walk
from ..ir.op_form import thread_extents
from ..recognise.elementwise import nest_of
from ..threads.spread import Threads, spread


@named_pass("MapElementwise")
def map_elementwise(func: Any, plan: KernelPlan) -> Any:
    """Return ``func`` with every kernel of ``plan.elementwise`` mapped to its threads.

    Raises LoweringError if the plan omits a kernel to which no threads are bound.
    """
    planned = {found.op: found for found in plan.elementwise}
    if not planned:
        return func

    def mapped(kernel: Stmt) -> Stmt:
        nest = None if thread_extents(kernel) else nest_of(kernel)
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


def _ranges(kernel: Stmt) -> Any:
    """Return an analyzer that knows the loops of the grid."""
    analyzer = sym.Analyzer()

    def bind(loop: Any) -> None:
        if thread_tag(loop) is not None:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    walk(kernel, tirx.For, bind)
    return analyzer
