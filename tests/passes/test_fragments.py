"""Nests over an accumulator in registers: fused epilogues, guards, wide stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.passes.ir.nodes import ForKind, const_int, walk
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import Gemm

from ..refusals import gives, the
from .lowering_tools import run
from .tiles import mapped, scheduled


def stores_of(func: Any, name: str) -> list[int]:
    """Elements that each store to buffer ``name`` writes at once."""
    found: list[int] = []

    def visit(loop: Any) -> None:
        if loop.kind == ForKind.VECTORIZED and str(loop.body.buffer.name) == name:
            found.append(const_int(loop.extent) or 0)

    walk(func.body, tirx.For, visit)
    return found


@pytest.mark.parametrize(
    ("gemm", "tile", "width"),
    [
        (Gemm(128, 128, 64), GemmTile(64, 64, 32), 8),
        (Gemm(128, 128, 64), GemmTile(64, 64, 64), 8),
        (Gemm(128, 128, 64, out="float32"), GemmTile(64, 64, 32), 4),
        (Gemm(128, 128, 64, layout="NN"), GemmTile(64, 64, 32), 8),
        (Gemm(128, 68, 64, layout="NN"), GemmTile(64, 64, 32), 4),
        (Gemm(128, 70, 64, layout="NN"), GemmTile(64, 64, 32), 2),
        (Gemm(128, 128, 64, layout="NN", out="float32"), GemmTile(64, 64, 32), 2),
        (Gemm(128, 68, 64), GemmTile(64, 64, 32), 4),
        (Gemm(128, 70, 64), GemmTile(64, 64, 32), 2),
        (Gemm(128, 128, 128, dtype="int8"), GemmTile(64, 64, 64), 4),
    ],
)
@pytest.mark.part(2)
def test_neighbouring_columns_are_stored_together(gemm: Gemm, tile: GemmTile, width: int) -> None:
    func, _ = mapped(gemm, tile)
    assert stores_of(func, "C") == [width]


def test_a_row_of_odd_length_is_stored_element_by_element() -> None:
    func, _ = mapped(Gemm(64, 67, 64), GemmTile(64, 64, 32))
    assert stores_of(func, "C") == []


@T.prim_func(s_tir=True)
def fused(
    A: T.Buffer((70, 64), "float16"),
    B: T.Buffer((72, 64), "float16"),
    bias: T.Buffer((72,), "float32"),
    scale: T.Buffer((70,), "float32"),
    C: T.Buffer((70, 72), "float16"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    acc = T.sblock_alloc_buffer((70, 72), "float32")
    scaled = T.sblock_alloc_buffer((70, 72), "float32")
    for i, j, k in T.grid(70, 72, 64):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                acc[vi, vj] = T.float32(0)
            acc[vi, vj] = acc[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vj, vk])
    for i, j in T.grid(70, 72):
        with T.sblock("scaled"):
            vi, vj = T.axis.remap("SS", [i, j])
            scaled[vi, vj] = acc[vi, vj] * scale[vi] + bias[vj]
    for i, j in T.grid(70, 72):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.Cast("float16", T.max(scaled[vi, vj], T.float32(0)))


@pytest.mark.parametrize("instruction", ["mma", "simt"])
@pytest.mark.part(2)
def test_a_fused_epilogue_runs_on_the_registers(instruction: Any) -> None:
    gemm = Gemm(70, 72, 64)
    func = scheduled(gemm, GemmTile(64, 64, 32), fused)
    done = pipeliner.pipeline(func, "sm_80", instruction=instruction)
    rng = np.random.default_rng(0)
    a, b = gemm.inputs()
    bias, scale = rng.standard_normal(72).astype("f4"), rng.standard_normal(70).astype("f4")
    result = run(done, [a, b, bias, scale, np.zeros((70, 72), "float16")])
    assert not result.hazards
    want = np.maximum(gemm.reference(a, b) * scale[:, None] + bias, 0)
    np.testing.assert_allclose(result.outputs["C"], want, rtol=2e-3, atol=2e-2)


@T.prim_func(s_tir=True)
def row_sums(
    A: T.Buffer((64, 64), "float16"),
    B: T.Buffer((64, 64), "float16"),
    C: T.Buffer((64,), "float32"),
) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("root2"):
            acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
            sums = T.sblock_alloc_buffer((64,), "float32", scope="local")
            for i, j in T.grid(64, 64):
                with T.sblock("init"):
                    acc[i, j] = T.float32(0)
            for k in range(2):
                with T.sblock("step"):
                    A_shared = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                    B_shared = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                    for i, j in T.grid(64, 32):
                        with T.sblock("A_shared"):
                            A_shared[i, j] = A[i, k * 32 + j]
                    for i, j in T.grid(64, 32):
                        with T.sblock("B_shared"):
                            B_shared[i, j] = B[i, k * 32 + j]
                    for i, j, r in T.grid(64, 64, 32):
                        with T.sblock("matmul"):
                            acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, r]) * T.Cast(
                                "float32", B_shared[j, r]
                            )
            for i, j in T.grid(64, 64):
                with T.sblock("sum"):
                    sums[i] = sums[i] + acc[i, j]
            for i in range(64):
                with T.sblock("out"):
                    C[i] = sums[i]


def test_a_row_sum_over_registers_is_made_in_shared_memory_and_said_by_name() -> None:
    """Where several warps have elements of a row."""
    plan = pipeliner.plan_of(pipeliner.pipeline(row_sums, "sm_80", warps=(2, 2)))
    assert [matmul.instruction for matmul in plan.matmuls] == ["mma.m16n8k16.f16.f32"]
    assert the("mapped.through_shared", plan.reasons)["block"] == "sum"
    assert the("registers.row", plan.reasons)["buffer"] == "acc"


def test_a_row_sum_over_registers_stays_there_where_a_warp_has_the_row() -> None:
    plan = pipeliner.plan_of(pipeliner.pipeline(row_sums, "sm_80"))
    assert [matmul.warps for matmul in plan.matmuls] == [(4, 1)]
    assert not [reason for reason in plan.reasons if gives(reason, "mapped.through_shared")]
    assert not [reason for reason in plan.reasons if gives(reason, "mapped.shared")]


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("gemm", "tile", "instructions"),
    [
        (
            Gemm(512, 512, 512),
            GemmTile(128, 128, 32),
            ("ldmatrix.sync", "mma.sync", "cp.async.cg", "st.global.v4"),
        ),
        (
            Gemm(512, 512, 512, dtype="fp32", layout="NN"),
            GemmTile(128, 128, 8),
            ("ld.shared.v4", "fma.rn", "cp.async.cg", "st.global.v4"),
        ),
    ],
)
@pytest.mark.deep("tests/corpus/test_corpus.py::test_nvcc_compiles_it_without_spilling")
def test_nvcc_keeps_everything_in_registers(
    gemm: Gemm, tile: GemmTile, instructions: tuple[str, ...]
) -> None:
    kernel = pipeliner.build(pipeliner.pipeline(scheduled(gemm, tile), "sm_80"))
    resources = kernel.resources
    assert resources.spill_stores == resources.spill_loads == resources.stack == 0
    assert [name for name in instructions if name not in kernel.ptx] == []
