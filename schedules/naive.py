"""The schedule to hold every other against: each thread sums one output, straight from memory.

    for blockIdx.x, blockIdx.y, threads in outputs:
      acc = 0
      for step in reduction:
        acc += A[step] * B[step]             # nothing is shared, nothing is kept
      C = epilogue(acc)

Only for comparison: default_tile never takes it.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ..errors import WorkloadError
from .matmul import inline_epilogue
from .tiles import NaiveTile
from .workloads import MATMUL, GatedGemm, Gemm


def schedule_naive(gemm: Gemm, tile: NaiveTile) -> Any:
    """``gemm`` with a thread for each output, as a TVM schedule; WorkloadError: one of a batch."""
    if isinstance(gemm, GatedGemm):
        raise WorkloadError("tile.kind", workload=gemm.name, kind=type(tile).__name__)
    if gemm.batch is not None:
        raise WorkloadError("tile.batch", workload=gemm.name)
    sch = s_tir.Schedule(gemm.function())
    update = sch.get_sblock(MATMUL)
    store = inline_epilogue(sch, update)
    i, j, k = sch.get_loops(update)
    i_cta, i_thread = sch.split(i, [None, tile.m])
    j_cta, j_thread = sch.split(j, [None, tile.n])
    sch.reorder(i_cta, j_cta, i_thread, j_thread, k)
    threads = sch.fuse(i_thread, j_thread)
    sch.bind(i_cta, "blockIdx.y")
    sch.bind(j_cta, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    sch.reverse_compute_at(store, threads)
    sch.set_scope(update, 0, "local")
    sch.decompose_reduction(update, k)
    return sch
