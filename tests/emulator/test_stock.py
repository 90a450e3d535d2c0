"""Kernels that TVM made: its schedules and its pipeline, right ones and those with known defects."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from tvm import IRModule, s_tir
from tvm.s_tir import dlight
from tvm.script import tirx as T

from pipeliner.emulator import Emulation, emulate, lower_for_emulation

from .raw import CUDA

ASYNC = {"tirx.use_async_copy": True}
TIMINGS = ["late", "early", "random"]


def matmul(m: int, n: int, k: int, dtype: str = "float32", shift: int = 0) -> Any:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k + shift), dtype),
        B: T.Buffer((k, n), dtype),
        C: T.Buffer((m, n), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, p in T.grid(m, n, k):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, p])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk + shift]) * T.Cast(
                    "float32", B[vk, vj]
                )

    return main


@T.prim_func(s_tir=True)
def matmul_dynamic_k(a: T.handle, b: T.handle, C: T.Buffer((64, 64), "float32"), tiles: T.int32):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (64, tiles * 8), "float32")
    B = T.match_buffer(b, (tiles * 8, 64), "float32")
    for i, j, p in T.grid(64, 64, tiles * 8):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, p])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def simt(
    func: Any,
    stages: int,
    *,
    threads: int = 8,
    tile: int = 8,
    bk: int = 8,
    asynchronous: bool = False,
    order: list[int] | None = None,
) -> Any:
    """The textbook SIMT schedule: thread tiles of tile x tile, vectorised shared copies."""
    sch = s_tir.Schedule(func)
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    by, ty, yi = sch.split(i, [None, threads, tile])
    bx, tx, xi = sch.split(j, [None, threads, tile])
    ko, ki = sch.split(k, [None, bk])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(out, tx)
    for loop, axis in (
        (by, "blockIdx.y"),
        (bx, "blockIdx.x"),
        (ty, "threadIdx.y"),
        (tx, "threadIdx.x"),
    ):
        sch.bind(loop, axis)
    for index in (0, 1):
        copy = sch.cache_read(block, index, "shared")
        sch.compute_at(copy, ko, preserve_unit_loops=True)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x, v = sch.split(fused, [None, threads, threads, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(v)
    sch.decompose_reduction(block, ko)
    if stages:
        sch.annotate(ko, "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(ko, "software_pipeline_order", order or [0, 1, 2])
        if asynchronous:
            sch.annotate(ko, "software_pipeline_async_stages", [0])
    return sch


def operands(m: int, n: int, k: int, dtype: str = "float32") -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


def run(sch: Any, args: list[Any], timing: str = "late") -> Emulation:
    return emulate(lower_for_emulation(sch, CUDA, "s_tir", ASYNC), args, timing=timing)


def assert_right(result: Emulation, a: np.ndarray, b: np.ndarray) -> None:
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # A sum of k products of unit variance in fp32: 2^-24 times k times a small factor.
    np.testing.assert_allclose(result.outputs["C"], exact, rtol=0, atol=2e-6 * a.shape[1])


@pytest.mark.part(6)
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize(
    ("stages", "asynchronous"), [(0, False), (2, False), (3, False), (2, True), (4, True)]
)
def test_simt_matmul(stages, asynchronous, timing):
    a, b, c = operands(64, 64, 48)
    sch = simt(matmul(64, 64, 48), stages, asynchronous=asynchronous)
    assert_right(run(sch, [a, b, c], timing), a, b)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("stages", [3, 4])
@pytest.mark.part(3)
def test_interleaved_producers_are_read_before_they_arrive(stages, timing):
    """The stock prologue commits A and B as one group, its loop as two: the first waits are weak."""
    a, b, c = operands(64, 64, 64)
    sch = simt(matmul(64, 64, 64), stages, asynchronous=True, order=[0, 2, 1])
    result = run(sch, [a, b, c], timing)
    # A slot refilled although its first copy was never waited for is the second symptom.
    kinds = {h.kind for h in result.hazards}
    assert "read-before-arrival" in kinds
    assert kinds <= {"read-before-arrival", "write-in-flight"}
    assert np.isnan(result.outputs["C"]).any() == (timing != "early")


@pytest.mark.parametrize(("stages", "tiles"), [(2, 1), (3, 1), (3, 2)])
def test_dynamic_trip_counts_below_the_depth_race(stages, tiles):
    """No barrier between the prologue's stores and the epilogue's reads when the loop runs 0 times."""
    a, b, c = operands(64, 64, 8 * tiles)
    result = run(simt(matmul_dynamic_k, stages), [a, b, c, tiles])
    assert {h.kind for h in result.hazards} == {"race"}
    assert {h.buffer for h in result.hazards} == {"A_shared", "B_shared"}


def test_dynamic_trip_counts_from_the_depth_on_are_right():
    a, b, c = operands(64, 64, 24)
    assert_right(run(simt(matmul_dynamic_k, 2), [a, b, c, 3]), a, b)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_vector_copy_from_an_odd_address(asynchronous):
    """Plain loads are scalarised by CUDA codegen; the stock cp.async keeps its 16 bytes."""
    a, b, c = operands(64, 64, 65)
    b = b[:64]
    sch = simt(matmul(64, 64, 64, shift=1), 2, asynchronous=asynchronous)
    result = run(sch, [a, b, c])
    assert {h.kind for h in result.hazards} == ({"misaligned"} if asynchronous else set())
    np.testing.assert_allclose(result.outputs["C"], a[:, 1:] @ b, atol=1e-4)


def test_dlight_matmul():
    with CUDA:
        mod = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul())(
            IRModule({"main": matmul(96, 80, 64)})
        )
    a, b, c = operands(96, 80, 64)
    assert_right(run(mod, [a, b, c]), a, b)


def test_several_kernels_of_one_function_run_in_order():
    """dlight splits a row-wise normalisation into kernels with a workspace between them."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 256), "float32"), C: T.Buffer((8, 256), "float32")):
        total = T.sblock_alloc_buffer((8,), "float32")
        for i, k in T.grid(8, 256):
            with T.sblock("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + A[vi, vk]
        for i, k in T.grid(8, 256):
            with T.sblock("scale"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = A[vi, vk] / total[vi]

    with CUDA:
        mod = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(
            IRModule({"main": main.with_attr("global_symbol", "main")})
        )
    a = np.random.default_rng(0).random((8, 256), np.float32)
    result = run(mod, [a, np.zeros_like(a)])
    assert result.hazards == ()
    assert len({cta.kernel for cta in result.stats}) == 2
    np.testing.assert_allclose(result.outputs["C"], a / a.sum(1, keepdims=True), rtol=1e-5)


def test_a_large_tile_takes_seconds_not_minutes():
    """128x128 by 8 k-tiles of 32: the size that a verification must finish in ten seconds."""
    a, b, c = operands(128, 128, 256)
    sch = simt(matmul(128, 128, 256), 3, threads=16, bk=32, asynchronous=True)
    lowered = lower_for_emulation(sch, CUDA, "s_tir", ASYNC)
    start = time.process_time()  # not the clock: other tests may run beside this one
    result = emulate(lowered, [a, b, c])
    assert time.process_time() - start < 10
    assert_right(result, a, b)
