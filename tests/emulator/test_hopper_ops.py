"""Each operation of sm_90 in the smallest kernel that uses it, right, and wrong in each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.emulator import Emulation, emulate

from .raw import lower

WARP, THREADS = 32, 64
ORDERS = ("lockstep", "round-robin", "reversed", "random")
TIMINGS = ("late", "early", "random")


def run(func: Any, *args: Any, **options: Any) -> Emulation:
    return emulate(lower(func), list(args), **options)


def kinds(func: Any, *args: Any, **options: Any) -> set[str]:
    return {h.kind for h in run(func, *args, **options).hazards}


def blank(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.zeros(shape, dtype)


# mbarriers


def handoff(
    rounds: int = 3, release: str = "", wait: bool = True, back: bool = True, count: int = WARP
) -> Any:
    """Warp 0 writes a row, warp 1 reads it, over and over; ``full`` and ``empty`` order them."""
    arrive = f"mbarrier.arrive{release}.shared::cta.b64"

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((rounds, WARP), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "int32", scope="shared")
            bars = T.alloc_buffer((2,), "uint64", scope="shared")
            if tx < 2:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[tx]), T.uint32(count))
            T.tvm_storage_sync("shared")
            if tx < WARP:
                for i in T.serial(rounds):
                    if back:
                        T.cuda.mbarrier_wait(T.address_of(bars[1]), (i + 1) % 2)
                    S[tx] = tx * 10 + i
                    T.ptx[arrive](T.address_of(bars[0]))
            else:
                for i in T.serial(rounds):
                    if wait:
                        T.cuda.mbarrier_wait(T.address_of(bars[0]), i % 2)
                    C[i, tx - WARP] = S[63 - tx]
                    T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[1]))

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_mbarriers_hand_a_row_over_and_back(order):
    result = run(handoff(), blank(3, WARP), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    rows = np.arange(WARP)[::-1] * 10 + np.arange(3)[:, None]
    np.testing.assert_array_equal(result.outputs["C"], rows)


@pytest.mark.parametrize("order", ORDERS)
def test_a_handoff_needs_both_waits_and_release(order):
    c = blank(3, WARP)
    assert kinds(handoff(wait=False), c, order=order) & {"race", "uninitialised-read"}
    assert kinds(handoff(back=False), c, order=order) & {"write-while-read", "race", "deadlock"}
    assert "race" in kinds(handoff(release=".relaxed.cta"), c, order=order)


def test_a_count_of_arrivals_must_be_right():
    c = blank(3, WARP)
    (hazard,) = run(handoff(count=WARP + 1), c).hazards
    assert hazard.kind == "deadlock"
    assert "phase 0 has 32 of 33 arrivals" in hazard.detail
    assert kinds(handoff(count=WARP - 1), c) >= {"race", "mbarrier-arrivals"}


def test_a_phase_that_nobody_waits_for_may_alias_the_one_before():
    """The writer runs ahead by two phases: the reader's parity cannot tell which is complete."""
    found = run(handoff(back=False), blank(3, WARP), order="reversed").hazards
    assert "phase-aliasing" in {h.kind for h in found}


def misuse(what: str) -> Any:
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            bars = T.alloc_buffer((2,), "uint64", scope="shared")
            if tx == 0:
                if what != "uninitialised":
                    T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
                if what == "twice":
                    T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
                if what == "again after inval":
                    T.ptx.mbarrier.inval.shared.b64(T.address_of(bars[0]))
                    T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
                if what == "stored to":
                    bars[0] = T.uint64(7)
            if what != "unordered":
                T.tvm_storage_sync("shared")
            T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[0]))
            T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
            C[tx] = tx

    return main


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("uninitialised", {"mbarrier-uninitialised"}),
        ("unordered", {"mbarrier-uninitialised"}),
        ("twice", {"mbarrier-overwritten"}),
        ("stored to", {"mbarrier-overwritten"}),
        ("again after inval", set()),
        ("", set()),
    ],
)
def test_the_life_of_an_mbarrier(what, kind):
    assert kinds(misuse(what), blank(WARP)) == kind


def counting(expected: int, completed: int) -> Any:
    """Bytes are expected and completed by hand, in a phase that lacks all its arrivals."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(1))
                T.ptx["mbarrier.expect_tx.relaxed.cta.shared::cta.b64"](
                    T.address_of(bars[0]), T.uint32(expected)
                )
                T.ptx["mbarrier.complete_tx.relaxed.cta.shared::cta.b64"](
                    T.address_of(bars[0]), T.uint32(completed)
                )
            C[tx] = tx

    return main


def test_bytes_left_over_at_exit_are_counted():
    assert kinds(counting(64, 64), blank(WARP)) == set()
    for completed, text in ((48, "16 bytes missing"), (80, "16 bytes more than expected")):
        (hazard,) = run(counting(64, completed), blank(WARP)).hazards
        assert hazard.kind == "mbarrier-bytes"
        assert text in hazard.detail


def polling(parity: int, spin: bool) -> Any:
    """Warp 1 polls what warp 0 completes only after warp 1 has polled once, unless it spins."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            bars = T.alloc_buffer((2,), "uint64", scope="shared")
            done = T.alloc_buffer((1,), "uint32", scope="local")
            if tx < 2:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[tx]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            done[0] = T.uint32(0)
            if tx < WARP:
                if not spin:
                    T.cuda.mbarrier_wait(T.address_of(bars[1]), 0)
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[0]))
            else:
                if spin:
                    while done[0] == T.uint32(0):
                        T.ptx["mbarrier.try_wait.parity.shared::cta.b64"](
                            done[0], T.address_of(bars[0]), T.uint32(parity)
                        )
                else:
                    T.ptx["mbarrier.test_wait.parity.shared::cta.b64"](
                        done[0], T.address_of(bars[0]), T.uint32(parity)
                    )
                    T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[1]))
                    T.cuda.mbarrier_wait(T.address_of(bars[0]), parity)
                C[tx - WARP] = T.Cast("int32", done[0])

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_a_try_wait_spins_until_the_phase_completes(order):
    result = run(polling(parity=0, spin=True), blank(WARP), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    assert result.outputs["C"].all()


def test_a_test_wait_gives_up_when_nothing_else_can_move():
    result = run(polling(parity=0, spin=False), blank(WARP))
    assert result.hazards == ()
    assert not result.outputs["C"].any()


def test_a_spin_that_cannot_end_is_a_deadlock():
    """Thread 0's arrival is missing: 31 of 32."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            done = T.alloc_buffer((1,), "uint32", scope="local")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(WARP))
            T.tvm_storage_sync("shared")
            if tx > 0:
                T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[0]))
            done[0] = T.uint32(0)
            while done[0] == T.uint32(0):
                T.ptx["mbarrier.try_wait.parity.shared::cta.b64"](
                    done[0], T.address_of(bars[0]), T.uint32(0)
                )
            C[tx] = tx

    (hazard,) = run(main, blank(WARP)).hazards
    assert hazard.kind == "deadlock"
    assert "phase 0 has 31 of 32 arrivals" in hazard.detail


def copied(noinc: bool = True, wait: bool = True, arrive: bool = True, count: int = WARP) -> Any:
    """Warp 0 fills a row by cp.async and lets the copies arrive; warp 1 waits and reads."""
    instruction = f"cp.async.mbarrier.arrive{'.noinc' if noinc else ''}.shared.b64"

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((WARP,), "float32"), C: T.Buffer((WARP,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((WARP,), "float32", scope="shared")
            bars = T.alloc_buffer((1,), "uint64", scope="shared")
            if tx == 0:
                T.ptx.mbarrier.init.shared.b64(T.address_of(bars[0]), T.uint32(count))
            T.tvm_storage_sync("shared")
            if tx < WARP:
                T.ptx["cp.async.ca.shared.global"](T.address_of(S[tx]), T.address_of(A[tx]), 4)
                if arrive:
                    T.ptx[instruction](T.address_of(bars[0]))
                if not noinc:
                    T.ptx.mbarrier.arrive.shared.b64(T.address_of(bars[0]))
            else:
                if wait:
                    T.cuda.mbarrier_wait(T.address_of(bars[0]), 0)
                C[tx - WARP] = S[63 - tx]

    return main


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("noinc", [True, False])
def test_copies_arrive_at_an_mbarrier_when_they_are_complete(noinc, timing, order):
    a = np.arange(WARP, dtype=np.float32)
    result = run(copied(noinc), a, np.zeros_like(a), timing=timing, order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    np.testing.assert_array_equal(result.outputs["C"], a[::-1])


@pytest.mark.parametrize("timing", ["late", "early"])
def test_copies_that_do_not_arrive_or_are_not_waited_for(timing):
    a = np.arange(WARP, dtype=np.float32)
    args = (a, np.zeros_like(a))
    assert kinds(copied(arrive=False), *args, timing=timing) == {"deadlock"}
    assert kinds(copied(arrive=False, noinc=False), *args, timing=timing) == {
        "read-before-arrival",
        "never-waited",
    }
    assert "never-waited" in kinds(copied(wait=False), *args, timing=timing)
    assert kinds(copied(count=WARP + 1), *args, timing=timing) == {"deadlock"}
    assert "mbarrier-arrivals" in kinds(copied(count=WARP - 1), *args, timing=timing)


# Barriers


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
    assert "threads 0-31 wait at barrier 2: 32 of 64 threads" in hazard.detail
    assert "threads 32-63 wait at barrier 1: 32 of 64 threads" in hazard.detail


def cluster_exchange(sync: bool = True, wait: bool = True, peer: int = 1) -> Any:
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
                        T.ptx.fence.mbarrier_init.release.cluster()
                    if sync:
                        T.ptx["barrier.cluster.arrive.release.aligned"]()
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


@pytest.mark.parametrize("order", ORDERS)
def test_ctas_of_a_cluster_signal_each_other(order):
    result = run(cluster_exchange(), blank(4, WARP), order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    expected = [bx * 100 + bx % 2 * 10 + 1 for bx in range(4)]
    np.testing.assert_array_equal(result.outputs["C"], np.repeat(expected, WARP).reshape(4, WARP))


def test_a_peer_must_have_begun_and_not_ended():
    assert "mbarrier-uninitialised" in kinds(cluster_exchange(sync=False), blank(4, WARP))
    assert kinds(cluster_exchange(wait=False), blank(4, WARP)) == {"exit-before-peer"}
    found = run(cluster_exchange(peer=2), blank(4, WARP)).hazards
    assert any("rank 2 in a cluster of 2" in hazard.detail for hazard in found)


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


# Bulk copies

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
    for wrong, text in ((1008, "16 bytes more than expected"), (1040, "16 bytes missing")):
        (hazard,) = run(box(0, 0, 0, nbytes=wrong), a, c).hazards
        assert hazard.kind == "deadlock"
        assert text in hazard.detail


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
                        T.address_of(S[0]), T.address_of(A[i, 0]), T.uint32(4 * WARP),
                        T.address_of(bars[0]),
                    )  # fmt: skip
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
                    T.address_of(S[0]), T.address_of(A[start]), T.uint32(nbytes),
                    T.address_of(bars[0]),
                )  # fmt: skip
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


# Warps


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


# wgmma


def multiply(source: str = "shared", wrong: str = "", pending: int = 0) -> Any:
    """C = A B^T (64 x 8 x 16, f16 -> f32), stored by threads to shared memory without a swizzle."""
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
                    *[acc[i] for i in range(4)], *[a_words[i] for i in range(4)], desc[1],
                    T.bool(True), 1, -1, 0,
                )  # fmt: skip
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
def test_each_way_to_misuse_a_wgmma(source, wrong, pending, found, timing):
    assert kinds(multiply(source, wrong, pending), *operands(), timing=timing) == found


# What was there before, in every order


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
    lockstep, apart = (run(main, c, order=o).outputs["C"] for o in ("lockstep", "reversed"))
    np.testing.assert_array_equal(lockstep, np.arange(THREADS)[::-1])
    assert np.isnan(apart[WARP:]).all()


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

    for commit, text in ((True, "never waited for"), (False, "never committed")):
        a = np.ones(WARP, np.float32)
        (hazard,) = run(func(commit), a, np.zeros_like(a)).hazards
        assert hazard.kind == "never-waited"
        assert text in hazard.detail
