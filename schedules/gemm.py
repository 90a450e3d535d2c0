"""The un-pipelined schedule of a GEMM: tiles, a grid, copies through shared memory. Nothing else.

    for blockIdx.z in batch:                 # when batched
      for blockIdx.x in tiles:               # grouped: neighbours share operands in the L2 cache
        acc: local tile of BM x BN = 0
        for ko in K / BK:
          A_shared = A[tile]                 # a plain box copy, zero outside A
          B_shared = B[tile]
          acc += A_shared * B_shared         # a plain matmul over one tile
        C[tile] = epilogue(acc)              # guarded at ragged edges

Nothing is bound to threads: who copies and multiplies, with which instruction and how far ahead
belongs to the passes. Sizes that tiles do not divide are padded inside the copies: a padded read is
zero, a padded write does not happen. A float32 operand that is contiguous along K is transposed on
its way to shared memory, where a thread of an FMA kernel then finds its operands side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import s_tir

from ..errors import WorkloadError
from .tiles import GemmTile, default_tile, is_ragged, stages_transposed
from .workloads import INSTRUCTION, MATMUL, Gemm

__all__ = ["GemmTile", "default_tile", "schedule_gemm"]

MAX_GRID_Z: Final = 65535  # CUDA C++ Programming Guide, technical specifications


def schedule_gemm(gemm: Gemm, tile: GemmTile, func: Any = None) -> Any:
    """``gemm`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    ``func``: the workload's function with elementwise blocks added after its ``store`` block (a
    fused epilogue); default the workload's own.
    """
    if gemm.batch is not None and gemm.batch > MAX_GRID_Z:
        raise WorkloadError(f"cannot launch batch {gemm.batch}: blockIdx.z ends at {MAX_GRID_Z}")
    sch = s_tir.Schedule(gemm.function() if func is None else func)
    matmul = sch.get_sblock(MATMUL)
    operands = _stage_operands(sch, matmul, gemm, tile)
    store = _inline_epilogue(sch, matmul)

    *batch, i, j, k = sch.get_loops(matmul)
    i_tile, i_in = sch.split(i, [None, tile.m])
    j_tile, j_in = sch.split(j, [None, tile.n])
    step, k_in = sch.split(k, [None, tile.k])
    sch.reorder(*batch, i_tile, j_tile, step, i_in, j_in, k_in)
    if batch:
        sch.bind(batch[0], "blockIdx.z")
    cta = _rasterise(sch, i_tile, j_tile, tile.group)
    sch.bind(cta, "blockIdx.x")

    sch.reverse_compute_at(store, cta)
    sch.set_scope(matmul, 0, "local")
    for operand in operands:
        sch.compute_at(operand, step)
    sch.decompose_reduction(matmul, step)
    update = sch.blockize(i_in)
    sch.annotate(update, INSTRUCTION, gemm.instruction)
    if tile.warps is not None:
        sch.annotate(update, "pipeliner.warps", list(tile.warps))
    if tile.thread_tile is not None:
        sch.annotate(update, "pipeliner.thread_tile", list(tile.thread_tile))
    return sch


def _stage_operands(sch: Any, matmul: Any, gemm: Gemm, tile: GemmTile) -> list[Any]:
    """The copies of A and B to shared memory, with the padding that ragged sizes need in them."""
    if any(is_ragged(gemm, tile)):
        lead = [] if gemm.batch is None else [1]
        sch.pad_einsum(matmul, [*lead, tile.m, tile.n, tile.k])
    copies = []
    for operand in (0, 1):
        source = sch.get_producers(matmul)
        copies.append(sch.cache_read(matmul, operand, "shared"))
        for pad in source:
            if sch.get(sch.get_consumers(pad)[0]).same_as(sch.get(copies[-1])):
                sch.compute_inline(pad)
        if stages_transposed(gemm, operand):
            sch.transform_layout(copies[-1], ("write", 0), _transpose_matrix(gemm))
    return copies


def _transpose_matrix(gemm: Gemm) -> Callable[..., list[Any]]:
    if gemm.batch is None:
        return lambda row, column: [column, row]
    return lambda batch, row, column: [batch, column, row]


def _inline_epilogue(sch: Any, matmul: Any) -> Any:
    """The last block after the matmul, with every block between the two inlined into it."""
    (block,) = sch.get_consumers(matmul)
    while following := sch.get_consumers(block):
        sch.compute_inline(block)
        (block,) = following
    return block


def _rasterise(sch: Any, i_tile: Any, j_tile: Any, group: int) -> Any:
    """One loop over tiles in which ``group`` rows of tiles are walked column by column.

    CTAs that run at the same time then read about as many rows of A as columns of B, which halves
    and more what L2 must deliver of each. Groups are of equal size, so nothing needs a guard; a
    symbolic number of rows is walked in groups of columns instead.
    """
    rows, columns = sch.get(i_tile).extent, sch.get(j_tile).extent
    if hasattr(rows, "value"):
        outer, inner = sch.split(i_tile, [None, _divisor(int(rows.value), group)])
        sch.reorder(outer, j_tile, inner)
        return sch.fuse(outer, j_tile, inner)
    outer, inner = sch.split(j_tile, [None, _divisor(int(columns.value), group)])
    sch.reorder(outer, i_tile, inner)
    return sch.fuse(outer, i_tile, inner)


def _divisor(extent: int, at_most: int) -> int:
    return max(size for size in range(1, min(extent, at_most) + 1) if extent % size == 0)
