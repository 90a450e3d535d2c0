"""GEMMs with arithmetic on rows, in the loop or behind it, as plain tile functions."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

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


def row_statistics(m: int, n: int, k: int, tile: int = 128) -> Any:
    """A product, and of each row of each tile the maximum and the sum of exponentials below it."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
        Most: T.Buffer((n // tile, m), "float32"),
        Sum: T.Buffer((n // tile, m), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for y in T.thread_binding(m // tile, thread="blockIdx.y"):
            for x in T.thread_binding(n // tile, thread="blockIdx.x"):
                with T.sblock("cta"):
                    acc = T.sblock_alloc_buffer((tile, tile), "float32", scope="local")
                    most = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                    total = T.sblock_alloc_buffer((tile,), "float32", scope="local")
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
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("A_shared"):
                                    A_shared[i, j] = A[y * tile + i, s * STEP + j]
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("B_shared"):
                                    B_shared[i, j] = B[x * tile + i, s * STEP + j]
                            for i, j, r in T.grid(tile, tile, STEP):
                                with T.sblock("matmul"):
                                    acc[i, j] = acc[i, j] + T.Cast(
                                        "float32", A_shared[i, r]
                                    ) * T.Cast("float32", B_shared[j, r])
                    for i in range(tile):
                        with T.sblock("most_init"):
                            most[i] = T.float32(-3e38)
                    for i in range(tile):
                        with T.sblock("total_init"):
                            total[i] = T.float32(0)
                    for i, j in T.grid(tile, tile):
                        with T.sblock("most"):
                            most[i] = T.max(most[i], acc[i, j])
                    for i, j in T.grid(tile, tile):
                        with T.sblock("total"):
                            total[i] = total[i] + T.exp(acc[i, j] - most[i])
                    for i, j in T.grid(tile, tile):
                        with T.sblock("out"):
                            C[y * tile + i, x * tile + j] = T.Cast("float16", acc[i, j])
                    for i in range(tile):
                        with T.sblock("Most"):
                            Most[x, y * tile + i] = most[i]
                    for i in range(tile):
                        with T.sblock("Sum"):
                            Sum[x, y * tile + i] = total[i]

    return main


def log_sum_exp(m: int, n: int, k: int, tile: int = 128) -> Any:
    """A product and the log-sum-exp of its rows, which a second kernel combines of its tiles'."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
        L: T.Buffer((m,), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        Most = T.alloc_buffer((n // tile, m), "float32")
        Sum = T.alloc_buffer((n // tile, m), "float32")
        for y in T.thread_binding(m // tile, thread="blockIdx.y"):
            for x in T.thread_binding(n // tile, thread="blockIdx.x"):
                with T.sblock("cta"):
                    acc = T.sblock_alloc_buffer((tile, tile), "float32", scope="local")
                    most = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                    total = T.sblock_alloc_buffer((tile,), "float32", scope="local")
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
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("A_shared"):
                                    A_shared[i, j] = A[y * tile + i, s * STEP + j]
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("B_shared"):
                                    B_shared[i, j] = B[x * tile + i, s * STEP + j]
                            for i, j, r in T.grid(tile, tile, STEP):
                                with T.sblock("matmul"):
                                    acc[i, j] = acc[i, j] + T.Cast(
                                        "float32", A_shared[i, r]
                                    ) * T.Cast("float32", B_shared[j, r])
                    for i in range(tile):
                        with T.sblock("most_init"):
                            most[i] = T.float32(-3e38)
                    for i in range(tile):
                        with T.sblock("total_init"):
                            total[i] = T.float32(0)
                    for i, j in T.grid(tile, tile):
                        with T.sblock("most"):
                            most[i] = T.max(most[i], acc[i, j])
                    for i, j in T.grid(tile, tile):
                        with T.sblock("total"):
                            total[i] = total[i] + T.exp(acc[i, j] - most[i])
                    for i, j in T.grid(tile, tile):
                        with T.sblock("out"):
                            C[y * tile + i, x * tile + j] = T.Cast("float16", acc[i, j])
                    for i in range(tile):
                        with T.sblock("Most"):
                            Most[x, y * tile + i] = most[i]
                    for i in range(tile):
                        with T.sblock("Sum"):
                            Sum[x, y * tile + i] = total[i]

        for y in T.thread_binding(m // tile, thread="blockIdx.x"):
            with T.sblock("combined"):
                top = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                whole = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                for i in range(tile):
                    with T.sblock("top_init"):
                        top[i] = T.float32(-3e38)
                for i, x in T.grid(tile, n // tile):
                    with T.sblock("top"):
                        top[i] = T.max(top[i], Most[x, y * tile + i])
                for i in range(tile):
                    with T.sblock("whole_init"):
                        whole[i] = T.float32(0)
                for i, x in T.grid(tile, n // tile):
                    with T.sblock("whole"):
                        whole[i] = whole[i] + Sum[x, y * tile + i] * T.exp(
                            Most[x, y * tile + i] - top[i]
                        )
                for i in range(tile):
                    with T.sblock("L"):
                        L[y * tile + i] = top[i] + T.log(whole[i])

    return main


def normalised(m: int, n: int, k: int, tile: int = 128) -> Any:
    """A product whose rows are divided by the root of the mean square of A's (RMS norm)."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for y in T.thread_binding(m // tile, thread="blockIdx.y"):
            for x in T.thread_binding(n // tile, thread="blockIdx.x"):
                with T.sblock("cta"):
                    acc = T.sblock_alloc_buffer((tile, tile), "float32", scope="local")
                    squares = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                    factor = T.sblock_alloc_buffer((tile,), "float32", scope="local")
                    for i, j in T.grid(tile, tile):
                        with T.sblock("init"):
                            acc[i, j] = T.float32(0)
                    for i in range(tile):
                        with T.sblock("squares_init"):
                            squares[i] = T.float32(0)
                    for s in range(k // STEP):
                        with T.sblock("step"):
                            A_shared = T.sblock_alloc_buffer(
                                (tile, STEP), "float16", scope="shared"
                            )
                            B_shared = T.sblock_alloc_buffer(
                                (tile, STEP), "float16", scope="shared"
                            )
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("A_shared"):
                                    A_shared[i, j] = A[y * tile + i, s * STEP + j]
                            for i, j in T.grid(tile, STEP):
                                with T.sblock("B_shared"):
                                    B_shared[i, j] = B[x * tile + i, s * STEP + j]
                            for i, j, r in T.grid(tile, tile, STEP):
                                with T.sblock("matmul"):
                                    acc[i, j] = acc[i, j] + T.Cast(
                                        "float32", A_shared[i, r]
                                    ) * T.Cast("float32", B_shared[j, r])
                            for i, r in T.grid(tile, STEP):
                                with T.sblock("squares"):
                                    squares[i] = squares[i] + T.Cast(
                                        "float32", A_shared[i, r]
                                    ) * T.Cast("float32", A_shared[i, r])
                    for i in range(tile):
                        with T.sblock("factor"):
                            factor[i] = T.rsqrt(squares[i] * T.float32(1 / k))
                    for i, j in T.grid(tile, tile):
                        with T.sblock("out"):
                            C[y * tile + i, x * tile + j] = T.Cast("float16", acc[i, j] * factor[i])

    return main
