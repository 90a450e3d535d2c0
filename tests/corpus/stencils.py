"""Stencils bound to threads by hand: each tile brings its halo."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from ..bound_kernels import bound
from .case import Case, Pipelined, uniform

stencil_1d = bound(
    "A: float32[512], B: float32[512]",
    """
for t in T.serial(8):
    with T.sblock("tile"):
        S = T.sblock_alloc_buffer((68,), "float32", scope="shared")
        for r in T.serial(2):
            with T.sblock("S"):
                T.where(r * 64 + tx < 68)
                S[r * 64 + tx] = T.if_then_else(
                    t * 64 + r * 64 + tx >= 2 and t * 64 + r * 64 + tx < 514,
                    A[t * 64 + r * 64 + tx - 2],
                    T.float32(0),
                )
        with T.sblock("B"):
            B[t * 64 + tx] = (
                S[tx] + S[tx + 1] + T.float32(2) * S[tx + 2] + S[tx + 3] + S[tx + 4]
            )
""",
)
"""Eight tiles of 64 with a halo of 2 on either side, zero outside."""


@T.prim_func(s_tir=True)
def stencil_2d(A: T.Buffer((10, 18, 10), "float32"), B: T.Buffer((10, 16, 8), "float32")):
    """Planes z one after the other: a five-point star in each, its halo in shared memory."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for ty in T.thread_binding(16, thread="threadIdx.y"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                for z in T.serial(10):
                    with T.sblock("plane"):
                        S = T.sblock_alloc_buffer((18, 10), "float32", scope="shared")
                        for r in T.serial(2):
                            with T.sblock("S"):
                                T.where(r * 128 + ty * 8 + tx < 180)
                                S[(r * 128 + ty * 8 + tx) // 10, (r * 128 + ty * 8 + tx) % 10] = A[
                                    z, (r * 128 + ty * 8 + tx) // 10, (r * 128 + ty * 8 + tx) % 10
                                ]
                        with T.sblock("B"):
                            B[z, ty, tx] = (
                                S[ty + 1, tx]
                                + S[ty + 1, tx + 2]
                                + S[ty, tx + 1]
                                + S[ty + 2, tx + 1]
                                - T.float32(4) * S[ty + 1, tx + 1]
                            )


def _stencil_1d(x):
    a = np.pad(x["A"], 2)
    return {"B": a[:-4] + a[1:-3] + 2 * a[2:-2] + a[3:-1] + a[4:]}


def _stencil_2d(x):
    a = x["A"]
    star = a[:, 1:-1, :-2] + a[:, 1:-1, 2:] + a[:, :-2, 1:-1] + a[:, 2:, 1:-1]
    return {"B": star - 4 * a[:, 1:-1, 1:-1]}


CASES = [
    Case(
        "stencil_1d",
        lambda: stencil_1d,
        lambda r: {"A": uniform(r, 512)},
        _stencil_1d,
        Pipelined(),
        "each tile brings its own halo, so tiles are independent; zeros outside are a masked copy",
    ),
    Case(
        "stencil_2d",
        lambda: stencil_2d,
        lambda r: {"A": uniform(r, 10, 18, 10)},
        _stencil_2d,
        Pipelined(),
        "one plane at a time, planes independent",
    ),
]
