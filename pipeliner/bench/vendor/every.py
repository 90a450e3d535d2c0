"""A product by each algorithm that cuBLASLt's heuristic has for it; the fastest is kept."""

from __future__ import annotations

from typing import Any, Final

from ...measuring.contenders import ChoosingRunner
from ...schedules.workloads import Spec
from .cublaslt import Algorithm, CublasLt, PlannedProduct, loaded
from .fastest import Fastest, NamedCall
from .products import product_of

WORKSPACE: Final = 64 << 20
"""Bytes that an algorithm may use: twice what cuBLAS takes by itself on Hopper."""


def every_algorithm(
    spec: Spec, *, hot: bool = False, library: CublasLt | None = None
) -> ChoosingRunner:
    """The fastest of cuBLASLt's algorithms, as ``run(a, b, c)`` on torch tensors.

    ``hot``: back to back, too, where another may be it. WorkloadError: cuBLASLt knows no such
    product; ToolError: it has none that runs.
    """
    product = product_of(spec)
    import torch

    plan = (library or loaded()).plan(product, WORKSPACE)
    space = torch.empty(WORKSPACE, dtype=torch.int8, device="cuda")
    return Fastest([_way(torch, plan, one, space) for one in plan.algorithms], hot, writes=True)


def _way(torch: Any, plan: PlannedProduct, algorithm: Algorithm, space: Any) -> NamedCall:
    """``algorithm``, which holds its workspace, the tensor ``space``, for as long as it may run.

    It counts tiles there. Of an address alone torch lends the memory to the next tensor: all of
    8192³ left NaN then, and others met an illegal instruction or never ended.
    """

    def run(a: Any, b: Any, c: Any) -> Any:
        pointers = (b.data_ptr(), a.data_ptr(), c.data_ptr())
        workspace = (space.data_ptr(), WORKSPACE)
        stream = torch.cuda.current_stream().cuda_stream
        plan.library.multiply(plan, algorithm, pointers, workspace, stream)
        return c

    return NamedCall(algorithm.name, run)
