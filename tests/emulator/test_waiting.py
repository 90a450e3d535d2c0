"""CTAs that wait for others of their launch: barriers of the grid, polls, and what never comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason

from ..refusals import the
from .judge import ORDERS, WARP, blank, kinds, run

CTAS = 3
THREADS = 2 * WARP
COOPERATIVE = ("tirx.kernel_launch_params", ["tirx.use_cooperative_launch"])


def exchange(phases: int = 2) -> Any:
    """Every CTA reads what the next one stored before the barrier, several times."""

    @T.prim_func(s_tir=True)
    def main(G: T.Buffer((CTAS, THREADS), "int32"), Y: T.Buffer((phases, CTAS, THREADS), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                for p in T.serial(phases):
                    G[bx, tx] = bx * 100 + tx + p
                    T.cuda.grid_sync()
                    Y[p, bx, tx] = G[(bx + 1) % CTAS, THREADS - 1 - tx]
                    T.cuda.grid_sync()

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_of_the_grid_orders_its_ctas(order):
    result = run(
        exchange().with_attr(*COOPERATIVE),
        blank(CTAS, THREADS),
        blank(2, CTAS, THREADS),
        order=order,
    )
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    bx, tx = np.arange(CTAS)[:, None], np.arange(THREADS)
    want = (bx + 1) % CTAS * 100 + THREADS - 1 - tx
    np.testing.assert_array_equal(result.outputs["Y"], [want, want + 1])


def test_a_barrier_of_the_grid_needs_a_cooperative_launch():
    result = run(exchange(), blank(CTAS, THREADS), blank(2, CTAS, THREADS))
    assert result.hazards[0].detail == Reason("hazard.not_cooperative")


def test_a_cta_that_leaves_before_the_barrier_of_the_grid():
    @T.prim_func(s_tir=True)
    def main(Y: T.Buffer((CTAS,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                if bx != 1:
                    T.cuda.grid_sync()
                    if tx == 0:
                        Y[bx] = 1

    hazards = run(main.with_attr(*COOPERATIVE), blank(CTAS)).hazards
    assert {h.kind for h in hazards} == {"deadlock"}
    assert Reason("hazard.grid_barrier", arrived=64, expected=96) in hazards[0].detail.walk()


def counted(arrive: str, look: str) -> Any:
    """A barrier of the grid as it is often written: count, then poll the count."""

    @T.prim_func(s_tir=True)
    def main(
        G: T.Buffer((CTAS, THREADS), "int32"),
        N: T.Buffer((1,), "int32"),
        Y: T.Buffer((CTAS, THREADS), "int32"),
    ):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
                seen = T.alloc_buffer((1,), "int32", scope="local")
                G[bx, tx] = bx + tx
                T.tvm_storage_sync("shared")
                if tx == 0:
                    T.ptx[f"red.{arrive}.gpu.global.add.s32"](T.address_of(N[0]), 1)
                    seen[0] = 0
                    while seen[0] < CTAS:
                        T.ptx[f"ld.{look}.gpu.global.s32"](seen[0], T.address_of(N[0]))
                T.tvm_storage_sync("shared")
                Y[bx, tx] = G[(bx + 1) % CTAS, tx]

    return main


@pytest.mark.parametrize("order", ORDERS)
def test_counting_and_polling_order_the_grid(order):
    args = blank(CTAS, THREADS), blank(1), blank(CTAS, THREADS)
    result = run(counted("release", "acquire"), *args, order=order)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    want = (np.arange(CTAS)[:, None] + 1) % CTAS + np.arange(THREADS)
    np.testing.assert_array_equal(result.outputs["Y"], want)


@pytest.mark.parametrize(("arrive", "look"), [("relaxed", "acquire"), ("release", "relaxed")])
def test_a_poll_alone_orders_nothing(arrive, look):
    found = kinds(counted(arrive, look), blank(CTAS, THREADS), blank(1), blank(CTAS, THREADS))
    assert found == {"race"}


def chain(backwards: bool, sleeps: bool = False) -> Any:
    """Each CTA waits for a flag of its neighbour, the last or the first of nobody's."""
    first, step = (CTAS - 1, 1) if backwards else (0, -1)

    @T.prim_func(s_tir=True)
    def main(F: T.Buffer((CTAS,), "int32"), Y: T.Buffer((CTAS,), "int32")):
        for bx in T.thread_binding(CTAS, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                seen = T.alloc_buffer((2,), "int32", scope="local")
                if tx == 0:
                    seen[0] = 0
                    seen[1] = 0
                    if bx != first:
                        while seen[0] == 0:
                            T.ptx["ld.acquire.gpu.global.s32"](seen[0], T.address_of(F[bx + step]))
                            if sleeps:
                                seen[1] = T.min(seen[1] * 2 + 1, 512)
                                T.cuda.nano_sleep(seen[1])
                    Y[bx] = seen[0]
                    T.ptx["st.release.gpu.global.s32"](T.address_of(F[bx]), 1 + seen[0])

    return main


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sleeps", [False, True])
def test_a_cta_may_wait_for_another_before_or_after_it(backwards, sleeps):
    result = run(chain(backwards, sleeps), blank(CTAS), blank(CTAS))
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    want = np.arange(CTAS)
    np.testing.assert_array_equal(result.outputs["Y"], want[::-1] if backwards else want)


def test_a_poll_for_a_cta_that_is_not_run():
    (hazard,) = run(chain(True), blank(CTAS), blank(CTAS), blocks=[(0, 0, 0)]).hazards
    assert hazard.kind == "deadlock"
    *_, polls, ran = hazard.detail["waits"]
    assert polls["what"] == Reason("hazard.poll")
    assert ran == Reason("hazard.ctas_run", ran=1, total=3)


@pytest.mark.parametrize("order", ORDERS)
def test_a_poll_that_nobody_ends(order):
    @T.prim_func(s_tir=True)
    def main(F: T.Buffer((1,), "int32"), Y: T.Buffer((WARP,), "int32")):
        for tx in T.thread_binding(WARP, thread="threadIdx.x"):
            while F[0] == 0:
                T.evaluate(0)
            Y[tx] = 1

    (hazard,) = run(main, blank(1), blank(WARP), order=order).hazards
    assert (hazard.kind, hazard.site.statement) == ("deadlock", "while")


@pytest.mark.parametrize("order", ORDERS)
def test_warps_of_a_cta_may_poll_each_other(order):
    """The one that polls stands first."""

    @T.prim_func(s_tir=True)
    def main(F: T.Buffer((1,), "int32"), Y: T.Buffer((1,), "int32")):
        for tx in T.thread_binding(THREADS, thread="threadIdx.x"):
            seen = T.alloc_buffer((1,), "int32", scope="local")
            if tx == 0:
                seen[0] = 0
                while seen[0] == 0:
                    T.ptx["ld.acquire.gpu.global.s32"](seen[0], T.address_of(F[0]))
                Y[0] = seen[0]
            if tx == WARP:
                T.ptx["st.release.gpu.global.s32"](T.address_of(F[0]), 7)

    result = run(main, blank(1), blank(1), order=order)
    assert result.hazards == ()
    assert result.outputs["Y"][0] == 7


def test_as_many_ctas_wait_as_a_gpu_holds():
    """CTAs of 100 kB of shared memory: one for each of the 108 SMs of an A100."""

    def waits_for(ctas: int) -> Any:
        @T.prim_func(s_tir=True)
        def main(F: T.Buffer((1,), "int32"), Y: T.Buffer((ctas,), "int32")):
            for bx in T.thread_binding(ctas, thread="blockIdx.x"):
                for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                    S = T.alloc_buffer((25000,), "int32", scope="shared")
                    S[tx] = 0
                    if tx == 0:
                        if bx == ctas - 1:
                            T.ptx["st.relaxed.gpu.global.s32"](T.address_of(F[0]), 1)
                        while S[0] == 0:
                            T.ptx["ld.relaxed.gpu.global.s32"](S[0], T.address_of(F[0]))
                        Y[bx] = 1

        return main

    assert run(waits_for(108), blank(1), blank(108)).hazards == ()
    hazard = run(waits_for(110), blank(1), blank(110)).hazards[0]
    assert hazard.kind == "deadlock"
    room = the("hazard.room", [the("hazard.not_resident", [hazard.detail])])
    assert room["machine"].startswith("A100")
    assert (room["most"], room["threads"]) == (108, 32)


def test_loops_that_wait_for_nobody_run_one_cta_after_the_other():
    """They read memory that the kernel writes, in so many rounds as they like."""
    ctas, rounds = 600, 5

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((ctas, WARP), "int32")):
        for bx in T.thread_binding(ctas, thread="blockIdx.x"):
            for tx in T.thread_binding(WARP, thread="threadIdx.x"):
                while X[bx, tx] < rounds:
                    X[bx, tx] = X[bx, tx] + 1

    result = run(main, blank(ctas, WARP))
    assert result.hazards == ()
    assert (result.outputs["X"] == rounds).all()
