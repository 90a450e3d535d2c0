"""Nests that combine the accumulators of several matmuls, on the registers of each thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner

from ..refusals import says, the
from .lowering_tools import run

M, N, K, STEP = 64, 128, 128, 32


def gated(combine: Any, n2: int = N, first: int = 0) -> Any:
    """Two matmuls on one A in one loop, and behind it ``combine`` of both accumulators.

    ``n2``: columns of the second; ``first``: the row where its tile begins in its buffer.
    """

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((M, K), "float16"),
        B: T.Buffer((N, K), "float16"),
        G: T.Buffer((n2, K), "float16"),
        C: T.Buffer((M, N), "float16"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for _bx in T.thread_binding(1, thread="blockIdx.x"):
            with T.sblock("cta"):
                acc = T.sblock_alloc_buffer((M, N), "float32", scope="local")
                gate = T.sblock_alloc_buffer((M + first, n2), "float32", scope="local")
                for i, j in T.grid(M, N):
                    with T.sblock("init"):
                        acc[i, j] = T.float32(0)
                for i, j in T.grid(M, n2):
                    with T.sblock("gate_init"):
                        gate[first + i, j] = T.float32(0)
                for k in range(K // STEP):
                    with T.sblock("step"):
                        A_shared = T.sblock_alloc_buffer((M, STEP), "float16", scope="shared")
                        B_shared = T.sblock_alloc_buffer((N, STEP), "float16", scope="shared")
                        G_shared = T.sblock_alloc_buffer((n2, STEP), "float16", scope="shared")
                        for i, j in T.grid(M, STEP):
                            with T.sblock("A_shared"):
                                A_shared[i, j] = A[i, k * STEP + j]
                        for i, j in T.grid(N, STEP):
                            with T.sblock("B_shared"):
                                B_shared[i, j] = B[i, k * STEP + j]
                        for i, j in T.grid(n2, STEP):
                            with T.sblock("G_shared"):
                                G_shared[i, j] = G[i, k * STEP + j]
                        for i, j, r in T.grid(M, N, STEP):
                            with T.sblock("matmul"):
                                acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, r]) * T.Cast(
                                    "float32", B_shared[j, r]
                                )
                        for i, j, r in T.grid(M, n2, STEP):
                            with T.sblock("matmul_gate"):
                                gate[first + i, j] = gate[first + i, j] + T.Cast(
                                    "float32", A_shared[i, r]
                                ) * T.Cast("float32", G_shared[j, r])
                combine(acc, gate, C)

    return main


@T.inline
def silu(acc, gate, C):
    for i, j in T.grid(M, N):
        with T.sblock("store"):
            C[i, j] = T.Cast("float16", acc[i, j] * gate[i, j] * T.sigmoid(gate[i, j]))


@T.inline
def silu_of_rows_below(acc, gate, C):
    for i, j in T.grid(M, N):
        with T.sblock("store"):
            C[i, j] = T.Cast("float16", acc[i, j] * gate[32 + i, j] * T.sigmoid(gate[32 + i, j]))


@T.inline
def in_place(acc, gate, C):
    for i, j in T.grid(M, N):
        with T.sblock("scale"):
            acc[i, j] = acc[i, j] * gate[i, j] * T.sigmoid(gate[i, j])
    for i, j in T.grid(M, N):
        with T.sblock("store"):
            C[i, j] = T.Cast("float16", acc[i, j])


@T.inline
def next_row(acc, gate, C):
    for i, j in T.grid(M - 1, N):
        with T.sblock("store"):
            C[i, j] = T.Cast("float16", acc[i, j] * gate[i + 1, j])


@T.inline
def half_of_one(acc, gate, C):
    for i, j in T.grid(M, 64):
        with T.sblock("store"):
            C[i, j] = T.Cast("float16", acc[i, j] * gate[i, j])


def wanted(a: Any, b: Any, g: Any) -> Any:
    value, gate = (a.astype("f8") @ side.astype("f8").T for side in (b, g))
    return value * gate / (1 + np.exp(-gate))


def inputs(n2: int = N) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = ((M, K), (N, K), (n2, K))
    return [(rng.standard_normal(shape) / 4).astype("f2") for shape in shapes]


@pytest.mark.parametrize(
    ("instruction", "target"),
    [("mma", "sm_80"), ("simt", "sm_80"), ("wgmma", "sm_90a")],
)
@pytest.mark.parametrize("combine", [silu, in_place], ids=["stored", "in_place"])
@pytest.mark.slow
def test_a_nest_of_two_accumulators_runs_on_the_registers(
    combine: Any, instruction: Any, target: str
) -> None:
    done = pipeliner.pipeline(gated(combine), target, instruction=instruction)
    plan = pipeliner.plan_of(done)
    assert [one.warp_tile for one in plan.matmuls] == [plan.matmuls[0].warp_tile] * 2
    assert not says("mapped.through_shared", plan.reasons)
    args = inputs()
    result = run(done, [*args, np.zeros((M, N), "f2")])
    assert not result.hazards
    np.testing.assert_allclose(result.outputs["C"], wanted(*args), rtol=2e-3, atol=2e-3)


def test_tiles_that_begin_elsewhere_in_their_buffers_are_combined_too() -> None:
    args = inputs()
    done = pipeliner.pipeline(gated(silu_of_rows_below, first=32), "sm_80")
    assert not says("mapped.through_shared", pipeliner.plan_of(done).reasons)
    result = run(done, [*args, np.zeros((M, N), "f2")])
    assert not result.hazards
    np.testing.assert_allclose(result.outputs["C"], wanted(*args), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("combine", "n2", "code"),
    [(next_row, N, "registers.apart"), (half_of_one, 64, "registers.unlike")],
    ids=["next_row", "half_of_one"],
)
def test_elements_of_other_threads_are_read_through_shared_memory(
    combine: Any, n2: int, code: str
) -> None:
    args = inputs(n2)
    done = pipeliner.pipeline(gated(combine, n2), "sm_80")
    why = the("mapped.through_shared", pipeliner.plan_of(done).reasons)["why"]
    assert the(code, [why])["buffers"] == ("acc", "gate")
    result = run(done, [*args, np.zeros((M, N), "f2")])
    assert not result.hazards
    value, gate = (args[0].astype("f8") @ side.astype("f8").T for side in args[1:])
    want = value[:-1] * gate[1:] if n2 == N else value[:, :n2] * gate
    got = result.outputs["C"][: want.shape[0], : want.shape[1]]
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
