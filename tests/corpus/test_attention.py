"""The attention loop: a modulo schedule finds overlap that a list of load and compute stages cannot."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.plan import LoopPlan

from ..refusals import the
from .tiles import attention


@pytest.fixture(scope="module")
def loop() -> LoopPlan:
    plan = pipeliner.plan_of(pipeliner.pipeline(attention, "a100"))
    return next(loop for loop in plan.loops if loop.pipelined)


def test_initiation_interval_meets_its_lower_bound_or_says_why_not(loop: LoopPlan) -> None:
    bound = max(loop.res_mii, loop.rec_mii)
    assert bound > 0
    assert loop.ii >= bound
    if loop.ii > bound:
        said = the("schedule.interval", loop.reasons)
        assert (said["interval"], said["bound"]) == (loop.ii, bound)


def test_recurrence_runs_through_the_running_maximum(loop: LoopPlan) -> None:
    carried = {edge.buffer for edge in loop.edges if edge.kind == "RAW" and edge.distance > 0}
    assert {"row_max", "row_sum", "acc"} <= carried
    assert not {"K_shared", "V_shared", "scores"} & carried


def test_compute_of_different_tiles_overlaps(loop: LoopPlan) -> None:
    """A fixed list [0, 0, 1, ..., 1] runs all compute of a step on one tile; here two tiles meet."""
    compute_stages = {op.stage for op in loop.ops if op.kind in ("mma", "compute")}
    assert len(compute_stages) >= 2, [(op.name, op.stage) for op in loop.ops]
    assert loop.op("scores").stage < loop.op("output").stage


def test_carried_state_has_one_version(loop: LoopPlan) -> None:
    depths = {ring.buffer: ring.depth for ring in loop.rings}
    assert not {"row_max", "row_sum", "acc"} & set(depths)
    assert depths["K_shared"] >= 2
    assert depths["V_shared"] >= 2
