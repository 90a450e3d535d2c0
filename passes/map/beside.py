"""Map the kernels beside the one with the loops that bind no threads and have several nests.

    for blockIdx.x in 256:                             for blockIdx.x in 256:
      for j in range(256): S[j] = C[bx, j]               for threadIdx.x in 128:
      for j in range(256): D[bx, j] = S[255 - j]  =>       for v in T.vectorized(2): S[..] = C[..]
                                                           for it in T.unroll(2): D[..] = S[..]

Each is mapped as a separate function would be, and its barriers are placed like all others.

Does not handle: a single nest, which has its own plan (``elementwise``); a kernel in which no
second thread has work, which stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason, Why
from ...machine import Machine
from ...plan import KernelPlan, SmemPlan
from ..analysis.cta_order import leaves
from ..ir.kernels import kernels_of, map_kernels, thread_extents
from ..ir.named_pass import named_pass
from ..ir.nodes import Stmt, Var
from ..threads.serial import sharing
from ..threads.spread import Threads
from .instructions import bind_ranges, map_kernel
from .scope import Scope
from .workspace import allocating

LEAST_THREADS = 128
MOST_THREADS = 1024


def is_beside(kernel: Stmt) -> bool:
    """Whether ``kernel`` binds no threads, and several threads may share one of its nests."""
    return not thread_extents(kernel) and any(count > 1 for count in _sharing(kernel))


@named_pass("MapBeside")
def map_beside(
    func: tirx.PrimFunc, plan: KernelPlan, machine: Machine, notes: list[Why]
) -> tirx.PrimFunc:
    """Return ``func`` with each unbound kernel spread over threads; ``notes`` receives which."""
    if not any(is_beside(kernel) for kernel in kernels_of(func.body)):
        return func
    count = min(max(plan.mapped_threads, LEAST_THREADS), MOST_THREADS)
    smem = SmemPlan(budget=machine.smem_per_cta)
    alone = KernelPlan(plan.kernel, plan.target, plan.machine, count, smem=smem)
    workspaces = []

    def mapped(kernel: Stmt) -> Stmt:
        if not is_beside(kernel):
            return kernel
        names = tuple(dict.fromkeys(str(leaf.nest.name) for leaf in leaves(kernel) if leaf.nest))
        notes.append(Reason("mapped.beside", blocks=names, threads=count))
        var = Var("threadIdx_x", "int32")
        analyzer = sym.Analyzer()
        analyzer.bind(var, Range(0, count))
        bind_ranges(kernel, analyzer)
        scope = Scope(alone, Threads(var, count, analyzer), notes=notes)
        made = map_kernel(kernel, scope)
        workspaces.extend(scope.workspaces)
        return made

    done = map_kernels(func, mapped)
    body = allocating(done.body, workspaces) if workspaces else done.body
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _sharing(kernel: Stmt) -> Iterator[int]:
    return (sharing(leaf.nest) for leaf in leaves(kernel) if leaf.nest is not None)
