"""One step's wgmma in flight when the next one starts: planned, right, refused, in machine code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, ScheduleRefused
from pipeliner.passes.schedule import obeyed
from pipeliner.passes.sync import synchronise as sync
from pipeliner.plan import KernelPlan
from pipeliner.plan.explain import explain
from pipeliner.schedules import ConvTile, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.verification.verdict import verify_workload

from ..refusals import refused, the
from ..verify.hopper_loops import COLUMNS, ROWS, counted, counted_tiles
from ..verify.modes import modes_of
from .sass import longest_loop
from .wgmma_loops import (
    COPIES,
    DONE,
    GEMM,
    MMA,
    pipelined,
    planned,
    step_of,
    waits_of,
)

STAYS = Reason("schedule.wgmma_in_flight", steps=1, refilled=2)
TILES = ("late", "early", "random"), ("lockstep", "round-robin", "reversed", "random")
EPILOGUES = ("rolled", "clamped", "peeled")


@pytest.mark.parametrize("depth", [4, 5, 6])
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.part(2)
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
    ("gemm", "options", "code"),
    [
        (GEMM, {"operand": "registers"}, "in_flight.cannot"),
        (
            Gemm(128, 64, 768, dtype="float8_e4m3fn", out="float32"),
            {"accumulate": "promoted"},
            "in_flight.cannot",
        ),
        (Gemm(128, 64, 384, weights="int8"), {}, "in_flight.cannot"),
        (GEMM, {"depth": {"A_shared": 3, "B_shared": 4}}, "in_flight.depth"),
    ],
    ids=str,
)
def test_what_waits_within_a_step_stays_in_none(
    gemm: Gemm, options: dict[str, Any], code: str
) -> None:
    asked = {"depth": 4, "mechanism": "cp_async", **options}
    tile = GemmTile(128, 64, 128 if "float8" in gemm.dtype else 64)
    schedule = schedule_gemm(gemm, tile)
    plan = pipeliner.plan_of(pipeliner.pipeline(schedule, "h100", instruction="wgmma", **asked))
    assert plan.matmuls[0].in_flight == 0
    assert STAYS not in plan.loops[0].reasons
    with refused(code):
        pipeliner.pipeline(schedule, "h100", instruction="wgmma", in_flight=1, **asked)


def test_what_is_asked_for_stays_or_does_not() -> None:
    """Whatever is predicted to be faster; the plan says that it was asked for."""
    for steps in (0, 1):
        plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4, in_flight=steps))
        assert plan.matmuls[0].in_flight == steps
        assert Reason("in_flight.asked", steps=steps) in plan.loops[0].reasons
    with refused("in_flight.no_fit"):
        schedule = schedule_gemm(Gemm(256, 256, 512), GemmTile(128, 256, 128))
        pipeliner.pipeline(schedule, "h100", instruction="wgmma", mechanism="cp_async", in_flight=1)


@pytest.mark.part(9)
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
            in_flight=1,
        )
        assert kernel.plan.matmuls[0].in_flight == 1
        assert kernel.plan.sync.barriers_in_steady <= 1
        timing, order = timings[number % 3], orders[number % 4]
        verdict = verify_workload(kernel, gemm, timings=(timing,), orders=(order,), seed=number)
        assert verdict.ok, (steps, verdict.worst, verdict.hazards)


@pytest.mark.part(9)
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
    kernel = pipeliner.build(schedule, "h100", depth=per_ring, in_flight=1, **asked)
    assert kernel.plan.matmuls[0].in_flight == 1
    assert kernel.plan.sync.barriers_in_steady == 1
    verdict = verify_workload(kernel, conv, **modes_of((depths, epilogue)))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.part(6)
@pytest.mark.slow
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("tiles", [1, 3])
def test_one_in_flight_where_a_run_tells_the_trip_count(tiles: int, epilogue: str) -> None:
    """Alone, and in a loop over tiles, which refills the slots that the one before it has read."""
    func = counted() if tiles == 1 else counted_tiles()
    asked = {"instruction": "wgmma", "mechanism": "cp_async", "epilogue": epilogue}
    kernel = pipeliner.build(func, "h100", depth=4, in_flight=1, **asked)
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
@pytest.mark.part(2)
def test_an_edited_plan_that_is_illegal_is_refused(
    in_flight: int, stages: dict[str, int], code: str, args: dict[str, Any]
) -> None:
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4))
    with refused(code, ScheduleRefused, **args) as err:
        planned(edited(plan, in_flight, **stages))
    assert "\n" not in str(err.value)


@pytest.mark.slow
@pytest.mark.deep("test_no_wait_for_what_is_in_flight_may_be_weaker")
def test_the_emulator_sees_copies_a_tile_further_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan, had nothing refused it: what is overwritten is still being read."""
    plan = pipeliner.plan_of(pipelined(mechanism="cp_async", depth=4))
    further = edited(plan, 1, matmul_update_o=3, matmul_update_o_mma_wait=4, A_shared_wait=3)
    monkeypatch.setattr(obeyed, "verify", lambda graph, loop: None)
    with refused("sync.needs_wgmma_wait", LoweringError) as caught:
        planned(further)
    conflict = the("sync.conflict_between", [caught.value.reason])
    assert (conflict["kind"], conflict["buffer"]) == ("WAR", "A_shared")
    monkeypatch.setattr(sync.Synchroniser, "check_reading", lambda self, node, state: None)
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


@pytest.mark.nvcc
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.deep("tests/test_wgmma_warnings.py")
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
