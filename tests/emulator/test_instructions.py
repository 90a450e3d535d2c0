"""Scalar semantics, shuffles, atomics, vectors and copies of small kernels against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import emulate
from pipeliner.errors import EmulatorError

from ..refusals import refused
from .judge import THREADS
from .raw import lower


def run(func: Any, *args: Any, **options: Any) -> np.ndarray:
    """The last output of a kernel that must be free of hazards."""
    result = emulate(lower(func), list(args), **options)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    return list(result.outputs.values())[-1]


def test_integer_division_truncates_and_floors():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "int32"), C: T.Buffer((64, 4), "int32"), d: T.int32):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx, 0] = T.truncdiv(A[tx], d)
            C[tx, 1] = T.truncmod(A[tx], d)
            C[tx, 2] = T.floordiv(A[tx], d)
            C[tx, 3] = T.floormod(A[tx], d)

    a = np.arange(-32, 32, dtype=np.int32)
    for d in (7, -7, 8):
        c = emulate(lower(main), [a, np.zeros((64, 4), np.int32), d]).outputs["C"]
        np.testing.assert_array_equal(c[:, 0], np.trunc(a / d))
        np.testing.assert_array_equal(c[:, 1], np.fmod(a, d))
        np.testing.assert_array_equal(c[:, 2], a // d)
        np.testing.assert_array_equal(c[:, 3], a % d)


def test_casts_saturate_round_and_wrap():
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((32,), "float32"),
        Z: T.Buffer((32,), "int32"),
        H: T.Buffer((32,), "float16"),
        B: T.Buffer((32,), "bfloat16"),
        W: T.Buffer((32,), "int8"),
    ):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            Z[tx] = T.Cast("int32", A[tx])
            H[tx] = T.Cast("float16", A[tx]) * T.float16(3)
            B[tx] = T.Cast("bfloat16", A[tx])
            W[tx] = T.Cast("int8", T.Cast("int32", tx) * 9)

    a = np.random.default_rng(0).standard_normal(32).astype(np.float32) * 100
    a[:4] = [1e20, -1e20, np.nan, 2.5]
    out = emulate(
        lower(main),
        [
            a,
            np.zeros(32, "int32"),
            np.zeros(32, "float16"),
            np.zeros(32, ml_dtypes.bfloat16),
            np.zeros(32, "int8"),
        ],
    ).outputs
    np.testing.assert_array_equal(out["Z"][:4], [2**31 - 1, -(2**31), 0, 2])
    np.testing.assert_array_equal(out["Z"][4:], np.trunc(a[4:]).astype(np.int32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out["H"], a.astype(np.float16) * np.float16(3))
    np.testing.assert_array_equal(out["B"][3:], a.astype(ml_dtypes.bfloat16)[3:])
    np.testing.assert_array_equal(out["W"], (np.arange(32) * 9).astype(np.int8))


def test_conditional_loads_do_not_touch_what_they_do_not_take():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((40,), "float32"), C: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx] = T.if_then_else(tx < 40, A[tx], T.float32(-1))
            if tx >= 40 or A[tx] < T.float32(10):
                C[tx] = C[tx] * T.float32(2)

    a = np.arange(40, dtype=np.float32)
    c = run(main, a, np.zeros(64, np.float32))
    np.testing.assert_array_equal(c, np.r_[a[:10] * 2, a[10:], np.full(24, -2.0)])


def test_vector_loads_stores_and_wide_casts():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32, 8), "float16"), C: T.Buffer((32, 8), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            S = T.alloc_buffer((32, 8), "float16", scope="shared")
            for v in T.vectorized(8):
                S[tx, v] = A[tx, v] * T.float16(2)
            T.tvm_storage_sync("shared")
            for v in T.vectorized(4):
                C[tx, v] = T.Cast("float32", S[31 - tx, v])
            for v in T.vectorized(4):
                C[tx, 4 + v] = T.Cast("float32", S[31 - tx, 4 + v]) + T.float32(1)

    a = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float16)
    c = run(main, a, np.zeros((32, 8), np.float32))
    expected = (a * np.float16(2))[::-1].astype(np.float32)
    expected[:, 4:] += 1
    np.testing.assert_array_equal(c, expected)


def test_math_functions_in_single_and_half_precision():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32,), "float32"), C: T.Buffer((32, 6), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            C[tx, 0] = T.exp(A[tx])
            C[tx, 1] = T.tanh(A[tx])
            C[tx, 2] = T.max(A[tx], T.float32(0))
            C[tx, 3] = T.sqrt(T.fabs(A[tx]))
            C[tx, 4] = T.Cast("float32", T.exp(T.Cast("float16", A[tx])))
            C[tx, 5] = T.pow(T.fabs(A[tx]), T.float32(1.5))

    a = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    c = run(main, a, np.zeros((32, 6), np.float32))
    wide = a.astype(np.float64)
    half = np.exp(a.astype(np.float16).astype(np.float64)).astype(np.float16)
    columns = [
        np.exp(wide),
        np.tanh(wide),
        np.maximum(wide, 0),
        np.sqrt(abs(wide)),
        half,
        abs(wide) ** 1.5,
    ]
    np.testing.assert_array_equal(c, np.stack(columns, axis=1).astype(np.float32))


def test_shuffles_reduce_a_warp():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64, 3), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            x = T.alloc_buffer((1,), "float32", scope="local")
            x[0] = A[tx]
            for i in T.unroll(5):
                x[0] = x[0] + T.tvm_warp_shuffle_xor(
                    T.uint32(0xFFFFFFFF), x[0], T.shift_left(1, i), 32, 32
                )
            C[tx, 0] = x[0]
            C[tx, 1] = T.tvm_warp_shuffle_down(T.uint32(0xFFFFFFFF), A[tx], 1, 32, 32)
            C[tx, 2] = T.tvm_warp_shuffle(T.uint32(0xFFFFFFFF), A[tx], 5, 8, 32)

    a = np.arange(64, dtype=np.float32)
    c = run(main, a, np.zeros((64, 3), np.float32))
    np.testing.assert_array_equal(c[:, 0], np.repeat(a.reshape(2, 32).sum(axis=1), 32))
    down = a + 1
    down[31::32] = a[31::32]
    np.testing.assert_array_equal(c[:, 1], down)
    np.testing.assert_array_equal(c[:, 2], np.repeat(a.reshape(8, 8)[:, 5], 8))


def test_atomics_on_shared_and_global_memory():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((128,), "int32"), C: T.Buffer((8,), "float32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                S = T.alloc_buffer((8,), "float32", scope="shared")
                if tx < 8:
                    S[tx] = T.float32(0)
                T.tvm_storage_sync("shared")
                T.call_extern(
                    "float32", "atomicAdd", T.address_of(S[A[bx * 64 + tx]]), T.float32(1)
                )
                T.tvm_storage_sync("shared")
                if tx < 8:
                    T.call_extern("float32", "atomicAdd", T.address_of(C[tx]), S[tx])

    a = np.random.default_rng(0).integers(0, 8, 128).astype(np.int32)
    c = run(main, a, np.zeros(8, np.float32))
    np.testing.assert_array_equal(c, np.bincount(a, minlength=8))


def test_loops_whose_extent_depends_on_the_thread():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((64,), "int32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            x = T.alloc_buffer((1,), "int32", scope="local")
            x[0] = 0
            for i in T.serial(tx):
                x[0] = x[0] + i
            while x[0] > 100:
                x[0] = x[0] - 100
            C[tx] = x[0]

    n = np.arange(64)
    total = n * (n - 1) // 2
    expected = np.where(total > 100, (total - 1) % 100 + 1, total)
    np.testing.assert_array_equal(run(main, np.zeros(64, np.int32)), expected)


@pytest.mark.parametrize(("size", "cache"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
def test_copies_of_every_size_with_partial_zero_fill(size, cache):
    words = size // 4
    copy = f"cp.async.{cache}.shared.global"

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((32, words), "float32"), C: T.Buffer((32, words), "float32"), valid: T.int32
    ):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            S = T.alloc_buffer((32, words), "float32", scope="shared")
            T.ptx[copy](
                T.address_of(S[tx, 0]),
                T.address_of(A[tx, 0]),
                size,
                T.Cast("uint32", T.Select(tx < 16, size, valid)),
            )
            T.ptx.cp.async_.wait_all()
            T.tvm_storage_sync("shared")
            for i in T.serial(words):
                C[tx, i] = S[31 - tx, i]

    a = np.random.default_rng(0).standard_normal((32, words)).astype(np.float32)
    c = run(main, a, np.zeros_like(a), size - 4)
    expected = a.copy()
    expected[16:, -1] = 0
    np.testing.assert_array_equal(c, expected[::-1])


def test_an_unknown_operation_is_an_error_that_names_it():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            C[tx] = T.call_extern("float32", "frobnicate", T.float32(1))

    with refused("emulator.external", EmulatorError, name="frobnicate"):
        emulate(lower(main), [np.zeros(32, np.float32)])


def test_an_unknown_ptx_instruction_is_an_error_that_names_it():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            T.ptx["tcgen05.fence::before_thread_sync"]()
            C[tx] = T.float32(0)

    with refused("ptx.unknown", EmulatorError, instruction="tcgen05_fence"):
        emulate(lower(main), [np.zeros(32, np.float32)])


def test_a_loop_that_an_integer_ends_ends_for_each_thread() -> None:
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            n = T.alloc_buffer((1,), "int32", scope="local")
            n[0] = tx % 5
            while n[0]:
                C[tx] = C[tx] + 1
                n[0] = n[0] - 1

    found = run(main, np.zeros(THREADS, "int32"))
    np.testing.assert_array_equal(found, np.arange(THREADS) % 5)
