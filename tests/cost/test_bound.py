"""No tile is predicted below its bound, so that leaving out tiles by it changes no choice."""

from __future__ import annotations

import pytest

from pipeliner.choice.bound import least_us
from pipeliner.machine import A100, H100, T4
from pipeliner.schedules import choice, compared
from pipeliner.schedules.choice import default_tile
from pipeliner.schedules.compared import compare_tiles
from pipeliner.schedules.workloads import ConvWeightGrad, GatedGemm, Gemm, conv2d
from pipeliner.space.ranking import Ranking

LAYER = conv2d(8, 28, 28, 64, 96, 3, 3, pad=1)

CASES = [
    (Gemm(1024, 1024, 1024), H100),
    (Gemm(1024, 1024, 1024), A100),
    (Gemm(2000, 1000, 520, layout="NN"), H100),
    (Gemm(16, 512, 8192), H100),
    (Gemm(None, 256, 512), A100),
    (Gemm(512, 768, 768, dtype="int8"), T4),
    (Gemm(512, 768, 300, dtype="fp32"), T4),
    (Gemm(256, 512, 512, dtype="tfloat32"), A100),
    (LAYER, H100),
    (LAYER, T4),
    (ConvWeightGrad(LAYER), A100),
    (GatedGemm(512, 1024, 512, dtype="bf16"), H100),
]


@pytest.fixture
def planned(monkeypatch):
    """What was planned since: the bound of each tile, and what it is predicted to take."""
    seen: list[tuple[float, float]] = []

    def watched(info, machine, request, **options):
        ranking = Ranking(info, machine, request, **options)
        best = ranking.best()
        if best.is_possible and best.plan.matmuls and best.us:
            seen.append((least_us(info, machine, request), best.us))
        return ranking

    monkeypatch.setattr(compared, "Ranking", watched)
    return seen


@pytest.mark.slow
@pytest.mark.part(12)
@pytest.mark.parametrize(("spec", "machine"), CASES)
def test_what_is_left_out_would_not_have_been_chosen(planned, monkeypatch, spec, machine):
    chosen = default_tile(spec, machine)
    some = len(planned)
    monkeypatch.setattr(choice, "WORTH_A_PLAN", float("inf"))
    assert default_tile(spec, machine) == chosen
    every = planned[some:]
    assert some <= len(every)
    rounding = 0.005
    assert [(least, us) for least, us in every if least > us + rounding] == []
    assert max(least / us for least, us in every) > 0.3  # it says something


def test_most_tiles_of_a_large_product_need_no_plan(planned):
    default_tile(Gemm(4096, 4096, 4096), H100)
    some = len(planned)
    compare_tiles(Gemm(4096, 4096, 4096), H100)
    assert 2 * some < len(planned) - some
