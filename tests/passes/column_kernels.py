"""A product with arithmetic on columns of its sums, in the loop or behind it, as a tile function."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm.script import tirx as T

STEP: Final = 64
HOWS: Final = ("sum", "max", "min", "less_mean", "in_loop", "each_step", "unlike")
"""Of the sums of a tile: what there is of each column, less their mean; of squares of each step."""

LOWEST: Final = {"max": -1e30, "min": 1e30}


def with_columns(
    how: str, shape: tuple[int, int, int], tile: tuple[int, int], each: int = 1
) -> Any:
    """``C = A B`` and ``L``, one row for each tile of rows: ``how`` of ``HOWS``.

    ``each``: tiles of columns that a CTA takes one after the other. ``unlike`` adds up elements
    whose rows and columns are exchanged, too. Rows beyond the last of A count as none.
    """
    (m, n, k), (tm, tn) = shape, tile
    down = -(-m // tm)
    stepwise = how in ("in_loop", "each_step")

    def joined(old: Any, new: Any, mirrored: Any) -> Any:
        if how in LOWEST:
            return T.max(old, new) if how == "max" else T.min(old, new)
        return old + (new * new if stepwise else new + mirrored if how == "unlike" else new)

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), "float16"),
        B: T.Buffer((n, k), "float16"),
        L: T.Buffer((down, n), "float32"),
        C: T.Buffer((m, n), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for z in T.thread_binding(down * (n // tn // each), thread="blockIdx.x"):
            for t in range(each):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((tm, tn), "float32", scope="local")
                    columns = T.sblock_alloc_buffer((tn,), "float32", scope="local")
                    for j in range(tn):
                        with T.sblock("columns_init"):
                            columns[j] = T.float32(LOWEST.get(how, 0.0))
                    for i, j in T.grid(tm, tn):
                        with T.sblock("init"):
                            acc[i, j] = T.float32(0)
                    for s in range(k // STEP):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            A_shared = T.sblock_alloc_buffer((tm, STEP), "float16", scope="shared")
                            B_shared = T.sblock_alloc_buffer((tn, STEP), "float16", scope="shared")
                            part = T.sblock_alloc_buffer((tm, tn), "float32", scope="local")
                            for i, d in T.grid(tm, STEP):
                                with T.sblock("A_shared"):
                                    A_shared[i, d] = T.if_then_else(
                                        z % down * tm + i < m,
                                        A[z % down * tm + i, s * STEP + d],
                                        T.float16(0),
                                    )
                            for j, d in T.grid(tn, STEP):
                                with T.sblock("B_shared"):
                                    B_shared[j, d] = B[
                                        (z // down * each + t) * tn + j, s * STEP + d
                                    ]
                            if stepwise:
                                for i, j in T.grid(tm, tn):
                                    with T.sblock("part_init"):
                                        part[i, j] = T.float32(0)
                            for i, j, d in T.grid(tm, tn, STEP):
                                with T.sblock("product"):
                                    if stepwise:
                                        part[i, j] = part[i, j] + T.Cast(
                                            "float32", A_shared[i, d]
                                        ) * T.Cast("float32", B_shared[j, d])
                                    else:
                                        acc[i, j] = acc[i, j] + T.Cast(
                                            "float32", A_shared[i, d]
                                        ) * T.Cast("float32", B_shared[j, d])
                            if stepwise:
                                for i, j in T.grid(tm, tn):
                                    with T.sblock("squares"):
                                        columns[j] = joined(columns[j], part[i, j], 0)
                            if how == "in_loop":
                                for i, j in T.grid(tm, tn):
                                    with T.sblock("more"):
                                        acc[i, j] = acc[i, j] + part[i, j]
                            if how == "each_step":
                                for i, j in T.grid(tm, tn):
                                    with T.sblock("more"):
                                        acc[i, j] = acc[i, j] + part[i, j] * columns[j]
                    if not stepwise:
                        for i, j in T.grid(tm, tn):
                            with T.sblock("columns"):
                                if m % tm != 0:
                                    T.where(z % down * tm + i < m)
                                columns[j] = joined(
                                    columns[j], acc[i, j], acc[j, i] if how == "unlike" else 0
                                )
                    if how == "less_mean":
                        for i, j in T.grid(tm, tn):
                            with T.sblock("centred"):
                                acc[i, j] = acc[i, j] - columns[j] * T.float32(1 / tm)
                    for j in range(tn):
                        with T.sblock("L"):
                            L[z % down, (z // down * each + t) * tn + j] = columns[j]
                    for i, j in T.grid(tm, tn):
                        with T.sblock("C"):
                            if m % tm != 0:
                                T.where(z % down * tm + i < m)
                            C[z % down * tm + i, (z // down * each + t) * tn + j] = acc[i, j]

    return main


def operands(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A and B: small integers, of which float32 adds up a few thousand in any order."""
    m, n, k = shape
    rng = np.random.default_rng(3)
    return tuple(rng.integers(-1, 2, (rows, k)).astype("float16") for rows in (m, n))


def expected(how: str, a: np.ndarray, b: np.ndarray, tile: tuple[int, int]) -> tuple[Any, Any]:
    """L and C."""
    rows, (m, k), n = tile[0], a.shape, len(b)
    steps = [a[:, s : s + STEP].astype(float) @ b[:, s : s + STEP].T for s in range(0, k, STEP)]
    product = sum(steps)
    blocks = [slice(first, first + rows) for first in range(0, m, rows)]

    def of_tiles(values: np.ndarray) -> np.ndarray:
        folded = {"max": np.max, "min": np.min}.get(how, np.sum)
        return np.stack([folded(values[block], 0) for block in blocks])

    if how == "unlike":
        columns = [
            np.concatenate([product[block, x : x + rows].sum(1) for x in range(0, n, rows)])
            for block in blocks
        ]
        return of_tiles(product) + np.stack(columns), product
    if how not in ("in_loop", "each_step"):
        found = of_tiles(product)
        less = np.repeat(found, rows, 0)[:m] / rows if how == "less_mean" else 0
        return found, product - less
    so_far = np.cumsum([of_tiles(step**2) for step in steps], 0)
    if how == "each_step":
        product = sum(
            step * np.repeat(now, rows, 0)[:m] for step, now in zip(steps, so_far, strict=True)
        )
    return so_far[-1], product
