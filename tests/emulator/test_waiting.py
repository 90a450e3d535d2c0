"""CTAs that wait for others of their launch: barriers of the grid, polls, and what never comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.cost.occupancy import occupancy
from pipeliner.diagnostics import Reason
from pipeliner.emulator import emulate
from pipeliner.emulator.engine.registers import allowed, registers_of
from pipeliner.emulator.lower import is_device_function
from pipeliner.instructions.registers import BASE_REGISTERS
from pipeliner.machine import machine_for
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..refusals import the
from .judge import ORDERS, WARP, blank, kinds, run
from .raw import lower

CTAS = 3
THREADS = 2 * WARP
BASE = int(BASE_REGISTERS)
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
    assert (room["most"], room["threads"], room["limiter"]) == (108, 32, "shared memory")


def waits_with(ctas: int, registers: int, least: int = 1) -> Any:
    """CTAs of 256 threads with so many registers that wait for the last; ``least``: on an SM."""

    @T.prim_func(s_tir=True)
    def main(F: T.Buffer((1,), "int32"), Y: T.Buffer((ctas,), "int32")):
        for bx in T.thread_binding(ctas, thread="blockIdx.x"):
            for tx in T.thread_binding(256, thread="threadIdx.x"):
                with T.attr(0, "tirx.launch_bounds_min_blocks_per_sm", least):
                    seen = T.alloc_buffer((registers - BASE,), "int32", scope="local")
                    seen[0] = 0
                    if tx == 0:
                        if bx == ctas - 1:
                            T.ptx["st.relaxed.gpu.global.s32"](T.address_of(F[0]), 1)
                        while seen[0] == 0:
                            T.ptx["ld.relaxed.gpu.global.s32"](seen[0], T.address_of(F[0]))
                        Y[bx] = 1

    return main


def test_registers_let_fewer_ctas_wait() -> None:
    """220 registers, 7168 of a warp: 2 warps for each of 4 partitions, so one CTA."""
    args = blank(1), blank(110)
    hazard = run(waits_with(110, 220), *args).hazards[0]
    assert hazard.kind == "deadlock"
    room = the("hazard.room", [the("hazard.not_resident", [hazard.detail])])
    assert (room["most"], room["registers"], room["limiter"]) == (108, 220, "registers")
    assert run(waits_with(110, 128), *args).hazards == ()


def test_launch_bounds_say_how_many_registers_there_are() -> None:
    func = lower(waits_with(110, 220, least=2))
    assert emulate(func, [blank(1), blank(110)]).hazards == ()
    (kernel,) = (f for f in func.functions.values() if is_device_function(f))
    assert registers_of(kernel, machine_for("a100"), 256) == 128


@pytest.mark.parametrize(
    ("threads", "ctas", "registers"), [(32, 1, 255), (384, 1, 168), (256, 2, 128), (1024, 1, 64)]
)
def test_registers_that_launch_bounds_allow(threads: int, ctas: int, registers: int) -> None:
    machine = machine_for("h100")
    assert allowed(machine, threads, ctas) == registers
    assert occupancy(machine, threads, registers, 0).ctas >= ctas


def test_warpgroups_that_exchange_registers_start_with_all() -> None:
    kernel = pipeliner.build(schedule_gemm(Gemm(512, 512, 512), GemmTile(128, 256, 64)), "h100")
    assert [role.registers > 0 for role in kernel.plan.roles] == [True, True]
    (func,) = (f for f in kernel.lowered.functions.values() if is_device_function(f))
    assert registers_of(func, machine_for("h100"), kernel.plan.threads) == 168


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
