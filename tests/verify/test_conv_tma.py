"""Convolutions by TMA, wgmma and roles: right in every timing, whatever pixels a tile takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import mutate
from pipeliner.schedules import ConvTile, schedule_conv
from pipeliner.schedules.workloads import Conv, ConvInputGrad, Convolution, ConvWeightGrad, conv2d
from pipeliner.verification.verdict import verify_workload
from tests.refusals import gives, refused

from ..schedules.im2col_cases import BOXES, CASES, TILE
from .modes import modes_of


def kernel_of(spec: Convolution, tile: ConvTile, **options: Any) -> Kernel:
    return pipeliner.build(schedule_conv(spec, tile), "h100", instruction="wgmma", **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(8)
def test_pixels_are_gathered_in_im2col_mode(case: str) -> None:
    spec, tile = CASES[case]
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert "tma (im2col)" in {copy.way for copy in kernel.plan.copies}
    verdict = verify_workload(kernel, spec, seed=3, **modes_of(case))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize("case", BOXES)
def test_pixels_that_lie_one_behind_the_other_are_rows_of_a_box(case: str) -> None:
    spec, tile = BOXES[case]
    kernel = kernel_of(spec, tile, mechanism="tma")
    pixels, filters = kernel.plan.copies
    assert [(pixels.way, pixels.view), (filters.way, filters.view)] == [
        ("tma", "flattened"),
        ("tma", "tensor"),
    ]
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize("case", ["rows and images", "strided", "one image", "grouped"])
def test_outputs_are_stored_as_boxes_of_rows(case: str) -> None:
    spec, tile = CASES[case]
    (store,) = kernel_of(spec, tile, store="tma").plan.stores
    assert store.mechanism == "tma"


@pytest.mark.parametrize(
    ("forward", "view"),
    [
        (conv2d(2, 9, 6, 64, 64, 2, 2, pad=1), "window"),  # what lies behind 7 outputs is no pixel
        (conv2d(2, 5, 64, 64, 64, 3, 3, pad=1), "window"),
        (conv2d(2, 5, 64, 64, 64, 3, 1, pad=(1, 1, 0, 0)), "tensor"),  # no windows along the row
    ],
    ids=["to the image's end", "within a row", "column"],
)
@pytest.mark.part(3)
def test_pixels_of_one_row_are_a_box_of_the_image(forward: Conv, view: str) -> None:
    spec = ConvWeightGrad(forward)
    kernel = kernel_of(spec, ConvTile(64, 64, 32, fold=True), mechanism="tma")
    assert [copy.view for copy in kernel.plan.copies] == ["tensor", view]
    assert "im2col" not in kernel.cuda
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


REFUSED = [
    (
        conv2d(3, 6, 7, 20, 64, 3, 3, pad=1),
        ConvTile(64, 32, 16),
        ("box.stride", {"buffer": "X", "stride": 280}),
    ),
    (
        conv2d(3, 6, 7, 96, 64, 3, 3, pad=1, groups=2),
        ConvTile(64, 32, 32),
        ("tma.mask", {"buffer": "X", "condition": "r_s_c_0_fused % 2 * 32 + ax1 < 48"}),
    ),
    (
        conv2d(3, 6, 300, 64, 64, 1, 3, dilation=(1, 140)),
        TILE,
        ("box.corner", {"rank": 2, "least": -128, "most": 127, "corner": -280}),
    ),
    (
        conv2d(3, 6, 300, 64, 64, 1, 3, dilation=(1, 140), pad=(0, 0, 120, 160)),
        TILE,
        ("box.offset", {"rank": 2, "most": 255, "offset": 280}),
    ),
    (
        conv2d(9, 6, 40, 64, 64, 1, 1, stride=(1, 9)),
        TILE,
        ("box.step", {"most": 8, "step": 9}),
    ),
]


@pytest.mark.parametrize(("spec", "tile", "why"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.part(2)
def test_what_im2col_cannot_do_is_refused_or_left_to_threads(
    spec: Convolution, tile: ConvTile, why: tuple[str, dict[str, Any]]
) -> None:
    code, args = why
    with refused(code, PlanError, **args):
        kernel_of(spec, tile, mechanism="tma")
    kernel = kernel_of(spec, tile)
    assert {copy.way for copy in kernel.plan.copies} == {"cp_async"}
    pixels, *_ = kernel.plan.copies
    assert gives(pixels.reason, code, **args)


UNEVEN = [
    (conv2d(5, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64, splits=2)),
    (conv2d(1, 8, 8, 128, 64, 3, 3, pad=1), ConvTile(64, 64, 64, splits=4)),  # within a position
    (conv2d(2, 9, 9, 64, 64, 3, 3, stride=2, pad=1), ConvTile(64, 64, 64, splits=5)),
    (
        conv2d(1, 8, 8, 64, 64, 3, 3, pad=1),
        ConvTile(64, 64, 64, splits=8),
    ),  # partial sums of nothing
    (ConvWeightGrad(conv2d(3, 8, 7, 64, 64, 3, 3, pad=1)), ConvTile(64, 64, 64, splits=2)),
    (ConvInputGrad(conv2d(3, 8, 7, 64, 64, 3, 3, pad=1)), ConvTile(64, 64, 64, splits=4)),
    (ConvInputGrad(conv2d(3, 8, 8, 64, 64, 3, 3, pad=1)), ConvTile(64, 64, 64, splits=4)),
]


@pytest.mark.parametrize(("spec", "tile"), UNEVEN, ids=str)
@pytest.mark.part(9)
def test_steps_beyond_the_last_are_gathered_from_outside(spec: Convolution, tile: ConvTile) -> None:
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert {copy.mechanism for copy in kernel.plan.copies} == {"tma"}
    assert {copy.way for copy in kernel.plan.copies} & {"tma (window)", "tma (im2col)"}
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_what_lies_beyond_the_last_step_is_not_read() -> None:
    """Infinite pixels times filters that are zero would show."""
    spec, tile = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64, splits=2)
    kernel = kernel_of(spec, tile, mechanism="tma")
    x, w = spec.inputs(0)
    x[:, 7] = np.inf  # one row below the last that outputs of row 5 see
    out = np.full(spec.shapes()[-1], np.nan, "float16")
    result = kernel.emulate(x, w, out)
    assert not result.hazards
    assert np.isfinite(result.outputs["Y"][:, :6]).all()


def test_every_defect_of_gathered_pixels_shows() -> None:
    kernel = kernel_of(conv2d(2, 6, 7, 64, 16, 3, 3, pad=1), ConvTile(64, 16, 64), depth=3)
    report = mutate(kernel)
    assert report.mutants >= 20
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]


@pytest.mark.nvcc
@pytest.mark.deep("test_pixels_are_gathered_in_im2col_mode")
def test_the_machine_code_gathers_pixels() -> None:
    spec, tile = CASES["rows and images"]
    sass = kernel_of(spec, tile).sass
    loads = [line for line in sass.splitlines() if "UTMALDG" in line]
    assert [("IM2COL" in line, "4D" in line) for line in loads] == [(True, True), (False, True)]
