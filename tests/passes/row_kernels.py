"""GEMMs with arithmetic on rows, in the loop or behind it, as plain tile functions."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from pipeliner.schedules import RowGemm, RowTile, schedule_rows
from pipeliner.schedules.workloads import Statistic

STEP = 64


def scaled_steps(m: int, n: int, k: int, tile: int = 128, every: int = 1) -> Any:
    """A product in which the sum of each step has a scale for its row, as block-scaled GEMMs do.

    ``every``: so many steps apart are those that multiply.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        F: T.Buffer((k // STEP, m), "float32"),
        C: T.Buffer((m, n), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for y in T.thread_binding(m // tile, thread="blockIdx.y"):
            for x in T.thread_binding(n // tile, thread="blockIdx.x"):
                with T.sblock("cta"):
                    acc = T.sblock_alloc_buffer((tile, tile), "float32", scope="local")
                    for i, j in T.grid(tile, tile):
                        with T.sblock("init"):
                            acc[i, j] = T.float32(0)
                    for s in range(k // STEP):
                        with T.sblock("step"):
                            A_shared = T.sblock_alloc_buffer(
                                (tile, STEP), "float16", scope="shared"
                            )
                            B_shared = T.sblock_alloc_buffer(
                                (tile, STEP), "float16", scope="shared"
                            )
                            part = T.sblock_alloc_buffer((tile, tile), "float32", scope="local")
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("A_shared"):
                                    A_shared[i, j] = A[y * tile + i, s * STEP + j]
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("B_shared"):
                                    B_shared[i, j] = B[x * tile + i, s * STEP + j]
                            for i, j in T.grid(tile, tile):
                                with T.sblock("part_init"):
                                    part[i, j] = T.float32(0)
                            for i, j, r in T.grid(tile, tile, STEP):
                                with T.sblock("part"):
                                    if every > 1:
                                        T.where(s % every == 0)
                                    part[i, j] = part[i, j] + T.Cast(
                                        "float32", A_shared[i, r]
                                    ) * T.Cast("float32", B_shared[j, r])
                            for i, j in T.grid(tile, tile):
                                with T.sblock("scaled"):
                                    acc[i, j] = acc[i, j] + part[i, j] * F[s, y * tile + i]
                    for i, j in T.grid(tile, tile):
                        with T.sblock("out"):
                            C[y * tile + i, x * tile + j] = acc[i, j]

    return main


def with_rows(m: int, n: int, k: int, statistic: Statistic = "rms", tile: int = 128) -> Any:
    """A product with a statistic of rows, in square tiles."""
    return schedule_rows(RowGemm(m, n, k, statistic), RowTile(tile, tile)).mod["main"]
