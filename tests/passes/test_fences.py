"""What no load may move above: polls, exits of a loop's own, ordered accesses, opaque calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import ScheduleRefused
from pipeliner.passes.analysis.effects import effects
from pipeliner.passes.ir import nodes as ir

from ..refusals import refused

FLAGS = ir.buffer([24], "uint32", "FL", "global")
DATA = ir.buffer([24, 64], "float32", "Y", "global")
SHARED = ir.buffer([64], "float32", "S", "shared")
REGISTER = ir.buffer([1], "uint32", "V", "local")
BARRIER = ir.buffer([1], "uint64", "BAR", "shared")
load = tirx.BufferLoad


def at(buf: Any, *index: Any) -> Any:
    return load(buf, list(index))


def flag() -> Any:
    return T.address_of(at(FLAGS, 0))


def ptx(name: str, *args: Any) -> Any:
    return tirx.Evaluate(T.ptx[name](*args))


def while_(condition: Any, *body: Any) -> Any:
    return tirx.While(condition, ir.seq(*body))


def loaded() -> Any:
    return tirx.BufferStore(REGISTER, at(FLAGS, 0), [0])


ZERO = tirx.const(0, "uint32")
ONE = tirx.const(1, "uint32")

ORDERING: dict[str, Callable[[], Any]] = {
    "a poll of global memory": lambda: while_(tirx.EQ(at(FLAGS, 0), ZERO)),
    "a poll through a register": lambda: while_(tirx.EQ(at(REGISTER, 0), ZERO), loaded()),
    "a poll by ld.relaxed": lambda: while_(
        tirx.EQ(at(REGISTER, 0), ZERO), ptx("ld.relaxed.gpu.global.u32", at(REGISTER, 0), flag())
    ),
    "an acquiring load": lambda: ptx("ld.acquire.gpu.global.u32", at(REGISTER, 0), flag()),
    "a volatile load": lambda: ptx("ld.volatile.global.u32", at(REGISTER, 0), flag()),
    "a releasing store": lambda: ptx("st.release.gpu.global.u32", flag(), at(REGISTER, 0)),
    "an atomic that is taken": lambda: ptx("atom.global.add.u32", at(REGISTER, 0), flag(), ONE),
    "a ticket": lambda: tirx.BufferStore(REGISTER, T.cuda.atomic_add(flag(), ONE), [0]),
    "a memory fence": lambda: ptx("fence.acq_rel.gpu"),
    "a thread fence": lambda: tirx.Evaluate(T.cuda.thread_fence()),
    "an extern without pointers": lambda: tirx.Evaluate(T.call_extern("int32", "wait_for", 3)),
    "a wait at an mbarrier": lambda: tirx.Evaluate(
        T.cuda.mbarrier_wait(T.address_of(at(BARRIER, 0)), 0)
    ),
    "a break": lambda: tirx.IfThenElse(tirx.EQ(at(FLAGS, 0), ZERO), tirx.Break(), None),
    "a break of TVM's older form": lambda: tirx.Evaluate(T.break_loop()),
}

HARMLESS: dict[str, Callable[[], Any]] = {
    "an atomic that only adds": lambda: tirx.Evaluate(T.cuda.atomic_add(flag(), ONE)),
    "a reduction": lambda: ptx("red.global.add.u32", flag(), ONE),
    "a plain load": lambda: ptx("ld.global.u32", at(REGISTER, 0), flag()),
    "a relaxed load": lambda: ptx("ld.relaxed.gpu.global.u32", at(REGISTER, 0), flag()),
    "a loop over registers": lambda: while_(
        at(REGISTER, 0) < tirx.const(9, "uint32"),
        tirx.BufferStore(REGISTER, at(REGISTER, 0) + ONE, [0]),
    ),
    "a loop that only adds up what is loaded": lambda: while_(
        at(REGISTER, 0) < tirx.const(9, "uint32"),
        tirx.BufferStore(SHARED, at(DATA, 0, 0), [0]),
        tirx.BufferStore(REGISTER, at(REGISTER, 0) + ONE, [0]),
    ),
    "an extern that gets a pointer": lambda: tirx.Evaluate(T.call_extern("int32", "f", flag())),
}


@pytest.mark.parametrize("name", ORDERING)
def test_nothing_moves_across(name: str) -> None:
    assert effects(ORDERING[name]()).why_fence()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_touches_memory_is_no_fence(name: str) -> None:
    assert not effects(HARMLESS[name]()).why_fence()


def test_a_loop_that_scans_the_tile_of_its_own_iteration_waits_for_nobody() -> None:
    scan = while_(
        at(SHARED, at(REGISTER, 0)) > tirx.const(0.0, "float32"),
        tirx.BufferStore(REGISTER, at(REGISTER, 0) + ONE, [0]),
    )
    assert effects(scan).why_fence() == Reason("fence.polls", buffer="S")
    assert not effects(scan).why_fence([SHARED])


def test_a_call_touches_what_the_signature_of_its_block_lists() -> None:
    call = tirx.Evaluate(T.call_extern("int32", "f", SHARED.access_ptr("r")))
    whole = tvm.ir.Range.from_min_extent
    writes = [tirx.BufferRegion(DATA, [whole(0, 24), whole(0, 64)])]
    block = ir.block("b", call, writes=writes)
    found = [(str(a.buffer.name), a.mode) for a in effects(block).accesses]
    assert found == [("S", "r"), ("Y", "w")]


SCRIPT = """
@T.prim_func(s_tir=True)
def main(
    FL: T.Buffer((24,), "int32"), Y: T.Buffer((40, 64), "float32"), Z: T.Buffer((24, 64), "float32")
):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("cta"):
                got = T.sblock_alloc_buffer((1,), "int32", scope="local")
                Xs = T.sblock_alloc_buffer((64,), "float32", scope="shared")
                for t in T.serial(24{annotations}):
                    with T.sblock("ld"):
                        Xs[tx] = Y[t, tx]
                    {ordering}
                    with T.sblock("st"):
                        Z[t, tx] = Xs[63 - tx]
"""

POLL = "while FL[t] == 0:\n                        T.evaluate(0)"
LEAVE = "if FL[t] == 0:\n                        break"
TICKET = "got[0] = T.cuda.atomic_add(T.address_of(FL[t]), T.int32(1))"
ANNOTATED = (
    ", annotations={'software_pipeline_stage': [0, 1, 1], 'software_pipeline_order': [0, 1, 2]}"
)


def function(ordering: str, annotations: str = "") -> Any:
    return tvm.script.from_source(SCRIPT.format(ordering=ordering, annotations=annotations))


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "FL": np.ones(24, "int32"),
        "Y": rng.standard_normal((40, 64)).astype("float32"),
        "Z": np.zeros((24, 64), "float32"),
    }


@pytest.mark.parametrize(
    ("ordering", "why"),
    [
        (POLL, Reason("fence.polls", buffer="FL")),
        (LEAVE, Reason("fence.leaves", by="break_loop")),
        (TICKET, Reason("fence.takes", by="atomic_add")),
        (
            "T.evaluate(T.cuda.thread_fence())",
            Reason("fence.calls", function="cuda.thread_fence"),
        ),
    ],
)
def test_a_loop_that_waits_for_others_is_left_alone(ordering: str, why: Reason) -> None:
    kernel = pipeliner.build(function(ordering), "sm_80")
    (reason,) = kernel.plan.loop("t").reasons
    assert reason == Reason("loop.fence", fence=why)
    if ordering == POLL:
        given = arrays()
        result = kernel.emulate(*given.values())
        assert not result.hazards
        np.testing.assert_array_equal(result.outputs["Z"], given["Y"][:24, ::-1])


def test_without_the_poll_it_is_pipelined() -> None:
    assert pipeliner.build(function("T.evaluate(0)"), "sm_80").plan.loop("t").pipelined


def test_an_annotated_loop_that_polls_is_refused() -> None:
    with refused("schedule.dependence", ScheduleRefused, loop="t"):
        pipeliner.pipeline(function(POLL, ANNOTATED), "sm_80")


def test_an_inner_trip_count_that_others_may_write_is_no_candidate() -> None:
    """The kernel writes FL elsewhere, so that other CTAs may while this one reads it."""
    inner = "for u in T.serial(FL[t]):\n                        got[0] = got[0] + u"
    plain = pipeliner.build(function(inner), "sm_80").plan.loop("t")
    assert plain.pipelined
    script = SCRIPT.format(ordering=inner, annotations="").replace(
        "                for t in", "                FL[tx % 24] = 5\n                for t in"
    )
    (reason,) = pipeliner.build(tvm.script.from_source(script), "sm_80").plan.loop("t").reasons
    assert reason == Reason("loop.inner_trip", buffer="FL")


TILES = """
@T.prim_func(s_tir=True)
def main(
    FL: T.Buffer((8,), "int32"), A: T.Buffer((128, 256), "float16"),
    B: T.Buffer((128, 256), "float16"), C: T.Buffer((128, 128), "float32"),
):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer((128, 128), "float32", scope="local")
            {before}
            for i, j in T.grid(128, 128):
                with T.sblock("zero"):
                    acc[i, j] = T.float32(0)
            for k in T.serial(4):
                with T.sblock("it"):
                    As = T.sblock_alloc_buffer((128, 64), "float16", scope="shared.dyn")
                    Bs = T.sblock_alloc_buffer((128, 64), "float16", scope="shared.dyn")
                    for i, j in T.grid(128, 64):
                        with T.sblock("A"):
                            As[i, j] = A[i, k * 64 + j]
                    for i, j in T.grid(128, 64):
                        with T.sblock("B"):
                            Bs[i, j] = B[i, k * 64 + j]
                    for i, j, r in T.grid(128, 128, 64):
                        with T.sblock("mma"):
                            acc[i, j] = acc[i, j] + (
                                T.Cast("float32", As[i, r]) * T.Cast("float32", Bs[j, r])
                            )
            for i, j in T.grid(128, 128):
                with T.sblock("store"):
                    C[i, j] = acc[i, j]
"""


@pytest.mark.parametrize(("poll", "mechanism"), [(False, "tma"), (True, "cp_async")])
def test_no_producer_warp_copies_ahead_of_a_poll(poll: bool, mechanism: str) -> None:
    before = "while FL[0] == 0:\n                T.evaluate(0)" if poll else ""
    script = TILES.format(before=before)
    plan = pipeliner.build(tvm.script.from_source(script), "h100", instruction="wgmma").plan
    assert {copy.mechanism for copy in plan.copies} == {mechanism}
