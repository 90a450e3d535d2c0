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

SHARED_BYTES: Final = 48 * 1024
"""Of a block's weights: what any GPU gives a CTA, several of which are on an SM."""


def is_depthwise(spec: DepthwiseSpec) -> bool:
    """Whether each channel is summed for itself, channels innermost or planes of their own."""
    conv = channelwise(spec).conv
    return conv.depthwise and (conv.channels_last or has_planes(spec))


def has_regions(spec: DepthwiseSpec) -> bool:
    """Whether ``schedule_regions`` has this convolution, or this gradient."""
    return channelwise(spec).conv.channels_last and _is_plain(spec)


def has_planes(spec: DepthwiseSpec) -> bool:
    """Whether ``schedule_planes`` has it: channels are outside the image, and more than one."""
    conv = channelwise(spec).conv
    return conv.depthwise and not conv.channels_last and _is_plain(spec)


def _is_plain(spec: DepthwiseSpec) -> bool:
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
    extents = (tile.rows, tile.pixels)
    for axis, extent in zip(what.reads, extents, strict=True):
        if extent % axis.unit and extent < axis.out_size:
            return False
    return RegionCut.of(spec, tile).shared_bytes <= SHARED_BYTES


@dataclass(frozen=True, slots=True)
class RegionCut:
    """How regions and channels are given to threads.

    ``down``, ``across``: regions of an image. ``lanes``: threads side by side, of a vector of
    channels each, ``strips``: of a CTA, of a region each. ``blocks``: of channels.
    ``shared_bytes``: of the weights of one.
    """

    regions: int
    down: int
    across: int
    lanes: int
    strips: int
    blocks: int
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
        vectors = -(-conv.c // tile.vector)
        each = tile.vector * math.prod(conv.kernel) * element(conv.accumulator).nbytes
        side = SIDE[math.prod(conv.kernel) > FEW_POSITIONS]
        blocks = -(-vectors // max(1, min(side, SHARED_BYTES // each)))
        lanes = -(-vectors // blocks)
        shared = lanes * each
        strips = max(1, tile.threads // lanes)
        return cls(conv.n * down * across, down, across, lanes, strips, blocks, shared)


def planes_alike(small: DepthwiseSpec, spec: DepthwiseSpec, tile: DepthwiseTile, ctas: int) -> bool:
    """``regions_alike`` of planes: of each kind of edge, and of row that is one access or not."""
    few, many = (channelwise(one) for one in (small, spec))
    counts: list[int] = []
    edges: list[tuple[int | bool, ...]] = []
    for what in (few, many):
        high, wide = what.out_size
        down, across = -(-high // tile.rows), -(-wide // tile.pixels)
        counts.append(what.conv.n * what.conv.c * down * across)
        rest = high % tile.rows, wide % tile.pixels, what.size[1] % tile.pixels
        edges.append((*rest, min(down, 2), min(across, 2), bool(counts[-1] % tile.threads)))
    return edges[0] == edges[1] and counts[0] >= min(ctas * tile.threads, counts[1])


def regions_alike(
    small: DepthwiseSpec, spec: DepthwiseSpec, tile: DepthwiseTile, ctas: int
) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and edge that that of ``spec`` has.

    At least ``ctas`` along either dimension of the grid, where there are as many.
    """
    few, many = RegionCut.of(small, tile), RegionCut.of(spec, tile)
    if (few.lanes, few.strips) != (many.lanes, many.strips):
        return False
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
        for one, cut in ((channelwise(small), few), (channelwise(spec), many))
    ]
    enough = few.regions >= min(ctas * few.strips, many.regions)
    return edges[0] == edges[1] and enough
