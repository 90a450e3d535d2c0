"""Named and cluster barriers, elected lanes, stmatrix; races in every order of the warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason

from ..refusals import the
from .judge import ORDERS, THREADS, TIMINGS, WARP, blank, kinds, run


def producer_consumer(arrives: bool = True, rounds: int = 2) -> Any:
    """Warp 0 announces rows by bar.arrive; warp 1 waits by bar.sync, and back."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((rounds, WARP), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            if tx < WARP:
                for i in T.serial(rounds):
                    S[tx] = tx + i
                    if arrives:
                        T.ptx["bar.arrive"](T.uint32(1), T.uint32(THREADS))
                    T.ptx["bar.sync"](T.uint32(2), T.uint32(THREADS))
            else:
                for i in T.serial(rounds):
                    T.ptx["bar.sync"](T.uint32(1), T.uint32(THREADS))
                    C[i, tx - WARP] = S[63 - tx]
                    T.ptx["bar.arrive"](T.uint32(2), T.uint32(THREADS))

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_named_barriers_between_a_producer_and_a_consumer(order):
    result = run(producer_consumer(), blank(2, WARP), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(
        result.outputs["C"], np.arange(WARP)[::-1] + np.arange(2)[:, None]
    )


def test_threads_at_two_named_barriers_wait_for_ever():
    (hazard,) = run(producer_consumer(arrives=False), blank(2, WARP)).hazards
    assert hazard.kind == "deadlock"
    waits = the("hazard.deadlock", [hazard.detail])["waits"]
    assert {(wait["who"], wait["barrier"]) for wait in waits} == {
        ("threads 0-31", 2),
        ("threads 32-63", 1),
    }
    assert {(wait["arrived"], wait["expected"]) for wait in waits} == {(32, 64)}


def cluster_exchange(
    sync: bool = True, wait: bool = True, peer: int = 1, fence: bool = True, sem: str = "release"
) -> Any:
    """Each CTA arrives at its neighbour's mbarrier, which is waited for there."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((4, WARP), "int32")):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(4, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    bars = T.alloc_buffer((1,), "uint64", scope="shared")
                    remote = T.alloc_buffer((1,), "uint32", scope="local")
                    if tx == 0:
                        T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
                        if fence:
                            T.ptx.fence.mbarrier_init.release.cluster()
                    if sync:
                        T.ptx[f"barrier.cluster.arrive.{sem}.aligned"]()
                        T.ptx["barrier.cluster.wait.acquire.aligned"]()
                    T.ptx.mapa.shared__cluster.u32(
                        remote[0],
                        T.cuda.cvta_generic_to_shared(T.address_of(bars[0])),
                        T.Cast("uint32", peer - cx),
                    )
                    T.ptx.mbarrier.arrive.shared__cluster.b64(remote[0])
                    if wait:
                        T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
                    C[bx, tx] = bx * 100 + cx * 10 + T.Cast("int32", remote[0] > T.uint32(0))

    return main


@pytest.mark.parametrize("sem", ["release", "relaxed"])
@pytest.mark.parametrize("order", ORDERS)
def test_ctas_of_a_cluster_signal_each_other(order, sem):
    result = run(cluster_exchange(sem=sem), blank(4, WARP), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    expected = [bx * 100 + bx % 2 * 10 + 1 for bx in range(4)]
    np.testing.assert_array_equal(result.outputs["C"], np.repeat(expected, WARP).reshape(4, WARP))


def test_a_peer_must_have_begun_and_not_ended():
    assert "mbarrier-uninitialised" in kinds(cluster_exchange(sync=False), blank(4, WARP))
    assert kinds(cluster_exchange(wait=False), blank(4, WARP)) == {"exit-before-peer"}
    found = run(cluster_exchange(peer=2), blank(4, WARP)).hazards
    assert Reason("hazard.rank", rank=2, size=2) in {hazard.detail for hazard in found}


def test_a_relaxed_arrival_tells_of_initialised_mbarriers_that_are_fenced():
    unfenced = kinds(cluster_exchange(fence=False, sem="relaxed"), blank(4, WARP))
    assert unfenced == {"mbarrier-uninitialised"}


def test_a_relaxed_arrival_tells_of_nothing_else():
    """A peer is known to have started behind it; what was stored before it is not known."""
    assert kinds(exchanged_row("release"), blank(2, WARP)) == set()
    assert kinds(exchanged_row("relaxed"), blank(2, WARP)) == {"race"}


def exchanged_row(sem: str) -> Any:
    """Threads store to shared memory, meet the cluster, and load what their neighbours stored."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((2, WARP), "int32")):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    S = T.alloc_buffer((WARP,), "int32", scope="shared")
                    S[tx] = cx + tx
                    T.ptx[f"barrier.cluster.arrive.{sem}.aligned"]()
                    T.ptx["barrier.cluster.wait.acquire.aligned"]()
                    C[bx, tx] = S[WARP - 1 - tx]

    return main


def pushed_row(start: bool = True, meet: bool = True, beyond: int = 0) -> Any:
    """Each CTA of a pair stores a pair of words a thread into the other's shared memory."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((2, 2 * WARP), "float32")):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    S = T.alloc_buffer((2 * WARP,), "float32", scope="shared")
                    remote = T.alloc_buffer((1,), "uint32", scope="local")
                    if start:
                        T.cuda.cluster_sync()
                    T.ptx.mapa.shared__cluster.u32(
                        remote[0],
                        T.cuda.cvta_generic_to_shared(T.address_of(S[tx * 2])),
                        T.Cast("uint32", 1 - cx),
                    )
                    T.ptx["st.shared::cluster.v2.f32"](
                        remote[0] + T.uint32(beyond),
                        T.Cast("float32", bx * 100 + tx),
                        T.Cast("float32", tx),
                    )
                    if meet:
                        T.cuda.cluster_sync()
                    C[bx, tx * 2] = S[tx * 2]
                    C[bx, tx * 2 + 1] = S[tx * 2 + 1]

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_a_cta_stores_into_another_of_its_cluster(order):
    result = run(pushed_row(), blank(2, 2 * WARP, dtype="float32"), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    thread = np.arange(WARP)
    expected = [np.stack([(1 - bx) * 100 + thread, thread], axis=1).reshape(-1) for bx in range(2)]
    np.testing.assert_array_equal(result.outputs["C"], expected)


def test_what_is_stored_into_another_cta_needs_its_start_its_presence_and_an_order():
    into = blank(2, 2 * WARP, dtype="float32")
    assert "before-start" in kinds(pushed_row(start=False), into)
    assert {"exit-before-peer", "uninitialised-read"} <= kinds(pushed_row(meet=False), into)
    assert "misaligned" in kinds(pushed_row(beyond=4), into)
    assert "out-of-bounds" in kinds(pushed_row(beyond=1 << 20), into)


def shared_row(fence: bool = True, wait: bool = True, reuse: bool = False) -> Any:
    """Each CTA of a pair copies a row to the shared memory of the other, which waits for it."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((2, WARP), "int32")):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    S = T.alloc_buffer((2, WARP), "int32", scope="shared")
                    bars = T.alloc_buffer((1,), "uint64", scope="shared")
                    remote = T.alloc_buffer((2,), "uint32", scope="local")
                    S[0, tx] = bx * 100 + tx
                    if fence:
                        T.ptx["fence.proxy.async"]()
                    if tx == 0:
                        T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                        T.ptx.fence.mbarrier_init.release.cluster()
                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                            T.address_of(bars[0]), T.uint32(4 * WARP)
                        )
                    T.cuda.cluster_sync()
                    if tx == 0:
                        T.ptx.mapa.shared__cluster.u32(
                            remote[0],
                            T.cuda.cvta_generic_to_shared(T.address_of(S[1, 0])),
                            T.Cast("uint32", 1 - cx),
                        )
                        T.ptx.mapa.shared__cluster.u32(
                            remote[1],
                            T.cuda.cvta_generic_to_shared(T.address_of(bars[0])),
                            T.Cast("uint32", 1 - cx),
                        )
                        T.ptx[
                            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
                        ](remote[0], T.address_of(S[0, 0]), T.uint32(4 * WARP), remote[1])
                    if reuse:
                        S[0, tx] = 7
                    if wait:
                        T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
                    C[bx, tx] = S[1, tx]
                    T.cuda.cluster_sync()

    return main


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_row_is_copied_to_a_peer(timing):
    result = run(shared_row(), blank(2, WARP), timing=timing)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"], np.array([[100], [0]]) + np.arange(WARP))


@pytest.mark.parametrize("timing", ["late", "early"])
def test_a_copy_to_a_peer_needs_fence_wait_and_a_source_that_stays(timing):
    c = blank(2, WARP)
    assert kinds(shared_row(fence=False), c, timing=timing) == {"missing-proxy-fence"}
    assert kinds(shared_row(wait=False), c, timing=timing) >= {
        "read-before-arrival",
        "never-waited",
    }
    assert "write-while-read" in kinds(shared_row(reuse=True), c, timing=timing)


@pytest.mark.parametrize("numbers", [2, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_each_thread_names_its_barrier(order, numbers):
    """Neighbouring warps exchange values: each pair at its barrier, or all four at one."""
    pairs, count = 4 // numbers, 32 * 4 // numbers

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((4 * WARP,), "int32")):
        for tx in T.thread_binding(4 * WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((4 * WARP,), "int32", scope="shared")
            S[tx] = tx
            T.ptx.bar.sync(T.Cast("uint32", tx // (WARP * pairs) + 1), T.uint32(count))
            C[tx] = S[T.bitwise_xor(tx, WARP)]

    result = run(main, blank(4 * WARP), order=order)
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], np.arange(4 * WARP) ^ WARP)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_is_the_inverse_of_ldmatrix(count, transposed):
    suffix = ".trans" if transposed else ""
    load = f"ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16"
    store = f"stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8 * count, 8), "float16"), C: T.Buffer((8 * count, 8), "float16")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            S = T.alloc_buffer((2, 8 * count, 8), "float16", scope="shared")
            R = T.alloc_buffer((count,), "uint32", scope="local")
            for i in T.serial(2 * count):
                S[0, i * 4 + tx // 8, tx % 8] = A[i * 4 + tx // 8, tx % 8]
            T.tvm_storage_sync("shared")
            T.ptx[load](*[R[i] for i in range(count)], T.address_of(S[0, tx % (8 * count), 0]))
            T.ptx[store](T.address_of(S[1, tx % (8 * count), 0]), *[R[i] for i in range(count)])
            T.tvm_storage_sync("shared")
            for i in T.serial(2 * count):
                C[i * 4 + tx // 8, tx % 8] = S[1, i * 4 + tx // 8, tx % 8]

    a = np.arange(64 * count, dtype=np.float16).reshape(8 * count, 8)
    result = run(main, a, np.zeros_like(a))
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], a)


def test_one_lane_of_each_warp_is_elected():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS, 2), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            if tx % WARP >= 5:
                C[tx, 0] = T.Cast("int32", T.cuda.elect_sync())
            C[tx, 1] = T.Cast("int32", T.cuda.elect_sync())

    out = run(main, blank(THREADS, 2)).outputs["C"]
    np.testing.assert_array_equal(np.flatnonzero(out[:, 0]), [5, 37])
    np.testing.assert_array_equal(np.flatnonzero(out[:, 1]), [0, 32])


def test_an_elected_lane_works_alone_where_it_may_wait():
    """elect.sync gives an integer: a mask of such picked the same lane over and over."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx // WARP == 1:
                C[tx] = -1
                if T.cuda.elect_sync():
                    T.ptx.mbarrier.init.shared.b64(S.ptr_to([0]), T.uint32(1))
                    T.ptx.mbarrier.arrive.shared.b64(S.ptr_to([0]))
                    T.cuda.mbarrier_wait(S.ptr_to([0]), tx % WARP)
                    C[tx] = tx

    result = run(main, blank(THREADS))
    assert result.hazards == ()
    np.testing.assert_array_equal(np.flatnonzero(result.outputs["C"] != -1)[WARP:], [WARP])


@pytest.mark.parametrize("order", ORDERS)
def test_a_race_is_found_in_every_order_and_its_repair_is_clean(order):
    def func(synced: bool) -> Any:
        @T.prim_func(s_tir=True)
        def main(C: T.Buffer((THREADS,), "int32")):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((THREADS,), "int32", scope="shared")
                S[tx] = tx
                if synced:
                    T.tvm_storage_sync("shared")
                C[tx] = S[THREADS - 1 - tx]

        return main

    clean = run(func(synced=True), blank(THREADS), order=order)
    assert clean.hazards == ()
    np.testing.assert_array_equal(clean.outputs["C"], np.arange(THREADS)[::-1])
    assert kinds(func(synced=False), blank(THREADS), order=order) & {"race", "uninitialised-read"}


def test_warps_that_run_apart_show_a_race_in_the_values():
    """Lock step writes all before any reads; the last warp running ahead reads what is not there."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "float32", scope="shared")
            S[tx] = T.Cast("float32", tx)
            C[tx] = S[THREADS - 1 - tx]

    c = blank(THREADS, dtype="float32")
    lockstep, ahead = (run(main, c, order=o).outputs["C"] for o in ("lockstep", "reversed"))
    np.testing.assert_array_equal(lockstep, np.arange(THREADS)[::-1])
    assert np.isnan(ahead[WARP:]).all()


def test_a_cp_async_that_nobody_waits_for():
    def func(commit: bool) -> Any:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((WARP,), "float32"), C: T.Buffer((WARP,), "float32")):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                S = T.alloc_buffer((WARP,), "float32", scope="shared")
                T.ptx["cp.async.ca.shared.global"](T.address_of(S[tx]), T.address_of(A[tx]), 4)
                if commit:
                    T.ptx.cp.async_.commit_group()
                C[tx] = A[tx]

        return main

    for commit, code in ((True, "hazard.group_unwaited"), (False, "hazard.group_uncommitted")):
        a = np.ones(WARP, np.float32)
        (hazard,) = run(func(commit), a, np.zeros_like(a)).hazards
        assert hazard.kind == "never-waited"
        assert hazard.detail == Reason(code, operation="cp.async")
