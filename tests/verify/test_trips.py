"""A loop whose trip count is known at run time only: from none to more than the ring has slots."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.api import build
from pipeliner.kernel.building import pipeline_with
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

M, N, STEP = 32, 16, 16


@T.prim_func(s_tir=True)
def product(A_: T.handle, B_: T.handle, C: T.Buffer((M, N), "float32"), steps: T.int32):
    """A GEMM (NT) over ``steps`` tiles of K."""
    T.func_attr({"global_symbol": "product", "tirx.noalias": True})
    A = T.match_buffer(A_, (M, steps * STEP), "float16")
    B = T.match_buffer(B_, (N, steps * STEP), "float16")
    acc = T.sblock_alloc_buffer((M, N), "float32")
    for i, j, k in T.grid(M, N, steps * STEP):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                acc[vi, vj] = T.float32(0)
            acc[vi, vj] = acc[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vj, vk])
    for i, j in T.grid(M, N):
        with T.sblock("store"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = acc[vi, vj]


@pytest.mark.parametrize("epilogue", ["rolled", "peeled"])
@pytest.mark.parametrize("mechanism", ["cp_async", "register", "direct"])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.part(2)
def test_any_trip_count_computes_the_product(depth: int, mechanism: str, epilogue: str) -> None:
    schedule = schedule_gemm(Gemm(M, N, STEP), GemmTile(M, N, STEP), product)
    request = Request(depth=depth, mechanism=mechanism, epilogue=epilogue)
    kernel = build(pipeline_with(schedule, "sm_80", request))
    rng = np.random.default_rng(depth)
    for steps in range(depth + 3):
        a = rng.standard_normal((M, steps * STEP)).astype("float16")
        b = rng.standard_normal((N, steps * STEP)).astype("float16")
        outcome = kernel.emulate(a, b, np.full((M, N), np.nan, "float32"), steps)
        assert outcome.hazards == ()
        exact = a.astype("float64") @ b.astype("float64").T
        np.testing.assert_allclose(outcome.outputs["C"], exact, atol=1e-4)
