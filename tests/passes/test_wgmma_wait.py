"""Math warps that issue cp.async for wgmma: what they issue while it runs, and what may not be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, ScheduleRefused
from pipeliner.passes.schedule import obeyed
from pipeliner.passes.sync import synchronise as sync
from pipeliner.plan import KernelPlan
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm

from ..refusals import refused, the
from .wgmma_loops import (
    COPIES,
    DONE,
    GEMM,
    MMA,
    order_of,
    pipelined,
    planned,
    step_of,
)


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("operand", ["shared", "registers"])
@pytest.mark.parametrize("epilogue", ["rolled", "clamped", "peeled"])
@pytest.mark.part(2)
def test_copies_are_issued_while_wgmma_runs(depth: int, operand: str, epilogue: str) -> None:
    func = pipelined(mechanism="cp_async", depth=depth, operand=operand, epilogue=epilogue)
    plan = pipeliner.plan_of(func)
    assert order_of(plan) == [MMA, *COPIES, DONE]
    steps = depth - 1 - plan.matmuls[0].in_flight
    assert Reason("schedule.copies_under", steps=steps) in plan.loops[0].reasons
    if operand == "shared":  # registers are waited for one by one
        assert step_of(func)[:5] == ["wait", "fence", "barrier", "wgmma", "copy"]
    assert step_of(func)[-1] == "mma_wait"
    assert step_of(func).count("barrier") == 1


def test_copies_that_the_next_step_waits_for_come_first() -> None:
    func = pipelined(mechanism="cp_async", depth=2)
    assert order_of(pipeliner.plan_of(func)) == [*COPIES, MMA, DONE]
    assert step_of(func) == ["wait", "fence", "barrier", "copy", "wgmma", "mma_wait"]
    (loop,) = pipeliner.plan_of(func).loops
    assert Reason("schedule.copies_first") in loop.reasons
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
    with refused("ring.overwritten", ScheduleRefused, user=DONE, needed=3):
        pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=_shallow(func))


@pytest.mark.slow
@pytest.mark.deep("tests/verify/test_ping_pong.py::test_no_mutant_survives")
def test_the_emulator_sees_a_copy_to_a_slot_that_wgmma_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same plan, had nothing refused it: barriers do not help against what is in flight."""
    plan = _shallow(pipelined(mechanism="cp_async", depth=3))
    monkeypatch.setattr(obeyed, "verify", lambda graph, loop: None)
    with refused("sync.needs_wgmma_wait", LoweringError) as caught:
        planned(plan)
    conflict = the("sync.conflict_between", [caught.value.reason])
    assert (conflict["kind"], conflict["buffer"]) == ("WAR", "A_shared")
    monkeypatch.setattr(sync.Synchroniser, "check_reading", lambda self, node, state: None)
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
    edited = plan.with_loop(dataclasses.replace(loop, rings=rings, source="edited"))
    return edited.without_derived()
