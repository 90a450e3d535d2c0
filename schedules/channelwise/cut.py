"""Which regions and channels the threads of a depthwise convolution have, or of its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...values.elements import element
from ..tiles import DepthwiseTile
from ..workloads import Conv, ConvInputGrad
from .sums import channelwise

DepthwiseSpec: TypeAlias = "Conv | ConvInputGrad"
"""A convolution, or the gradient of the input of one, that may be cut into regions."""

FEW_POSITIONS: Final = 9
"""Of a kernel that memory bounds: many threads of few registers hide its latency."""

SIDE: Final = (64, 32)
"""Threads side by side in channels, at most: where positions are few, and where they are many.

Measured on an H200, fp16: 3 x 3 over 112 x 112 took 49.2 us with 64, 61.9 with 32; 7 x 7 over
56 x 56 119.8 us with 64, 104.1 with 32.
"""

COLUMNS: Final = 128
"""Threads side by side in a row of a plane, at most."""

SHARED_BYTES: Final = 48 * 1024
"""Of a block's weights: what any GPU gives a CTA, several of which are on an SM."""


def is_depthwise(spec: DepthwiseSpec) -> bool:
    """Whether each channel is summed for itself: by regions, or channels innermost."""
    conv = channelwise(spec).conv
    return conv.depthwise and (conv.channels_last or has_regions(spec))


def has_regions(spec: DepthwiseSpec) -> bool:
    """Whether ``schedule_regions`` has this convolution, or this gradient."""
    conv = channelwise(spec).conv
    plain = conv.rank == 2 and not conv.epilogue
    return plain and conv.groups == conv.c == conv.k and not element(conv.storage).integer


def fits(spec: DepthwiseSpec, tile: DepthwiseTile) -> bool:
    """Whether it is one that is cut so, and its weights fit.

    Regions of a gradient with a stride start at multiples of that, or there is one.
    """
    what = channelwise(spec)
    if not has_regions(spec) or what.conv.c % tile.vector:
        return False
    if tile.vector > 1 and not what.conv.channels_last:
        return False
    extents = (tile.rows, tile.pixels)
    for axis, extent in zip(what.reads, extents, strict=True):
        if extent % axis.unit and extent < axis.out_size:
            return False
    return RegionCut.of(spec, tile).shared_bytes <= SHARED_BYTES


@dataclass(frozen=True, slots=True)
class RegionCut:
    """How regions and channels are given to threads.

    ``down``, ``across``: regions of an image, or of a plane where channels lie outside. ``lanes``:
    threads side by side, of a vector of channels each, or of columns; ``strips``: of a CTA, of a
    region each. ``blocks``: of channels. ``columns``: channels whose weights a CTA keeps, and
    ``shared_bytes`` of these.
    """

    regions: int
    down: int
    across: int
    lanes: int
    strips: int
    blocks: int
    columns: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return self.lanes * self.strips

    @property
    def ctas(self) -> int:
        """Of the grid."""
        return self.blocks * -(-self.regions // self.strips)

    @classmethod
    def of(cls, spec: DepthwiseSpec, tile: DepthwiseTile) -> RegionCut:
        """``spec``, cut so; blocks of channels are as even as they can be."""
        what = channelwise(spec)
        conv, (high, wide) = what.conv, what.out_size
        down, across = -(-high // tile.rows), -(-wide // tile.pixels)
        each = math.prod(conv.kernel) * element(conv.accumulator).nbytes
        if not conv.channels_last:
            parts = -(-across // COLUMNS)
            lanes = -(-across // parts)
            strips = max(1, tile.threads // lanes)
            planes = -(-(strips - 1) // (down * parts)) + 1  # from anywhere in the first
            regions = conv.n * conv.c * down * parts
            return cls(regions, down, parts, lanes, strips, 1, planes, planes * each)
        vectors = -(-conv.c // tile.vector)
        side = SIDE[math.prod(conv.kernel) > FEW_POSITIONS]
        blocks = -(-vectors // max(1, min(side, SHARED_BYTES // (tile.vector * each))))
        lanes = -(-vectors // blocks)
        strips = max(1, tile.threads // lanes)
        columns = lanes * tile.vector
        regions = conv.n * down * across
        return cls(regions, down, across, lanes, strips, blocks, columns, columns * each)


def regions_alike(
    small: DepthwiseSpec, spec: DepthwiseSpec, tile: DepthwiseTile, ctas: int
) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and edge that that of ``spec`` has.

    At least ``ctas`` along either dimension of the grid, where there are as many. Planes are as
    large: which of a CTA's regions are the first of one depends on that.
    """
    few, many = RegionCut.of(small, tile), RegionCut.of(spec, tile)
    if (few.lanes, few.strips) != (many.lanes, many.strips):
        return False
    first, second = channelwise(small), channelwise(spec)
    if not second.conv.channels_last:
        enough = few.regions >= min(ctas * few.strips, many.regions)
        ragged = [bool(cut.regions % cut.strips) for cut in (few, many)]
        return first.out_size == second.out_size and ragged[0] == ragged[1] and enough
    for one, other in ((few.down, many.down), (few.across, many.across), (few.blocks, many.blocks)):
        if one < min(ctas, other):
            return False
    edges = [
        (
            one.out_size[0] % tile.rows,
            one.out_size[1] % tile.pixels,
            one.conv.c % (cut.lanes * tile.vector),
            bool(cut.regions % cut.strips),
        )
        for one, cut in ((first, few), (second, many))
    ]
    enough = few.regions >= min(ctas * few.strips, many.regions)
    return edges[0] == edges[1] and enough
