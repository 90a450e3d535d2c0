"""mbarriers and the threads and copies that meet at them, right, and wrong in each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason

from ..refusals import the
from .judge import ORDERS, THREADS, TIMINGS, WARP, blank, kinds, run


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
    assert Reason("hazard.phase", phase=0, arrived=32, expected=33) in hazard.detail.walk()
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
    for completed, code in ((48, "hazard.phase_lacks"), (80, "hazard.phase_exceeds")):
        (hazard,) = run(counting(64, completed), blank(WARP)).hazards
        assert hazard.kind == "mbarrier-bytes"
        assert the(code, [hazard.detail])["nbytes"] == 16


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
    assert Reason("hazard.phase", phase=0, arrived=31, expected=32) in hazard.detail.walk()


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
@pytest.mark.part(2)
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
