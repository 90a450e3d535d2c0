"""Which outputs a thread has of a depthwise convolution, or of its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from ...instructions.dtypes import element_bytes
from ...machine import VECTOR_BYTES, Machine
from ..tiles import DepthwiseTile
from .cut import (
    FEW_POSITIONS,
    DepthwiseSpec,
    RegionCut,
    fits,
    has_planes,
    has_regions,
    planes_alike,
    regions_alike,
)
from .sums import channelwise

PIXELS: Final = 4
"""Neighbouring outputs of a thread, which share each weight that it loads."""

SINGLE: Final = ((1, 2, 4, 8), (1, 2, 4, 8), (64, 128, 256))
"""Pixels and channels of a thread, threads of a CTA: what a search tries of single outputs."""

REGIONS: Final = ((1, 2, 3, 4, 7), (4, 7, 8, 14), (1, 2), (128, 256))
"""Rows, pixels and channels of a thread, threads of a CTA: what a search tries of regions."""

LINE: Final = 64
"""Threads side by side of which a CTA has four regions rather than two.

Measured on an H200: 3 x 3 over 56 x 56 of 128 channels took 34.1 us so, 35.4 with two; 48 side by
side took 62.4 us with five, 49.2 with two.
"""

CHANNELS: Final[Mapping[tuple[int, bool], int]] = {(1, False): 1, (2, False): 1}
"""Of a thread, keyed as ``REGION`` is; elsewhere two.

Four take registers that leave fewer threads, and were slower throughout. Two and one, measured on
an H200 in 4 x 14: 5 x 5 over 28 x 28 took 65.3 and 60.1 us, 7 x 7 over 56 x 56 104.7 and 94.5,
9 x 9 over 28 x 28 131.7 and 113.0; with a stride of 2, 7 x 7 over 56 x 56 in 4 x 7 64.0 and 69.8.
"""

PAIR: Final = 2
"""Channels of a thread elsewhere."""

MANY_POSITIONS: Final = 25
"""Of a kernel whose regions have more rows for its window to slide over."""

REGION: Final[Mapping[tuple[int, bool], tuple[int, int]]] = {
    (0, False): (2, 8),
    (0, True): (1, 8),
    (1, False): (4, 14),
    (1, True): (2, 7),
    (2, False): (4, 14),
    (2, True): (4, 7),
}
"""Rows and pixels of a thread, at most: where positions are few, some and many, without a stride
and with one.

Measured on an H200, fp16, two channels a thread: 3 x 3 over 112 x 112 took 49.2 us in 2 x 8, 58.5
in 2 x 4, 63.5 in 4 x 8; 7 x 7 over 56 x 56 with 64 threads side by side 119.8 us in 4 x 14, 131.8
in 7 x 7; with a stride of 2, 3 x 3 over 112 x 112 59.1 us in 1 x 8, 60.4 in 2 x 8, 63.6 in 2 x 4,
and 5 x 5 over 56 x 56 of 192 channels 45.0 us in 2 x 7, 47.0 in 4 x 7, 46.9 in 2 x 14.
"""


ROWS: Final = 4
"""Of a thread's outputs of a plane, about: predicted, not measured."""

MOST_SUMS: Final = 112
"""Of a thread: those of the largest regions in ``REGION`` of two channels each."""


def threads_alike(
    small: DepthwiseSpec, spec: DepthwiseSpec, tile: DepthwiseTile, ctas: int
) -> bool:
    """Whether the kernel of ``small`` has every kind of thread that that of ``spec`` has.

    More than ``ctas`` CTAs, where there are as many.
    """
    if tile.rows:
        alike = planes_alike if has_planes(spec) else regions_alike
        return alike(small, spec, tile, ctas)
    each = tile.pixels * tile.vector
    sides = [channelwise(one) for one in (small, spec)]
    threads = [one.pixels * one.channels // each for one in sides]
    edges = [bool(count % tile.threads) for count in threads]
    if sides[0].pixels % tile.pixels or edges[0] != edges[1]:
        return False
    return threads[0] > min(ctas * tile.threads, threads[1] - 1)


def depthwise_tiles(spec: DepthwiseSpec) -> Iterator[DepthwiseTile]:
    """The tiles of a depthwise convolution, or of its input's gradient, that a search tries."""
    what = channelwise(spec)
    if has_planes(spec):
        usual = planes_tile(spec)
        for scale, pixels, threads in itertools.product((1, 2), (1, 2), REGIONS[-1]):
            yield DepthwiseTile(pixels * usual.pixels, 1, threads, scale * usual.rows)
        return
    for pixels, vector, threads in itertools.product(*SINGLE):
        if what.channels % vector == 0 and what.pixels % pixels == 0:
            yield DepthwiseTile(pixels, vector, threads)
    if not has_regions(spec):
        return
    extents = [
        dict.fromkeys(-(-extent // axis.unit) * axis.unit for extent in tried)
        for axis, tried in zip(what.reads, REGIONS)
    ]
    for rows, pixels, vector, threads in itertools.product(*extents, *REGIONS[2:]):
        tile = DepthwiseTile(pixels, vector, threads, rows)
        if fits(spec, tile) and rows * pixels * vector <= 2 * MOST_SUMS:
            yield tile


def planes_tile(spec: DepthwiseSpec) -> DepthwiseTile:
    """The tile of one with channels outside the image: as many pixels as one access has."""
    what = channelwise(spec)
    down, across = (axis.unit for axis in what.reads)
    pixels = VECTOR_BYTES // element_bytes(what.conv.storage)
    rows, pixels = (-(-most // unit) * unit for most, unit in ((ROWS, down), (pixels, across)))
    return DepthwiseTile(pixels, 1, rows=rows)


def depthwise_tile(spec: DepthwiseSpec, machine: Machine) -> DepthwiseTile:
    """Regions where there are any, else vectors of sums as wide as one access.

    Regions are as even as they can be; where they are too few for the SMs, one row each. Those of a
    gradient are a convolution's without a stride: with one, of as many positions as a pixel has.
    """
    if has_planes(spec):
        return planes_tile(spec)
    what = channelwise(spec)
    conv = what.conv
    widest = VECTOR_BYTES // element_bytes(conv.accumulator)
    single = DepthwiseTile(math.gcd(what.pixels, PIXELS), math.gcd(what.channels, widest))
    if not has_regions(spec):
        return single
    units = [axis.unit for axis in what.reads]
    positions = -(-math.prod(conv.kernel) // math.prod(units))
    size = (positions > FEW_POSITIONS) + (positions > MANY_POSITIONS)
    kind = size, max(conv.stride) > 1 and not what.is_gradient
    most = REGION[kind]
    rows, pixels = map(_even, what.out_size, most, units)
    vector = math.gcd(conv.c, CHANNELS.get(kind, PAIR))
    tile = DepthwiseTile(pixels, vector, rows=rows)
    cut = RegionCut.of(spec, tile)
    if max(conv.stride) == 1 and cut.lanes == LINE:
        tile = DepthwiseTile(pixels, vector, 2 * tile.threads, rows)
    if cut.ctas < machine.sms:
        tile = DepthwiseTile(_even(what.out_size[1], PIXELS, units[1]), vector, rows=units[0])
    few = tile.rows * tile.pixels * tile.vector <= MOST_SUMS
    return tile if few and fits(spec, tile) else single


def _even(size: int, most: int, unit: int) -> int:
    """Of more than half of ``most`` the extent that covers ``size`` with least beyond its end.

    A multiple of ``unit``, and at least that.
    """
    extents = [extent for extent in range(most, most // 2, -1) if extent % unit == 0] or [unit]
    return min(extents, key=lambda extent: -(-size // extent) * extent)
