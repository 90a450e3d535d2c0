"""The older tensor core forms that TVM's tensor intrinsics lower to: ptx_legacy and wmma."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import emulate

from .raw import lower


@T.prim_func(s_tir=True)
def legacy_mma(
    A: T.Buffer((16, 16), "float16"),
    B: T.Buffer((16, 16), "float16"),
    C: T.Buffer((16, 16), "float32"),
):
    """C = A B by one warp: ldmatrix (transposed for B), two mma, fill and store intrinsics."""
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        SA = T.alloc_buffer((256,), "float16", scope="shared")
        SB = T.alloc_buffer((256,), "float16", scope="shared")
        fa = T.alloc_buffer((8,), "float16", scope="local")
        fb = T.alloc_buffer((8,), "float16", scope="local")
        fc = T.alloc_buffer((8,), "float32", scope="local")
        for i in T.serial(8):
            SA[i * 32 + tx] = A[i * 2 + tx // 16, tx % 16]
            SB[i * 32 + tx] = B[i * 2 + tx // 16, tx % 16]
        T.tvm_storage_sync("shared")
        T.cuda.mma_fill_legacy(8, fc.data, 0, dtype="float32")
        T.ptx_legacy.ldmatrix(
            False,
            4,
            ".b16",
            fa.data,
            0,
            SA.access_ptr("r"),
            tx % 16 * 16 + tx // 16 * 8,
            dtype="float16",
        )
        T.ptx_legacy.ldmatrix(
            True,
            4,
            ".b16",
            fb.data,
            0,
            SB.access_ptr("r"),
            tx % 16 * 16 + tx // 16 * 8,
            dtype="float16",
        )
        for half in T.unroll(2):
            T.ptx_legacy.mma(
                "m16n8k16",
                "row",
                "col",
                "fp16",
                "fp16",
                "fp32",
                fa.data,
                0,
                fb.data,
                half * 4,
                fc.data,
                half * 4,
                False,
                dtype="float32",
            )
        T.cuda.mma_store_legacy(16, 16, C.access_ptr("w"), fc.data, 0, 16, dtype="float32")


@T.prim_func(s_tir=True)
def wmma(
    A: T.Buffer((32, 16), "float16"),
    B: T.Buffer((16, 16), "float16"),
    C: T.Buffer((32, 16), "float32"),
):
    """C = A B^T, a 16x16 tile for each of two warps, through opaque fragments."""
    for ty in T.thread_binding(2, thread="threadIdx.y"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            fa = T.alloc_buffer((256,), "float16", scope="wmma.matrix_a")
            fb = T.alloc_buffer((256,), "float16", scope="wmma.matrix_b")
            fc = T.alloc_buffer((256,), "float32", scope="wmma.accumulator")
            T.tvm_fill_fragment(fc.data, 16, 16, 16, 0, T.float32(1))
            T.tvm_load_matrix_sync(
                fa.data, 16, 16, 16, 0, T.address_of(A[ty * 16, 0]), 16, "row_major"
            )
            T.tvm_load_matrix_sync(fb.data, 16, 16, 16, 0, T.address_of(B[0, 0]), 16, "col_major")
            T.tvm_mma_sync(fc.data, 0, fa.data, 0, fb.data, 0, fc.data, 0)
            T.tvm_store_matrix_sync(
                fc.data, 16, 16, 16, 0, T.address_of(C[ty * 16, 0]), 16, "row_major"
            )


def test_legacy_ldmatrix_mma_fill_and_store():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    result = emulate(lower(legacy_mma), [a, b, np.full((16, 16), np.nan, np.float32)])
    assert result.hazards == ()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(result.outputs["C"], exact, rtol=0, atol=1e-5)
    assert (result.total("ldmatrix"), result.total("mmas")) == (2, 2)


@pytest.mark.parametrize(
    "names", [("fp16", "fp32"), ("float16", "float32"), ("float16", "float16")]
)
def test_the_smaller_mma_with_types_as_any_intrinsic_spells_them(names):
    """As ``mma_sync_m16n8k8_f16f16f32`` of TVM's tensor intrinsics: types by their whole names."""
    operand, total = names
    dtype = "float16" if total.endswith("16") else "float32"

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((16, 8), "float16"),
        B: T.Buffer((8, 8), "float16"),
        C: T.Buffer((16, 8), dtype),
    ):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            fa = T.alloc_buffer((4,), "float16", scope="local")
            fb = T.alloc_buffer((2,), "float16", scope="local")
            fc = T.alloc_buffer((4,), dtype, scope="local")
            for i in T.unroll(4):
                fa[i] = A[tx // 4 + i // 2 * 8, tx % 4 * 2 + i % 2]
                fc[i] = T.Cast(dtype, 1)
            for i in T.unroll(2):
                fb[i] = B[tx % 4 * 2 + i, tx // 4]
            T.ptx_legacy.mma(
                "m16n8k8",
                "row",
                "col",
                operand,
                operand,
                total,
                fa.data,
                0,
                fb.data,
                0,
                fc.data,
                0,
                False,
                dtype=dtype,
            )
            for i in T.unroll(4):
                C[tx // 4 + i // 2 * 8, tx % 4 * 2 + i % 2] = fc[i]

    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (16, 8)).astype(np.float16)
    b = rng.integers(-4, 5, (8, 8)).astype(np.float16)
    result = emulate(lower(main), [a, b, np.zeros((16, 8), dtype)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], a.astype(np.float32) @ b + 1)


def test_wmma_fragments_of_every_warp():
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (32, 16)).astype(np.float16)
    b = rng.integers(-4, 5, (16, 16)).astype(np.float16)
    result = emulate(lower(wmma), [a, b, np.full((32, 16), np.nan, np.float32)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], a.astype(np.float32) @ b.T + 1)
