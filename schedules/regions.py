"""The un-pipelined schedule of a depthwise convolution by regions: each input row is read once.

    for blockIdx.y in blocks of channels:
      for blockIdx.x, thread in regions x channels:
        weights: those of the block, widened, in shared memory
        acc: rows x pixels outputs of some neighbouring channels = 0
        for h in input rows that the region reads:    # a window that slides down
          row = X[h, ...]                            # zero outside X; widened once
          for p in rows where h is one of p's:       # unrolled
            acc[p] += row * weights[h - p]           # each position and pixel, unrolled
        Y = acc                                      # guarded at ragged edges

A row of inputs is loaded and widened once and multiplied for every output row that it is part of,
by each position of the kernel's row. A step of ``h`` loads the row of the next one under the
multiplications of its own: that is the passes' part. Threads side by side have channels side by
side, so that their loads are whole lines and their weights lie in different banks. The regions of a
CTA lie above each other: the rows that two of them read come from the L1 cache for one.

Not handled: epilogues, several outputs of a channel, integers, other ranks than two. Those have
``schedule_depthwise`` by single outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ..errors import WorkloadError
from ..values.elements import element
from .tiles import DepthwiseTile
from .workloads import Conv
from .workloads.base.blocks import all_of, cast

FEW_POSITIONS: Final = 9
"""Of a kernel that memory bounds: many threads of few registers hide its latency."""

SIDE: Final = (64, 32)
"""Threads side by side in channels, at most: where positions are few, and where they are many.

Measured on an H200, fp16: 3 x 3 over 112 x 112 took 49.2 us with 64, 61.9 with 32; 7 x 7 over
56 x 56 119.8 us with 64, 104.1 with 32.
"""

SHARED_BYTES: Final = 48 * 1024
"""Of a block's weights: what any GPU gives a CTA, several of which are on an SM."""


def has_regions(conv: Conv) -> bool:
    """Whether ``schedule_regions`` has this convolution."""
    plain = conv.rank == 2 and conv.channels_last and not conv.epilogue
    return plain and conv.groups == conv.c == conv.k and not element(conv.storage).integer


def schedule_regions(conv: Conv, tile: DepthwiseTile) -> Any:
    """``conv`` with ``tile.rows`` x ``tile.pixels`` outputs for each thread, as a TVM schedule.

    WorkloadError: it is none of those that are cut so, or its weights do not fit.
    """
    if not fits(conv, tile):
        raise WorkloadError(
            "tile.regions", workload=conv.name, vector=tile.vector, most=SHARED_BYTES
        )
    return s_tir.Schedule(_function(conv, tile, RegionCut.of(conv, tile)))


def fits(conv: Conv, tile: DepthwiseTile) -> bool:
    """Whether the convolution is one that is cut so, and its weights fit."""
    if not has_regions(conv) or conv.c % tile.vector:
        return False
    return RegionCut.of(conv, tile).shared_bytes <= SHARED_BYTES


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
    def of(cls, conv: Conv, tile: DepthwiseTile) -> RegionCut:
        """The convolution, cut so; blocks of channels are as even as they can be."""
        high, wide = conv.out_size
        down, across = -(-high // tile.rows), -(-wide // tile.pixels)
        vectors = -(-conv.c // tile.vector)
        each = tile.vector * math.prod(conv.kernel) * element(conv.accumulator).nbytes
        side = SIDE[math.prod(conv.kernel) > FEW_POSITIONS]
        blocks = -(-vectors // max(1, min(side, SHARED_BYTES // each)))
        lanes = -(-vectors // blocks)
        shared = lanes * each
        strips = max(1, tile.threads // lanes)
        return cls(conv.n * down * across, down, across, lanes, strips, blocks, shared)


def regions_alike(small: Conv, conv: Conv, tile: DepthwiseTile, ctas: int) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and edge that that of ``conv`` has.

    At least ``ctas`` along either dimension of the grid, where there are as many.
    """
    few, many = RegionCut.of(small, tile), RegionCut.of(conv, tile)
    if (few.lanes, few.strips) != (many.lanes, many.strips):
        return False
    for one, other in ((few.down, many.down), (few.across, many.across), (few.blocks, many.blocks)):
        if one < min(ctas, other):
            return False
    edges = [
        (
            one.out_size[0] % tile.rows,
            one.out_size[1] % tile.pixels,
            one.c % (cut.lanes * tile.vector),
            bool(cut.regions % cut.strips),
        )
        for one, cut in ((small, few), (conv, many))
    ]
    enough = few.regions >= min(ctas * few.strips, many.regions)
    return edges[0] == edges[1] and enough


def _function(conv: Conv, tile: DepthwiseTile, cut: RegionCut) -> Any:
    rows, pixels, vector = tile.rows, tile.pixels, tile.vector
    (down, across), (high, wide) = conv.stride, conv.kernel
    (step_down, step_across), ((above, _), (left, _)) = conv.dilation, conv.pad
    lanes, threads, channels = cut.lanes, cut.threads, cut.lanes * vector
    positions, (height, width) = high * wide, conv.size
    reach = (rows - 1) * down + (high - 1) * step_down + 1
    run = (pixels - 1) * across + (wide - 1) * step_across + 1
    x_shape, w_shape, y_shape = conv.shapes()
    kind, sums, out = conv.storage, conv.accumulator, conv.out
    weights, ragged_channels = channels * positions, conv.c % channels
    ragged = conv.out_size[0] % rows, conv.out_size[1] % pixels, cut.regions % cut.strips

    def region(b: Any, tx: Any) -> Any:
        return b * cut.strips + tx // lanes

    def image(b: Any, tx: Any) -> Any:
        return region(b, tx) // (cut.across * cut.down)

    def top(b: Any, tx: Any) -> Any:
        return region(b, tx) % cut.down * rows

    def first(b: Any, tx: Any) -> Any:
        return region(b, tx) // cut.down % cut.across * pixels

    def channel(g: Any, tx: Any, v: Any) -> Any:
        return g * channels + tx % lanes * vector + v

    def exists(g: Any, b: Any, tx: Any) -> list[Any]:
        """The conditions under which a thread has a region, and channels."""
        has_region = [region(b, tx) < cut.regions] if ragged[2] else []
        return has_region + ([channel(g, tx, 0) < conv.c] if ragged_channels else [])

    def pixel(X: Any, g: Any, b: Any, tx: Any, h: Any, j: Any, v: Any) -> Any:
        """An input of the thread's row ``h``, zero outside, widened."""
        y, x = top(b, tx) * down + h - above, first(b, tx) * across + j - left
        inside = all_of([y >= 0, y < height, x >= 0, x < width, *exists(g, b, tx)])
        value = X[image(b, tx), y, x, channel(g, tx, v)]
        return cast(tirx.if_then_else(inside, value, tirx.const(0, kind)), sums)

    def weight(W: Any, g: Any, at: Any) -> Any:
        """The weight that is ``at`` of those of a block as they lie in memory, widened."""
        k, position = g * channels + at // positions, at % positions
        value = W[k, position // wide, position % wide, 0]
        if ragged_channels:
            value = tirx.if_then_else(k < conv.c, value, tirx.const(0, kind))
        return cast(value, sums)

    def reads(h: Any, p: Any) -> Any:
        """Whether output row ``p`` of the region reads input row ``h`` of it."""
        at = h - p * down
        steps = [tirx.floormod(at, step_down) == 0] if step_down > 1 else []
        return all_of([at >= 0, at <= (high - 1) * step_down, *steps])

    def term(row: Any, shared: Any, tx: Any, h: Any, p: Any, t: Any, q: Any, v: Any) -> Any:
        position = (h - p * down) // step_down * wide + t
        of_row = row[q * across + t * step_across, v]
        return of_row * shared[position, tx % lanes * vector + v]

    def is_output(g: Any, b: Any, tx: Any, p: Any, q: Any) -> Any:
        inside = [top(b, tx) + p < conv.out_size[0]] if ragged[0] else []
        inside += [first(b, tx) + q < conv.out_size[1]] if ragged[1] else []
        return all_of([*inside, *exists(g, b, tx), tirx.const(True, "bool")])

    @T.prim_func(s_tir=True)
    def depthwise(x: T.handle, w: T.handle, y: T.handle) -> None:
        T.func_attr({"global_symbol": conv.name, "tirx.noalias": True})
        X = T.match_buffer(x, x_shape, kind)
        W = T.match_buffer(w, w_shape, kind)
        Y = T.match_buffer(y, y_shape, out)
        for g in T.thread_binding(cut.blocks, thread="blockIdx.y"):
            for b in T.thread_binding(-(-cut.regions // cut.strips), thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    shared = T.sblock_alloc_buffer((positions, channels), sums, scope="shared")
                    for tx in T.thread_binding(threads, thread="threadIdx.x"):
                        for i in range(-(-weights // threads)):
                            with T.sblock("weights"):
                                T.where(i * threads + tx < weights)
                                shared[
                                    (i * threads + tx) % positions, (i * threads + tx) // positions
                                ] = weight(W, g, i * threads + tx)
                    for tx in T.thread_binding(threads, thread="threadIdx.x"):
                        with T.sblock("thread"):
                            T.reads()
                            T.writes()
                            acc = T.sblock_alloc_buffer((rows, pixels, vector), sums, scope="local")
                            for p in T.unroll(rows):
                                for q in T.unroll(pixels):
                                    for v in T.vectorized(vector):
                                        with T.sblock("init"):
                                            acc[p, q, v] = tirx.const(0, sums)
                            for h in range(reach):
                                with T.sblock("step"):
                                    T.reads()
                                    T.writes()
                                    row = T.sblock_alloc_buffer((run, vector), sums, scope="local")
                                    for j in T.unroll(run):
                                        for v in T.vectorized(vector):
                                            with T.sblock("row"):
                                                row[j, v] = pixel(X, g, b, tx, h, j, v)
                                    for p in T.unroll(rows):
                                        if reads(h, p):
                                            for t in T.unroll(wide):
                                                for q in T.unroll(pixels):
                                                    for v in T.vectorized(vector):
                                                        with T.sblock("update"):
                                                            acc[p, q, v] = acc[p, q, v] + term(
                                                                row, shared, tx, h, p, t, q, v
                                                            )
                            for p in T.unroll(rows):
                                for q in T.unroll(pixels):
                                    for v in T.vectorized(vector):
                                        with T.sblock("store"):
                                            T.where(is_output(g, b, tx, p, q))
                                            Y[
                                                image(b, tx),
                                                top(b, tx) + p,
                                                first(b, tx) + q,
                                                channel(g, tx, v),
                                            ] = cast(acc[p, q, v], out)

    return depthwise
