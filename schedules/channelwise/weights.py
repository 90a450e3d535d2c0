"""The un-pipelined schedule of the gradient of a depthwise convolution's weights.

    for blockIdx.y in blocks of channels:
      for blockIdx.x, thread in regions x channels:
        acc: a sum for each position of the kernel, of some neighbouring channels = 0
        for p in output rows of the region:
          dy = dY[p, ...]                              # zero outside dY
          for r in rows of the kernel:                 # unrolled
            row = X[the input row of p and r, ...]     # zero outside X
            acc[r] += dy * row                         # each position and pixel, unrolled
        P[blockIdx.x] = sums of acc over the CTA's regions    # by way of shared memory
    for blockIdx.x in blocks of weights:
      dW = sums of P over blockIdx.x                   # a warp for each eighth, in a fixed order

A thread has all positions of its channels, so an output is loaded once and an input row once for
each row of the kernel, which the L1 cache has from the output row before. Threads side by side have
channels side by side. Nothing is added atomically: every run gives the same bits.

What a region reads beyond the outputs is multiplied by zero, so inputs must be finite.

Not handled: several outputs of a channel, integers, other ranks than two, channels outside the
image, and kernels whose sums are more than a thread's registers. Those are tiled as matmuls.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import WorkloadError
from ...machine import Machine
from ...values.elements import element
from ...values.notes import NOTE, note_text
from ..tiles import DepthwiseTile
from ..workloads import ConvWeightGrad
from ..workloads.base.blocks import all_of, cast
from .cut import SHARED_BYTES, RegionCut, has_regions, regions_alike
from .reads import forward_reads

MOST_SUMS: Final = 128
"""Of a thread: positions of the kernel, of each of its channels; and half of its registers."""

PAIRED: Final = 25
"""Positions, at most, of which a thread has two channels."""

PIXELS: Final = 8
"""Neighbouring outputs of a row: with 3 x 3 a thread then loads ten inputs for them, not 24."""

THREADS: Final = 256
"""Of a CTA, at most; fewer where their sums are more than its shared memory."""

CTAS: Final = 3
"""Of an SM, at least, where there are as many regions: enough loads at once to keep memory busy."""

STRIPS: Final = 32
"""Regions of a CTA, at most: a thread adds what they have of a weight in one expression."""

TRIED: Final = ((4, 7, 8, 14), (1, 2), (128, 256), (7, 14, 28))
"""Pixels, channels, threads and rows that a search tries."""

LANES: Final = 32
"""Weights side by side that a CTA of the second kernel has."""

SHARES: Final = 8
"""Into which it cuts the partial sums of a weight; a warp adds one."""


def has_weight_regions(spec: ConvWeightGrad) -> bool:
    """Whether ``schedule_weights`` has this gradient."""
    return has_regions(spec.forward) and math.prod(spec.forward.kernel) <= MOST_SUMS


def weights_fit(spec: ConvWeightGrad, tile: DepthwiseTile) -> bool:
    """Whether it is one that is cut so, and registers and shared memory have room for its sums."""
    if not has_weight_regions(spec) or not tile.rows or spec.forward.c % tile.vector:
        return False
    sums = math.prod(spec.forward.kernel) * tile.vector
    few = sums <= MOST_SUMS and RegionCut.of(spec.forward, tile).strips <= STRIPS
    return few and _shared_bytes(spec, tile) <= SHARED_BYTES


def weights_tiles(spec: ConvWeightGrad) -> Iterator[DepthwiseTile]:
    """The tiles of such a gradient that a search tries."""
    for numbers in itertools.product(*TRIED):
        tile = DepthwiseTile(*numbers)
        if weights_fit(spec, tile):
            yield tile


def weights_tile(spec: ConvWeightGrad, machine: Machine) -> DepthwiseTile | None:
    """Regions as high as leave each SM some CTAs; None: it has none."""
    if not has_weight_regions(spec):
        return None
    conv = spec.forward
    positions = math.prod(conv.kernel)
    vector = math.gcd(conv.c, 2 if positions <= PAIRED else 1)
    high, wide = conv.out_size
    across = -(-wide // PIXELS)
    pixels, threads = -(-wide // across), THREADS
    for down in range(1, high + 1):
        tile = DepthwiseTile(pixels, vector, threads, -(-high // down))
        while not weights_fit(spec, tile) and tile.threads > 1:
            tile = DepthwiseTile(pixels, vector, tile.threads // 2, tile.rows)
        if RegionCut.of(conv, tile).ctas >= CTAS * machine.sms:
            break
    return tile if weights_fit(spec, tile) else None


def weights_alike(
    small: ConvWeightGrad, spec: ConvWeightGrad, tile: DepthwiseTile, ctas: int
) -> bool:
    """Whether the kernels of ``small`` have every kind of CTA and edge that those of ``spec`` have.

    At least ``ctas`` along either dimension of the first grid, where there are as many.
    """
    parts = [_parts(RegionCut.of(one.forward, tile)) for one in (small, spec)]
    edges = [
        (bool(count % SHARES), min(count // SHARES, ctas), math.prod(one.shapes()[-1]) % LANES)
        for count, one in zip(parts, (small, spec))
    ]
    return edges[0] == edges[1] and regions_alike(small.forward, spec.forward, tile, ctas)


def schedule_weights(spec: ConvWeightGrad, tile: DepthwiseTile) -> Any:
    """``spec`` with regions of ``tile.rows`` x ``tile.pixels`` for each thread, as a TVM schedule.

    WorkloadError: it is none of those that are cut so, or its sums do not fit.
    """
    if not weights_fit(spec, tile):
        raise WorkloadError(
            "tile.weights", workload=spec.name, most=MOST_SUMS, most_bytes=SHARED_BYTES
        )
    return s_tir.Schedule(_function(spec, tile, RegionCut.of(spec.forward, tile)))


def _parts(cut: RegionCut) -> int:
    """Partial sums of a weight: one of each CTA."""
    return -(-cut.regions // cut.strips)


def _shared_bytes(spec: ConvWeightGrad, tile: DepthwiseTile) -> int:
    conv = spec.forward
    sums = math.prod(conv.kernel) * tile.vector * RegionCut.of(conv, tile).threads
    return sums * element(conv.accumulator).nbytes


def _function(spec: ConvWeightGrad, tile: DepthwiseTile, cut: RegionCut) -> Any:
    conv = spec.forward
    rows, pixels, vector = tile.rows, tile.pixels, tile.vector
    vertical, horizontal = forward_reads(conv)
    (high, wide), (height, width), (out_high, out_wide) = conv.kernel, conv.size, conv.out_size
    lanes, strips, threads, channels = cut.lanes, cut.strips, cut.threads, cut.lanes * vector
    positions, run = high * wide, horizontal.reach(pixels)
    kind, sums, out = conv.storage, conv.accumulator, conv.out
    dy_shape, x_shape, dw_shape = spec.shapes()
    parts, all_channels = _parts(cut), cut.blocks * channels
    mine, weights = positions * channels, positions * conv.c
    each = -(-parts // SHARES)
    why = Reason("conv.weights_by_thread", positions=positions, rows=rows, parts=parts)
    attributes = {"global_symbol": spec.name, "tirx.noalias": True, NOTE: note_text(why)}

    def region(b: Any, tx: Any) -> Any:
        return b * strips + tx // lanes

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
        has_region = [region(b, tx) < cut.regions] if cut.regions % strips else []
        return has_region + ([channel(g, tx, 0) < conv.c] if conv.c % channels else [])

    def read(tensor: Any, inside: list[Any], indices: list[Any]) -> Any:
        """An element, zero outside, widened."""
        value = tensor[tuple(indices)]
        if inside:
            value = tirx.if_then_else(all_of(inside), value, tirx.const(0, kind))
        return cast(value, sums)

    def gradient(dY: Any, g: Any, b: Any, tx: Any, p: Any, q: Any, v: Any) -> Any:
        y, x = top(b, tx) + p, first(b, tx) + q
        inside = exists(g, b, tx)
        inside += [y < out_high] if out_high % rows else []
        inside += [x < out_wide] if out_wide % pixels else []
        return read(dY, inside, [image(b, tx), y, x, channel(g, tx, v)])

    def pixel(X: Any, g: Any, b: Any, tx: Any, p: Any, r: Any, j: Any, v: Any) -> Any:
        y = vertical.first(top(b, tx) + p) + r * vertical.dilation
        x = horizontal.first(first(b, tx)) + j
        inside = [y >= 0, y < height, x >= 0, x < width, *exists(g, b, tx)]
        return read(X, inside, [image(b, tx), y, x, channel(g, tx, v)])

    def of_regions(shared: Any, at: Any) -> Any:
        """The sum of what the CTA's regions have of a weight."""
        found = [shared[strip, at // channels, at % channels] for strip in range(strips)]
        return functools.reduce(lambda total, one: total + one, found)

    def of_shares(shared: Any, lane: Any) -> Any:
        found = [shared[share, lane] for share in range(SHARES)]
        return functools.reduce(lambda total, one: total + one, found)

    def part(P: Any, at: Any, w: Any) -> Any:
        """A partial sum of weight ``w``, zero behind the last."""
        inside = [*([at < parts] if parts % SHARES else []), *([w < weights] if ragged else [])]
        value = P[at, w // conv.c, w % conv.c]
        return tirx.if_then_else(all_of(inside), value, tirx.const(0, sums)) if inside else value

    ragged = weights % LANES

    @T.prim_func(s_tir=True)
    def weight_grad(dy: T.handle, x: T.handle, dw: T.handle) -> None:
        T.func_attr(attributes)
        dY = T.match_buffer(dy, dy_shape, kind)
        X = T.match_buffer(x, x_shape, kind)
        dW = T.match_buffer(dw, dw_shape, out)
        P = T.alloc_buffer((parts, positions, all_channels), sums)
        for g in T.thread_binding(cut.blocks, thread="blockIdx.y"):
            for b in T.thread_binding(parts, thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    shared = T.sblock_alloc_buffer(
                        (strips, positions, channels), sums, scope="shared"
                    )
                    for tx in T.thread_binding(threads, thread="threadIdx.x"):
                        with T.sblock("thread"):
                            T.reads()
                            T.writes()
                            acc = T.sblock_alloc_buffer((high, wide, vector), sums, scope="local")
                            for r in T.unroll(high):
                                for t in T.unroll(wide):
                                    for v in T.vectorized(vector):
                                        with T.sblock("init"):
                                            acc[r, t, v] = tirx.const(0, sums)
                            for p in range(rows):
                                with T.sblock("step"):
                                    T.reads()
                                    T.writes()
                                    given = T.sblock_alloc_buffer(
                                        (pixels, vector), sums, scope="local"
                                    )
                                    row = T.sblock_alloc_buffer(
                                        (high, run, vector), sums, scope="local"
                                    )
                                    for q in T.unroll(pixels):
                                        for v in T.vectorized(vector):
                                            with T.sblock("given"):
                                                given[q, v] = gradient(dY, g, b, tx, p, q, v)
                                    for r in T.unroll(high):
                                        for j in T.unroll(run):
                                            for v in T.vectorized(vector):
                                                with T.sblock("row"):
                                                    row[r, j, v] = pixel(X, g, b, tx, p, r, j, v)
                                    for r in T.unroll(high):
                                        for t in T.unroll(wide):
                                            for q in T.unroll(pixels):
                                                for v in T.vectorized(vector):
                                                    with T.sblock("update"):
                                                        acc[r, t, v] = (
                                                            acc[r, t, v]
                                                            + given[q, v]
                                                            * row[r, horizontal.place(q, t), v]
                                                        )
                            for r in T.unroll(high):
                                for t in T.unroll(wide):
                                    for v in T.vectorized(vector):
                                        with T.sblock("leave"):
                                            shared[
                                                tx // lanes, r * wide + t, tx % lanes * vector + v
                                            ] = acc[r, t, v]
                    for tx in T.thread_binding(threads, thread="threadIdx.x"):
                        for i in range(-(-mine // threads)):
                            with T.sblock("part"):
                                T.where(i * threads + tx < mine)
                                P[
                                    b,
                                    (i * threads + tx) // channels,
                                    g * channels + (i * threads + tx) % channels,
                                ] = of_regions(shared, i * threads + tx)
        for b in T.thread_binding(-(-weights // LANES), thread="blockIdx.x"):
            with T.sblock("sums"):
                T.reads()
                T.writes()
                shares = T.sblock_alloc_buffer((SHARES, LANES), sums, scope="shared")
                for tx in T.thread_binding(SHARES * LANES, thread="threadIdx.x"):
                    with T.sblock("share"):
                        T.reads()
                        T.writes()
                        total = T.sblock_alloc_buffer((1,), sums, scope="local")
                        with T.sblock("zero"):
                            total[0] = tirx.const(0, sums)
                        for i in range(each):
                            with T.sblock("add"):
                                total[0] = total[0] + part(
                                    P, i * SHARES + tx // LANES, b * LANES + tx % LANES
                                )
                        with T.sblock("total"):
                            shares[tx // LANES, tx % LANES] = total[0]
                for tx in T.thread_binding(SHARES * LANES, thread="threadIdx.x"):
                    with T.sblock("store"):
                        T.where(all_of([tx < LANES, b * LANES + tx < weights]))
                        dW[
                            (b * LANES + tx) % conv.c,
                            (b * LANES + tx) // conv.c // wide,
                            (b * LANES + tx) // conv.c % wide,
                            0,
                        ] = cast(of_shares(shares, tx % LANES), out)

    return weight_grad
