"""Threads that copy for wgmma: what is issued while it runs, and what may not be."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import ScheduleRefused
from pipeliner.passes import ir, pipeline
from pipeliner.passes.dependence import FENCE, dependence
from pipeliner.passes.descriptors import encode
from pipeliner.passes.effects import classify, effects
from pipeliner.passes.expand import PHASE
from pipeliner.passes.sync import synchronise
from pipeliner.plan import KernelPlan
from pipeliner.schedules.gemm import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm

from .core_ops import edges_of
from .tiles import calls

GEMM = Gemm(128, 64, 384)
COPIES = ["A_shared", "B_shared"]
MMA, DONE = "matmul_update_o", "matmul_update_o.done"
KNOWN = {
    "cp_async_wait_group": "wait",
    "fence_proxy": "fence",
    "storage_sync": "barrier",
    "wgmma_commit_group": "wgmma",
    "cp_async_c": "copy",
    "wgmma_wait_group": "done",
}
"""What orders or moves anything in a step, by what the names of operators hold."""


def pipelined(gemm: Gemm = GEMM, **options: Any) -> Any:
    schedule = schedule_gemm(gemm, GemmTile(128, 64, 64))
    return pipeliner.pipeline(schedule, "h100", instruction="wgmma", **options)


def order_of(plan: KernelPlan) -> list[str]:
    (loop,) = plan.loops
    return [op.name for op in sorted(loop.ops, key=lambda op: op.order) if op.kind != "wait"]


def step_of(func: Any) -> list[str]:
    """What a step of the steady loop does, in the order in which it was emitted."""
    loops: list[Any] = []
    ir.walk(func.body, tirx.For, loops.append)
    (loop,) = [loop for loop in loops if PHASE in loop.annotations]
    names = [str(getattr(call.op, "name", "")) for call in calls(loop.body, "")]
    found = [short for name in names for part, short in KNOWN.items() if part in name]
    found = [short for short, _ in itertools.groupby(found)]
    return found[:-1] if found[-1] == "copy" else found  # their commit


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("operand", ["shared", "registers"])
@pytest.mark.parametrize("epilogue", ["rolled", "clamped", "peeled"])
def test_copies_are_issued_while_wgmma_runs(depth: int, operand: str, epilogue: str) -> None:
    func = pipelined(mechanism="cp_async", depth=depth, operand=operand, epilogue=epilogue)
    plan = pipeliner.plan_of(func)
    assert order_of(plan) == [MMA, *COPIES, DONE]
    why = f"copies are issued while wgmma runs: they have {depth - 1} steps to land"
    assert why in plan.loops[0].reasons
    if operand == "shared":  # registers are waited for one by one
        assert step_of(func)[:5] == ["wait", "fence", "barrier", "wgmma", "copy"]
    assert step_of(func)[-1] == "done"
    assert step_of(func).count("barrier") == 1


def test_copies_that_the_next_step_waits_for_come_first() -> None:
    func = pipelined(mechanism="cp_async", depth=2)
    assert order_of(pipeliner.plan_of(func)) == [*COPIES, MMA, DONE]
    assert step_of(func) == ["wait", "fence", "barrier", "copy", "wgmma", "done"]
    (loop,) = pipeliner.plan_of(func).loops
    assert "copies are issued before wgmma: the next step waits for them" in loop.reasons
    func = pipelined(mechanism="cp_async", depth={"A_shared": 2, "B_shared": 3})
    assert order_of(pipeliner.plan_of(func)) == [*COPIES, MMA, DONE]


def test_with_one_slot_nothing_moves() -> None:
    func = pipelined(mechanism="cp_async", depth=1)
    assert order_of(pipeliner.plan_of(func)) == [*COPIES, MMA, DONE]
    assert step_of(func).count("barrier") == 2


def test_roles_and_promoted_sums_wait_for_themselves() -> None:
    assert DONE not in order_of(pipeliner.plan_of(pipelined()))
    gemm = Gemm(128, 64, 512, dtype="float8_e4m3fn", out="float32")
    func = pipelined(gemm, mechanism="cp_async", accumulate="promoted", depth=3)
    assert order_of(pipeliner.plan_of(func)) == [*COPIES, MMA]


def test_what_may_be_overwritten_is_known_by_the_wait() -> None:
    """Two slots are enough for copies behind the issue of wgmma, not for those before its end."""
    func = pipelined(mechanism="cp_async", depth=3)
    with pytest.raises(ScheduleRefused, match=rf"before '{DONE}' of iteration i used it: 3 slots"):
        pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=_shallow(func))


def test_the_emulator_sees_a_copy_to_a_slot_that_wgmma_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same plan, had nothing refused it: barriers do not help against what is in flight."""
    plan = _shallow(pipelined(mechanism="cp_async", depth=3))
    monkeypatch.setattr(pipeline, "verify", lambda graph, loop: None)
    func = pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=plan)
    kernel = pipeliner.build(func)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype("float16") for shape in GEMM.shapes()[:2])
    found = kernel.emulate(a, b, np.zeros((128, 64), "float16"), timing="early").hazards
    assert found
    assert {hazard.buffer for hazard in found} <= set(COPIES)
    assert any("wgmma" in f"{hazard}" for hazard in found)


def _shallow(func: Any) -> KernelPlan:
    """The plan of ``func`` with one slot fewer for the same steps."""
    plan = pipeliner.plan_of(func)
    (loop,) = plan.loops
    rings = tuple(dataclasses.replace(ring, depth=ring.depth - 1) for ring in loop.rings)
    return plan.with_loop(dataclasses.replace(loop, rings=rings, source="edited"))


def test_a_wait_moved_behind_the_next_wgmma_is_refused() -> None:
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=3))
    (loop,) = plan.loops
    late = plan.with_op(loop.name, DONE, stage=loop.stages, order=loop.op(DONE).order)
    with pytest.raises(ScheduleRefused, match=f"'{MMA}' of iteration i \\+ 1 must run after"):
        pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=late)


# Kinds and barriers, of statements on their own.

S = ir.buffer([2, 64, 64], "float16", "S", "shared.dyn")
ACC = ir.buffer([32], "float32", "ACC", "local")
TX = ir.Var("threadIdx_x", "int32")


def multiplied() -> Any:
    """ACC += S[0] S[1]^T, in flight."""
    descriptors = [
        encode(T.address_of(tirx.BufferLoad(S, [half, 0, 0])), 16, 1024, 128) for half in (0, 1)
    ]
    call = T.ptx["wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"](
        *[tirx.BufferLoad(ACC, [i]) for i in range(32)], *descriptors, True, 1, 1, 0, 0
    )
    return ir.seq(tirx.Evaluate(call), tirx.Evaluate(T.ptx.wgmma.commit_group.sync.aligned()))


def waited(left: int = 0) -> Any:
    return tirx.Evaluate(T.ptx.wgmma.wait_group.sync.aligned(left))


def overwritten() -> Any:
    return tirx.BufferStore(S, tirx.const(0, "float16"), [0, TX // 64, TX % 64])


def barrier() -> Any:
    return tirx.Evaluate(T.tvm_storage_sync("shared"))


@pytest.mark.parametrize(
    ("stmt", "kind", "runs_on"),
    [
        (multiplied(), "mma", True),
        (ir.seq(multiplied(), waited()), "mma", False),
        (ir.seq(multiplied(), waited(1)), "mma", True),
        (waited(), "done", False),
        (waited(1), "mma", False),
    ],
)
def test_what_runs_on_and_what_waits(stmt: Any, kind: str, runs_on: bool) -> None:
    assert classify(effects(stmt)) == kind
    assert effects(stmt).runs_on == runs_on


def loop_of(*ops: tuple[str, Any]) -> Any:
    body = ir.block("", ir.seq(*[ir.op_stmt(name, stmt) for name, stmt in ops]), [S])
    return tirx.For(ir.Var("k", "int32"), ir.i32(0), ir.i32(8), tirx.ForKind.SERIAL, body)


def test_what_runs_on_is_used_until_its_wait() -> None:
    graph = dependence(
        loop_of(("copy", overwritten()), ("mma", multiplied()), ("mma.done", waited())), {TX: 128}
    )
    assert graph.nodes["mma.done"]["kind"] == "done"
    assert graph.nodes["mma.done"]["reads"] == graph.nodes["mma"]["reads"]
    edges = edges_of(graph)
    assert {("mma", "mma.done", "RAW", "ACC", 0), ("mma.done", "mma", "WAR", "ACC", 1)} <= edges
    assert ("copy", "mma.done", "RAW", "S", 0) in edges


def test_a_wait_for_the_iteration_before_keeps_its_place() -> None:
    graph = dependence(
        loop_of(("wait", waited()), ("copy", overwritten()), ("mma", multiplied())), {TX: 128}
    )
    assert {
        ("wait", "copy", "RAW", FENCE, 0),
        ("wait", "mma", "RAW", FENCE, 0),
        ("mma", "wait", "RAW", FENCE, 1),
    } <= edges_of(graph)


@pytest.mark.parametrize(
    ("parts", "barriers"),
    [
        ([multiplied(), waited(), overwritten()], 1),
        ([multiplied(), waited(), barrier(), overwritten()], 1),
        # A barrier that came too early ends nothing.
        ([multiplied(), barrier(), waited(), overwritten()], 2),
        ([multiplied(), barrier(), waited(1), overwritten()], 2),
        ([multiplied(), waited(), barrier(), waited(), overwritten()], 1),
    ],
)
def test_threads_meet_behind_the_wait_for_what_wgmma_reads(parts: Any, barriers: int) -> None:
    body = ir.block("", ir.seq(*parts), [S, ACC])
    func = tirx.PrimFunc([], ir.thread_loop(TX, 128, "threadIdx.x", body))
    _, found = synchronise(func)
    assert found.barriers == barriers
