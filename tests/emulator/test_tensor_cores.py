"""ldmatrix and mma.sync in a kernel: shared memory to fragments to a product, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import emulate

from .raw import lower

ROW_BYTES = 32  # one row of every operand below: two 16-byte ldmatrix rows


def product(dtype: str, itemsize: int, shape: str, ptx: str, acc: str, acc_ptx: str) -> Any:
    """C[16, 8] = A[16, k] B[8, k]^T by one warp, operands k-contiguous in shared memory."""
    k = ROW_BYTES // itemsize
    carrier = "uint32" if acc == "int32" else acc  # the register type that T.ptx asks for
    mma = f"mma.sync.aligned.{shape}.row.col.{acc_ptx}.{ptx}.{ptx}.{acc_ptx}"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, k), dtype), B: T.Buffer((8, k), dtype), C: T.Buffer((16, 8), acc)):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            SA = T.alloc_buffer((16, k), dtype, scope="shared")
            SB = T.alloc_buffer((8, k), dtype, scope="shared")
            fa = T.alloc_buffer((4,), "uint32", scope="local")
            fb = T.alloc_buffer((2,), "uint32", scope="local")
            fc = T.alloc_buffer((4,), carrier, scope="local")
            for i in T.serial(16 * k // 32):
                SA[i * 32 // k + tx // k, tx % k] = A[i * 32 // k + tx // k, tx % k]
            for i in T.serial(8 * k // 32):
                SB[i * 32 // k + tx // k, tx % k] = B[i * 32 // k + tx // k, tx % k]
            T.tvm_storage_sync("shared")
            for i in T.unroll(4):
                fc[i] = T.Cast(carrier, 1)
            T.ptx["ldmatrix.sync.aligned.m8n8.x4.shared.b16"](
                fa[0],
                fa[1],
                fa[2],
                fa[3],
                T.address_of(SA[tx % 16, tx // 16 * (k // 2)]),
            )
            T.ptx["ldmatrix.sync.aligned.m8n8.x2.shared.b16"](
                fb[0], fb[1], T.address_of(SB[tx % 8, tx // 8 % 2 * (k // 2)])
            )
            T.ptx[mma](
                fc[0],
                fc[1],
                fc[2],
                fc[3],
                fa[0],
                fa[1],
                fa[2],
                fa[3],
                fb[0],
                fb[1],
                fc[0],
                fc[1],
                fc[2],
                fc[3],
            )
            for i in T.unroll(4):
                C[tx // 4 + i // 2 * 8, tx % 4 * 2 + i % 2] = T.reinterpret(acc, fc[i])

    return main


@pytest.mark.parametrize(
    ("dtype", "shape", "ptx", "acc", "acc_ptx"),
    [
        ("float16", "m16n8k16", "f16", "float32", "f32"),
        ("bfloat16", "m16n8k16", "bf16", "float32", "f32"),
        ("float32", "m16n8k8", "tf32", "float32", "f32"),
        ("int8", "m16n8k32", "s8", "int32", "s32"),
        ("uint8", "m16n8k32", "u8", "int32", "s32"),
    ],
)
def test_a_warp_multiplies_tiles_it_loads_with_ldmatrix(dtype, shape, ptx, acc, acc_ptx):
    numpy_type = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    func = product(dtype, numpy_type.itemsize, shape, ptx, acc, acc_ptx)
    rng = np.random.default_rng(1)
    low = 0 if dtype == "uint8" else -5
    k = ROW_BYTES // numpy_type.itemsize
    a = rng.integers(low, 6, (16, k)).astype(numpy_type)
    b = rng.integers(low, 6, (8, k)).astype(numpy_type)
    result = emulate(lower(func), [a, b, np.zeros((16, 8), acc)])
    assert result.hazards == ()
    expected = a.astype(np.float64) @ b.astype(np.float64).T + 1
    np.testing.assert_array_equal(result.outputs["C"], expected)
    assert (result.total("mmas"), result.total("ldmatrix")) == (1, 2)


def test_half_accumulators_are_packed_in_pairs():
    mma = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((16, 8), "float16"), C: T.Buffer((16, 8), "float16")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            fa = T.alloc_buffer((2,), "uint32", scope="local")
            fc = T.alloc_buffer((2,), "uint32", scope="local")
            for i in T.unroll(2):
                fa[i] = T.reinterpret(
                    "uint32",
                    T.Shuffle(
                        [
                            A[tx // 4 + i * 8, tx % 4 * 2],
                            A[tx // 4 + i * 8, tx % 4 * 2 + 1],
                        ],
                        [0, 1],
                    ),
                )
                fc[i] = T.uint32(0)
            # B is the identity: lane t of group g holds rows 2t and 2t + 1 of column g.
            T.ptx[mma](
                fc[0],
                fc[1],
                fa[0],
                fa[1],
                T.Select(
                    tx % 4 * 2 == tx // 4,
                    T.uint32(0x3C00),
                    T.Select(tx % 4 * 2 + 1 == tx // 4, T.uint32(0x3C000000), T.uint32(0)),
                ),
                fc[0],
                fc[1],
            )
            for i in T.unroll(2):
                C[tx // 4 + i * 8, tx % 4 * 2] = T.reinterpret("float16", T.Cast("uint16", fc[i]))
                C[tx // 4 + i * 8, tx % 4 * 2 + 1] = T.reinterpret(
                    "float16", T.Cast("uint16", T.shift_right(fc[i], T.uint32(16)))
                )

    a = np.random.default_rng(0).standard_normal((16, 8)).astype("float16")
    result = emulate(lower(main), [a, np.zeros_like(a)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], a)


def test_ldmatrix_trans_and_x1():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 8), "uint16"), C: T.Buffer((32,), "uint32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            S = T.alloc_buffer((8, 8), "uint16", scope="shared")
            f = T.alloc_buffer((1,), "uint32", scope="local")
            for i in T.unroll(2):
                S[tx // 8 + i * 4, tx % 8] = A[tx // 8 + i * 4, tx % 8]
            T.tvm_storage_sync("shared")
            T.ptx["ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16"](
                f[0], T.address_of(S[tx % 8, 0])
            )
            C[tx] = f[0]

    a = np.arange(64, dtype=np.uint16).reshape(8, 8)
    result = emulate(lower(main), [a, np.zeros(32, np.uint32)])
    assert result.hazards == ()
    pairs = result.outputs["C"].view(np.uint16).reshape(8, 8)  # row g: lanes 4g .. 4g + 3
    np.testing.assert_array_equal(pairs, a.T)
