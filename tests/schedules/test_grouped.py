"""Convolutions of small groups by rows: right at every edge, rows copied ahead, chosen where faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeliner.api import build, pipeline, plan_of
from pipeliner.errors import WorkloadError
from pipeliner.machine import A100, H200, V100
from pipeliner.schedules import ConvTile, GroupTile, conv2d, default_tile, schedule_conv
from pipeliner.schedules.grouped import (
    GroupCut,
    fits,
    group_tile,
    group_tiles,
    groups_alike,
    has_group_rows,
)
from pipeliner.schedules.kinds import kinds
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.verification.accuracy import worst_error
from tests.refusals import refused

PLAIN = conv2d(1, 7, 9, 64, 64, 3, 3, pad=1, groups=16)

CASES = {
    "four": (PLAIN, GroupTile(4, 16, 64)),
    "eight": (conv2d(1, 6, 18, 64, 64, 3, 3, pad=1, groups=8), GroupTile(6, 32, 32)),
    "sixteen": (
        conv2d(1, 5, 20, 32, 32, 3, 3, pad=1, groups=2, dtype="bf16"),
        GroupTile(3, 16, 32),
    ),
    "thirty-two": (conv2d(2, 4, 9, 64, 64, 3, 3, pad=1, groups=2), GroupTile(2, 16, 64)),
    "halved": (
        conv2d(1, 9, 11, 48, 48, 3, 3, stride=2, pad=1, groups=12),
        GroupTile(2, 16, 48),
    ),
    "holes": (
        conv2d(1, 6, 18, 96, 96, 2, 3, pad=(1, 2), dilation=(1, 2), groups=6, out="fp32"),
        GroupTile(6, 16, 96),
    ),
    "five": (
        conv2d(1, 7, 20, 32, 32, 5, 5, stride=(2, 1), pad=2, groups=16),
        GroupTile(3, 16, 32),
    ),
    "point": (conv2d(1, 6, 20, 32, 32, 1, 1, groups=4), GroupTile(3, 16, 32)),
    "skipped rows": (
        conv2d(1, 8, 8, 64, 64, 2, 4, stride=3, dilation=(1, 2), groups=4),
        GroupTile(2, 48, 64),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(4)
def test_the_kernel_is_right_and_without_hazards(case: str) -> None:
    """Rows are copied some steps ahead, and warps multiply what is there."""
    conv, tile = CASES[case]
    kernel = build(schedule_conv(conv, tile), "h200" if conv.n == 1 else "a100")
    inputs = conv.inputs()
    out = np.full(conv.shapes()[-1], np.nan, numpy_dtype(conv.out))
    outcome = kernel.emulate(*inputs, out)
    assert not outcome.hazards
    got = outcome.outputs["Y"].astype("float64")
    assert worst_error(conv, got, conv.reference(*inputs), conv.magnitude(*inputs)) <= 1
    (loop,) = kernel.plan.loops
    (ring,) = loop.rings
    assert (ring.buffer, ring.scope) == ("row", "shared")
    assert ring.depth > 1
    assert outcome.total("mmas") > 0


def test_what_a_cut_says() -> None:
    cut = GroupCut.of(conv2d(2, 56, 56, 128, 128, 3, 3, pad=1, groups=32), GroupTile(28, 32, 64))
    assert (cut.each, cut.reads, cut.live, cut.steps) == (4, 16, 3, 30)
    assert (cut.down, cut.across, cut.blocks, cut.ctas) == (2, 2, 2, 16)
    assert (cut.run, cut.threads) == (34, 128)
    assert cut.words == 36 + 3 * 2 * 8
    large = conv2d(2, 56, 56, 128, 128, 3, 3, pad=1, groups=4, stride=2)
    cut = GroupCut.of(large, GroupTile(28, 32, 64))
    assert cut.fresh == 2
    assert GroupCut.of(replace(large, kernel=(1, 3)), GroupTile(28, 32, 64)).fresh == 1
    assert (cut.each, cut.reads, cut.live, cut.run) == (32, 32, 2, 2 * 27 + 3)


def test_what_has_no_rows_of_groups_is_refused() -> None:
    none = (
        replace(PLAIN, dtype="int8", accumulator="", out=""),
        replace(PLAIN, dtype="float32", accumulator="", out=""),
        replace(PLAIN, epilogue=("relu",)),
        replace(PLAIN, k=128),
        replace(PLAIN, groups=64),  # depthwise
        replace(PLAIN, groups=1),
        replace(PLAIN, c=96, k=96, groups=8),  # of 12 channels
        replace(PLAIN, layout="NCHW"),
    )
    for conv in none:
        assert not has_group_rows(conv)
        assert not list(group_tiles(conv))
        with refused("tile.groups", WorkloadError, workload=conv.name):
            schedule_conv(conv, GroupTile(2, 16, 64))
    for tile in (GroupTile(4, 24), GroupTile(4, 16, 40), GroupTile(8, 16), GroupTile(4, 16, 128)):
        assert not fits(PLAIN, tile)
        with refused("tile.groups", WorkloadError):
            schedule_conv(PLAIN, tile)
    wide = replace(PLAIN, kernel=(7, 7), pad=((3, 3), (3, 3)))  # 196 words of weights
    assert not fits(wide, GroupTile(4, 16))
    with refused("tile.least", WorkloadError, name="rows"):
        GroupTile(0, 16)


def test_a_small_image_has_the_edges_of_a_large_one() -> None:
    tile = GroupTile(4, 16, 64)
    large = conv2d(64, 57, 55, 128, 128, 3, 3, pad=1, groups=32)
    small = conv2d(2, 9, 39, 128, 128, 3, 3, pad=1, groups=32)
    assert groups_alike(small, large, tile, 2)
    assert not groups_alike(replace(small, size=(8, 39)), large, tile, 2)  # no row is left over
    assert not groups_alike(replace(small, size=(9, 7)), large, tile, 2)  # narrower than a tile
    assert not groups_alike(replace(small, groups=16), large, tile, 2)
    assert not groups_alike(replace(small, n=1), large, tile, 2)


@pytest.mark.parametrize("each", [4, 8, 16])
def test_rows_of_groups_are_taken_where_they_are_faster(each: int) -> None:
    """And the plan says so, with both times."""
    (conv,) = (conv for name, conv in kinds("float16").items() if name.startswith(f"g{each}_"))
    tile = default_tile(conv, H200)
    assert isinstance(tile, GroupTile)
    assert isinstance(default_tile(conv, A100), GroupTile)
    assert isinstance(default_tile(conv, H200, "simt"), ConvTile)
    assert isinstance(default_tile(conv, H200, splits=2), ConvTile)
    assert group_tile(conv, V100) is None  # which has no such instruction
    plan = plan_of(pipeline(schedule_conv(conv, tile), "h200"))
    (why,) = (why for why in plan.reasons if getattr(why, "code", "") == "groups.faster")
    assert why["us"] < why["whole_us"]
