"""Pixels that are a box: copied as one, right in every timing; others are gathered as before."""

from __future__ import annotations

import pytest

from pipeliner.mechanisms.tma import window_extents
from pipeliner.mutation import mutate
from pipeliner.schedules import ConvTile
from pipeliner.schedules.workloads import Convolution, conv2d
from pipeliner.verification.verdict import verify_workload

from ..schedules.im2col_cases import WINDOWS
from .modes import modes_of
from .test_conv_tma import kernel_of


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.part(12)
def test_pixels_of_whole_rows_are_a_box(case: str) -> None:
    spec, tile = WINDOWS[case]
    kernel = kernel_of(spec, tile, mechanism="tma")
    assert "tma (window)" in {copy.way for copy in kernel.plan.copies}
    assert "im2col" not in kernel.cuda
    verdict = verify_workload(kernel, spec, seed=3, **modes_of(case))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("pixels", "counts", "extents"),
    [
        (224, (32, 56, 56), (1, 4, 56)),
        (98, (32, 7, 7), (2, 7, 7)),
        (16, (2, 6, 64), (1, 1, 16)),
        (256, (8, 64, 64), (1, 4, 64)),
        (256, (32, 56, 56), None),  # ends inside a row
        (192, (32, 28, 32), None),  # 28 rows are no multiple of 6
        (1024, (8, 2, 512), None),  # a box has at most 256 in a dimension
        (128, (1, 4, 16), None),  # more than there are
    ],
)
def test_which_pixels_are_a_box(
    pixels: int, counts: tuple[int, ...], extents: tuple[int, ...] | None
) -> None:
    assert window_extents(pixels, counts) == extents


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (conv2d(2, 8, 16, 64, 64, 3, 3, pad=1, stride=2), ConvTile(32, 64, 64)),
        (conv2d(3, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64)),
    ],
    ids=["strided", "inside rows"],
)
def test_other_pixels_are_gathered(spec: Convolution, tile: ConvTile) -> None:
    pixels, _ = kernel_of(spec, tile, mechanism="tma").plan.copies
    assert pixels.view == "im2col"


def test_every_defect_of_a_window_shows() -> None:
    spec, tile = conv2d(2, 4, 16, 64, 16, 3, 3, pad=1), ConvTile(64, 16, 64, persistent=1)
    report = mutate(kernel_of(spec, tile, depth=3))
    assert report.mutants >= 20
    assert report.ok, [str(fate.mutant) for fate in report.unexplained]
