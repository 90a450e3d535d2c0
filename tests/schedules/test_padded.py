"""Products of operands whose rows begin inside 16 bytes: what is written with longer rows first."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.explain.why import alternatives
from pipeliner.machine import H200
from pipeliner.meta.workload import replays
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, default_tile, schedule_gemm
from pipeliner.schedules.workloads import LAYOUTS, GatedGemm, begins_inside_vectors
from pipeliner.verification.accuracy import poisoned, worst_error
from pipeliner.verification.shrunk import shrunk
from tests.refusals import refused

GEMM = Gemm(100, 77, 45)
LONGER = Gemm(100, 77, 205)
LARGE = Gemm(1197, 2905, 2509)
TILE = GemmTile(64, 64, 64, reordered=True)

CASES = {
    **{layout: (replace(GEMM, layout=layout), TILE) for layout in LAYOUTS},
    "batched": (replace(GEMM, batch=2), TILE),
    "int8": (Gemm(100, 77, 45, dtype="int8"), TILE),
    "tf32": (Gemm(100, 77, 45, dtype="tf32"), replace(TILE, k=32)),
    "gated": (GatedGemm(100, 77, 45), TILE),
    "split": (LONGER, replace(TILE, splits=2)),
    "split TN": (replace(LONGER, layout="TN"), replace(TILE, splits=2)),
    "split TT unevenly": (replace(LONGER, layout="TT"), replace(TILE, splits=3)),
    "persistent": (LONGER, replace(TILE, persistent=3)),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("case", CASES)
def test_padded_rows_are_copied_in_boxes(case):
    gemm, tile = CASES[case]
    function = schedule_gemm(gemm, tile)
    kernel = pipeliner.build(function, "h100", prove=False, mechanism="tma", instruction="wgmma")
    sources = [name for name, *_ in _operands(gemm)]
    assert [copy.src for copy in kernel.plan.copies] == sources
    assert {(copy.mechanism, copy.vector_bytes) for copy in kernel.plan.copies} == {("tma", 16)}
    assert [one.op for one in kernel.plan.elementwise[: len(sources)]] == sources
    inputs = gemm.inputs()
    done = kernel.emulate(*inputs, poisoned(gemm.shapes()[-1], gemm.out))
    assert not done.hazards
    exact, magnitude = gemm.reference(*inputs), gemm.magnitude(*inputs)
    assert worst_error(gemm, done.outputs["C"], exact, magnitude) <= 1


def test_the_verdict_is_right():
    verdict = pipeliner.verify(pipeliner.build(schedule_gemm(GEMM, TILE), "h100", mechanism="tma"))
    assert verdict.ok, verdict


def _operands(gemm):
    what = gemm.contraction(reordered=True)
    return [(side.source, side.shape) for side in what.operands]


def test_rows_are_whole_lines():
    assert _operands(GEMM) == [("A_reordered", (100, 64)), ("B_reordered", (77, 64))]
    tn = replace(GEMM, layout="TN", dtype="int8", accumulator="", out="")
    assert _operands(tn) == [("A_reordered", (45, 128)), ("B_reordered", (45, 128))]


def test_aligned_operands_stay_as_they_are():
    assert _operands(Gemm(100, 77, 64, layout="NN")) == [
        ("A", (100, 64)),
        ("B_reordered", (64, 128)),
    ]


def test_what_is_aligned_is_refused():
    for aligned in (Gemm(100, 77, 64), Gemm(100, 77, 4, dtype="fp32"), Gemm(None, 77, 8)):
        assert not begins_inside_vectors(aligned.contraction())
        with refused("gemm.reordered", WorkloadError, nbytes=16):
            schedule_gemm(aligned, TILE)


def test_a_function_of_the_users_own_is_not_padded():
    with refused("tile.reordered_given", WorkloadError):
        schedule_gemm(GEMM, TILE, GEMM.function())


def test_large_products_of_odd_k_take_it_and_small_ones_do_not():
    assert default_tile(LARGE, H200).reordered
    assert not default_tile(GEMM, H200).reordered
    assert not default_tile(Gemm(1200, 2912, 2512), H200).reordered


def test_operands_of_open_extents_stay_as_they_are():
    """Rows of which M is the length are known at run time only."""
    gemm = Gemm(None, 77, 64, layout="TN")
    assert begins_inside_vectors(gemm.contraction())
    plan = pipeliner.build(schedule_gemm(gemm, TILE), "h100", prove=False).plan
    assert [copy.src for copy in plan.copies] == ["A", "B_reordered"]
    assert default_tile(gemm, H200)


def test_the_plan_says_why():
    plan = pipeliner.build(schedule_gemm(GEMM, TILE), "h100", prove=False).plan
    before = plan.explain().split("kernels before it")[1]
    assert "written with rows 64 elements apart first, of 45 elements each" in " ".join(
        before.split()
    )


def test_why_tells_such_tiles_from_others():
    tile = default_tile(LARGE, H200)
    options = alternatives(schedule_gemm(LARGE, tile), "h200", Request(), LARGE, tile)
    (chosen,) = [one for one in options.tiles if one.chosen]
    assert chosen.form == "reordered"
    assert chosen.text.endswith(", reordered")
    assert len({replace(one, us=0.0) for one in options.tiles}) == len(options.tiles)


def test_no_trace_replays_it():
    assert replays(replace(TILE, reordered=False))
    assert not replays(TILE)


def test_it_is_verified_on_smaller_extents_by_the_same_plan():
    tile = default_tile(LARGE, H200)
    kernel = pipeliner.build(schedule_gemm(LARGE, tile), "h200", prove=False)
    small = shrunk(LARGE, tile, kernel)
    assert small.spec.flops() < LARGE.flops() / 4
    assert small.tile.reordered
    assert not small.differences
