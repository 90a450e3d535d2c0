"""Depthwise convolutions by regions: right at every edge, a row loaded once and ahead of its use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeliner.api import build
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.schedules import DepthwiseTile, conv1d, conv2d, default_tile, schedule_conv
from pipeliner.schedules.channelwise import (
    RegionCut,
    depthwise_tiles,
    has_regions,
    threads_alike,
)
from pipeliner.schedules.channelwise.cut import SHARED_BYTES
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

from .test_conv import check

PLAIN = conv2d(2, 9, 11, 16, 16, 3, 3, pad=1, groups=16)

CASES = {
    "ragged": (PLAIN, DepthwiseTile(4, 4, 32, rows=2)),
    "whole": (PLAIN, DepthwiseTile(11, 2, 64, rows=9)),
    "halved": (
        conv2d(1, 11, 9, 12, 12, 5, 5, stride=2, pad=2, groups=12, dtype="bf16"),
        DepthwiseTile(2, 2, 64, rows=3),
    ),
    "seven": (
        conv2d(1, 7, 7, 16, 16, 7, 7, pad=3, groups=16, dtype="fp32"),
        DepthwiseTile(7, 4, 32, rows=4),
    ),
    "uneven": (  # 75 vectors in two blocks of 38
        conv2d(1, 4, 4, 150, 150, 3, 3, pad=1, groups=150, out="fp32"),
        DepthwiseTile(3, 2, 128, rows=2),
    ),
    "holes": (
        conv2d(1, 9, 12, 8, 8, 3, 3, pad=(1, 2), dilation=(2, 1), groups=8),
        DepthwiseTile(4, 4, 32, rows=3),
    ),
    "odd": (
        conv2d(2, 6, 5, 7, 7, 3, 2, stride=(1, 2), pad=(1, 0, 0, 1), groups=7),
        DepthwiseTile(2, 1, 64, rows=2),
    ),
}


ALONE = ("whole", "seven")
"""Of these no row is loaded ahead: registers do not suffice, or nothing is gained."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(3)
def test_regions_compute_the_convolution(case: str) -> None:
    conv, tile = CASES[case]
    check(conv, schedule_conv(conv, tile))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(4)
def test_the_kernel_is_right_and_without_hazards(case: str) -> None:
    """Rows are loaded a step ahead into registers; one barrier orders the weights."""
    conv, tile = CASES[case]
    kernel = build(schedule_conv(conv, tile), "h100")
    inputs = conv.inputs()
    out = np.full(conv.shapes()[-1], np.nan, numpy_dtype(conv.out))
    outcome = kernel.emulate(*inputs, out)
    assert not outcome.hazards
    got = outcome.outputs["Y"].astype("float64")
    assert worst_error(conv, got, conv.reference(*inputs), conv.magnitude(*inputs)) <= 1
    (loop,) = (loop for loop in kernel.plan.loops if loop.name == "h")
    stages = {op.stage for op in loop.ops}
    assert (len(stages) > 1) == (case not in ALONE)
    assert kernel.cuda.count("__syncthreads()") == 1


def test_threads_side_by_side_have_channels_side_by_side() -> None:
    wide = conv2d(4, 56, 56, 96, 96, 3, 3, pad=1, groups=96)
    cut = RegionCut.of(wide, DepthwiseTile(8, 2, 128, rows=4))
    assert (cut.lanes, cut.blocks, cut.strips, cut.threads) == (48, 1, 2, 96)
    assert (cut.regions, cut.down, cut.across) == (4 * 14 * 7, 14, 7)
    assert cut.shared_bytes == 9 * 96 * 4
    more = replace(wide, c=150, k=150, groups=150)  # 75 vectors in two blocks of 38
    assert RegionCut.of(more, DepthwiseTile(8, 2, 128, rows=4)).lanes == 38
    many = replace(wide, kernel=(11, 11))  # of many positions: 32 side by side at most
    cut = RegionCut.of(many, DepthwiseTile(8, 2, 128, rows=4))
    assert (cut.lanes, cut.blocks, cut.shared_bytes) == (24, 2, 24 * 2 * 121 * 4)
    large = replace(wide, kernel=(15, 15))  # and of these 27, whose weights are 48600 bytes
    cut = RegionCut.of(replace(large, c=64, k=64, groups=64), DepthwiseTile(8, 2, 128, rows=4))
    assert (cut.lanes, cut.blocks, cut.shared_bytes) == (16, 2, 16 * 2 * 225 * 4)


def test_what_has_no_regions_is_refused() -> None:
    none = (
        conv2d(1, 6, 6, 8, 8, 3, 3, groups=8, dtype="int8"),
        conv2d(1, 6, 6, 8, 8, 3, 3, groups=8, epilogue=("relu",)),
        conv2d(1, 6, 6, 8, 16, 3, 3, groups=8),
        conv1d(1, 6, 8, 8, 3, groups=8),
    )
    for conv in none:
        assert not has_regions(conv)
        with refused("tile.regions", WorkloadError):
            schedule_conv(conv, DepthwiseTile(2, 2, rows=2))
    with refused("tile.regions", WorkloadError, vector=3):
        schedule_conv(PLAIN, DepthwiseTile(2, 3, rows=2))
    large = conv2d(1, 99, 99, 64, 64, 79, 79, groups=64)  # 49928 bytes of two channels
    assert has_regions(large)
    with refused("tile.regions", WorkloadError, most=SHARED_BYTES):
        schedule_conv(large, DepthwiseTile(2, 2, rows=2))
    with refused("tile.least", WorkloadError, name="rows"):
        DepthwiseTile(2, 2, rows=-1)


def test_a_small_image_has_the_edges_of_a_large_one() -> None:
    tile = DepthwiseTile(4, 2, 64, rows=2)
    large = conv2d(8, 57, 55, 128, 128, 3, 3, pad=1, groups=128)
    small = conv2d(1, 7, 11, 128, 128, 3, 3, pad=1, groups=128)
    assert threads_alike(small, large, tile, 2)
    assert not threads_alike(replace(small, size=(8, 11)), large, tile, 2)  # no row is left over
    assert not threads_alike(replace(small, size=(7, 3)), large, tile, 2)  # one region across
    assert not threads_alike(replace(small, c=64, k=64, groups=64), large, tile, 2)


@pytest.mark.parametrize(
    ("conv", "tile"),
    [
        (conv2d(64, 56, 56, 128, 128, 3, 3, pad=1, groups=128), DepthwiseTile(8, 2, 256, rows=2)),
        (conv2d(256, 14, 14, 768, 768, 3, 3, pad=1, groups=768), DepthwiseTile(7, 2, 256, rows=2)),
        (conv2d(128, 14, 14, 768, 768, 7, 7, pad=3, groups=768), DepthwiseTile(14, 1, rows=3)),
        (
            conv2d(64, 112, 112, 96, 96, 3, 3, stride=2, pad=1, groups=96),
            DepthwiseTile(8, 2, rows=1),
        ),
        (conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16), DepthwiseTile(4, 2, rows=1)),
        (conv2d(1, 8, 8, 7, 7, 3, 3, pad=1, groups=7, dtype="bf16"), DepthwiseTile(4, 1, rows=1)),
        (conv2d(1, 8, 8, 16, 32, 3, 3, pad=1, groups=16), DepthwiseTile(4, 4)),
        (conv2d(1, 8, 8, 16, 16, 3, 3, groups=16, epilogue=("relu",)), DepthwiseTile(4, 4)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_regions_are_taken_where_there_are_any(conv, tile: DepthwiseTile) -> None:
    """Few rows of few positions; single ones where there is little to do."""
    assert default_tile(conv, H100) == tile
    tried = list(depthwise_tiles(conv))
    assert len(set(tried)) == len(tried)
    assert any(one.rows for one in tried) == has_regions(conv)
