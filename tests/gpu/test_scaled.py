"""Block-scaled GEMMs on a GPU: against float64, with the tiles that are chosen and others."""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.machine import machine_for
from pipeliner.measuring.truth import random_inputs, truth
from pipeliner.schedules import RowTile, ScaledGemm, default_tile, schedule_scaled
from pipeliner.targets import cuda_target
from pipeliner.verification.accuracy import poisoned, worst_error

pytestmark = pytest.mark.gpu

CASES = {
    "even": (ScaledGemm(256, 384, 1024), RowTile(128, 128)),
    "ragged": (ScaledGemm(200, 333, 720), RowTile(64, 64)),
    "narrow": (ScaledGemm(70, 100, 4096), RowTile(64, 32)),
    "several-blocks-a-tile": (ScaledGemm(64, 520, 512), RowTile(64, 256)),
    "float32": (ScaledGemm(130, 256, 2048, out="float32"), RowTile(64, 128)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{}, {"depth": 1}, {"depth": 3}, {"mechanism": "cp_async"}])
def test_it_is_right_to_rounding(case: str, options: dict[str, Any]) -> None:
    what, tile = CASES[case]
    kernel = pipeliner.build(schedule_scaled(what, tile), **options)
    inputs = what.inputs(seed=2)
    out = poisoned(what.shapes()[-1], what.out)
    kernel(*inputs, out)
    assert worst_error(what, out, what.reference(*inputs), what.magnitude(*inputs)) <= 1


@pytest.mark.parametrize("shape", [(64, 7168, 2048), (2048, 4096, 7168)])
def test_the_tile_that_is_chosen(shape: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    what, target = ScaledGemm(*shape), cuda_target(None)
    kernel = pipeliner.build(schedule_scaled(what, default_tile(what, machine_for(target))), target)
    inputs = random_inputs(torch, what)
    out = torch.full(what.shapes()[-1], torch.nan, device="cuda", dtype=torch.bfloat16)
    kernel(*inputs, out)
    assert truth(torch, what, inputs).error(out) <= 1
