"""Races through global memory: what orders two accesses, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason

from .judge import ORDERS, THREADS, WARP, blank, kinds, run

CTAS = 3
SYNC = {
    "nothing": lambda: T.evaluate(0),
    "cta": lambda: T.tvm_storage_sync("shared"),
    "warp": lambda: T.tvm_storage_sync("warp"),
    "named": lambda: T.ptx.bar.sync(1, THREADS),
}


def exchange(sync: str, threads: int = THREADS) -> Any:
    between = SYNC[sync]

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((threads,), "int32"), Y: T.Buffer((threads,), "int32")):
        for tx in T.thread_binding(threads, thread="threadIdx.x"):
            G[tx] = tx
            between()
            Y[tx] = G[threads - 1 - tx]

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_threads_of_a_cta_exchange_without_a_barrier(order):
    result = run(exchange("nothing"), blank(THREADS), blank(THREADS), order=order)
    assert {h.kind for h in result.hazards} <= {"race", "write-while-read"}
    hazard = result.hazards[0]
    assert hazard.buffer == "G"
    assert {hazard.site.statement[0], hazard.other.statement[0]} == {"Y", "G"}
    assert sum(hazard.threads) == THREADS - 1
    assert hazard.offset // 4 in hazard.threads


@pytest.mark.parametrize("sync", ["cta", "named"])
def test_a_barrier_of_the_cta_orders_global_memory(sync):
    assert kinds(exchange(sync), blank(THREADS), blank(THREADS)) == set()


def test_a_warp_is_ordered_by_its_barrier_alone():
    assert kinds(exchange("warp", WARP), blank(WARP), blank(WARP)) == set()
    assert kinds(exchange("nothing", WARP), blank(WARP), blank(WARP)) == {"race"}
    assert kinds(exchange("warp"), blank(THREADS), blank(THREADS)) == {"race"}


@pytest.mark.parametrize("sync", ["nothing", "cta"])
def test_a_write_after_reads_of_others(sync):
    between = SYNC[sync]

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((THREADS,), "int32"), Y: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            Y[tx] = G[0] + G[1]
            between()
            if tx < 2:
                G[tx] = 5

    expected = set() if sync == "cta" else {"write-while-read"}
    assert kinds(main, blank(THREADS), blank(THREADS)) == expected


def test_a_write_is_compared_with_every_reader_not_the_last_alone():
    """The writer is the last reader, and ordered with nobody."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((1,), "int32"), Y: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            if tx == 3:
                Y[tx] = G[0]
            if tx == 40:
                Y[tx] = G[0]
                G[0] = 5

    (hazard,) = run(main, blank(1), blank(THREADS)).hazards
    assert (hazard.kind, hazard.threads) == ("write-while-read", (40, 3))


@pytest.mark.parametrize("writer", [0, 31, THREADS - 1])
def test_all_threads_of_a_statement_are_its_readers(writer):
    """Whichever of them comes to write."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((1,), "int32"), Y: T.Buffer((THREADS,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            Y[tx] = G[0]
            if tx == writer:
                G[0] = 5

    (hazard,) = run(main, blank(1), blank(THREADS)).hazards
    assert hazard.kind == "write-while-read"
    assert hazard.threads[0] == writer != hazard.threads[1]


def test_all_threads_that_store_one_value_are_its_writers():
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((1,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            G[0] = 5
            if tx == THREADS - 1:
                G[0] = 6

    assert kinds(main, blank(1)) == {"race"}


def test_who_stores_the_same_value_is_a_writer_beside_the_last():
    """CTA 1 stores what CTA 0 has stored, and then another value."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((1,), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if tx == 0:
                    G[0] = 5
                    if bx == 1:
                        G[0] = 6

    assert kinds(main, blank(1)) == {"race"}


@pytest.mark.parametrize("reads", [True, False])
def test_ctas_may_store_and_read_back_what_both_store(reads):
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((WARP,), "int32"), Y: T.Buffer((2, WARP), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                G[tx] = tx + 7
                T.tvm_storage_sync("shared")
                if reads:
                    Y[bx, tx] = G[WARP - 1 - tx]

    assert kinds(main, blank(WARP), blank(2, WARP)) == set()


def test_a_plain_read_races_with_the_atomic_additions_of_others():
    """Though the reader has added since, which hides the read."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((1,), "int32"), Y: T.Buffer((1,), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if tx == 0:
                    if bx == 0:
                        Y[0] = C[0]
                    T.evaluate(T.cuda.atomic_add(T.address_of(C[0]), 1))

    (hazard,) = run(main, blank(1), blank(1)).hazards
    assert (hazard.kind, hazard.block) == ("race", (1, 0, 0))


@pytest.mark.parametrize(("scope", "expected"), [("gpu", set()), ("cta", {"race"})])
def test_atomic_additions_do_not_race_within_their_scope(scope, expected):
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((1,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                T.ptx[f"red.relaxed.{scope}.global.add.s32"](T.address_of(C[0]), 1)

    assert kinds(main, blank(1)) == expected


def test_flags_that_many_threads_have_read_may_be_set():
    """Strong reads do not race with a strong write."""

    @T.prim_func(s_tir=True)
    def main(F: T.Buffer((1,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            seen = T.alloc_buffer((1,), "int32", scope="local")
            T.ptx["ld.relaxed.gpu.global.s32"](seen[0], T.address_of(F[0]))
            T.ptx["st.relaxed.gpu.global.s32"](T.address_of(F[0]), 1)

    assert kinds(main, blank(1)) == set()


@pytest.mark.parametrize("same", [True, False])
def test_several_threads_may_store_equal_values(same):
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((CTAS, THREADS), "float32"), G: T.Buffer((2,), "float32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                G[0] = X[bx, tx]
                G[1] = X[bx, 0]

    x = np.full((CTAS, THREADS), np.nan, np.float32)
    if not same:
        x[:] = np.arange(CTAS * THREADS).reshape(x.shape)
    result = run(main, x, np.zeros(2, "float32"))
    assert {h.kind for h in result.hazards} == (set() if same else {"race"})


@pytest.mark.parametrize("synced", [True, False])
def test_an_equal_store_races_with_a_read_of_what_was_there_before(synced):
    """The read is over before its own CTA stores, but not before another one does."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((THREADS,), "int32"), Y: T.Buffer((CTAS, THREADS), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                if synced:
                    Y[bx, tx] = 0
                elif bx == 0:
                    Y[bx, tx] = G[tx]
                T.tvm_storage_sync("shared")
                G[tx] = 7

    assert kinds(main, blank(THREADS), blank(CTAS, THREADS)) == (set() if synced else {"race"})


def test_ctas_accumulate_without_atomics():
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((CTAS, THREADS), "int32"), C: T.Buffer((THREADS,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                C[tx] = C[tx] + X[bx, tx]

    result = run(main, blank(CTAS, THREADS), blank(THREADS))
    assert {h.kind for h in result.hazards} == {"race"}
    assert result.hazards[0].detail == Reason("hazard.unordered_cta", block=(0, 0, 0))
    assert result.hazards[0].block == (1, 0, 0)


def test_a_cta_reads_what_another_writes():
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((CTAS, THREADS), "int32"), G: T.Buffer((CTAS + 1, THREADS), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                G[bx + 1, tx] = G[bx, THREADS - 1 - tx] + X[bx, tx]

    assert kinds(main, blank(CTAS, THREADS), blank(CTAS + 1, THREADS)) == {"race"}


def test_each_thread_may_do_as_it_likes_with_its_own():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((CTAS, THREADS), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                for i in T.serial(3):
                    C[bx, tx] = C[bx, tx] + i

    result = run(main, blank(CTAS, THREADS))
    assert result.hazards == ()
    assert (result.outputs["C"] == 3).all()


def test_bytes_beside_each_other_are_not_the_same():
    """Accesses of several widths to one array: as fine as the finest."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((4 * WARP,), "int8"), D: T.Buffer((WARP,), "int8")):
        for tx in T.thread_binding(2 * WARP, thread="threadIdx.x"):
            if tx < WARP:
                C[tx] = T.int8(1)
            else:
                for i in T.vectorized(2):
                    C[WARP + (tx - WARP) * 2 + i] = T.int8(2)
            if tx < WARP:
                D[tx] = C[tx]

    assert kinds(main, np.zeros(4 * WARP, "int8"), np.zeros(WARP, "int8")) == set()


def test_kernels_of_a_call_run_one_after_the_other():
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((CTAS, WARP), "int32"), Y: T.Buffer((CTAS, WARP), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                G[bx, tx] = bx
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                Y[bx, tx] = G[CTAS - 1 - bx, WARP - 1 - tx]
                G[bx, tx] = 7

    result = run(main, blank(CTAS, WARP), blank(CTAS, WARP))
    assert {h.kernel for h in result.hazards} == {"main_kernel_1"}


@pytest.mark.parametrize("read", [False, True])
def test_atomic_additions_do_not_race_with_each_other(read):
    """But with a plain read they do, though the reader was the last to add."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "int32"), Y: T.Buffer((CTAS, WARP), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                T.evaluate(T.call_extern("int32", "atomicAdd", T.address_of(C[tx]), 1))
                if read:
                    Y[bx, tx] = C[tx]

    result = run(main, blank(WARP), blank(CTAS, WARP))
    assert {h.kind for h in result.hazards} == ({"race"} if read else set())
    assert (result.outputs["C"] == CTAS).all()


def test_an_atomic_addition_races_with_the_zero_that_another_cta_stored():
    """Also where that CTA has added to it since."""

    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((WARP,), "float32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if bx == 0:
                    C[tx] = T.float32(0)
                T.evaluate(T.cuda.atomic_add(T.address_of(C[tx]), T.float32(1)))

    result = run(main, np.zeros(WARP, "float32"))
    assert {h.kind for h in result.hazards} == {"race"}
    assert result.hazards[0].other.statement.startswith("C[")
    assert run(main, np.zeros(WARP, "float32"), blocks=[(0, 0, 0)]).hazards == ()


@pytest.mark.parametrize("sync", [True, False])
def test_a_cluster_barrier_orders_its_ctas(sync):
    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((4, WARP), "int32"), Y: T.Buffer((4, WARP), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    G[bx, tx] = bx
                    if sync:
                        T.cuda.cluster_sync()
                    Y[bx, tx] = G[T.bitwise_xor(bx, 1), tx]

    found = kinds(main, blank(4, WARP), blank(4, WARP))
    assert found == (set() if sync else {"race", "write-while-read"})
