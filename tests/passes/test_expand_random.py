"""Random loops: what the verifier accepts is right on LLVM, what breaks a dependence is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeliner.errors import ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.schedule.modulo import schedule_loop
from pipeliner.passes.schedule.modulo_verify import verify
from pipeliner.plan import LoopPlan, RingPlan

from ..refusals import refused
from .core_ops import compiled, expand_loop, graph_of, manual_plan, run, the_loop
from .random_loops import Loop, arguments, function, is_legal, loops

TRIPS = 9
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def schedules(draw: Any, guards: bool = True) -> tuple[Loop, list[int], list[int]]:
    """A loop with stages and an order; half of them keep stages in program order."""
    loop = draw(loops(guards=guards))
    count = len(loop.statements)
    stages = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    if draw(st.booleans()):
        stages = sorted(stages)
    stages = [stage - min(stages) for stage in stages]
    return loop, stages, draw(st.permutations(range(count)))


@QUICK
@given(schedules(guards=False))
def test_verdict_is_exact(case: tuple[Loop, list[int], list[int]]) -> None:
    loop, stages, order = case
    graph = graph_of(function(loop, TRIPS))
    plan = manual_plan(graph, stages, order)
    if is_legal(loop, stages, order, TRIPS):
        verify(graph, plan)
        return
    with refused("schedule.dependence", ScheduleRefused):
        verify(graph, plan)


def _same(func: Any, pipelined: Any, trips: range) -> None:
    before, after = compiled(func), compiled(pipelined)
    for n in trips:
        arrays = arguments(n)
        for x, y in zip(run(before, *arrays, n), run(after, *arrays, n), strict=True):
            np.testing.assert_array_equal(x, y)


@SLOW
@given(schedules(), st.sampled_from(["rolled", "clamped", "peeled"]))
@pytest.mark.deep(
    "test_static_trip_count; tests/passes/test_sync.py::test_every_trip_count_is_right"
)
def test_dynamic_trip_count(case: tuple[Loop, list[int], list[int]], epilogue: Any) -> None:
    loop, stages, order = case
    func = function(loop, None)
    graph = graph_of(func)
    plan = manual_plan(graph, stages, order, epilogue)
    if plan.unroll > 1:
        plan = manual_plan(graph, stages, order)  # constant slots cannot follow a dynamic end
    try:
        verify(graph, plan)
    except ScheduleRefused:
        return
    _same(func, expand_loop(func, plan), range(10))


@SLOW
@given(schedules(), st.sampled_from(["rolled", "peeled"]), st.integers(0, 9))
@pytest.mark.slow
def test_static_trip_count(case: tuple[Loop, list[int], list[int]], epilogue: Any, n: int) -> None:
    loop, stages, order = case
    func = function(loop, n)
    graph = graph_of(func)
    plan = manual_plan(graph, stages, order, epilogue)
    try:
        verify(graph, plan)
    except ScheduleRefused:
        return
    before, after = compiled(func), compiled(expand_loop(func, plan))
    for x, y in zip(run(before, *arguments(n)), run(after, *arguments(n)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@SLOW
@given(loops(), st.integers(1, 5), st.sampled_from([None, 0, 1, 3, 7]))
def test_schedules_that_modulo_finds(loop: Loop, depth: int, n: int | None) -> None:
    func = function(loop, n)
    form, graph = the_loop(func), graph_of(func)
    rings = (RingPlan("r0", loop.scopes[0], depth, 0, (), ()),)
    plan = schedule_loop(graph, LoopPlan("k", "n", True, rings=rings), H100)
    if plan.pipelined and n is None:
        _same(func, expand_loop(func, plan), range(10))
    elif plan.pipelined:
        before, after = compiled(func), compiled(expand_loop(func, plan))
        for x, y in zip(run(before, *arguments(n)), run(after, *arguments(n)), strict=True):
            np.testing.assert_array_equal(x, y)


def test_some_random_schedules_are_legal_and_some_are_not() -> None:
    """The strategy exercises both verdicts, else the tests above would prove nothing."""
    verdicts: list[bool] = []

    @settings(max_examples=50, deadline=None, database=None, derandomize=True)
    @given(schedules(guards=False))
    def collect(case: tuple[Loop, list[int], list[int]]) -> None:
        verdicts.append(is_legal(*case, TRIPS))

    collect()
    assert 8 <= sum(verdicts) <= len(verdicts) - 8
