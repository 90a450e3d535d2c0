"""The un-pipelined schedule of a block-scaled GEMM: one block of K in a step.

    for blockIdx.x in tiles:                   # grouped: neighbours share operands in the L2 cache
      acc = 0
      for s in blocks of K:
        A_shared, B_shared = A[tile], B[tile]  # plain box copies, zero outside
        part = 0
        part += A_shared * B_shared            # a plain matmul over a tile
        acc += part * (SA of the row * SB of the tile)
      C[tile] = acc                            # guarded at ragged edges

Nothing is bound to threads. A tile lies in one row of SB, or covers some whole ones. One of an even
number of them takes two products a step, each of half of the columns, whose ``part`` is one tile of
registers: accumulators of 128 x 256 and sums of as many do not fit two warpgroups.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ...errors import WorkloadError
from ..tiles import RowTile
from ..workloads import SCALE_BLOCK, ScaledGemm
from ..workloads.base.blocks import all_of
from .products import place_of


def schedule_scaled(what: ScaledGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: its columns are neither a part nor a multiple of those that share a scale, or it
    is persistent.
    """
    if tile.persistent is not None:
        raise WorkloadError("option.persistent", workload=what.name, count=tile.persistent)
    if SCALE_BLOCK % tile.n and tile.n % SCALE_BLOCK:
        raise WorkloadError("scaled.columns", columns=tile.n, block=SCALE_BLOCK)
    return s_tir.Schedule(_function(what, tile))


def products_of(tile: RowTile) -> int:
    """How many products a step takes, each of as many columns: two of an even number of blocks."""
    return 1 if tile.n % (2 * SCALE_BLOCK) else 2


def _tiles_of(what: ScaledGemm, tile: RowTile) -> tuple[int, int]:
    return -(-what.m // tile.m), -(-what.n // tile.n)


def _function(what: ScaledGemm, tile: RowTile) -> Any:
    m, n, k = tile.m, tile.n, SCALE_BLOCK
    parts = products_of(tile)
    w = n // parts
    of_a, of_b, rows_of, blocks_of, of_c = what.shapes()
    kind, out = what.storage, what.out
    tiles = _tiles_of(what, tile)
    ragged = what.m % m, what.n % n, what.k % k
    partial = any(ragged[:2])

    def row(c: Any) -> Any:
        return place_of(c, tiles, tile.raster_group)[0] * m

    def column(c: Any, h: int) -> Any:
        return place_of(c, tiles, tile.raster_group)[1] * n + h * w

    def within(*bounds: tuple[Any, int, int]) -> list[Any]:
        """The conditions under which indices lie inside; those that tiles divide always do."""
        return [index < extent for index, extent, rest in bounds if rest]

    def inside(value: Any, conditions: list[Any], dtype: str) -> Any:
        zero = tirx.const(0, dtype)
        return tirx.if_then_else(all_of(conditions), value, zero) if conditions else value

    def element(x: Any, index: Any, depth: Any, extent: int, rest: int) -> Any:
        """An element of A or B; zero beyond the last row and the end of K."""
        conditions = within((index, extent, rest), (depth, what.k, ragged[2]))
        return inside(x[index, depth], conditions, kind)

    def scale(SA: Any, SB: Any, c: Any, s: Any, h: int, i: Any, j: Any) -> Any:
        """What the sums of block ``s`` of K and product ``h`` are multiplied by."""
        at = row(c) + i
        of_row = inside(SA[s, at], within((at, what.m, ragged[0])), "float32")
        if n <= k:
            return of_row * SB[column(c, h) // k, s]
        last = blocks_of[0] - 1
        block = column(c, h) // k + j // k
        return of_row * SB[tirx.min(block, last) if ragged[1] else block, s]

    @T.inline
    def load(B_shared: Any, B: Any, c: Any, s: Any, h: int) -> None:
        for j, d in T.grid(w, k):
            with T.sblock("B_shared"):
                B_shared[j, d] = element(B, column(c, h) + j, s * k + d, what.n, ragged[1])

    @T.inline
    def clear(acc: Any) -> None:
        for i, j in T.grid(m, w):
            with T.sblock("acc_init"):
                acc[i, j] = T.float32(0)

    @T.inline
    def multiply(
        A_shared: Any, B_shared: Any, part: Any, acc: Any, SA: Any, SB: Any, c: Any, s: Any, h: int
    ) -> None:
        for i, j in T.grid(m, w):
            with T.sblock("part_init"):
                part[i, j] = T.float32(0)
        for i, j, d in T.grid(m, w, k):
            with T.sblock("part"):
                part[i, j] = part[i, j] + T.Cast("float32", A_shared[i, d]) * T.Cast(
                    "float32", B_shared[j, d]
                )
        for i, j in T.grid(m, w):
            with T.sblock("acc"):
                acc[i, j] = acc[i, j] + part[i, j] * scale(SA, SB, c, s, h, i, j)

    @T.inline
    def store(C: Any, acc: Any, c: Any, h: int) -> None:
        for i, j in T.grid(m, w):
            with T.sblock("C"):
                if partial:
                    T.where(
                        all_of(
                            within(
                                (row(c) + i, what.m, ragged[0]),
                                (column(c, h) + j, what.n, ragged[1]),
                            )
                        )
                    )
                C[row(c) + i, column(c, h) + j] = T.Cast(out, acc[i, j])

    @T.prim_func(s_tir=True)
    def scaled_gemm(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, of_a, kind)
        B = T.match_buffer(b, of_b, kind)
        SA = T.match_buffer(sa, rows_of, "float32")
        SB = T.match_buffer(sb, blocks_of, "float32")
        C = T.match_buffer(o, of_c, out)
        for c in T.thread_binding(tiles[0] * tiles[1], thread="blockIdx.x"):
            with T.sblock("cta"):
                T.reads()
                T.writes()
                acc = T.sblock_alloc_buffer((m, w), "float32", scope="local")
                if parts > 1:
                    acc_1 = T.sblock_alloc_buffer((m, w), "float32", scope="local")
                clear(acc)
                if parts > 1:
                    clear(acc_1)
                for s in range(what.blocks):
                    with T.sblock("step"):
                        T.reads()
                        T.writes()
                        A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                        B_shared = T.sblock_alloc_buffer((w, k), kind, scope="shared")
                        if parts > 1:
                            B_shared_1 = T.sblock_alloc_buffer((w, k), kind, scope="shared")
                        part = T.sblock_alloc_buffer((m, w), "float32", scope="local")
                        for i, d in T.grid(m, k):
                            with T.sblock("A_shared"):
                                A_shared[i, d] = element(
                                    A, row(c) + i, s * k + d, what.m, ragged[0]
                                )
                        load(B_shared, B, c, s, 0)
                        if parts > 1:
                            load(B_shared_1, B, c, s, 1)
                        multiply(A_shared, B_shared, part, acc, SA, SB, c, s, 0)
                        if parts > 1:
                            multiply(A_shared, B_shared_1, part, acc_1, SA, SB, c, s, 1)
                store(C, acc, c, 0)
                if parts > 1:
                    store(C, acc_1, c, 1)

    return scaled_gemm
