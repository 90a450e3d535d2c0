"""Tiles that a condition loaded from memory leaves out: whose producer may ask it, too."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import PipelinerError

from ..refusals import refused

SIDE: Final = 64
STEPS: Final = 4
WANTED: Final = 7
"""A tile whose number in memory is below is computed."""


def chosen(tiles: int, *, counted: bool) -> Any:
    """``C = A B`` of the tiles of rows whose number is small; ``counted``: the kernel adds to it."""
    m, k = SIDE, SIDE

    @T.prim_func(s_tir=True)
    def product(a: T.handle, b: T.handle, f: T.handle, o: T.handle) -> None:
        T.func_attr({"global_symbol": "product", "tirx.noalias": True})
        A = T.match_buffer(a, (tiles * m, STEPS * k), "float16")
        B = T.match_buffer(b, (m, STEPS * k), "float16")
        Number = T.match_buffer(f, (tiles,), "int32")
        C = T.match_buffer(o, (tiles * m, m), "float32")
        for x in T.thread_binding(tiles, thread="blockIdx.x"):
            with T.sblock("cta"):
                T.where(Number[x] < WANTED)
                T.reads()
                T.writes()
                acc = T.sblock_alloc_buffer((m, m), "float32", scope="local")
                for i, j in T.grid(m, m):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for s in range(STEPS):
                    with T.sblock("step"):
                        T.reads()
                        T.writes()
                        A_shared = T.sblock_alloc_buffer((m, k), "float16", scope="shared")
                        B_shared = T.sblock_alloc_buffer((m, k), "float16", scope="shared")
                        for i, d in T.grid(m, k):
                            with T.sblock("A_shared"):
                                A_shared[i, d] = A[x * m + i, s * k + d]
                        for j, d in T.grid(m, k):
                            with T.sblock("B_shared"):
                                B_shared[j, d] = B[j, s * k + d]
                        for i, j, d in T.grid(m, m, k):
                            with T.sblock("acc"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, d]) * T.Cast(
                                    "float32", B_shared[j, d]
                                )
                for i, j in T.grid(m, m):
                    with T.sblock("C"):
                        C[x * m + i, j] = acc[i, j]
                if counted:
                    for i in range(1):
                        with T.sblock("Number"):
                            Number[x + i] = WANTED

    return product


def test_the_producer_leaves_out_the_tiles_that_consumers_leave_out() -> None:
    kernel = pipeliner.build(chosen(3, counted=False), "h100", instruction="wgmma", mechanism="tma")
    assert [role.name for role in kernel.plan.roles] == ["consumer", "producer"]
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(n * SIDE, STEPS * SIDE)).astype("float16") for n in (3, 1))
    done = kernel.emulate(
        a, b, np.array([0, WANTED, 6], "int32"), np.full((3 * SIDE, SIDE), 9, "f")
    )
    assert not done.hazards
    exact = a.astype("float64") @ b.astype("float64").T
    exact[SIDE : 2 * SIDE] = 9
    assert np.abs(done.outputs["C"] - exact).max() < 1e-3


def test_not_where_the_kernel_writes_what_the_condition_loads() -> None:
    """The producer is ahead of the consumers: it may load what they have not written yet."""
    with refused("role.condition", PipelinerError):
        pipeliner.build(chosen(3, counted=True), "h100", instruction="wgmma", mechanism="tma")
