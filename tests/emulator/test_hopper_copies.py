"""Bulk copies: boxes, stores, plain ranges, through both proxies, right, and wrong in each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from ..refusals import the
from .judge import ORDERS, THREADS, TIMINGS, WARP, blank, kinds, run

ROWS, COLUMNS = 8, 32


def box(swizzle: int, row: int, column: int, nbytes: int = ROWS * COLUMNS * 4) -> Any:
    """C becomes the box of A at (row, column), as it lies in shared memory."""
    args = [100, 50, 400, COLUMNS, ROWS, 1, 1, 0, swizzle, 0, 0]

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((50, 100), "float32"), C: T.Buffer((ROWS * COLUMNS,), "float32")):
        A_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.evaluate(
            T.call_packed("runtime.cuTensorMapEncodeTiled", A_map, "float32", 2, A.data, *args)
        )
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((ROWS * COLUMNS,), "float32", scope="shared")
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                T.ptx.fence.mbarrier_init.release.cluster()
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(T.address_of(bars[0]), T.uint32(nbytes))
                T.ptx[
                    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                ](T.address_of(S[0]), T.address_of(A_map), column, row, T.address_of(bars[0]))
            T.tvm_storage_sync("shared")
            T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
            for i in T.serial(ROWS):
                C[i * COLUMNS + tx] = S[i * COLUMNS + tx]

    return main


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize(("row", "column"), [(0, 0), (5, 60), (-3, -7), (46, 90), (60, 0)])
@pytest.mark.part(2)
def test_a_box_is_filled_with_zeros_where_it_is_outside(timing, row, column):
    a = np.arange(1, 5001, dtype=np.float32).reshape(50, 100)
    result = run(box(0, row, column), a, blank(ROWS * COLUMNS, dtype="float32"), timing=timing)
    assert result.hazards == ()
    padded = np.pad(a, 100)[100 + row : 100 + row + ROWS, 100 + column : 100 + column + COLUMNS]
    np.testing.assert_array_equal(result.outputs["C"], padded.reshape(-1))


def test_a_swizzled_box_exchanges_16_byte_chunks_by_row():
    a = np.arange(5000, dtype=np.float32).reshape(50, 100)
    result = run(box(3, 0, 0), a, blank(ROWS * COLUMNS, dtype="float32"))
    chunks = a[:ROWS, :COLUMNS].reshape(ROWS, 8, 4)
    expected = np.stack([chunks[r, np.arange(8) ^ r] for r in range(ROWS)])
    np.testing.assert_array_equal(result.outputs["C"], expected.reshape(-1))


def test_bytes_must_be_expected_exactly():
    a, c = np.ones((50, 100), np.float32), blank(ROWS * COLUMNS, dtype="float32")
    for wrong, code in ((1008, "hazard.phase_exceeds"), (1040, "hazard.phase_lacks")):
        (hazard,) = run(box(0, 0, 0, nbytes=wrong), a, c).hazards
        assert hazard.kind == "deadlock"
        assert the(code, [hazard.detail])["nbytes"] == 16


def stores(
    fence: bool = True,
    commit: bool = True,
    wait: bool = True,
    reuse: str = "after",
    add: bool = False,
) -> Any:
    """C (30 x 30, of two boxes down) is stored, or added to, from shared memory."""
    args = [30, 30, 128, COLUMNS, ROWS, 1, 1, 0, 0, 0, 0]
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    if add:
        store = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((30, 32), "float32")):
        C_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.evaluate(
            T.call_packed("runtime.cuTensorMapEncodeTiled", C_map, "float32", 2, C.data, *args)
        )
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="shared")
            for i in T.serial(4):
                for r in T.serial(ROWS):
                    S[r, tx] = T.Cast("float32", (i * ROWS + r) * 100 + tx)
                if fence:
                    T.ptx["fence.proxy.async"]()
                T.tvm_storage_sync("shared")
                if tx == 0:
                    T.ptx[store](T.address_of(C_map), 0, i * ROWS, T.address_of(S[0, 0]))
                    if commit:
                        T.ptx["cp.async.bulk.commit_group"]()
                    if wait:
                        T.ptx["cp.async.bulk.wait_group.read"](0)
                if reuse == "after":
                    T.tvm_storage_sync("shared")

    return main


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("add", [False, True])
def test_boxes_are_stored_and_added_inside_of_the_tensor_alone(timing, add):
    c = np.full((30, 32), 1000, np.float32)
    result = run(stores(add=add), c, timing=timing)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    values = np.arange(30)[:, None] * 100 + np.arange(30)
    np.testing.assert_array_equal(result.outputs["C"][:, :30], values + 1000 * add)
    np.testing.assert_array_equal(result.outputs["C"][:, 30:], 1000)


@pytest.mark.parametrize("timing", ["late", "early"])
def test_a_bulk_store_needs_fence_commit_wait_and_barrier(timing):
    c = blank(30, 32, dtype="float32")
    assert kinds(stores(fence=False), c, timing=timing) == {"missing-proxy-fence"}
    assert kinds(stores(commit=False), c, timing=timing) == {"never-waited", "write-while-read"}
    assert kinds(stores(wait=False), c, timing=timing) == {"never-waited", "write-while-read"}
    assert kinds(stores(reuse="at once"), c, timing=timing) == {"write-while-read"}


def test_a_store_reads_late_what_was_overwritten_too_early():
    right = run(stores(), blank(30, 32, dtype="float32")).outputs["C"]
    wrong = run(stores(wait=False), blank(30, 32, dtype="float32"), timing="late").outputs["C"]
    assert (right != wrong).any()


def reloaded(fence: bool = True, release: bool = True) -> Any:
    """TMA loads a row that threads read, twice: reads and loads go through different proxies."""
    load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((2, WARP), "float32"), C: T.Buffer((2, WARP), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "float32", scope="shared")
            bars = T.alloc_buffer((2,), "uint64", scope="shared")
            if tx < 2:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[tx]), T.uint32(1 + 31 * tx))
                T.ptx.fence.mbarrier_init.release.cluster()
            T.tvm_storage_sync("shared")
            if tx == WARP:
                for i in T.serial(2):
                    if release:
                        T.cuda.mbarrier_wait(T.address_of(bars[1]), (i + 1) % 2)
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                        T.address_of(bars[0]), T.uint32(4 * WARP)
                    )
                    T.ptx[load](
                        T.address_of(S[0]),
                        T.address_of(A[i, 0]),
                        T.uint32(4 * WARP),
                        T.address_of(bars[0]),
                    )
            if tx < WARP:
                for i in T.serial(2):
                    T.cuda.mbarrier_wait(T.address_of(bars[0]), i % 2)
                    C[i, tx] = S[31 - tx]
                    if fence:
                        T.ptx["fence.proxy.async"]()
                    T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[1]))

    return main


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.part(3)
def test_reads_before_a_bulk_load_into_the_same_bytes_need_a_proxy_fence(order, timing):
    a = np.arange(2 * WARP, dtype=np.float32).reshape(2, WARP)
    result = run(reloaded(), a, np.zeros_like(a), order=order, timing=timing)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"], a[:, ::-1])
    options = {"order": order, "timing": timing}
    assert kinds(reloaded(fence=False), a, np.zeros_like(a), **options) == {"missing-proxy-fence"}
    without = kinds(reloaded(release=False), a, np.zeros_like(a), **options)
    assert without & {"write-in-flight", "write-while-read"}


def bulk(nbytes: int = 256, start: int = 0) -> Any:
    """64 floats through shared memory by plain bulk copies, stored 4 floats further."""
    load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((80,), "float32"), C: T.Buffer((80,), "float32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((64,), "float32", scope="shared")
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                T.ptx.fence.mbarrier_init.release.cluster()
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(T.address_of(bars[0]), T.uint32(nbytes))
                T.ptx[load](
                    T.address_of(S[0]),
                    T.address_of(A[start]),
                    T.uint32(nbytes),
                    T.address_of(bars[0]),
                )
                T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
                T.ptx["cp.async.bulk.global.shared::cta.bulk_group"](
                    T.address_of(C[4]), T.address_of(S[0]), T.uint32(nbytes)
                )
                T.ptx["cp.async.bulk.commit_group"]()
                T.ptx["cp.async.bulk.wait_group"](0)

    return main


@pytest.mark.parametrize("timing", TIMINGS)
def test_plain_bulk_copies(timing):
    a = np.arange(80, dtype=np.float32)
    result = run(bulk(), a, blank(80, dtype="float32"), timing=timing)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"][4:68], a[:64])
    assert not result.outputs["C"][68:].any()


def test_plain_bulk_copies_are_of_16_bytes_inside_of_their_array():
    a, c = np.arange(80, dtype=np.float32), blank(80, dtype="float32")
    assert kinds(bulk(start=1), a, c) == {"misaligned"}
    assert "out-of-bounds" in kinds(bulk(start=32), a, c)
