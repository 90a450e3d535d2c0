"""The tile that is taken of a workload lowers as it was predicted, on every GPU."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

import pipeliner
from pipeliner.errors import LoweringError, WorkloadError
from pipeliner.kernel import chosen_tile as chosen_module
from pipeliner.kernel.chosen_tile import AS_PREDICTED, chosen_tile
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.schedules import (
    Attention,
    AttentionTile,
    BackToBackGemm,
    Gemm,
    GemmTile,
    GroupedGemm,
    RowTile,
    ScaledGemm,
)
from pipeliner.schedules.choice import default_tile, ranked_tiles
from pipeliner.schedules.scheduled import scheduled
from pipeliner.schedules.workloads import Spec
from pipeliner.space.ranking import refusals
from pipeliner.verification.verdict import verify_workload
from tests.refusals import the

NOTHING = Request()
TINY = Gemm(256, 256, 256)

LONG = Attention(2, 8, 4096, 4096, 64, causal=True)
WIDE = Attention(2, 8, 4096, 4096, 256)
SHORT = Attention(7, 32, 1152, 1152, 64)
CHAINS = [
    BackToBackGemm(1480, 5224, 96, 208),
    BackToBackGemm(3624, 4512, 96, 176),
    BackToBackGemm(8680, 1640, 224, 16),
    BackToBackGemm(1352, 1840, 192, 240),
]
"""Of all these some GPU made, by the first tile of a session, code for one thread or FMA."""


@pytest.mark.part(5)
@pytest.mark.parametrize("gpu", ["a100", "rtx4090", "h200", "b200", "t4", "v100", "gtx1080ti"])
@pytest.mark.parametrize("spec", [LONG, WIDE, SHORT, *CHAINS], ids=lambda spec: spec.name)
def test_loops_of_two_matmuls(spec: Spec, gpu: str) -> None:
    chosen = chosen_tile(spec, gpu, NOTHING)
    plan = pipeliner.plan_of(pipeliner.pipeline(scheduled(spec, chosen.tile), gpu))
    by_warps = machine_for(gpu).mma("float16") is not None
    assert len(plan.matmuls) == 2
    assert all((matmul.instruction != "simt") == by_warps for matmul in plan.matmuls)
    _, least = next(ranked_tiles(spec, machine_for(gpu)))
    assert 0.0 < plan.predicted_us <= 1.2 * least


@dataclass
class _Lowered:
    """What the passes make of tiles, in place of them: microseconds, or a refusal."""

    us: dict[int, float | None]
    asked: list[int]

    def __call__(self, function: Any, target: Any, request: Request) -> Any:
        made = self.us[len(self.asked)]
        self.asked.append(len(self.asked))
        if made is None:
            raise LoweringError("block.unmapped", block="matmul", why="a test says so")
        return made


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> _Lowered:
    @dataclass
    class Plan:
        predicted_us: float
        reasons: tuple[Any, ...] = ()

    made = _Lowered({}, [])
    monkeypatch.setattr(chosen_module, "pipeline_with", made)
    monkeypatch.setattr(chosen_module, "plan_of", Plan)
    return made


def first_tiles(count: int) -> list[tuple[Any, float]]:
    return list(itertools.islice(ranked_tiles(TINY, machine_for("h200")), count))


def test_the_first_is_taken_where_it_is_as_predicted(lowered: _Lowered) -> None:
    ((tile, us),) = first_tiles(1)
    lowered.us = {0: us}
    chosen = chosen_tile(TINY, "h200", NOTHING)
    assert (chosen.tile, chosen.why) == (tile, "")
    assert tile == default_tile(TINY, machine_for("h200"))


def test_the_next_is_taken_where_the_first_does_not_lower(lowered: _Lowered) -> None:
    (first, us), (second, other_us) = first_tiles(2)
    lowered.us = {0: None, 1: other_us}
    chosen = chosen_tile(TINY, "h200", NOTHING)
    assert chosen.tile == second
    reason = the("tile.passed", [chosen.why])
    assert (reason["tile"], reason["us"]) == ((first.m, first.n, first.k), us)
    assert "a test says so" in str(chosen.why)


def test_the_fastest_of_those_that_are_slower_is_taken(lowered: _Lowered) -> None:
    tiles = first_tiles(chosen_module.MOST_LOWERED)
    lowered.us = dict.fromkeys(range(len(tiles)), 9e3) | {3: 8e3, 5: 0.0}
    chosen = chosen_tile(TINY, "h200", NOTHING)
    assert chosen.tile == tiles[3][0]
    assert len(lowered.asked) == len(tiles)


def test_no_tile_is_lowered_that_is_predicted_slower_than_what_was(lowered: _Lowered) -> None:
    tiles = first_tiles(chosen_module.MOST_LOWERED)
    made = tiles[0][1] * (1 + 2 * AS_PREDICTED)
    lowered.us = dict.fromkeys(range(len(tiles)), 9e3) | {0: made}
    assert chosen_tile(TINY, "h200", NOTHING).tile == tiles[0][0]
    assert len(lowered.asked) == next(n for n, (_, us) in enumerate(tiles) if us > made)


def test_where_none_lowers_the_first_error_is_raised(lowered: _Lowered) -> None:
    lowered.us = dict.fromkeys(range(chosen_module.MOST_LOWERED), None)
    with pytest.raises(LoweringError, match="a test says so"):
        chosen_tile(TINY, "h200", NOTHING)


def test_what_is_asked_of_a_kernel_does_not_change_its_tile(lowered: _Lowered) -> None:
    """A depth that is asked for makes every tile slower than was predicted."""
    ((tile, _),) = first_tiles(1)
    for asked in (Request(depth=1), Request(mechanism="cp_async"), Request(cluster=1)):
        assert chosen_tile(TINY, "h200", asked) == chosen_module.Chosen(tile)
    assert not lowered.asked


def test_every_tile_is_ranked_once() -> None:
    tiles = [tile for tile, _ in ranked_tiles(TINY, machine_for("h200"))]
    assert len(tiles) == len(set(tiles)) > 20


@pytest.mark.parametrize("gpu", ["t4", "rtx4090"])
def test_rows_that_a_table_names_are_staged(gpu: str) -> None:
    """Masks of a grouped GEMM's copies ask a table, which was thought to be nobody's load."""
    spec = GroupedGemm(4, 624, 904, 3336)
    chosen = chosen_tile(spec, gpu, NOTHING)
    assert chosen.why == ""
    plan = pipeliner.plan_of(pipeliner.pipeline(scheduled(spec, chosen.tile), gpu))
    assert not refusals(plan)
    assert {copy.mechanism for copy in plan.copies} <= {"register", "cp_async"}


def test_a_grouped_gemm_is_right_on_a_t4() -> None:
    spec = GroupedGemm(3, 100, 72, 136, dtype="float16")
    kernel = pipeliner.build(scheduled(spec, RowTile(64, 64)), "t4", depth=2)
    assert {copy.mechanism for copy in kernel.plan.copies} == {"register"}
    verdict = verify_workload(kernel, spec, timings=("late",))
    assert verdict.ok, str(verdict)


def test_what_fits_by_no_instruction_is_shared_out() -> None:
    """Of 160 columns a GTX 1080 Ti's 48 KB hold no tile and the rows that warps pass on."""
    spec = Attention(16, 2, 577, 577, 160, causal=True, dtype="bfloat16")
    chosen = chosen_tile(spec, "gtx1080ti", NOTHING)
    plan = pipeliner.plan_of(pipeliner.pipeline(scheduled(spec, chosen.tile), "gtx1080ti"))
    assert [matmul.instruction for matmul in plan.matmuls] == ["scalar", "scalar"]
    assert plan.predicted_us == 0.0


def test_what_no_tile_can_be_multiplied_by_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"A100 SXM4 .* has no float8_e4m3fn"):
        default_tile(ScaledGemm(128, 256, 256), machine_for("a100"))


def test_a_plan_says_which_tiles_were_passed_over() -> None:
    """Of the best one a copy would go through more registers than there are."""
    spec = BackToBackGemm(8680, 1640, 224, 16)
    function = pipeliner.build(spec, "a100").function
    reason = the("tile.passed", pipeliner.plan_of(function).reasons)
    assert "B_shared" in str(reason)


@pytest.mark.parametrize(
    ("gpu", "spec", "tile", "warps"),
    [
        # One set of fragments, so that warps have whole rows.
        ("a100", Attention(1, 1, 100, 75, 256), AttentionTile(128, 32), (8, 1)),
        # Three times a power of two of warps, so that they have whole rows.
        ("a100", Attention(1, 1, 150, 75, 64), AttentionTile(192, 64), (6, 1)),
        # Warps that suit both accumulators.
        ("a100", BackToBackGemm(200, 200, 96, 176), RowTile(128, 96), (4, 2)),
        # Threads to which the second accumulator can be shared out, too.
        ("t4", BackToBackGemm(40, 100, 64, 240), RowTile(32, 32), (2, 4)),
        # Rows that pass through shared memory, in the room that is left for them.
        ("t4", Attention(1, 1, 40, 75, 128), AttentionTile(32, 32), (2, 1)),
    ],
    ids=["one-set", "six-warps", "warps-of-both", "threads-of-both", "through-shared"],
)
def test_what_could_not_be_mapped_is_right(
    gpu: str, spec: Spec, tile: GemmTile, warps: tuple[int, int]
) -> None:
    kernel = pipeliner.build(scheduled(spec, tile), gpu)
    assert not refusals(kernel.plan)
    assert kernel.plan.matmuls[-1].warps == warps
    verdict = verify_workload(kernel, spec, timings=("late",))
    assert verdict.ok, str(verdict)
