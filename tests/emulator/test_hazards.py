"""Each kind of hazard, by the smallest kernel that has it, and its repaired twin that has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.emulator import Hazard, emulate

from ..refusals import says, the
from .raw import lower

THREADS = 64


def hazards(func: Any, *args: Any, **options: Any) -> tuple[Hazard, ...]:
    return emulate(lower(func), list(args), **options).hazards


def kinds(func: Any, *args: Any, **options: Any) -> set[str]:
    return {h.kind for h in hazards(func, *args, **options)}


def exchange(before: bool, after: bool) -> Any:
    """Neighbours exchange values twice through one shared row; two barriers are needed."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((2, THREADS), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "int32", scope="shared")
            for i in T.serial(2):
                S[tx] = tx + i
                if before:
                    T.tvm_storage_sync("shared")
                C[i, tx] = S[THREADS - 1 - tx]
                if after:
                    T.tvm_storage_sync("shared")

    return main


def blank(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.zeros(shape, dtype)


def test_barriers_order_an_exchange_and_each_is_needed():
    assert kinds(exchange(True, True), blank(2, THREADS)) == set()
    assert kinds(exchange(False, True), blank(2, THREADS)) == {"race"}
    assert kinds(exchange(True, False), blank(2, THREADS)) == {"write-while-read"}


def test_a_race_is_found_whatever_order_the_threads_happen_to_run_in():
    """The values are right, since lock step runs the reads before the next writes."""
    result = emulate(lower(exchange(True, False)), [blank(2, THREADS)])
    np.testing.assert_array_equal(
        result.outputs["C"], np.arange(THREADS)[::-1] + np.arange(2)[:, None]
    )
    (race,) = result.hazards
    assert race.threads[0] != race.threads[1]
    assert "S" in str(race)


def test_a_run_that_ends_with_its_first_hazard_reports_that_one_and_no_more():
    mod, rows = lower(exchange(False, False)), blank(2, THREADS)
    whole = emulate(mod, [rows])
    assert [(h.kind, h.count) for h in whole.hazards] == [("race", 2), ("write-while-read", 1)]
    assert whole.outputs["C"].any(axis=1).all()
    short = emulate(mod, [rows], only_first=True)
    assert short.hazards == (replace(whole.hazards[0], count=1),)
    assert not short.outputs["C"].any()
    right = emulate(lower(exchange(True, True)), [rows], only_first=True)
    assert right.hazards == ()
    assert right.outputs["C"].any(axis=1).all()


def test_threads_that_store_different_values_to_one_place_race():
    def func(same: bool) -> Any:
        @T.prim_func(s_tir=True)
        def main(C: T.Buffer((THREADS,), "int32")):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((2,), "int32", scope="shared")
                S[tx % 2] = T.Select(same, tx % 2, tx)
                T.tvm_storage_sync("shared")
                C[tx] = S[tx % 2]

        return main

    assert kinds(func(same=True), blank(THREADS)) == set()
    assert kinds(func(same=False), blank(THREADS)) == {"race"}


def test_reading_shared_memory_that_nobody_wrote():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "float32", scope="shared")
            if tx < THREADS // 2:
                S[tx] = T.float32(1)
            T.tvm_storage_sync("shared")
            C[tx] = S[tx]

    result = emulate(lower(main), [blank(THREADS, dtype="float32")])
    (hazard,) = result.hazards
    assert (hazard.kind, hazard.threads) == ("uninitialised-read", (THREADS // 2,))
    assert np.isnan(result.outputs["C"][THREADS // 2 :]).all()


@pytest.mark.parametrize("where", ["global load", "global store", "shared store"])
def test_out_of_bounds(where):
    reach = {"global load": 0, "global store": 0, "shared store": 0} | {where: 1}
    load, store, shared = reach.values()

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((THREADS,), "int32"), C: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "int32", scope="shared")
            S[tx + shared] = A[tx + load]
            T.tvm_storage_sync("shared")
            if tx >= shared:
                C[tx + store] = S[tx]

    a = np.arange(THREADS, dtype=np.int32)
    (hazard,) = hazards(main, a, blank(THREADS))
    assert hazard.kind == "out-of-bounds"
    assert hazard.threads == (THREADS - 1,)
    assert hazard.offset == 4 * THREADS


def copying(size: int, dst: int, src: int) -> Any:
    """Each thread copies ``size`` bytes, addresses moved by ``dst`` and ``src`` elements."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8 * THREADS,), "float32"), C: T.Buffer((THREADS,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((8 * THREADS,), "float32", scope="shared")
            T.ptx["cp.async.ca.shared.global"](
                T.address_of(S[tx * 4 + dst]), T.address_of(A[tx * 4 + src]), size
            )
            T.ptx.cp.async_.commit_group()
            T.ptx.cp.async_.wait_group(0)
            C[tx] = S[tx * 4 + dst]

    return main


@pytest.mark.parametrize(
    ("size", "dst", "src", "found"),
    [
        (16, 0, 0, set()),
        (16, 0, 4, set()),
        (16, 1, 0, {"misaligned"}),
        (16, 0, 1, {"misaligned"}),
        (8, 2, 2, set()),
        (8, 0, 1, {"misaligned"}),
        (4, 1, 3, set()),
    ],
)
def test_copies_need_aligned_addresses(size, dst, src, found):
    a = np.arange(8 * THREADS, dtype=np.float32)
    assert kinds(copying(size, dst, src), a, blank(THREADS, dtype="float32")) == found


def test_two_copies_in_flight_to_one_place():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((2, THREADS), "float32"), C: T.Buffer((THREADS,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS,), "float32", scope="shared")
            for i in T.serial(2):
                T.ptx["cp.async.ca.shared.global"](T.address_of(S[tx]), T.address_of(A[i, tx]), 4)
                T.ptx.cp.async_.commit_group()
            T.ptx.cp.async_.wait_group(0)
            C[tx] = S[tx]

    a = np.ones((2, THREADS), np.float32)
    assert kinds(main, a, blank(THREADS, dtype="float32")) == {"write-in-flight"}


def test_a_copy_into_a_slot_that_others_may_still_read():
    def func(synced: bool) -> Any:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((2, THREADS), "float32"), C: T.Buffer((2, THREADS), "float32")):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((THREADS,), "float32", scope="shared")
                for i in T.serial(2):
                    T.ptx["cp.async.ca.shared.global"](
                        T.address_of(S[tx]), T.address_of(A[i, tx]), 4
                    )
                    T.ptx.cp.async_.wait_all()
                    T.tvm_storage_sync("shared")
                    C[i, tx] = S[THREADS - 1 - tx]
                    if synced:
                        T.tvm_storage_sync("shared")

        return main

    a = np.arange(2 * THREADS, dtype=np.float32).reshape(2, THREADS)
    c = blank(2, THREADS, dtype="float32")
    assert kinds(func(synced=True), a, c) == set()
    assert kinds(func(synced=False), a, c, timing="late") == {"write-while-read"}
    assert kinds(func(synced=False), a, c, timing="early") == {"write-while-read"}


def barrier_under(limit: int, otherwise: bool) -> Any:
    """A barrier that only threads below ``limit`` reach, and another for the rest if asked."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            if tx < limit:
                T.tvm_storage_sync("shared")
            else:
                if otherwise:
                    T.tvm_storage_sync("shared")
            C[tx] = tx + 1

    return main


def test_a_barrier_that_every_thread_reaches_may_stand_in_a_branch():
    result = emulate(lower(barrier_under(THREADS, otherwise=False)), [blank(THREADS)])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], np.arange(THREADS) + 1)


def test_a_barrier_that_some_threads_miss_stops_the_cta():
    result = emulate(lower(barrier_under(32, otherwise=False)), [blank(THREADS)])
    (hazard,) = result.hazards
    assert hazard.kind == "barrier-divergence"
    detail = the("hazard.passed_by", [hazard.detail])
    assert (detail["arrived"], detail["expected"], detail["who"]) == (32, 64, "threads 0-31")
    assert not result.outputs["C"].any()


def test_threads_that_meet_from_two_barriers_are_reported():
    result = emulate(lower(barrier_under(32, otherwise=True)), [blank(THREADS)])
    (hazard,) = result.hazards
    assert hazard.kind == "barrier-divergence"
    assert hazard.detail == Reason("hazard.different_statements", count=2)


def test_a_barrier_for_part_of_a_warp_is_reported():
    details = [h.detail for h in hazards(barrier_under(16, otherwise=True), blank(THREADS))]
    assert says("hazard.part_of_warp", details)


def test_named_barriers_order_the_warps_that_share_them():
    def func(number: int) -> Any:
        @T.prim_func(s_tir=True)
        def main(C: T.Buffer((2 * THREADS,), "int32")):
            for tx in T.thread_binding(2 * THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((2 * THREADS,), "int32", scope="shared")
                S[tx] = tx
                if tx < THREADS:
                    T.ptx["bar.sync"](T.uint32(1), T.uint32(THREADS))
                else:
                    T.ptx["bar.sync"](T.uint32(number), T.uint32(THREADS))
                # Within the group it is ordered; across the groups it is not.
                C[tx] = S[T.bitwise_xor(tx, THREADS - 1 if number == 2 else 2 * THREADS - 1)]

        return main

    assert kinds(func(2), blank(2 * THREADS)) == set()
    assert kinds(func(3), blank(2 * THREADS)) == {"race"}


def test_syncwarp_orders_a_warp_and_only_a_warp():
    def func(distance: int) -> Any:
        @T.prim_func(s_tir=True)
        def main(C: T.Buffer((THREADS,), "int32")):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                S = T.alloc_buffer((THREADS,), "int32", scope="shared")
                S[tx] = tx
                T.tvm_storage_sync("warp")
                C[tx] = S[T.bitwise_xor(tx, distance)]

        return main

    assert kinds(func(16), blank(THREADS)) == set()
    assert kinds(func(32), blank(THREADS)) == {"race"}


def test_a_shuffle_from_an_inactive_lane():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            if tx < 8:
                C[tx] = T.tvm_warp_shuffle_down(T.uint32(0xFF), A[tx], 4, 32, 32)

    a = np.ones(32, np.float32)
    assert kinds(main, a, np.zeros(32, np.float32)) == {"divergent-warp"}


def test_dynamic_allocations_alias_after_merging_and_an_unordered_reuse_is_a_race():
    """Two views of one arena at overlapping bytes: found at byte level, whatever their types."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((THREADS,), "float32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            S = T.alloc_buffer((THREADS * 4,), "uint8", scope="shared.dyn")
            F = T.decl_buffer((THREADS,), "float32", data=S.data, scope="shared.dyn")
            H = T.decl_buffer((THREADS,), "uint16", data=S.data, scope="shared.dyn")
            F[tx] = T.float32(1)
            C[tx] = F[tx]
            H[THREADS - 1 - tx] = T.uint16(3)

    found = hazards(main, np.zeros(THREADS, np.float32))
    assert {(h.kind, h.buffer) for h in found} == {("race", "S"), ("write-while-read", "S")}
    earlier = {h.other.statement.partition(" = ")[0] for h in found if h.other is not None}
    assert earlier == {"F[tx]", "C[tx]"}  # overwritten, and still read
