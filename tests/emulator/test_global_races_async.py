"""Races through global memory of asynchronous copies, which read and write until they are waited for."""

from __future__ import annotations

import pytest
from tvm.script import tirx as T

from .judge import WARP, blank, kinds


@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_reads_until_it_is_waited_for(waits):
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((WARP,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            T.ptx["cp.async.ca.shared.global"](T.address_of(S[tx]), T.address_of(G[tx]), 4)
            if waits:
                T.ptx["cp.async.wait_all"]()
            G[tx] = 5
            T.ptx["cp.async.wait_all"]()
            Y[tx] = S[tx]

    assert kinds(main, blank(WARP), blank(WARP)) == (set() if waits else {"write-while-read"})


BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group"

BULK_LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"

WAITS = {"all": "cp.async.bulk.wait_group", "read": "cp.async.bulk.wait_group.read"}


@pytest.mark.parametrize("wait", list(WAITS))
def test_what_a_bulk_copy_stores_is_there_when_its_group_is_complete(wait):
    """``.read`` waits for shared memory alone."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((WARP,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            S[tx] = tx
            T.ptx["fence.proxy.async"]()
            T.tvm_storage_sync("shared")
            if tx == 0:
                T.ptx[BULK_STORE](T.address_of(G[0]), T.address_of(S[0]), 4 * WARP)
                T.ptx["cp.async.bulk.commit_group"]()
                T.ptx[WAITS[wait]](0)
            T.tvm_storage_sync("shared")
            Y[tx] = G[WARP - 1 - tx]

    found = kinds(main, blank(WARP), blank(WARP))
    assert found == (set() if wait == "all" else {"read-before-arrival"})


@pytest.mark.parametrize(
    ("fence", "expected"),
    [
        ("fence.proxy.async", set()),
        ("fence.proxy.async.global", set()),
        ("fence.proxy.async.shared::cta", {"missing-proxy-fence"}),
    ],
)
def test_a_bulk_copy_reads_what_threads_wrote_behind_a_proxy_fence(fence, expected):
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((WARP,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                T.ptx.fence.mbarrier_init.release.cluster()
            G[tx] = tx
            T.ptx[fence]()
            T.tvm_storage_sync("shared")
            if tx == 0:
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                    T.address_of(bars[0]), T.uint32(4 * WARP)
                )
                T.ptx[BULK_LOAD](
                    T.address_of(S[0]), T.address_of(G[0]), 4 * WARP, T.address_of(bars[0])
                )
            T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
            Y[tx] = S[WARP - 1 - tx]

    assert kinds(main, blank(WARP), blank(WARP)) == expected
