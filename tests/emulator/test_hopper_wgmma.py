"""A wgmma from shared memory and registers, right, and misused in each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from .judge import ORDERS, TIMINGS, kinds, run


def multiply(source: str = "shared", wrong: str = "", pending: int = 0) -> Any:
    """C = A B^T (64 x 8 x 16, f16 -> f32), stored to shared memory without a swizzle."""
    shape = "m64n8k16.f32.f16.f16"

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((64, 16), "float16"),
        B: T.Buffer((8, 16), "float16"),
        C: T.Buffer((64, 8), "float32"),
    ):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            A_s = T.alloc_buffer((2, 64, 8), "float16", scope="shared")
            B_s = T.alloc_buffer((2, 8, 8), "float16", scope="shared")
            acc = T.alloc_buffer((4,), "float32", scope="local")
            a = T.alloc_buffer((8,), "float16", scope="local")
            a_words = T.decl_buffer((4,), "uint32", data=a.data, scope="local")
            desc = T.alloc_buffer((2,), "uint64", scope="local")
            for i in T.serial(8):
                A_s[tx // 64, tx % 64, i] = A[tx % 64, tx // 64 * 8 + i]
            if tx < 16:
                for i in T.serial(8):
                    B_s[tx // 8, tx % 8, i] = B[tx % 8, tx // 8 * 8 + i]
            for i in T.unroll(8):
                a[i] = A[
                    tx // 32 * 16 + tx % 32 // 4 + i % 4 // 2 * 8, i // 4 * 8 + tx % 4 * 2 + i % 2
                ]
            for i in T.unroll(4):
                acc[i] = T.float32(1)
            if wrong != "no proxy fence":
                T.ptx["fence.proxy.async"]()
            T.tvm_storage_sync("shared")
            if wrong != "no fence":
                T.ptx.wgmma.fence.sync.aligned()
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(desc[0]), T.address_of(A_s[0, 0, 0]), 64, 8, 0
            )
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(desc[1]), T.address_of(B_s[0, 0, 0]), 8, 8, 0
            )
            if source == "shared":
                T.ptx["wgmma.mma_async.sync.aligned." + shape](
                    *[acc[i] for i in range(4)],
                    desc[0],
                    desc[1],
                    tx < 32 if wrong == "warps differ" else T.bool(True),
                    1,
                    -1,
                    0,
                    0,
                )
            else:
                T.ptx["wgmma.mma_async.sync.aligned." + shape](
                    *[acc[i] for i in range(4)],
                    *[a_words[i] for i in range(4)],
                    desc[1],
                    T.bool(True),
                    1,
                    -1,
                    0,
                )
            if wrong == "a overwritten":
                a[0] = T.float16(5)
            if wrong == "slot overwritten":
                B_s[0, 0, 0] = T.float16(5)
            T.ptx.wgmma.commit_group.sync.aligned()
            T.ptx.wgmma.wait_group.sync.aligned(pending)
            for i in T.unroll(4):
                C[tx // 32 * 16 + tx % 32 // 4 + i // 2 * 8, tx % 4 * 2 + i % 2] = acc[i]

    return main


def operands() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, 16)).astype(np.float16) for rows in (64, 8))
    return [a, b, np.zeros((64, 8), np.float32)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.part(2)
def test_a_warpgroup_multiplies_from_shared_memory_and_from_registers(source, timing, order):
    a, b, c = operands()
    result = run(multiply(source), a, b, c, timing=timing, order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    exact = 1 - a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(result.outputs["C"], exact)


@pytest.mark.parametrize("timing", ["late", "early"])
@pytest.mark.parametrize(
    ("source", "wrong", "pending", "found"),
    [
        ("shared", "no proxy fence", 0, {"missing-proxy-fence"}),
        ("shared", "no fence", 0, {"missing-wgmma-fence"}),
        ("shared", "", 1, {"register-in-flight", "never-waited"}),
        ("registers", "a overwritten", 0, {"register-in-flight"}),
        ("shared", "a overwritten", 0, set()),
        ("shared", "warps differ", 0, {"divergent-warp"}),
        ("shared", "slot overwritten", 0, {"write-while-read", "race"}),
    ],
)
@pytest.mark.part(2)
def test_each_way_to_misuse_a_wgmma(source, wrong, pending, found, timing):
    assert kinds(multiply(source, wrong, pending), *operands(), timing=timing) == found
