"""Indices past 2^31: as wide as they reach, on sampled CTAs of arrays that no machine holds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.emulator import sparse
from pipeliner.errors import EmulatorError, PlanError, WorkloadError
from pipeliner.passes.ir import wide_indices
from pipeliner.schedules import ConvTile, Gemm, GemmTile, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import conv
from tests.refusals import refused

from .gpu_tensors import Launched, call

WARP = 32
ROWS, COLUMNS = 2**16 + 8, 2**16


def numbers(*shape: int, seed: int = 0) -> Any:
    """Small whole numbers: sums of their products are exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape)


def body_of(kernel: Any) -> str:
    return str(kernel.cuda[kernel.cuda.index('extern "C" __global__') :])


def is_wide(kernel: Any) -> bool:
    """Whether an address is computed in 64 bits."""
    return " int64_t" in body_of(kernel) or "(int64_t)" in body_of(kernel)


@pytest.mark.parametrize(
    ("target", "dtype", "tile"),
    [
        ("a100", "float16", GemmTile(64, 64, 32)),  # cp.async, mma.sync
        ("a100", "float32", GemmTile(64, 64, 16)),  # cp.async, FMA
        ("h100", "float16", GemmTile(128, 64, 64)),  # TMA, wgmma
        ("v100", "float16", GemmTile(64, 64, 16)),  # registers, mma.sync of another shape
    ],
)
@pytest.mark.part(6)
def test_the_first_and_last_tile_of_a_gemm(target: str, dtype: str, tile: GemmTile) -> None:
    """A has 2^31 elements and more, C half as many."""
    tiles = (2**31 // 128) // tile.m + 3
    gemm = Gemm(m=tiles * tile.m, n=tile.n, k=128, dtype=dtype, out="float32")
    kernel = pipeliner.build(schedule_gemm(gemm, tile), target, depth=2)
    assert kernel.plan.pipelined
    a, b, c = (sparse(shape, kind) for shape, kind in zip(gemm.shapes(), (dtype, dtype, "float32")))
    b[:] = numbers(*b.shape)
    places = [slice(row * tile.m, (row + 1) * tile.m) for row in (0, tiles - 1)]
    for seed, rows in enumerate(places):
        a[rows] = numbers(tile.m, 128, seed=seed)
    result = kernel.emulate(a, b, c, blocks=[(0, 0, 0), (tiles - 1, 0, 0)])
    assert result.hazards == ()
    for rows in places:
        want = a[rows].astype("float32") @ b.astype("float32").T
        np.testing.assert_array_equal(result.outputs["C"][rows], want)


def test_pixels_past_the_end_of_32_bits() -> None:
    """Images of 2^31 elements and more, read with a halo; outputs as many."""
    images = 2**31 // (32 * 32 * 32) + 2
    spec = conv(images, (32, 32), 32, 32, (3, 3), pad=1, dtype="float16")
    kernel = pipeliner.build(schedule_conv(spec, ConvTile(64, 32, 32)), "a100")
    x, w, y = (sparse(shape, "float16") for shape in spec.shapes())
    w[:] = numbers(*w.shape)
    x[-1] = numbers(*x.shape[1:], seed=1)
    tiles = images * 32 * 32 // 64
    result = kernel.emulate(x, w, y, blocks=[(tiles - 1, 0, 0)])
    assert result.hazards == ()
    padded = np.pad(x[-1].astype("float32"), ((1, 1), (1, 1), (0, 0)))
    want = sum(
        padded[r : r + 32, s : s + 32] @ w[:, r, s].astype("float32").T
        for r in range(3)
        for s in range(3)
    )
    np.testing.assert_array_equal(result.outputs["Y"][-1, 30:], want[30:].astype("float16"))


@pytest.mark.part(2)
@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["a100", "h100"])
def test_outputs_of_2_to_the_32_elements_compile(target: str) -> None:
    gemm = Gemm(m=2**16, n=2**16, k=128, dtype="float16")
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(128, 128, 64)), target)
    assert kernel.resources.spills == 0


@pytest.mark.deep("test_strides_past_the_end_of_32_bits")
def test_parts_of_a_sum_past_the_end_of_32_bits() -> None:
    gemm = Gemm(m=2**15, n=2**15, k=1024, dtype="float16")
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(128, 128, 64, splits=4)), "a100")
    assert "((int64_t)((int)blockIdx.z)) * (int64_t)1073741824" in body_of(kernel)


def test_kernels_of_32_bits_stay_so() -> None:
    gemm = Gemm(m=2**15, n=2**15, k=2**15, dtype="float16")
    for target in ("a100", "h100"):
        kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(128, 128, 64)), target)
        assert not is_wide(kernel)


@T.prim_func(s_tir=True)
def flat(A: T.Buffer((2**32 + 5,), "int32"), C: T.Buffer((2**32 + 5,), "int32")):
    """One dimension, an index that the user computes in 32 bits, a ragged end."""
    T.func_attr({"global_symbol": "main"})
    for bx in T.thread_binding(65537, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for t in T.serial(2048):
                with T.sblock("c"):
                    T.where(T.Cast("int64", bx * 65536 + t * 32 + tx) < T.int64(2**32 + 5))
                    v = T.axis.spatial(
                        T.int64(2**32 + 5), T.Cast("int64", bx * 65536 + t * 32 + tx)
                    )
                    C[v] = A[v] + 1


def test_an_index_that_passes_32_bits_by_itself() -> None:
    kernel = pipeliner.build(flat, "a100")
    a, c = sparse(2**32 + 5, "int32"), sparse(2**32 + 5, "int32")
    ends = np.r_[2**31 - 40 : 2**31 + 40, 2**32 - 70 : 2**32 + 5]
    a[ends] = ends % 1009
    result = kernel.emulate(a, c, blocks=[(n, 0, 0) for n in (32767, 32768, 65535, 65536)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"][ends], ends % 1009 + 1)
    assert result.outputs["C"][2**31 - 2**16 - 1] == 0


@T.prim_func(s_tir=True)
def divided(A: T.Buffer((2**20,), "int32"), C: T.Buffer((2**20,), "int32")):
    """A small array whose index passes 32 bits on the way."""
    T.func_attr({"global_symbol": "main"})
    for bx in T.thread_binding(32768, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("c"):
                C[(bx * 163840 + tx * 5120 + 7) // 5120] = A[(bx * 163840 + tx * 5120 + 7) // 5120]


@T.prim_func(s_tir=True)
def matched(A: T.Buffer((ROWS, COLUMNS), "int8"), C: T.Buffer((ROWS, 32), "int8")):
    T.func_attr({"global_symbol": "main"})
    for bx in T.thread_binding(ROWS, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("c"):
                row = T.match_buffer(A[bx, 0:COLUMNS], (COLUMNS,), "int8", offset_factor=1)
                C[bx, tx] = row[tx]


@T.prim_func(s_tir=True)
def declared(A: T.Buffer((ROWS, COLUMNS), "int8"), C: T.Buffer((ROWS, 32), "int8")):
    T.func_attr({"global_symbol": "main"})
    for bx in T.thread_binding(ROWS, thread="blockIdx.x"):
        row = T.decl_buffer((COLUMNS,), "int8", data=A.data, elem_offset=bx * COLUMNS)
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("c"):
                C[bx, tx] = row[tx]


@T.prim_func(s_tir=True)
def strided(a: T.handle, C: T.Buffer((4100, 32), "int8")):
    T.func_attr({"global_symbol": "main"})
    A = T.match_buffer(a, (4100, 32), "int8", strides=[2**20, 1])
    for bx in T.thread_binding(4100, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("c"):
                C[bx, tx] = A[bx, tx]


def test_an_index_that_passes_32_bits_on_the_way() -> None:
    a = np.arange(2**20).astype("int32")
    kernel = pipeliner.build(divided, "a100")
    result = kernel.emulate(a, np.zeros_like(a), blocks=[(32767, 0, 0)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"][-32:], a[-32:])


@pytest.mark.parametrize("func", [matched, declared], ids=["match_buffer", "decl_buffer"])
def test_views_of_large_buffers(func: Any) -> None:
    a, c = sparse((ROWS, COLUMNS), "int8"), sparse((ROWS, 32), "int8")
    a[-1, :WARP] = numbers(WARP)
    result = pipeliner.build(func, "a100").emulate(a, c, blocks=[(ROWS - 1, 0, 0)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"][-1], a[-1, :WARP])


def test_strides_past_the_end_of_32_bits() -> None:
    assert is_wide(pipeliner.build(strided, "a100"))


LONG = 2**31 + 2**20


@T.prim_func(s_tir=True)
def long(A: T.Buffer((LONG, 64), "float16"), B: T.Buffer((64, 64), "float16"),
         C: T.Buffer((LONG, 64), "float32")):  # fmt: skip
    """A product with more rows than 32 bits count."""
    T.func_attr({"global_symbol": "main"})
    for bx in T.thread_binding(LONG // 128, thread="blockIdx.x"):
        with T.sblock("cta"):
            vb = T.axis.spatial(LONG // 128, bx)
            acc = T.sblock_alloc_buffer((128, 64), "float32", scope="local")
            for i, j in T.grid(128, 64):
                with T.sblock("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    acc[vi, vj] = T.float32(0)
            for k0 in T.serial(2):
                with T.sblock("step"):
                    vt = T.axis.opaque(2, k0)
                    a = T.sblock_alloc_buffer((128, 32), "float16", scope="shared")
                    b = T.sblock_alloc_buffer((64, 32), "float16", scope="shared")
                    for i, k in T.grid(128, 32):
                        with T.sblock("a"):
                            vi, vk = T.axis.remap("SS", [i, k])
                            a[vi, vk] = A[vb * 128 + vi, vt * 32 + vk]
                    for i, k in T.grid(64, 32):
                        with T.sblock("b"):
                            vi, vk = T.axis.remap("SS", [i, k])
                            b[vi, vk] = B[vi, vt * 32 + vk]
                    for i, j, k in T.grid(128, 64, 32):
                        with T.sblock("mm"):
                            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                            acc[vi, vj] += T.Cast("float32", a[vi, vk]) * T.Cast(
                                "float32", b[vj, vk]
                            )
            for i, j in T.grid(128, 64):
                with T.sblock("out"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vb * 128 + vi, vj] = acc[vi, vj]


@pytest.mark.parametrize("target", ["a100", "h100"])
def test_dimensions_that_coordinates_do_not_reach_are_copied_by_threads(target: str) -> None:
    """Rows of A past 2^31: no box of the tensor memory accelerator has coordinates for them."""
    kernel = pipeliner.build(long, target, depth=2)
    copies = {copy.src: copy.mechanism for copy in kernel.plan.copies}
    assert copies["A"] == "cp_async"
    a, b, c = (sparse(s, t) for s, t in (((LONG, 64), "float16"), ((64, 64), "float16"),
                                         ((LONG, 64), "float32")))  # fmt: skip
    b[:] = numbers(64, 64)
    a[-128:] = numbers(128, 64, seed=1)
    result = kernel.emulate(a, b, c, blocks=[(LONG // 128 - 1, 0, 0)])
    assert result.hazards == ()
    want = a[-128:].astype("float32") @ b.astype("float32").T
    np.testing.assert_array_equal(result.outputs["C"][-128:], want)


def test_why_coordinates_do_not_reach_is_said() -> None:
    with refused("box.extent", PlanError, most=2**31, buffer="A"):
        pipeliner.build(long, "h100", mechanism="tma")


def scaled(kind: str) -> Any:
    """Rows known at run time, by a variable of type ``kind``."""
    n = tirx.Var("n", kind)

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main"})
        A = T.match_buffer(a, (n, COLUMNS), "int8")
        C = T.match_buffer(c, (n, COLUMNS), "int8")
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                for t in T.serial(4):
                    with T.sblock("c"):
                        C[bx, t * 32 + tx] = A[bx, t * 32 + tx] + T.int8(1)

    return main


def test_32_bit_extents_are_checked_at_each_call() -> None:
    kernel = pipeliner.build(scaled("int32"), "a100")
    assert not is_wide(kernel)
    a = np.zeros((2, COLUMNS), "int8")
    assert kernel.emulate(a, a).hazards == ()
    large = sparse((2**15, COLUMNS), "int8")
    shown = f"n * {COLUMNS}"
    said = Reason("call.elements", name="A", elements=shown, most=2**31 - 1)
    with refused("emulator.host_check", EmulatorError, says=str(said)):
        kernel.emulate(large, large, blocks=[(0, 0, 0)])


def remainder(kind: str) -> Any:
    """A row as long as is known at run time, of which no offset depends on how long it is."""
    n = tirx.Var("n", kind)

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main"})
        A = T.match_buffer(a, (n,), "int8")
        C = T.match_buffer(c, (64,), "int8")
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("c"):
                    C[bx * 32 + tx] = A[(bx * 32 + tx) % n] + T.int8(1)

    return main


@pytest.mark.parametrize("rows", [2**31, 2**32 + 7])
def test_a_dimension_that_32_bits_do_not_hold_is_refused(rows: int) -> None:
    """Neither as it is, nor as the lower half of it that TVM's own host code reads."""
    short = pipeliner.build(remainder("int32"), "a100")
    a, c = sparse((rows,), "int8"), np.zeros(64, "int8")
    said = Reason("call.extent", function="main", extent="n", at=0, name="A", most=2**31 - 1)
    with pytest.raises(ValueError, match=re.escape(str(said))):
        call(short, a, c)
    with refused("emulator.host_check", EmulatorError, says=str(said)):
        short.emulate(a, c)
    with pytest.raises(Launched):
        call(short, np.zeros(100, "int8"), c)
    with pytest.raises(Launched):
        call(pipeliner.build(remainder("int64"), "a100"), a, c)


def test_a_stride_that_is_a_variable_is_read_whole() -> None:
    """TVM compares strides with extents that are constants, of one type with them."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        s = T.int32()
        A = T.match_buffer(a, (4, 32), "int8", strides=(s, 1))
        C = T.match_buffer(c, (4, 32), "int8")
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("c"):
                    C[bx, tx] = A[bx, tx] + T.int8(1)

    kernel = pipeliner.build(main, "a100")
    a, c = numbers(4, 48).astype("int8"), np.zeros((4, 32), "int8")
    result = kernel.emulate(a[:, :32], c)
    np.testing.assert_array_equal(result.outputs["C"], a[:, :32] + 1)
    with pytest.raises(Launched):
        call(kernel, a[:, :32], c)


def test_64_bit_extents_make_64_bit_offsets() -> None:
    kernel = pipeliner.build(scaled("int64"), "a100")
    assert is_wide(kernel)
    a, c = sparse((ROWS, COLUMNS), "int8"), sparse((ROWS, COLUMNS), "int8")
    a[-1, :128] = numbers(128)
    result = kernel.emulate(a, c, blocks=[(ROWS - 1, 0, 0)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"][-1, :128], a[-1, :128] + 1)


def test_nothing_is_widened_without_need() -> None:
    func = tvm.IRModule({"main": flat})["main"]
    assert wide_indices.widen_offsets(divided) is divided
    assert wide_indices.check_extents(func) is func


def test_more_pixels_than_32_bits_count_are_one_line() -> None:
    spec = conv(600_000, (64, 64), 8, 16, (3, 3), pad=1, dtype="float16")
    with refused("workload.large_extent", WorkloadError, most=2**31 - 1, value=2457600000):
        schedule_conv(spec, ConvTile(128, 16, 8))
