"""Loops of several matmuls with arithmetic between them: attention, from its plain tile function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.mutation import mutate
from pipeliner.plan import KernelPlan
from pipeliner.schedules import Attention, AttentionTile
from pipeliner.schedules.loops.attention import schedule_attention

from ..refusals import gives, refused, the
from .sass import loop_around

SMALL = Attention(1, 2, 80, 100, 64, kv_heads=1, causal=True)
TILE = AttentionTile(64, 32)


def plan_for(target: str, what: Attention = SMALL, tile: AttentionTile = TILE) -> KernelPlan:
    return pipeliner.plan_of(pipeliner.pipeline(schedule_attention(what, tile), target))


def error(kernel: Any, what: Attention) -> float:
    """The largest error of ``kernel`` in the emulator, on new inputs; NaN where one is missing."""
    inputs = what.inputs(seed=11)
    out = np.full(what.shapes()[3], np.nan, inputs[0].dtype)
    done = kernel.emulate(*inputs, out)
    assert not done.hazards
    (made,) = [value for name, value in done.outputs.items() if name == "Out"]
    return float(np.abs(made.astype("float64") - what.reference(*inputs)).max())


def test_both_matmuls_are_wgmma_and_the_second_reads_what_is_computed() -> None:
    plan = plan_for("h100")
    assert [matmul.operand for matmul in plan.matmuls] == ["shared", "computed"]
    assert all(matmul.instruction.startswith("wgmma") for matmul in plan.matmuls)
    assert {matmul.warps[1] for matmul in plan.matmuls} == {1}


def test_each_matmul_waits_for_its_own_tile_and_releases_it() -> None:
    plan = plan_for("h100")
    assert [role.name for role in plan.roles] == ["consumer", "producer"]
    (loop,) = (loop for loop in plan.loops if loop.pipelined)
    names = [op.name for op in sorted(loop.ops, key=lambda op: op.order) if op.role == "consumer"]
    assert names[names.index("scores") - 1] == "K_shared.wait"
    assert names[names.index("weights") - 1] == "V_shared.wait"
    released = {pair.rings: pair.arrivals > 0 for pair in plan.mbarriers}
    assert released == {("Q_shared",): False, ("K_shared",): True, ("V_shared",): True}


def test_the_second_runs_under_the_arithmetic_of_the_next_step() -> None:
    (loop,) = plan_for("h100").loops
    stages = {str(op.name): op.stage for op in loop.ops if op.role == "consumer"}
    late = {name for name, stage in stages.items() if stage > stages["scores"]}
    assert late == {"acc_scale", "acc"}
    order = [str(op.name) for op in sorted(loop.ops, key=lambda op: op.order)]
    at = [order.index(name) for name in ("scores", "acc_scale", "acc", "exp", "weights")]
    assert at == sorted(at)
    assert the("schedule.overlapped", loop.reasons)["op"] == "acc"
    most = the("schedule.pipes", loop.reasons)["pipes"][0]
    assert gives(most, "schedule.busy", cycles=loop.res_mii)
    assert loop.ii == max(loop.res_mii, loop.rec_mii)


def test_no_step_is_left_in_flight_where_none_shall_be() -> None:
    schedule = schedule_attention(SMALL, TILE)
    kernel = pipeliner.build(schedule, "h100", in_flight=0)
    assert kernel.plan.roles
    (loop,) = kernel.plan.loops
    assert len({op.stage for op in loop.ops if op.role == "consumer"}) == 1
    assert error(kernel, SMALL) < 2e-3


@pytest.mark.parametrize("keys", [1, 31, 33, 65, 97, 160])
def test_any_number_of_steps(keys: int) -> None:
    what = Attention(1, 1, 70, keys, 64)
    options = {"instruction": "wgmma", "mechanism": "tma"}
    kernel = pipeliner.build(schedule_attention(what, TILE), "h100", **options)
    assert error(kernel, what) < 2e-3


def moved(plan: KernelPlan, name: str, by: int) -> KernelPlan:
    """``plan`` with op ``name`` of its loop in a later or an earlier stage."""
    (loop,) = plan.loops
    ops = [replace(op, stage=op.stage + by) if str(op.name) == name else op for op in loop.ops]
    return plan.with_loop(replace(loop, ops=tuple(ops), source="edited"))


@pytest.mark.parametrize(
    ("name", "by", "code"),
    [
        ("V_shared.wait", 1, "schedule.of_consumers"),
        ("acc", 1, "schedule.of_consumers"),
        ("acc", -1, "schedule.dependence"),
        ("acc_scale", -1, "schedule.dependence"),
    ],
)
def test_stages_that_consumers_cannot_run_are_refused(name: str, by: int, code: str) -> None:
    schedule = schedule_attention(SMALL, TILE)
    plan = plan_for("h100")
    pipeliner.build(schedule, "h100", plan=plan)
    with refused(code):
        pipeliner.pipeline(schedule, "h100", plan=moved(plan, name, by))


@pytest.mark.parametrize("target", ["h100", "a100"])
def test_it_is_right_on_ragged_causal_grouped_heads(target: str) -> None:
    kernel = pipeliner.build(schedule_attention(SMALL, TILE), target)
    assert error(kernel, SMALL) < 2e-3


@pytest.mark.nvcc
def test_a_step_of_head_128_takes_few_instructions() -> None:
    """64 rows by 128 keys: 64 exponentials, and less than seven others for each."""
    what = Attention(1, 1, 512, 512, 128)
    kernel = pipeliner.build(schedule_attention(what, AttentionTile(128, 128)), "h200")
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    loop = loop_around(str(kernel.sass), "HGMMA", 16)
    assert sum("HGMMA" in line for line in loop) == 16
    assert sum("DEPBAR" in line for line in loop) == 2
    waits = [at for at, line in enumerate(loop) if "DEPBAR" in line]
    exps = [at for at, line in enumerate(loop) if "EX2" in line]
    assert sum(waits[0] < at < waits[1] for at in exps) == len(exps)
    assert len(loop) <= 450


@pytest.mark.nvcc
@pytest.mark.slow
def test_only_tiles_that_a_mask_cuts_are_masked() -> None:
    """By a branch that all threads take alike, beside which no wgmma waits for another."""
    what = Attention(1, 1, 512, 512, 128, causal=True)
    kernel = pipeliner.build(schedule_attention(what, AttentionTile(128, 128)), "h200")
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    loop = loop_around(str(kernel.sass), "HGMMA", 16)
    masked = [n for n, line in enumerate(loop) if line.startswith("FSEL")]
    assert len(masked) >= 64
    branch = max(n for n, line in enumerate(loop[: masked[0]]) if "BRA" in line)
    assert not any("HGMMA" in line for line in loop[branch : masked[-1]])


@pytest.mark.deep("tests/verify/test_attention.py")
def test_every_mutant_is_killed() -> None:
    what = Attention(1, 1, 64, 7 * 32, 64)
    schedule = schedule_attention(what, AttentionTile(64, 32))
    options = {"instruction": "wgmma", "mechanism": "tma", "depth": 2}
    report = mutate(pipeliner.build(schedule, "h100", **options))
    assert len(report.fates) > 30
    assert report.ok, [str(fate.mutant) for fate in report.survivors]
