"""Kernels that bind no threads, beside others: shared out as a function of their own would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner

from ..refusals import says, the
from .tile_product import tile_product


@T.prim_func(s_tir=True)
def behind_a_matmul(
    A: T.Buffer((128, 96), "float16"),
    B: T.Buffer((96, 64), "float16"),
    C: T.Buffer((128, 64), "float32"),
    D: T.Buffer((16, 64), "float32"),
    E: T.Buffer((16, 64), "float32"),
):
    """A matmul; then each row doubled, reversed, and added to what stands in global memory."""
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("tiles"):
            P = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
            Q = T.sblock_alloc_buffer((32, 64), "float16", scope="shared")
            acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
            tile_product(A, B, C, P, Q, acc, bx * 64, 0, 3)
    for bz in T.thread_binding(16, thread="blockIdx.x"):
        with T.sblock("rows"):
            S = T.sblock_alloc_buffer((64,), "float32", scope="shared")
            for j in range(64):
                S[j] = C[bz, j] * T.float32(2)
            for j in range(64):
                D[bz, j] = S[63 - j]
            for j in range(64):
                E[bz, j] = S[j] + D[bz, j]


@T.prim_func(s_tir=True)
def behind_threads(
    X: T.Buffer((4, 256), "float32"),
    Y: T.Buffer((4, 256), "float32"),
    Z: T.Buffer((4, 256), "float32"),
):
    """A kernel that binds its threads, then one that binds none."""
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for r in range(4):
                Y[bx, r * 64 + tx] = X[bx, 255 - r * 64 - tx]
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        with T.sblock("row"):
            S = T.sblock_alloc_buffer((256,), "float32", scope="shared")
            for j in range(256):
                S[j] = Y[bx, j]
            for j in range(256):
                Z[bx, j] = S[255 - j] * T.float32(2)


@T.prim_func(s_tir=True)
def large_behind_threads(
    X: T.Buffer((2, 64), "float32"),
    Y: T.Buffer((2, 64), "float32"),
    Z: T.Buffer((2, 320, 256), "float32"),
):
    """The kernel that binds no threads has a tile that no shared memory holds."""
    T.func_attr({"tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            Y[bx, tx] = X[bx, 63 - tx]
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("tile"):
            S = T.sblock_alloc_buffer((320, 256), "float32", scope="shared")
            for i, j in T.grid(320, 256):
                S[i, j] = Y[bx, (i + j) % 64]
            for i, j in T.grid(320, 256):
                Z[bx, i, j] = S[319 - i, 255 - j]


def integers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)


def emulated(kernel: pipeliner.Kernel, *arrays: Any) -> dict[str, Any]:
    """What ``kernel`` stores, adversarially timed; no hazard may be met."""
    result = kernel.emulate(*arrays, order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    return dict(result.outputs)


@pytest.mark.parametrize("target", ["a100", "h100"])
def test_behind_a_matmul_it_has_its_threads(target: str) -> None:
    kernel = pipeliner.build(behind_a_matmul, target)
    found = the("mapped.beside", kernel.plan.reasons)
    assert found["blocks"] == ("S", "D", "E")
    assert found["threads"] == kernel.plan.mapped_threads >= 128
    assert not says("share.nothing", kernel.plan.reasons)
    a, b = integers(128, 96, dtype="float16"), integers(96, 64, dtype="float16")
    out = emulated(
        kernel, a, b, *(np.full((rows, 64), np.nan, "float32") for rows in (128, 16, 16))
    )
    product = a.astype("float64") @ b.astype("float64")
    np.testing.assert_array_equal(out["C"], product)
    np.testing.assert_array_equal(out["D"], 2 * product[:16, ::-1])
    np.testing.assert_array_equal(out["E"], 2 * (product + product[:, ::-1])[:16])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.part(2)
def test_its_missing_barriers_are_seen(target: str) -> None:
    kernel = pipeliner.build(behind_a_matmul, target)
    told = kernel.cuda.rsplit("__global__", 1)[1]
    assert told.count("__syncthreads") == 2  # S, then D, of another thread
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)


def test_a_plan_that_is_handed_back_maps_it_alike() -> None:
    once = pipeliner.pipeline(behind_a_matmul, "a100")
    again = pipeliner.pipeline(behind_a_matmul, "a100", plan=pipeliner.plan_of(once))
    assert pipeliner.plan_of(again) == pipeliner.plan_of(once)
    assert pipeliner.build(again).cuda == pipeliner.build(once).cuda


def test_beside_a_kernel_with_threads_it_has_at_least_128() -> None:
    kernel = pipeliner.build(behind_threads, "a100")
    found = the("mapped.beside", kernel.plan.reasons)
    assert (found["blocks"], found["threads"]) == (("S", "Z"), 128)
    x = integers(4, 256)
    out = emulated(kernel, x, np.zeros_like(x), np.zeros_like(x))
    np.testing.assert_array_equal(out["Z"], 2 * x)


def test_a_tile_beyond_shared_memory_has_a_workspace() -> None:
    kernel = pipeliner.build(large_behind_threads, "a100")
    assert the("mapped.workspace", kernel.plan.reasons)["buffer"] == "S"
    x = integers(2, 64)
    out = emulated(kernel, x, np.zeros_like(x), np.zeros((2, 320, 256), "float32"))
    i, j = np.ogrid[:320, :256]
    np.testing.assert_array_equal(out["Z"], x[:, ::-1][:, (319 - i + 255 - j) % 64])
