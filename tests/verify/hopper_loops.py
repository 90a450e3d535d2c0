"""Tile functions written out for sm_90: trip counts known at run time, types that no schedule has."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

ROWS = 128
COLUMNS = 64
STEPS = 8


def counted(dtype: str = "float16", k: int = 64, stored: int = ROWS) -> Any:
    """``C = A B^T`` over the first ``n`` steps of K, an argument: an int32; ``stored`` rows."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((ROWS, STEPS * k), dtype),
        B: T.Buffer((COLUMNS, STEPS * k), dtype),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
        n: T.int32,
    ):
        T.func_attr({"global_symbol": "main"})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((ROWS, COLUMNS), "float32", scope="local")
                for i, j in T.grid(ROWS, COLUMNS):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for step in T.serial(n):
                    with T.sblock("step"):
                        A_s = T.sblock_alloc_buffer((ROWS, k), dtype, scope="shared")
                        B_s = T.sblock_alloc_buffer((COLUMNS, k), dtype, scope="shared")
                        for i, j in T.grid(ROWS, k):
                            with T.sblock("A_copy"):
                                A_s[i, j] = A[i, step * k + j]
                        for i, j in T.grid(COLUMNS, k):
                            with T.sblock("B_copy"):
                                B_s[i, j] = B[i, step * k + j]
                        for i, j, kk in T.grid(ROWS, COLUMNS, k):
                            with T.sblock("mma"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_s[i, kk]) * T.Cast(
                                    "float32", B_s[j, kk]
                                )
                for i, j in T.grid(stored, COLUMNS):
                    with T.sblock("store"):
                        C[i, j] = acc[i, j]

    return main


def counted_tiles(*, guarded: bool = False) -> Any:
    """The same for three tiles of rows, one CTA after the other; ``guarded``: but for the second."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((3 * ROWS, STEPS * 64), "float16"),
        B: T.Buffer((COLUMNS, STEPS * 64), "float16"),
        C: T.Buffer((3 * ROWS, COLUMNS), "float32"),
        n: T.int32,
    ):
        T.func_attr({"global_symbol": "main"})
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for tile in T.serial(3):
                with T.sblock("tile"):
                    T.where((not guarded) or tile != 1)
                    acc = T.sblock_alloc_buffer((ROWS, COLUMNS), "float32", scope="local")
                    for i, j in T.grid(ROWS, COLUMNS):
                        with T.sblock("init"):
                            acc[i, j] = T.float32(0)
                    for step in T.serial(n):
                        with T.sblock("step"):
                            A_s = T.sblock_alloc_buffer((ROWS, 64), "float16", scope="shared")
                            B_s = T.sblock_alloc_buffer((COLUMNS, 64), "float16", scope="shared")
                            for i, j in T.grid(ROWS, 64):
                                with T.sblock("A_copy"):
                                    A_s[i, j] = A[tile * ROWS + i, step * 64 + j]
                            for i, j in T.grid(COLUMNS, 64):
                                with T.sblock("B_copy"):
                                    B_s[i, j] = B[i, step * 64 + j]
                            for i, j, kk in T.grid(ROWS, COLUMNS, 64):
                                with T.sblock("mma"):
                                    acc[i, j] = acc[i, j] + T.Cast("float32", A_s[i, kk]) * T.Cast(
                                        "float32", B_s[j, kk]
                                    )
                    for i, j in T.grid(ROWS, COLUMNS):
                        with T.sblock("store"):
                            C[tile * ROWS + i, j] = acc[i, j]

    return main
