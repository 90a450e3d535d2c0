"""Attention, two matmuls with softmax between them: right in every timing, whatever its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.machine import H200, machine_for
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import Attention, AttentionTile, default_tile, schedule_attention
from pipeliner.schedules.loops import attention_cut
from pipeliner.targets import cuda_target
from pipeliner.timeline.make import timeline
from pipeliner.verification.verdict import verify_workload

CASES: dict[str, tuple[Attention, AttentionTile, str, dict[str, Any]]] = {
    "mma": (
        Attention(1, 2, 20, 75, 32, kv_heads=1),
        AttentionTile(32, 32),
        "sm_80",
        {"instruction": "mma"},
    ),
    "mma, causal": (
        Attention(1, 1, 70, 80, 16, causal=True, dtype="bf16"),
        AttentionTile(32, 16),
        "sm_80",
        {"instruction": "mma", "depth": 2},
    ),
    "wgmma, one slot": (
        Attention(1, 1, 70, 45, 64),
        AttentionTile(64, 32),
        "sm_90a",
        {"instruction": "wgmma", "depth": 1},
    ),
    "wgmma, split": (
        Attention(1, 6, 1, 300, 64, kv_heads=2),
        AttentionTile(64, 64, splits=2, grouped=True),
        "sm_90a",
        {"instruction": "wgmma"},
    ),
    "mma, split": (
        Attention(1, 4, 3, 100, 32, kv_heads=2),
        AttentionTile(16, 32, splits=3, grouped=True),
        "sm_80",
        {"instruction": "mma"},
    ),
    "wgmma, causal": (
        Attention(1, 1, 100, 130, 64, causal=True),
        AttentionTile(64, 64),
        "sm_90a",
        {"instruction": "wgmma"},
    ),
}


@pytest.mark.part(2)
@pytest.mark.parametrize("case", CASES)
def test_it_is_right_in_every_timing(case: str) -> None:
    attention, tile, target, options = CASES[case]
    kernel = pipeliner.build(schedule_attention(attention, tile), target, **options)
    verdict = verify_workload(kernel, attention, timings=("late",), orders=("lockstep",))
    assert verdict.ok, verdict.hazards
    assert verdict.worst < 0.5
    multiplied = [one.instruction.partition(".")[0] for one in kernel.plan.matmuls]
    assert multiplied == [options["instruction"]] * 2


def test_a_plan_that_is_handed_back_makes_the_same_kernel() -> None:
    schedule = schedule_attention(Attention(1, 1, 128, 512, 64), AttentionTile(128, 64))
    first = pipeliner.pipeline(schedule, "h100")
    plan = pipeliner.plan_of(first)
    assert [one.op for one in plan.copies] == ["Q_shared", "K_shared", "V_shared"]
    assert plan.roles
    again = pipeliner.pipeline(schedule, "h100", plan=plan)
    assert pipeliner.build(again).cuda == pipeliner.build(first).cuda


def test_its_timeline_stands_beside_that_of_one_slot() -> None:
    schedule = schedule_attention(Attention(1, 1, 128, 512, 64), AttentionTile(128, 64))
    assert timeline(schedule, "h100", iterations=2).speedup > 1


@pytest.mark.nvcc
@pytest.mark.deep("tests/passes/test_computed_operands.py::test_no_register_spills_on_an_a100")
@pytest.mark.parametrize("target", ["h200", "a100"])
def test_few_queries_need_no_more_registers_than_there_are(target: str) -> None:
    attention = Attention(1, 32, 1, 8192, 128, kv_heads=8)
    tile = default_tile(attention, machine_for(cuda_target(target)))
    used = pipeliner.build(schedule_attention(attention, tile), target).resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")


def test_splits_are_combined_where_bfloat16_is_made_bit_by_bit() -> None:
    """TVM then writes what is converted several times, with the names that it binds."""
    attention = Attention(1, 2, 16, 70, 32, dtype="bf16")
    kernel = pipeliner.build(schedule_attention(attention, AttentionTile(16, 32, 2)), "v100")
    inputs = attention.inputs(seed=1)
    done = kernel.emulate(*inputs, np.full(attention.shapes()[-1], np.nan, inputs[0].dtype))
    assert not done.hazards
    made = done.outputs["Out"].astype("float64")
    assert np.abs(made - attention.reference(*inputs)).max() < 1e-2


@pytest.mark.parametrize(
    ("attention", "ctas", "vector"),
    [
        (Attention(2, 2, 16, 70, 32), 8, 4),
        (Attention(1, 1, 37, 70, 32), 10, 4),
        (Attention(1, 3, 19, 70, 32, layout="BSHD"), 9, 4),
    ],
    ids=["lines-of-8", "lines-of-no-divisor", "heads-that-divide-nothing"],
)
def test_a_ctas_threads_combine_several_queries_where_there_are_many(
    attention: Attention, ctas: int, vector: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query by a CTA of 32 threads, 2304 of 16 heads took 45 us of an H200 beside 47."""
    tile = AttentionTile(16, 32, 2)
    before = pipeliner.build(schedule_attention(attention, tile), "h200")
    monkeypatch.setattr(attention_cut, "MANY_CTAS", 8)
    kernel = pipeliner.build(schedule_attention(attention, tile), "h200")
    lines = attention.batch * attention.heads * attention.queries
    assert [one.plan.elementwise[0].ctas for one in (before, kernel)] == [str(lines), str(ctas)]
    assert kernel.plan.elementwise[0].vector == vector
    assert kernel.plan.elementwise == Candidate(tile).plan(attention, H200).elementwise
    verdict = verify_workload(kernel, attention, timings=("late",), orders=("lockstep",))
    assert verdict.ok, verdict.hazards
    assert verdict.worst < 0.5
