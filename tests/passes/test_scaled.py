"""Block-scaled GEMMs from their plain tile function: sums of a step in registers, then scaled."""

from __future__ import annotations

import re

import pytest

import pipeliner
from pipeliner.mutation import mutate
from pipeliner.passes.analysis.cta_order import ordered
from pipeliner.schedules import RowTile, ScaledGemm, schedule_scaled
from pipeliner.verification.verdict import verify_workload

from .sass import loop_around

UP = ScaledGemm(4096, 7168, 16384)

CASES = {
    "even": (ScaledGemm(128, 256, 640), RowTile(128, 128)),
    "ragged": (ScaledGemm(100, 72, 400), RowTile(64, 64)),
    "two-products": (ScaledGemm(70, 260, 640), RowTile(64, 256)),
    "e5m2": (ScaledGemm(64, 64, 256, dtype="e5m2", out="float32"), RowTile(64, 32)),
}


@pytest.mark.part(2)
@pytest.mark.parametrize("case", CASES)
def test_it_is_right_in_every_timing(case: str) -> None:
    what, tile = CASES[case]
    options = {"instruction": "wgmma", "mechanism": "tma"}
    kernel = pipeliner.build(schedule_scaled(what, tile), "h200", **options)
    assert [role.name for role in kernel.plan.roles] == ["consumer", "producer"]
    verdict = verify_workload(kernel, what, timings=("late",), orders=("lockstep",))
    assert verdict.ok, verdict.hazards
    assert verdict.worst < 0.5


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_step_scales_each_sum_once() -> None:
    """One FFMA for each of 64 sums of a thread, no spills, and no wgmma that waits for another."""
    kernel = pipeliner.build(schedule_scaled(UP, RowTile(128, 128)), "h200")
    used = kernel.resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    assert used.registers <= 168
    loop = loop_around(str(kernel.sass), "QGMMA")
    assert sum("QGMMA" in line for line in loop) == 8, "two steps, whose scales are loaded ahead"
    assert sum(bool(re.match(r"FFMA", line)) for line in loop) == 128
    assert len(loop) <= 235
    first = next(at for at, line in enumerate(loop) if "QGMMA" in line)
    loads = {at: re.match(r"LDG\S* (R\d+)", line) for at, line in enumerate(loop[:first])}
    waited = [
        load[1]
        for at, load in loads.items()
        if load and any(f", {load[1]}" in line for line in loop[at + 1 : first])
    ]
    assert not waited, "a copy of what was just loaded would wait for it"


@pytest.mark.nvcc
@pytest.mark.slow
def test_two_products_share_the_sums_of_a_step() -> None:
    """Two accumulators of 64 registers and one part: no spills, and no wgmma waits for another."""
    used = pipeliner.build(schedule_scaled(UP, RowTile(128, 256)), "h200").resources
    assert (used.spill_stores, used.spill_loads, used.stack, used.serialised) == (0, 0, 0, "")
    assert used.registers <= 168


def test_a_step_waits_once_for_a_slot() -> None:
    """B's second tile shares the mbarrier of A, for which the first product has waited."""
    kernel = pipeliner.build(schedule_scaled(UP, RowTile(128, 256)), "h200")
    pairs = {pair.full: pair.rings for pair in kernel.plan.mbarriers}
    assert sorted(len(rings) for rings in pairs.values()) == [1, 2]
    loop = kernel.cuda[kernel.cuda.index("for (int s_2") :]
    waits = loop[: loop.index("setmaxnreg")].count("mbarrier_wait")
    assert waits == 2 * len(pairs), "two steps"


def test_tiles_of_one_tensor_that_lie_apart_are_stored_without_order() -> None:
    """Two stores into C, of other columns each, need no barrier, which no role could have."""
    what, tile = CASES["two-products"]
    kernel = pipeliner.build(schedule_scaled(what, tile), "h200", mechanism="tma")
    assert kernel.plan.roles
    found = ordered(schedule_scaled(what, tile).mod["main"].body)
    assert {str(buf.name): marks for buf, marks in found.items()}["C"] == []


@pytest.mark.deep("tests/passes/test_several_matmuls.py")
def test_every_mutant_is_killed() -> None:
    schedule = schedule_scaled(ScaledGemm(64, 64, 8 * 128), RowTile(64, 64))
    options = {"instruction": "wgmma", "mechanism": "tma", "depth": 2}
    report = mutate(pipeliner.build(schedule, "h200", **options))
    assert len(report.fates) > 10
    assert report.ok, [str(fate.mutant) for fate in report.survivors]
