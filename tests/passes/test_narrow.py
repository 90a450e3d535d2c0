"""Constant vectors of bytes: what TVM prints as a call that nvcc refuses."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm


@pytest.mark.nvcc
@pytest.mark.parametrize("mechanism", ["direct", "register"])
@pytest.mark.part(2)
def test_masked_copies_of_bytes_compile(mechanism: str) -> None:
    schedule = schedule_gemm(Gemm(40, 11, 96, dtype="int8"), GemmTile(32, 8, 32))
    kernel = pipeliner.build(pipeliner.pipeline(schedule, "sm_80", depth=2, mechanism=mechanism))
    assert kernel.resources.spills == 0
    a, b = (
        np.random.default_rng(0).integers(-9, 9, s).astype("int8") for s in [(40, 96), (11, 96)]
    )
    result = kernel.emulate(a, b, np.full((40, 11), -85, "int32"))
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"], a.astype("int32") @ b.astype("int32").T)


@T.prim_func(s_tir=True)
def fills(A: T.Buffer((64,), "int8"), B: T.Buffer((32,), "uint8"), C: T.Buffer((4,), "int8")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for v in T.vectorized(16):
                A[tx * 16 + v] = T.int8(-3)
            for v in T.vectorized(8):
                B[tx * 8 + v] = T.uint8(200)
        for v in T.vectorized(4):
            C[v] = T.int8(7)


@pytest.mark.nvcc
def test_any_byte_fills_a_vector() -> None:
    with pipeliner.targets.cuda_target("sm_80"):
        kernel = pipeliner.build(pipeliner.pipeline(fills, "sm_80"))
    assert kernel.resources.registers > 0
    zeros = np.zeros(64, "int8"), np.zeros(32, "uint8"), np.zeros(4, "int8")
    outputs = kernel.emulate(*zeros).outputs
    assert (outputs["A"] == -3).all()
    assert (outputs["B"] == 200).all()
    assert (outputs["C"] == 7).all()
