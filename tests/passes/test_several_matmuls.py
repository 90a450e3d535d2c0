"""Loops of several matmuls with arithmetic between them: attention, from its plain tile function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.mutation import mutate
from pipeliner.plan import KernelPlan
from pipeliner.schedules import Attention, AttentionTile
from pipeliner.schedules.loops.attention import schedule_attention

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
    assert names.index("K_shared.wait") < names.index("scores") < names.index("V_shared.wait")
    assert names.index("V_shared.wait") == names.index("acc") - 1
    released = {pair.rings: pair.arrivals > 0 for pair in plan.mbarriers}
    assert released == {("Q_shared",): False, ("K_shared",): True, ("V_shared",): True}


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
    loop = loop_around(str(kernel.sass), "HGMMA")
    assert sum("HGMMA" in line for line in loop) == 16
    assert len(loop) <= 450


@pytest.mark.nvcc
@pytest.mark.slow
def test_only_tiles_that_a_mask_cuts_are_masked() -> None:
    """By a branch that all threads take alike, beside which no wgmma waits for another."""
    what = Attention(1, 1, 512, 512, 128, causal=True)
    kernel = pipeliner.build(schedule_attention(what, AttentionTile(128, 128)), "h200")
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    loop = loop_around(str(kernel.sass), "HGMMA")
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
