"""Asynchronous copies: group and wait counts, judged by running them as late as they may land."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.ir import Call
from tvm.script import tirx as T

from pipeliner.errors import ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.schedule.modulo import schedule_loop
from pipeliner.passes.schedule.modulo_verify import verify
from pipeliner.plan import LoopPlan, RingPlan
from pipeliner.values.origin import PHASE

from ..refusals import refused
from .async_machine import AsyncMachine
from .core_ops import expand_loop, graph_of, manual_plan

ROWS = 24
VECTOR = 4


def two_copies(n: int | None, low: int = 0, consumers: int = 1) -> Any:
    """C[k] = As + Bs, with A and B copied asynchronously; a second consumer reads Bs into D."""
    A, B, C, D = (ir.buffer([ROWS, VECTOR], "float32", name, "global") for name in "ABCD")
    As, Bs = (ir.buffer([VECTOR], "float32", name, "shared") for name in ("As", "Bs"))
    extent = ir.Var("n", "int32") if n is None else ir.i32(n)
    k = ir.Var("k", "int32")
    load = tirx.BufferLoad

    def copy(name: str, dst: Any, src: Any) -> Any:
        cp = T.ptx["cp.async.cg.shared.global"]
        call = cp(T.address_of(load(dst, [0])), T.address_of(load(src, [k, 0])), 16)
        return ir.op_stmt(name, tirx.Evaluate(call))

    def use(name: str, dst: Any, *sources: Any) -> Any:
        def element(i: Any) -> Any:
            value: Any = tirx.const(1.0, "float32")
            for source in sources:
                value = value + load(source, [i])
            return tirx.BufferStore(dst, value, [k, i])

        return ir.op_stmt(name, ir.loop("i", VECTOR, element))

    ops = [copy("As", As, A), copy("Bs", Bs, B), use("C", C, As, Bs)]
    if consumers == 2:
        ops.append(use("D", D, Bs))
    body = ir.block("", ir.seq(*ops), [As, Bs])
    node = tirx.For(k, ir.i32(low), extent, ir.ForKind.SERIAL, body)
    params = [A, B, C, D, *([extent] if n is None else [])]
    return tirx.PrimFunc(params, ir.block("root", node), None, None)


def assert_right(func: Any, n: int, low: int = 0, consumers: int = 1) -> None:
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((ROWS, VECTOR)).astype("float32") for _ in range(2))
    memory = {"A": a, "B": b, "C": np.zeros_like(a), "D": np.zeros_like(a)}
    got = AsyncMachine(memory, {"n": n}).run(func)
    rows = slice(low, low + n)
    expected_c, expected_d = np.zeros_like(a), np.zeros_like(a)
    expected_c[rows] = np.float32(1.0) + a[rows] + b[rows]
    if consumers == 2:
        expected_d[rows] = np.float32(1.0) + b[rows]
    np.testing.assert_array_equal(got["C"], expected_c)
    np.testing.assert_array_equal(got["D"], expected_d)


def calls(func: Any, name: str) -> list[Any]:
    found: list[Any] = []
    ir.walk(func.body, Call, lambda c: found.append(c) if c.op.name == name else None)
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.permutations(range(4)),
    st.sampled_from(["rolled", "clamped", "peeled"]),
    st.sampled_from([None, *range(8)]),
    st.sampled_from([0, 3]),
)
def test_any_legal_schedule_waits_enough(
    stages: list[int], order: list[int], epilogue: Any, n: int | None, low: int
) -> None:
    func = two_copies(n, low, consumers=2)
    graph = graph_of(func)
    plan = manual_plan(graph, [s - min(stages) for s in stages], order, epilogue)
    try:
        verify(graph, plan)
    except ScheduleRefused:
        assume(False)
    expanded = expand_loop(func, plan)
    for trips in range(8) if n is None else [n]:
        assert_right(expanded, trips, low, consumers=2)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("epilogue", ["rolled", "clamped", "peeled"])
def test_depths(depth: int, epilogue: Any) -> None:
    rings = tuple(RingPlan(name, "shared", depth, 0, (), ()) for name in ("As", "Bs"))
    func = two_copies(None)
    plan = LoopPlan("k", "n", True, rings=rings, epilogue=epilogue)
    done = schedule_loop(graph_of(func), plan, H100)
    assert {ring.buffer: ring.depth for ring in done.rings} == {"As": depth, "Bs": depth}
    expanded = expand_loop(func, done)
    for trips in range(8):
        assert_right(expanded, trips)
    counts = {int(c.args[0].value) for c in calls(expanded, "tirx.ptx.cp_async_wait_group")}
    drain = {0} if epilogue == "clamped" and depth > 1 else set()
    assert counts == {max(0, depth - 2)} | drain


def test_producers_split_by_the_consumer_wait_by_groups() -> None:
    """TVM commits both in one group of its prologue and counts them as two; with the wait at the start
    of the step they are one group everywhere."""
    func = two_copies(9)
    plan = manual_plan(graph_of(func), [0, 0, 3], [0, 2, 1])
    assert {ring.buffer: ring.depth for ring in plan.rings} == {"As": 4, "Bs": 3}
    expanded = expand_loop(func, plan)
    waits = calls(expanded, "tirx.ptx.cp_async_wait_group")
    assert [int(c.args[0].value) for c in waits] == [2]
    assert_right(expanded, 9)


def test_a_wait_that_another_makes_idle_is_not_emitted() -> None:
    """As is copied a step behind Bs, and after it. In the steady state its wait leaves one group in
    flight and the step commits one more, so that the wait for Bs, which leaves two, has nothing to
    do, and no reason to have Bs in a group of its own; in the prologue it stands alone."""
    func = two_copies(9, consumers=2)
    plan = manual_plan(graph_of(func), [1, 0, 3, 2], [1, 0, 2, 3])
    assert {op.name for op in plan.ops if op.kind == "wait"} == {"As.wait", "Bs.wait"}
    expanded = expand_loop(func, plan)
    waits = calls(expanded, "tirx.ptx.cp_async_wait_group")
    assert [int(call.args[0].value) for call in waits] == [2, 1]
    assert_right(expanded, 9, consumers=2)


@pytest.mark.parametrize(
    ("stages", "groups", "left"),
    [
        # Bs is needed in the step that copies it: As, committed before it, has landed by then.
        ([1, 0, 3, 0], 1, [0]),
        # As is needed two steps later, with what came before it; Bs of that step has longer.
        ([1, 0, 3, 3], 2, [3]),
    ],
)
def test_copies_of_two_stages_are_committed_apart_where_a_wait_tells_them_apart(
    stages: list[int], groups: int, left: list[int]
) -> None:
    func = two_copies(9, consumers=2)
    expanded = expand_loop(func, manual_plan(graph_of(func), stages, [0, 1, 2, 3]))
    found: list[Any] = []
    ir.walk(expanded.body, tirx.For, lambda f: found.append(f) if PHASE in f.annotations else None)
    (steady,) = found
    assert len(calls(steady, "tirx.ptx.cp_async_commit_group")) == groups
    waits = calls(steady, "tirx.ptx.cp_async_wait_group")
    assert [int(c.args[0].value) for c in waits] == left
    assert_right(expanded, 9, consumers=2)


def test_one_wait_fewer_reads_what_has_not_landed() -> None:
    """The interpreter objects to a wait that waits for too little."""
    func = two_copies(6)
    expanded = expand_loop(func, manual_plan(graph_of(func), [0, 0, 2], [1, 2, 0]))

    def weaken(call: Any) -> Any:
        if call.op.name != "tirx.ptx.cp_async_wait_group":
            return call
        return T.ptx.cp.async_.wait_group(int(call.args[0].value) + 1)

    body = tvm_ffi.structural_map(expanded.body, [(Call, weaken)])
    weak = tirx.PrimFunc(expanded.params, body, None, None)
    assert_right(expanded, 6)
    with pytest.raises(AssertionError):
        assert_right(weak, 6)


def test_a_copy_without_a_wait_is_refused() -> None:
    func = two_copies(6)
    graph = graph_of(func)
    plan = manual_plan(graph, [0, 0, 1], [0, 1, 2])
    bare = dataclasses.replace(plan, ops=tuple(op for op in plan.ops if op.kind != "wait"))
    where = {"op": "C", "iteration": "i", "buffer": "As"}
    with refused("schedule.read_before_wait", ScheduleRefused, **where):
        verify(graph, bare)


def from_outside(first: str) -> Any:
    """C[k] reads what an asynchronous copy put into E, a buffer from outside the loop."""
    A, C = (ir.buffer([ROWS, VECTOR], "float32", name, "global") for name in "AC")
    E = ir.buffer([VECTOR], "float32", "E", "shared")
    k, zero = ir.Var("k", "int32"), ir.i32(0)
    load = tirx.BufferLoad
    cp = T.ptx["cp.async.cg.shared.global"]
    call = cp(T.address_of(load(E, [zero])), T.address_of(load(A, [k, zero])), 16)
    copy = ir.op_stmt("copy", tirx.Evaluate(call))
    use = ir.op_stmt(
        "use", ir.loop("i", VECTOR, lambda i: tirx.BufferStore(C, load(E, [i]), [k, i]))
    )
    fill = ir.loop("i", VECTOR, lambda i: tirx.BufferStore(E, tirx.const(7.0, "float32"), [i]))
    last = ir.loop("i", VECTOR, lambda i: tirx.BufferStore(C, load(E, [i]), [ir.i32(ROWS - 1), i]))
    ops = [copy, use] if first == "copy" else [use, copy]
    loop = tirx.For(k, zero, ir.i32(9), ir.ForKind.SERIAL, ir.seq(*ops))
    body = ir.block("outer", ir.seq(fill, loop, last), [E])
    return tirx.PrimFunc([A, C], ir.block("root", body), None, None)


@pytest.mark.parametrize("first", ["copy", "use"])
def test_a_copy_that_outlives_its_iteration_lands_in_it(first: str) -> None:
    """Its data is read by the next iteration and after the loop: a wait stands before both."""
    func = from_outside(first)
    graph = graph_of(func)
    plan = manual_plan(graph, [0, 0], [0, 1])
    verify(graph, plan)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, VECTOR)).astype("float32")
    got = AsyncMachine({"A": a, "C": np.zeros_like(a)}, {}).run(expand_loop(func, plan))
    expected = np.zeros_like(a)
    expected[:9] = a[:9] if first == "copy" else np.vstack([np.full((1, 4), 7.0), a[:8]])
    expected[ROWS - 1] = a[8]
    np.testing.assert_array_equal(got["C"], expected)
