"""Depthwise convolutions: no matmul, each thread on its own. Their schedule and their tiles.

    for blockIdx.x, thread in outputs / (pixels x vector):
      acc: the thread's outputs, neighbouring pixels of neighbouring channels = 0
      for step in positions of the kernel:
        acc += X[step's pixels] * W[step]    # vectors of channels, zero outside X
      Y = epilogue(acc)

Nothing is shared: a thread needs of X and W what no other multiplies with the same. Neighbouring
pixels of one thread read a weight once; a tile of ``rows`` is cut into regions instead, which read
an input once ([regions.py](regions.py)). There is no tile of a matmul that the passes could map to
an instruction, so the schedule says which thread has which output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tvm import s_tir

from ..instructions.dtypes import element_bytes
from ..machine import VECTOR_BYTES, Machine
from .matmul import inline_epilogue
from .regions import FEW_POSITIONS, RegionCut, fits, has_regions, regions_alike, schedule_regions
from .tiles import DepthwiseTile
from .workloads import MATMUL, Conv

LANES: Final = "threadIdx.x"

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

CHANNELS: Final = 2
"""Of a thread: four take registers that leave fewer threads, and were slower throughout."""

REGION: Final[Mapping[tuple[bool, bool], tuple[int, int]]] = {
    (True, False): (2, 8),
    (True, True): (1, 8),
    (False, False): (4, 14),
    (False, True): (4, 7),
}
"""Rows and pixels of a thread, at most: where positions are few, and where there is a stride.

Measured on an H200, fp16, two channels a thread: 3 x 3 over 112 x 112 took 49.2 us in 2 x 8, 58.5
in 2 x 4, 63.5 in 4 x 8; 7 x 7 over 56 x 56 with 64 threads side by side 119.8 us in 4 x 14, 131.8
in 7 x 7; with a stride of 2, 3 x 3 over 112 x 112 59.1 us in 1 x 8, 60.4 in 2 x 8, 63.6 in 2 x 4.
"""


def schedule_depthwise(conv: Conv, tile: DepthwiseTile) -> Any:
    """``conv`` with ``tile`` outputs for each thread, as a TVM schedule."""
    if tile.rows:
        return schedule_regions(conv, tile)
    sch = s_tir.Schedule(conv.by_channel().function())
    update = sch.get_sblock(MATMUL)
    store = inline_epilogue(sch, update)
    i, j, *positions, c = sch.get_loops(update)
    i_out, i_in = sch.split(i, [None, tile.pixels])
    j_out, j_in = sch.split(j, [None, tile.vector])
    sch.reorder(i_out, j_out, *positions, c, i_in, j_in)
    step = sch.fuse(*positions, c)
    cta, thread = sch.split(sch.fuse(i_out, j_out), [None, tile.threads])
    sch.bind(cta, "blockIdx.x")
    sch.bind(thread, LANES)

    sch.reverse_compute_at(store, thread)
    sch.set_scope(update, 0, "local")
    for block in (update, store):
        *_, pixel, lane = sch.get_loops(block)
        sch.unroll(pixel)
        sch.vectorize(lane)
    sch.decompose_reduction(update, step)
    return sch


def threads_alike(small: Conv, conv: Conv, tile: DepthwiseTile, ctas: int) -> bool:
    """Whether the kernel of ``small`` has every kind of thread that that of ``conv`` has.

    More than ``ctas`` CTAs, where there are as many.
    """
    if tile.rows:
        return regions_alike(small, conv, tile, ctas)
    each = tile.pixels * tile.vector
    threads = [one.pixels * one.k // each for one in (small, conv)]
    edges = [bool(count % tile.threads) for count in threads]
    if small.pixels % tile.pixels or edges[0] != edges[1]:
        return False
    return threads[0] > min(ctas * tile.threads, threads[1] - 1)


def depthwise_tiles(conv: Conv) -> Iterator[DepthwiseTile]:
    """The tiles of a depthwise convolution that a search tries."""
    for pixels, vector, threads in itertools.product(*SINGLE):
        if conv.k % vector == 0 and conv.pixels % pixels == 0:
            yield DepthwiseTile(pixels, vector, threads)
    for rows, pixels, vector, threads in itertools.product(*REGIONS):
        tile = DepthwiseTile(pixels, vector, threads, rows)
        if fits(conv, tile):
            yield tile


def depthwise_tile(conv: Conv, machine: Machine) -> DepthwiseTile:
    """Regions where the convolution has them, else vectors of sums as wide as one access.

    Regions are as even as they can be; where they are too few for the SMs, one row each.
    """
    widest = VECTOR_BYTES // element_bytes(conv.accumulator)
    single = DepthwiseTile(math.gcd(conv.pixels, PIXELS), math.gcd(conv.k, widest))
    if not has_regions(conv):
        return single
    most = REGION[math.prod(conv.kernel) <= FEW_POSITIONS, max(conv.stride) > 1]
    rows, pixels = map(_even, conv.out_size, most)
    vector = math.gcd(conv.c, CHANNELS)
    tile = DepthwiseTile(pixels, vector, rows=rows)
    cut = RegionCut.of(conv, tile)
    if max(conv.stride) == 1 and cut.lanes == LINE:
        tile = DepthwiseTile(pixels, vector, 2 * tile.threads, rows)
    if cut.ctas < machine.sms:
        tile = DepthwiseTile(_even(conv.out_size[1], PIXELS), vector, rows=1)
    return tile if fits(conv, tile) else single


def _even(size: int, most: int) -> int:
    """Of more than half of ``most`` the extent that covers ``size`` with least beyond its end."""
    extents = range(most, most // 2, -1)
    return min(extents, key=lambda extent: -(-size // extent) * extent)
