"""Small convolutions whose pixels the tensor memory accelerator copies, with a tile each.

Tiles begin and end in the middle of rows and images, and reach beyond the last one.
"""

from __future__ import annotations

from pipeliner.schedules import ConvTile
from pipeliner.schedules.workloads import (
    ConvInputGrad,
    Convolution,
    ConvWeightGrad,
    conv1d,
    conv2d,
    conv3d,
)

SAME = conv2d(3, 6, 7, 64, 64, 3, 3, pad=1)
TILE = ConvTile(64, 32, 64)

CASES: dict[str, tuple[Convolution, ConvTile]] = {
    "rows and images": (SAME, TILE),
    "two warpgroups": (SAME, ConvTile(128, 64, 64)),
    "swap A/B": (SAME, ConvTile(80, 64, 64)),
    "strided": (conv2d(9, 6, 7, 64, 64, 3, 3, pad=1, stride=2), TILE),
    "1x1 strided": (conv2d(9, 6, 7, 128, 64, 1, 1, stride=2), TILE),
    "asymmetric, dilated": (
        conv2d(9, 9, 8, 64, 64, 3, 3, pad=(1, 2, 0, 1), dilation=2, stride=(1, 2)),
        TILE,
    ),
    "no padding": (conv2d(3, 8, 7, 64, 64, 3, 2), TILE),
    "ragged channels": (conv2d(3, 6, 7, 96, 64, 3, 3, pad=1), TILE),
    "rows of 64 bytes": (conv2d(3, 6, 7, 32, 64, 3, 3, pad=1), ConvTile(64, 32, 32)),
    "rows of 32 bytes": (conv2d(3, 6, 7, 16, 64, 3, 3, pad=1), ConvTile(64, 32, 16)),
    "two column blocks": (conv2d(3, 6, 7, 128, 64, 3, 3, pad=1), ConvTile(64, 32, 128)),
    "grouped": (conv2d(3, 6, 7, 128, 64, 3, 3, pad=1, groups=2), TILE),
    "channels first, reordered": (
        conv2d(3, 6, 8, 64, 64, 3, 3, pad=1, layout="NCHW"),
        ConvTile(64, 32, 64, reordered=True),
    ),
    "one image": (conv2d(1, 9, 9, 64, 64, 3, 3, pad=1), TILE),
    "whole rows of one image": (conv2d(1, 9, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64)),
    "gradients of one image": (
        ConvInputGrad(conv2d(1, 10, 8, 64, 64, 5, 5, pad=1)),
        ConvTile(64, 64, 64),
    ),
    "phases of the stride": (
        ConvInputGrad(conv2d(3, 12, 14, 64, 64, 3, 3, stride=2, pad=1)),
        ConvTile(64, 64, 64, fold=True),
    ),
    "folded, a position in two steps": (
        conv2d(3, 9, 8, 64, 64, 5, 5, stride=2, pad=2),
        ConvTile(64, 64, 32, fold=True),
    ),
    "folded, a position in five": (
        conv2d(2, 9, 8, 80, 64, 5, 5, stride=2, pad=2),
        ConvTile(64, 64, 16, fold=True),
    ),
    "rows that end with their image": (
        ConvWeightGrad(conv2d(3, 9, 11, 64, 64, 3, 3, stride=2, pad=1)),
        ConvTile(64, 64, 32, fold=True),
    ),
    "rows of two steps": (
        ConvWeightGrad(conv2d(2, 32, 32, 64, 64, 2, 2, stride=2, pad=1)),
        ConvTile(64, 64, 16, fold=True),
    ),
    "persistent": (conv2d(5, 6, 7, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64, persistent=3)),
    "split": (SAME, ConvTile(64, 32, 64, splits=3)),
    "one dimension": (conv1d(3, 33, 64, 64, 3, pad=1), TILE),
    "three dimensions": (conv3d(2, 3, 4, 5, 64, 64, 3, 3, 3, pad=1), TILE),
    "bf16 bias relu": (
        conv2d(3, 6, 7, 64, 64, 3, 3, pad=1, dtype="bf16", epilogue=("bias", "relu")),
        TILE,
    ),
    "int8": (conv2d(3, 6, 7, 64, 64, 3, 3, pad=1, dtype="int8"), TILE),
    "input gradient": (ConvInputGrad(SAME), ConvTile(64, 64, 64)),
    "weight gradient": (ConvWeightGrad(SAME), ConvTile(64, 64, 64)),
}

WINDOWS: dict[str, tuple[Convolution, ConvTile]] = {
    "channels first, reordered by image": (
        conv2d(2, 8, 16, 64, 64, 3, 3, pad=1, layout="NCHW"),
        ConvTile(64, 64, 64, by_image=True, reordered=True),
    ),
    "rows": (conv2d(2, 16, 16, 64, 64, 3, 3, pad=1), TILE),
    "rows, swap A/B": (conv2d(2, 6, 16, 64, 64, 3, 3, pad=1), ConvTile(48, 64, 64)),
    "an image": (conv2d(3, 6, 8, 64, 64, 3, 3, pad=1), ConvTile(48, 64, 64)),
    "images": (conv2d(5, 4, 8, 64, 64, 3, 3, pad=1), TILE),
    "larger than the image": (conv2d(2, 6, 14, 64, 64, 3, 3, pad=2), ConvTile(64, 32, 64)),
    "two column blocks": (conv2d(2, 8, 16, 128, 64, 3, 3, pad=1), ConvTile(64, 32, 128)),
    "three dimensions": (conv3d(2, 2, 4, 8, 64, 64, 3, 3, 3, pad=1), ConvTile(64, 32, 64)),
    "persistent": (conv2d(5, 8, 16, 64, 64, 3, 3, pad=1), ConvTile(64, 32, 64, persistent=3)),
    "input gradient": (
        ConvInputGrad(conv2d(3, 8, 8, 64, 64, 3, 3, pad=1)),
        ConvTile(64, 64, 64),
    ),
    "weight gradient": (
        ConvWeightGrad(conv2d(3, 8, 8, 64, 64, 3, 3, pad=1)),
        ConvTile(64, 64, 64),
    ),
}

BOXES: dict[str, tuple[Convolution, ConvTile]] = {
    "1x1": (conv2d(3, 6, 7, 128, 64, 1, 1), TILE),
    "1x1 grouped": (conv2d(3, 6, 7, 128, 64, 1, 1, groups=2), TILE),
}

LONE: dict[str, Convolution] = {
    "rows": conv1d(1, 140, 64, 32, 3, pad=1),
    "image": conv2d(1, 12, 12, 64, 32, 3, 3, pad=1),
    "strided": conv2d(1, 24, 24, 64, 32, 3, 3, pad=1, stride=2),
    "without padding": conv2d(1, 14, 14, 64, 32, 3, 3),
    "volume": conv3d(1, 5, 6, 5, 64, 32, 3, 3, 3, pad=1),
}
"""One image each, in whose last tile of 128 pixels the second half lies behind the image."""

HALVES = ConvTile(128, 16, 64, raster_group=1)
"""Of which each of two CTAs copies 64 pixels for both."""
