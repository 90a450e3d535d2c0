"""Two products in one loop, the second of what a function makes of the first, as a tile function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T


def back_to_back(
    m: int,
    n: int,
    k: int,
    p: int,
    tile: tuple[int, int],
    of: Callable[[Any], Any],
    *,
    decays: bool = False,
) -> Any:
    """``O = of(A B) C`` without ``of(A B)`` in memory: A [m, k], B [n, k], C [n, p], O [m, p].

    ``tile``: rows of a CTA, and columns of A B in a step. ``of``: of a float32.
    ``decays``: behind each step the sums are halved.
    """
    rows, columns = tile

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        C: T.Buffer((n, p), "float16"),
        Out: T.Buffer((m, p), "float16"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for y in T.thread_binding(m // rows, thread="blockIdx.x"):
            with T.sblock("cta"):
                A_shared = T.sblock_alloc_buffer((rows, k), "float16", scope="shared")
                acc = T.sblock_alloc_buffer((rows, p), "float32", scope="local")
                for i, j in T.grid(rows, k):
                    with T.sblock("A_shared"):
                        A_shared[i, j] = A[y * rows + i, j]
                for i, j in T.grid(rows, p):
                    with T.sblock("acc_init"):
                        acc[i, j] = T.float32(0)
                for s in range(n // columns):
                    with T.sblock("step"):
                        B_shared = T.sblock_alloc_buffer((columns, k), "float16", scope="shared")
                        C_shared = T.sblock_alloc_buffer((columns, p), "float16", scope="shared")
                        hidden = T.sblock_alloc_buffer((rows, columns), "float32", scope="local")
                        made = T.sblock_alloc_buffer((rows, columns), "float16", scope="local")
                        for i, j in T.grid(columns, k):
                            with T.sblock("B_shared"):
                                B_shared[i, j] = B[s * columns + i, j]
                        for i, j in T.grid(columns, p):
                            with T.sblock("C_shared"):
                                C_shared[i, j] = C[s * columns + i, j]
                        for i, j in T.grid(rows, columns):
                            with T.sblock("hidden_init"):
                                hidden[i, j] = T.float32(0)
                        for i, j, r in T.grid(rows, columns, k):
                            with T.sblock("hidden"):
                                hidden[i, j] = hidden[i, j] + T.Cast(
                                    "float32", A_shared[i, r]
                                ) * T.Cast("float32", B_shared[j, r])
                        for i, j in T.grid(rows, columns):
                            with T.sblock("made"):
                                made[i, j] = T.Cast("float16", of(hidden[i, j]))
                        for i, j, r in T.grid(rows, p, columns):
                            with T.sblock("acc"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", made[i, r]) * T.Cast(
                                    "float32", C_shared[r, j]
                                )
                        if decays:
                            for i, j in T.grid(rows, p):
                                with T.sblock("halved"):
                                    acc[i, j] = acc[i, j] * T.float32(0.5)
                for i, j in T.grid(rows, p):
                    with T.sblock("out"):
                        Out[y * rows + i, j] = T.Cast("float16", acc[i, j])

    return main
