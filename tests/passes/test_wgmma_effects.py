"""Wgmmas and waits for them as statements on their own: kinds, dependences and barriers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.analysis.effects import effects
from pipeliner.passes.analysis.op_kinds import classify
from pipeliner.passes.dependence.graph import FENCE, dependence
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.matmul.descriptors import encode
from pipeliner.passes.schedule.modulo import schedule_loop
from pipeliner.passes.schedule.modulo_verify import verify
from pipeliner.passes.sync.synchronise import synchronise
from pipeliner.plan import LoopPlan
from pipeliner.values.origin import PHASE

from ..refusals import refused, the
from .core_ops import edges_of, manual_plan

S = ir.buffer([2, 64, 64], "float16", "S", "shared.dyn")
ACC = ir.buffer([32], "float32", "ACC", "local")
G = ir.buffer([128], "float16", "G", "global")
TX = ir.Var("threadIdx_x", "int32")


def multiplied(*descriptors: Any) -> Any:
    """ACC += S[0] S[1]^T, or what the one descriptor says times itself, in flight."""
    descriptors = 2 * descriptors or tuple(
        encode(T.address_of(tirx.BufferLoad(S, [half, 0, 0])), 16, 1024, 128) for half in (0, 1)
    )
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
    ("stmt", "kind", "in_flight"),
    [
        (multiplied(), "mma", True),
        (ir.seq(multiplied(), waited()), "mma", False),
        (ir.seq(multiplied(), waited(1)), "mma", True),
        (waited(), "mma_wait", False),
        (waited(1), "mma", False),
    ],
)
def test_what_runs_on_and_what_waits(stmt: Any, kind: str, in_flight: bool) -> None:
    assert classify(effects(stmt)) == kind
    assert effects(stmt).in_flight == in_flight


def loop_of(*ops: tuple[str, Any]) -> Any:
    body = ir.block("", ir.seq(*[ir.op_stmt(name, stmt) for name, stmt in ops]), [S])
    return tirx.For(ir.Var("k", "int32"), ir.i32(0), ir.i32(8), tirx.ForKind.SERIAL, body)


def test_what_runs_on_is_used_until_its_wait() -> None:
    graph = dependence(
        loop_of(("copy", overwritten()), ("mma", multiplied()), ("mma.mma_wait", waited())),
        {TX: 128},
    )
    assert graph.nodes["mma.mma_wait"]["kind"] == "mma_wait"
    assert graph.nodes["mma.mma_wait"]["reads"] == graph.nodes["mma"]["reads"]
    edges = edges_of(graph)
    assert {
        ("mma", "mma.mma_wait", "RAW", "ACC", 0),
        ("copy", "mma.mma_wait", "RAW", "S", 0),
    } <= edges


def test_only_the_next_one_of_itself_may_add_to_what_is_in_flight() -> None:
    parts = [("mma", multiplied()), ("mma.mma_wait", waited())]
    edges = edges_of(dependence(loop_of(("copy", overwritten()), *parts), {TX: 128}))
    behind = {edge for edge in edges if edge[0] == "mma.mma_wait" and edge[3] == "ACC"}
    assert {edge[1] for edge in behind} == {"mma.mma_wait"}
    # Who reads the sums, or sets them anew, comes behind the wait.
    read = tirx.BufferStore(S, tirx.Cast("float16", tirx.BufferLoad(ACC, [0])), [0, TX, 0])
    reset = tirx.BufferStore(ACC, tirx.const(0, "float32"), [0])
    edges = edges_of(dependence(loop_of(*parts, ("read", read), ("reset", reset)), {TX: 128}))
    assert {
        ("mma.mma_wait", "read", "RAW", "ACC", 0),
        ("mma.mma_wait", "reset", "WAR", "ACC", 0),
    } <= edges
    assert ("reset", "mma", "RAW", "ACC", 1) in edges
    # Nor may another one, of which nobody knows that it has the same shape.
    both = loop_of(*parts, ("other", multiplied()), ("other.mma_wait", waited()))
    edges = edges_of(dependence(both, {TX: 128}))
    assert ("mma.mma_wait", "other", "RAW", "ACC", 0) in edges
    assert not any(edge[:2] == ("other.mma_wait", "other") for edge in edges)
    # What else the op does to its registers is not tensor cores' business.
    touched = ir.seq(reset, multiplied())
    edges = edges_of(dependence(loop_of(("mma", touched), ("mma.mma_wait", waited())), {TX: 128}))
    assert ("mma.mma_wait", "mma", "WAW", "ACC", 1) in edges


def test_none_stays_in_flight_where_a_step_needs_the_sums() -> None:
    used = tirx.BufferStore(G, tirx.Cast("float16", tirx.BufferLoad(ACC, [0])), [TX])
    loop = loop_of(("mma", multiplied()), ("mma.mma_wait", waited()), ("g", used))
    graph = dependence(loop, {TX: 128})
    found = schedule_loop(graph, LoopPlan("k", "8", pipelined=True), H100, in_flight=1)
    assert found.op("mma.mma_wait").stage == found.op("mma").stage
    none = the("schedule.none_in_flight", found.reasons)
    broken = the("schedule.dependence", [none])
    assert (broken["loop"], broken["op"], broken["iteration"]) == ("k", "g", "i")


def test_what_stays_in_flight_is_issued_in_every_step() -> None:
    """Else no one number says how many groups are younger."""
    used = tirx.BufferStore(G, tirx.const(0, "float16"), [TX])
    loop = loop_of(("mma", multiplied()), ("mma.mma_wait", waited()), ("g", used))
    graph = dependence(loop, {TX: 128})
    verify(graph, manual_plan(graph, [2, 3, 2], [0, 1, 2]))
    left = {"wait": "mma.mma_wait", "wait_stage": 3, "op": "mma", "stage": 2, "last": 4}
    with refused("schedule.left_in_flight", ScheduleRefused, **left):
        verify(graph, manual_plan(graph, [2, 3, 4], [0, 1, 2]))
    draft = manual_plan(graph, [2, 3, 2], [0, 1, 2])
    ops = tuple(
        dataclasses.replace(op, kind="mma_wait") if op.name == "g" else op for op in draft.ops
    )
    kinds = {"op": "g", "kind": "compute", "planned": "mma_wait"}
    with refused("schedule.kind", ScheduleRefused, **kinds):
        verify(graph, dataclasses.replace(draft, ops=ops))


def test_a_wait_for_the_iteration_before_keeps_its_place() -> None:
    graph = dependence(
        loop_of(("wait", waited()), ("copy", overwritten()), ("mma", multiplied())), {TX: 128}
    )
    assert {
        ("wait", "copy", "RAW", FENCE, 0),
        ("wait", "mma", "RAW", FENCE, 0),
        ("mma", "wait", "RAW", FENCE, 1),
    } <= edges_of(graph)


def ring_steps(slot: int, *, behind: bool) -> Any:
    """Steps that read slot k of four and fill slot k + ``slot``, one wgmma in flight across them.

    ``behind``: the slot is filled behind the wait, else before it.
    """
    ring = ir.buffer([4, 64, 64], "float16", "S", "shared.dyn")
    k = ir.Var("k", "int32")
    read = T.address_of(tirx.BufferLoad(ring, [tirx.floormod(k, ir.i32(4)), 0, 0]))
    filled = [tirx.floormod(k + slot, ir.i32(4)), TX // 64, TX % 64]
    copy = tirx.BufferStore(ring, tirx.const(0, "float16"), filled)
    mma = multiplied(encode(read, 16, 1024, 128))
    parts = [mma, waited(1), copy] if behind else [mma, copy, waited(1)]
    step = ir.seq(barrier(), *parts)
    phase = {PHASE: "steady"}
    loop = tirx.For(k, ir.i32(0), ir.i32(16), tirx.ForKind.SERIAL, step, annotations=phase)
    body = ir.block("", ir.seq(loop, waited()), [ring, ACC])
    return tirx.PrimFunc([], ir.thread_loop(TX, 128, "threadIdx.x", body))


@pytest.mark.parametrize(
    ("slot", "behind", "barriers"),
    [
        (2, False, 1),  # read two steps before, ended by the wait of the step before
        (2, True, 1),
        (3, True, 2),  # read a step before, ended just now: by each warpgroup for itself
    ],
)
def test_what_a_wait_has_ended_needs_a_barrier(slot: int, behind: bool, barriers: int) -> None:
    _, found = synchronise(ring_steps(slot, behind=behind))
    assert found.barriers_in_steady == barriers


@pytest.mark.parametrize(("slot", "behind"), [(3, False), (4, False), (4, True)])
def test_what_is_in_flight_cannot_be_overwritten(slot: int, behind: bool) -> None:
    """Copies a tile further ahead, and two, before or behind a wait that leaves that one."""
    with refused("sync.needs_wgmma_wait", LoweringError) as err:
        synchronise(ring_steps(slot, behind=behind))
    assert err.value.reason["conflict"] == Reason("sync.conflict", kind="WAR", buffer="S")
    assert "\n" not in str(err.value)


@pytest.mark.parametrize(
    ("parts", "barriers"),
    [
        ([multiplied(), waited(), overwritten()], 1),
        ([multiplied(), waited(), barrier(), overwritten()], 1),
        # A barrier that came too early ends nothing.
        ([multiplied(), barrier(), waited(), overwritten()], 2),
        ([multiplied(), barrier(), multiplied(), waited(1), waited(), overwritten()], 2),
        ([multiplied(), waited(), barrier(), waited(), overwritten()], 1),
    ],
)
def test_threads_meet_behind_the_wait_for_what_wgmma_reads(parts: Any, barriers: int) -> None:
    body = ir.block("", ir.seq(*parts), [S, ACC])
    func = tirx.PrimFunc([], ir.thread_loop(TX, 128, "threadIdx.x", body))
    _, found = synchronise(func)
    assert found.barriers == barriers
