"""The un-pipelined schedule of two products one after the other: a tile of rows, and a loop.

    for blockIdx.x in tiles of rows:
      A_shared = A[tile]
      acc = 0
      for step in tiles of columns of A B:
        B_shared, C_shared = B[tile], C[tile]
        hidden = A_shared * B_shared           # a plain matmul over a tile
        made = activation(hidden) in the type of C
        acc += made * C_shared                 # a plain matmul over a tile
      O[tile] = acc                            # guarded at ragged edges

Nothing is bound to threads. Attention (``attention.py``) makes more of the first product, and of
its rows. Reads beyond the last row or column are zero, and so is what an activation makes of zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

from tvm import s_tir
from tvm.script import tirx as T

from ...instructions.dtypes import element_bytes
from ...machine import Machine
from ...values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo, StoreInfo
from ..tiles import RowTile, power_of_two, row_major
from ..workloads import BackToBackGemm
from ..workloads.base.epilogue import apply
from .products import guarded

ROWS: Final = (64, 128, 192)
"""Rows of a tile to compare: one to three warpgroups of 64."""

COSTS: Final[Mapping[str, tuple[int, int]]] = {"relu": (1, 0), "silu": (1, 1), "gelu": (56, 2)}
"""Arithmetic and transcendental operations of an activation of an element."""

COLUMNS: Final = (32, 64, 96, 128)
"""Columns of the first product in a step to compare; 128 are 64 registers a thread of sums."""


def schedule_back_to_back(what: BackToBackGemm, tile: RowTile) -> Any:
    """``what`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc."""
    return s_tir.Schedule(_function(what, tile))


def _function(what: BackToBackGemm, tile: RowTile) -> Any:
    m, n, k, p = tile.m, tile.n, what.k, what.p
    of_a, of_b, of_c, of_o = what.shapes()
    kind, out = what.storage, what.out
    partial = what.m % m != 0

    def read(x: Any, row: Any, rows: int, size: int, column: Any) -> Any:
        """An element; zero beyond the last of ``rows``, where tiles of ``size`` pass it."""
        return guarded(x[row, column], [row < rows] if rows % size else [], kind)

    @T.prim_func(s_tir=True)
    def back_to_back(a: T.handle, b: T.handle, c: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": what.name, "tirx.noalias": True})
        A = T.match_buffer(a, of_a, kind)
        B = T.match_buffer(b, of_b, kind)
        C = T.match_buffer(c, of_c, kind)
        Out = T.match_buffer(o, of_o, out)
        for y in T.thread_binding(-(-what.m // m), thread="blockIdx.x"):
            with T.sblock("cta"):
                T.reads()
                T.writes()
                A_shared = T.sblock_alloc_buffer((m, k), kind, scope="shared")
                acc = T.sblock_alloc_buffer((m, p), "float32", scope="local")
                for i, d in T.grid(m, k):
                    with T.sblock("A_shared"):
                        A_shared[i, d] = read(A, y * m + i, what.m, m, d)
                for i, j in T.grid(m, p):
                    with T.sblock("acc_init"):
                        acc[i, j] = T.float32(0)
                for s in range(-(-what.n // n)):
                    with T.sblock("step"):
                        T.reads()
                        T.writes()
                        B_shared = T.sblock_alloc_buffer((n, k), kind, scope="shared")
                        C_shared = T.sblock_alloc_buffer((n, p), kind, scope="shared")
                        hidden = T.sblock_alloc_buffer((m, n), "float32", scope="local")
                        made = T.sblock_alloc_buffer((m, n), kind, scope="local")
                        for j, d in T.grid(n, k):
                            with T.sblock("B_shared"):
                                B_shared[j, d] = read(B, s * n + j, what.n, n, d)
                        for j, d in T.grid(n, p):
                            with T.sblock("C_shared"):
                                C_shared[j, d] = read(C, s * n + j, what.n, n, d)
                        for i, j in T.grid(m, n):
                            with T.sblock("hidden_init"):
                                hidden[i, j] = T.float32(0)
                        for i, j, d in T.grid(m, n, k):
                            with T.sblock("hidden"):
                                hidden[i, j] = hidden[i, j] + T.Cast(
                                    "float32", A_shared[i, d]
                                ) * T.Cast("float32", B_shared[j, d])
                        for i, j in T.grid(m, n):
                            with T.sblock("made"):
                                made[i, j] = T.Cast(
                                    kind, apply(what.activation, hidden[i, j], None)
                                )
                        for i, d, j in T.grid(m, p, n):
                            with T.sblock("acc"):
                                acc[i, d] = acc[i, d] + T.Cast("float32", made[i, j]) * T.Cast(
                                    "float32", C_shared[j, d]
                                )
                for i, d in T.grid(m, p):
                    with T.sblock("Out"):
                        if partial:
                            T.where(y * m + i < what.m)
                        Out[y * m + i, d] = T.Cast(out, acc[i, d])

    return back_to_back


def back_to_back_tiles(what: BackToBackGemm, machine: Machine) -> list[RowTile]:
    """The tiles of ``what`` to compare: those whose operands fit into shared memory once."""
    size = element_bytes(what.storage)
    found = [
        RowTile(m, n)
        for m, n in itertools.product(ROWS, COLUMNS)
        if m < what.m + ROWS[0] and n < what.n + COLUMNS[0]
        if (m * what.k + n * (what.k + what.p)) * size <= machine.smem_per_cta
    ]
    return found or [RowTile(ROWS[0], COLUMNS[0])]


def back_to_back_alike(
    small: BackToBackGemm, what: BackToBackGemm, tile: RowTile, few: tuple[int, int]
) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``what`` has.

    ``few``: how many tiles and steps are enough.
    """
    edges = [(one.m % tile.m, one.n % tile.n) for one in (small, what)]
    counts = [(-(-one.m // tile.m), -(-one.n // tile.n)) for one in (small, what)]
    return edges[0] == edges[1] and all(
        found >= min(enough, whole) for found, whole, enough in zip(*counts, few)
    )


def back_to_back_info(what: BackToBackGemm, tile: RowTile) -> KernelInfo:
    """What recognition will find in ``what`` as scheduled with ``tile``."""
    m, n, k, p, size = tile.m, tile.n, what.k, what.p, element_bytes(what.storage)
    wide = element_bytes(what.accumulator)
    a, b, c = (
        CopyInfo(
            op=f"{name}_shared",
            src=name,
            dst=f"{name}_shared",
            dst_scope="shared",
            dtype=what.storage,
            shape=(rows, shape[1]),
            src_dims=(0, 1),
            src_strides=row_major(shape),
            aligned=power_of_two(shape[1]),
            masked=shape[0] % rows != 0,
            bound=False,
            src_bytes=math.prod(shape) * size,
        )
        for name, rows, shape in zip("ABC", (m, n, n), what.shapes())
    )
    hidden, acc = (
        MatmulInfo(
            op=name, acc=name, a=left, b=right.dst, m=m, n=columns, k=depth, a_dtype=what.storage,
            b_dtype=what.storage, acc_dtype=what.accumulator, a_k_major=True,
            b_k_major=name == "hidden", k_last=depth, computed=() if left == a.dst else (left,),
        )
        for name, left, right, columns, depth in (
            ("hidden", a.dst, b, n, k),
            ("acc", "made", c, p, n),
        )
    )  # fmt: skip
    init, made = (
        StatementInfo(
            op=name,
            kind="compute",
            flops=m * n * flops,
            transcendentals=m * n * exps,
            bound=False,
            loads=False,
        )
        for name, (flops, exps) in (("hidden_init", (0, 0)), ("made", COSTS[what.activation]))
    )
    loop = LoopInfo(
        name="s",
        trip=-(-what.n // n),
        trip_text=str(-(-what.n // n)),
        ops=(b, c, init, hidden, made, acc),
        rings=(
            (b.dst, "shared", n * k * size),
            (c.dst, "shared", n * p * size),
            (hidden.acc, "local", m * n * wide),
            (made.op, "local", m * n * size),
        ),
    )
    return KernelInfo(
        name=what.name,
        grid=(-(-what.m // m),),
        threads=0,
        loops=(loop,),
        accumulators=((a.dst, "shared", m * k * size), (acc.acc, "local", m * p * wide)),
        stores=(StoreInfo("Out", "acc", "Out", what.out, row_major((what.m, p))),),
        before=(a,),
    )
