"""Threads that copy for wgmma: what is issued while it runs, and what may not be."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

import pipeliner
from pipeliner.cost.descriptor import least
from pipeliner.cost.predict import CROSS_STEP_DEPTH
from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, ScheduleRefused
from pipeliner.machine import H100
from pipeliner.passes.analysis.effects import effects
from pipeliner.passes.analysis.op_kinds import classify
from pipeliner.passes.dependence.graph import FENCE, dependence
from pipeliner.passes.ir import nodes as ir
from pipeliner.passes.matmul.descriptors import encode
from pipeliner.passes.schedule import obeyed
from pipeliner.passes.schedule.modulo import schedule_loop
from pipeliner.passes.schedule.modulo_verify import verify
from pipeliner.passes.sync import synchronise as sync
from pipeliner.passes.sync.synchronise import synchronise
from pipeliner.plan import KernelPlan, LoopPlan
from pipeliner.plan.explain import explain
from pipeliner.schedules import ConvTile, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.origin import PHASE
from pipeliner.verification.verdict import verify_workload

from ..refusals import refused, the
from ..verify.hopper_loops import COLUMNS, ROWS, counted, counted_tiles
from ..verify.modes import modes_of
from .core_ops import edges_of, manual_plan
from .sass import longest_loop
from .tiles import calls

predict_module = importlib.import_module("pipeliner.cost.predict")
GEMM = Gemm(128, 64, 384)
COPIES = ["A_shared", "B_shared"]
MMA, DONE = "matmul_update_o", "matmul_update_o.mma_wait"
KNOWN = {
    "cp_async_wait_group": "wait",
    "fence_proxy": "fence",
    "storage_sync": "barrier",
    "wgmma_commit_group": "wgmma",
    "cp_async_c": "copy",
    "wgmma_wait_group": "mma_wait",
}
"""What orders or moves anything in a step, by what the names of operators hold."""


@pytest.fixture(autouse=True)
def running_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four slots one stays in flight where it may, whatever that is predicted to save."""
    predicted = predict_module._predicted

    def liked(work: Any, machine: Any, depth: Any, in_flight: int) -> Any:
        found = predicted(work, machine, depth, in_flight)
        return found and found._replace(us=found.us / (1 + in_flight))

    def may_stay(work: Any, machine: Any, depth: Any) -> bool:
        return work.wgmma.crosses_steps and least(depth) >= CROSS_STEP_DEPTH

    monkeypatch.setattr(predict_module, "_predicted", liked)
    monkeypatch.setattr(predict_module, "_may_stay", may_stay)


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
    monkeypatch.setattr(sync._Synchroniser, "_check_reading", lambda self, node, state: None)
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


# One step's wgmma in flight when the next one starts.

STAYS = Reason("schedule.wgmma_in_flight", steps=1, refilled=2)
TILES = ("late", "early", "random"), ("lockstep", "round-robin", "reversed", "random")
EPILOGUES = ("rolled", "clamped", "peeled")


def planned(plan: KernelPlan) -> Any:
    """The kernel of ``GEMM`` with a plan that was made before."""
    return pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=plan)


def waits_of(func: Any) -> tuple[list[int], list[int]]:
    """What is left in flight by the waits for wgmma in the steady loop, and by those behind it."""
    loops: list[Any] = []
    ir.walk(func.body, tirx.For, loops.append)
    (loop,) = [loop for loop in loops if PHASE in loop.annotations]
    inside, every = (
        [int(call.args[0]) for call in calls(part, "wgmma_wait_group")]
        for part in (loop.body, func.body)
    )
    return inside, every[len(inside) :]


@pytest.mark.parametrize("depth", [4, 5, 6])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_with_four_slots_one_stays_in_flight(depth: int, epilogue: str) -> None:
    func = pipelined(mechanism="cp_async", depth=depth, epilogue=epilogue)
    plan = pipeliner.plan_of(func)
    (loop,), (matmul,) = plan.loops, plan.matmuls
    assert matmul.in_flight == 1
    assert STAYS in loop.reasons
    stages = {op.name: op.stage for op in loop.ops}
    assert (stages["A_shared"], stages[MMA], stages[DONE]) == (0, depth - 2, depth - 1)
    assert (loop.ahead, loop.stages) == (depth - 2, depth)
    assert step_of(func) == ["wait", "fence", "barrier", "wgmma", "copy", "mma_wait"]
    assert waits_of(func) == ([1], [0])
    assert plan.sync.barriers_in_steady == 1


@pytest.mark.parametrize("depth", [2, 3])
def test_with_fewer_slots_none_does(depth: int) -> None:
    func = pipelined(mechanism="cp_async", depth=depth)
    plan = pipeliner.plan_of(func)
    assert (plan.matmuls[0].in_flight, plan.loops[0].ahead) == (0, depth - 1)
    assert waits_of(func) == ([0], [])
    assert STAYS not in plan.loops[0].reasons


@pytest.mark.parametrize(
    ("gemm", "options"),
    [
        (GEMM, {"operand": "registers"}),
        (Gemm(128, 64, 768, dtype="float8_e4m3fn", out="float32"), {"accumulate": "promoted"}),
        (Gemm(128, 64, 384, weights="int8"), {}),
        (GEMM, {"depth": {"A_shared": 3, "B_shared": 4}}),
    ],
    ids=str,
)
def test_what_waits_within_a_step_stays_in_none(gemm: Gemm, options: dict[str, Any]) -> None:
    asked = {"depth": 4, "mechanism": "cp_async", **options}
    tile = GemmTile(128, 64, 128 if "float8" in gemm.dtype else 64)
    schedule = schedule_gemm(gemm, tile)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule, "h100", instruction="wgmma", **asked))
    assert plan.matmuls[0].in_flight == 0
    assert STAYS not in plan.loops[0].reasons


@pytest.mark.part(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "depth", "epilogue"),
    [  # every two of them together
        (dtype, depth, EPILOGUES[(number + depth) % 3])
        for number, dtype in enumerate(("float16", "bfloat16", "int8"))
        for depth in (4, 5, 6)
    ],
)
def test_one_in_flight_is_right_for_every_trip_count(dtype: str, depth: int, epilogue: str) -> None:
    timings, orders = TILES
    k = 128 if dtype == "int8" else 64
    for number, steps in enumerate((1, 2, depth - 1, depth, 2 * depth + 1), depth):
        gemm = Gemm(128, 64, k * steps, dtype=dtype)
        kernel = pipeliner.build(
            schedule_gemm(gemm, GemmTile(128, 64, k)),
            "h100",
            instruction="wgmma",
            mechanism="cp_async",
            depth=depth,
            epilogue=epilogue,
        )
        assert kernel.plan.matmuls[0].in_flight == 1
        assert kernel.plan.sync.barriers_in_steady <= 1
        timing, order = timings[number % 3], orders[number % 4]
        verdict = verify_workload(kernel, gemm, timings=(timing,), orders=(order,), seed=number)
        assert verdict.ok, (steps, verdict.worst, verdict.hazards)


@pytest.mark.part(3)
@pytest.mark.slow
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(
    ("depths", "dtype"), [((4, 4), "float16"), ((5, 5), "bfloat16"), ((4, 6), "float16")]
)
def test_one_in_flight_under_a_convolution(
    depths: tuple[int, int], dtype: str, epilogue: str
) -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1, dtype=dtype)
    schedule = schedule_conv(conv, ConvTile(64, 64, 64))
    asked = {"instruction": "wgmma", "mechanism": "cp_async", "epilogue": epilogue}
    named = pipeliner.plan_of(pipeliner.pipeline(schedule, "h100", **asked)).loops[0].rings
    rings = [ring.buffer for ring in named if ring.scope == "shared"]
    per_ring = dict(zip(rings, depths, strict=True))
    kernel = pipeliner.build(schedule, "h100", depth=per_ring, **asked)
    assert kernel.plan.matmuls[0].in_flight == 1
    assert kernel.plan.sync.barriers_in_steady == 1
    verdict = verify_workload(kernel, conv, **modes_of((depths, epilogue)))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.part(2)
@pytest.mark.slow
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("tiles", [1, 3])
def test_one_in_flight_where_a_run_tells_the_trip_count(tiles: int, epilogue: str) -> None:
    """Alone, and in a loop over tiles, which refills the slots that the one before it has read."""
    func = counted() if tiles == 1 else counted_tiles()
    asked = {"instruction": "wgmma", "mechanism": "cp_async", "epilogue": epilogue}
    kernel = pipeliner.build(func, "h100", depth=4, **asked)
    assert kernel.plan.matmuls[0].in_flight == 1
    rng = np.random.default_rng(0)
    rows = tiles * ROWS
    a, b = (rng.integers(-3, 4, (n, 512)).astype("float16") for n in (rows, COLUMNS))
    for steps in range(8):
        timing, order = TILES[0][steps % 3], TILES[1][steps % 4]
        nothing = np.full((rows, COLUMNS), np.nan, np.float32)
        result = kernel.emulate(a, b, nothing, steps, timing=timing, order=order)
        assert not result.hazards, "\n".join(map(str, result.hazards))
        want = a[:, : 64 * steps].astype("float32") @ b[:, : 64 * steps].astype("float32").T
        np.testing.assert_array_equal(result.outputs["C"], want)


@pytest.mark.part(3)
@pytest.mark.slow
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_no_wait_for_what_is_in_flight_may_be_weaker(epilogue: str) -> None:
    func = pipelined(mechanism="cp_async", depth=4, epilogue=epilogue)
    report = pipeliner.mutate(pipeliner.build(func))
    killed = {
        (fate.mutant.origin.op, fate.mutant.change)
        for fate in report.fates
        if fate.mutant.what == "wgmma_wait_group" and fate not in report.survivors
    }
    assert killed == {(DONE, "1 -> 2 in flight"), (f"{DONE}.drain", "0 -> 1 in flight")}
    if epilogue == "peeled":
        # Groups of straight code, between which nothing waits, could as well be one.
        left = {(fate.mutant.what, fate.mutant.origin.phase) for fate in report.survivors}
        assert left <= {("wgmma_fence", "epilogue"), ("wgmma_commit_group", "epilogue")}
    else:
        assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)


def test_a_plan_with_one_in_flight_is_read_back() -> None:
    func = pipelined(mechanism="cp_async", depth=4)
    plan = pipeliner.plan_of(func)
    again = KernelPlan.from_json(plan.to_json())
    assert again == plan
    assert tvm_ffi.structural_equal(planned(again).body, func.body)


def edited(plan: KernelPlan, in_flight: int, **stages: int) -> KernelPlan:
    """``plan`` with other stages of its ops, and that many steps in flight."""
    (loop,), (matmul,) = plan.loops, plan.matmuls
    ops = tuple(
        dataclasses.replace(op, stage=stages.get(op.name.replace(".", "_"), op.stage))
        for op in loop.ops
    )
    plan = dataclasses.replace(plan, matmuls=(dataclasses.replace(matmul, in_flight=in_flight),))
    edited = plan.with_loop(dataclasses.replace(loop, ops=ops, source="edited"))
    return edited.without_derived()


def test_an_edited_plan_may_wait_at_once_or_leave_two() -> None:
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4))
    assert waits_of(planned(edited(plan, 0, matmul_update_o_mma_wait=2))) == ([0], [])
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=5))
    nearer = edited(plan, 2, A_shared=1, B_shared=1, matmul_update_o_mma_wait=5)
    func = planned(nearer)
    assert waits_of(func) == ([2], [0])
    verdict = verify_workload(pipeliner.build(func), GEMM, timings=TILES[0], orders=("random",))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("in_flight", "stages", "code", "args"),
    [
        (
            1,
            {"matmul_update_o_mma_wait": 2},
            "schedule.in_flight",
            {"planned": 1, "left": 0},
        ),
        (0, {}, "schedule.in_flight", {"planned": 0, "left": 1}),
        (
            2,
            {"matmul_update_o_mma_wait": 4},
            "ring.overwritten",
            {"user": DONE, "needed": 5},
        ),
        # Copies a tile further ahead.
        (
            1,
            {"matmul_update_o": 3, "matmul_update_o_mma_wait": 4, "A_shared_wait": 3},
            "ring.overwritten",
            {"user": DONE, "needed": 5, "depth": 4},
        ),
    ],
)
def test_an_edited_plan_that_is_illegal_is_refused(
    in_flight: int, stages: dict[str, int], code: str, args: dict[str, Any]
) -> None:
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4))
    with refused(code, ScheduleRefused, **args) as err:
        planned(edited(plan, in_flight, **stages))
    assert "\n" not in str(err.value)


def test_the_emulator_sees_copies_a_tile_further_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan, had nothing refused it: what is overwritten is still being read."""
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4))
    further = edited(plan, 1, matmul_update_o=3, matmul_update_o_mma_wait=4, A_shared_wait=3)
    monkeypatch.setattr(obeyed, "verify", lambda graph, loop: None)
    with refused("sync.needs_wgmma_wait", LoweringError) as caught:
        planned(further)
    conflict = the("sync.conflict_between", [caught.value.reason])
    assert (conflict["kind"], conflict["buffer"]) == ("WAR", "A_shared")
    monkeypatch.setattr(sync._Synchroniser, "_check_reading", lambda self, node, state: None)
    kernel = pipeliner.build(planned(further))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype("float16") for shape in GEMM.shapes()[:2])
    found = kernel.emulate(a, b, np.zeros((128, 64), "float16"), timing="early").hazards
    assert {hazard.buffer for hazard in found} == set(COPIES)
    assert all("wgmma" in f"{hazard}" for hazard in found)


def test_the_plan_draws_the_wait_a_step_later() -> None:
    func = pipelined(mechanism="cp_async", depth=4)
    lines = explain(pipeliner.plan_of(func)).splitlines()
    rows = {line.split("|")[0].strip(): line.split("|")[1].split() for line in lines if "|" in line}
    assert rows[MMA][:5] == [".", ".", "0", "1", "2"]
    assert rows[DONE][:5] == [".", ".", ".", "0", "1"]
    assert rows[""][:3] == ["P", "P", "S"]


@pytest.mark.part(3)
@pytest.mark.nvcc
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_ptxas_keeps_one_in_flight(epilogue: str) -> None:
    schedule = schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(128, 256, 64))
    asked = {"instruction": "wgmma", "mechanism": "cp_async", "epilogue": epilogue}
    kernel = pipeliner.build(schedule, "h100", depth=4, **asked)
    assert kernel.resources.serialised == ""
    assert kernel.resources.wgmma_warning == ""
    steady = longest_loop(kernel.sass)
    waits = [line for line in steady if "WARPGROUP.DEPBAR" in line]
    assert waits == ["WARPGROUP.DEPBAR.LE gsb0, 0x1"]
    assert sum("BAR.SYNC" in line for line in steady) == 1


# Kinds and barriers, of statements on their own.

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
