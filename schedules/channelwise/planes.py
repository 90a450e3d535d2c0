"""The un-pipelined schedule of a depthwise convolution with channels outside the image.

    for blockIdx.x, thread in regions of the planes of all images and channels:
      acc: rows x pixels outputs of one channel = 0
      for h in input rows that the region reads:     # a window that slides down
        row = X[n, c, h, ...]                        # zero outside X; its middle in one access
        for p in rows where h is one of p's:         # unrolled
          acc[p] += row * W[c, h - p]                # each position and pixel, unrolled
      Y = acc                                        # guarded at ragged edges

As by regions of channels that lie side by side ([regions.py](regions.py)), an input row is loaded
once for every output row that it is part of. Threads side by side have pixels side by side, and so
mostly one channel, whose weights they read from the L1 cache.

Not handled: what ``schedule_regions`` does not handle.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ...errors import WorkloadError
from ...values.notes import NOTE, note_text
from ..tiles import DepthwiseTile
from ..workloads.base.blocks import all_of, cast
from .cut import DepthwiseSpec, has_planes
from .reads import GradientReads
from .regions import named
from .sums import Channelwise, channelwise


def schedule_planes(spec: DepthwiseSpec, tile: DepthwiseTile) -> Any:
    """``spec`` with ``tile.rows`` x ``tile.pixels`` outputs for each thread, as a TVM schedule.

    WorkloadError: it is none of those that are cut so.
    """
    what = channelwise(spec)
    units = [axis.unit for axis in what.reads]
    if not has_planes(spec) or tile.rows % units[0] or tile.pixels % units[1]:
        raise WorkloadError("tile.planes", workload=spec.name)
    return s_tir.Schedule(named(_function(what, tile), what.names))


def _function(what: Channelwise, tile: DepthwiseTile) -> Any:
    rows, pixels, threads = tile.rows, tile.pixels, tile.threads
    conv, (vertical, horizontal) = what.conv, what.reads
    (_, wide), (height, width) = conv.kernel, what.size
    reach, run = vertical.reach(rows), horizontal.reach(pixels)
    x_shape, w_shape, y_shape = what.shapes
    kind, sums, out = conv.storage, conv.accumulator, conv.out
    down, across = -(-what.out_size[0] // rows), -(-what.out_size[1] // pixels)
    regions = conv.n * conv.c * down * across
    start = _middle(what, pixels)
    whole = start is not None
    before, middle = (start or 0, pixels) if whole else (0, 1)
    after = run - before - middle
    together = pixels if what.out_size[1] % pixels == 0 else 1
    attributes: dict[str, Any] = {"global_symbol": what.name, "tirx.noalias": True}
    if what.why is not None:
        attributes[NOTE] = note_text(what.why)

    def region(b: Any, tx: Any) -> Any:
        return b * threads + tx

    def plane(b: Any, tx: Any) -> Any:
        return region(b, tx) // (across * down)

    def channel(b: Any, tx: Any) -> Any:
        return plane(b, tx) % conv.c

    def top(b: Any, tx: Any) -> Any:
        return region(b, tx) // across % down * rows

    def first(b: Any, tx: Any) -> Any:
        return region(b, tx) % across * pixels

    def exists(b: Any, tx: Any) -> list[Any]:
        return [region(b, tx) < regions] if regions % threads else []

    def pixel(X: Any, b: Any, tx: Any, h: Any, j: Any, uniform: bool) -> Any:
        """An input of the thread's row ``h``, zero outside; ``uniform``: as the first of all."""
        y, x = vertical.first(top(b, tx)) + h, horizontal.first(first(b, tx)) + j
        ends = [first(b, tx) < width] if uniform else [x >= 0, x < width]
        inside = all_of([y >= 0, y < height, *ends, *exists(b, tx)])
        value = X[plane(b, tx) // conv.c, channel(b, tx), y, x]
        return tirx.if_then_else(inside, value, tirx.const(0, kind))

    def term(row: Any, W: Any, b: Any, tx: Any, h: Any, p: Any, t: Any, q: Any) -> Any:
        weight = W[channel(b, tx), 0, vertical.position(h, p), t]
        return cast(row[horizontal.place(q, t)], sums) * cast(weight, sums)

    def meets(q: Any, t: Any) -> Any:
        conditions = horizontal.meets(q, t)
        return all_of(conditions) if conditions else True

    def is_output(b: Any, tx: Any, p: Any, q: Any) -> Any:
        inside = [top(b, tx) + p < what.out_size[0]] if what.out_size[0] % rows else []
        inside += [first(b, tx) + q < what.out_size[1]] if together == 1 else []
        return all_of([*inside, *exists(b, tx), tirx.const(True, "bool")])

    @T.prim_func(s_tir=True)
    def depthwise(x: T.handle, w: T.handle, y: T.handle) -> None:
        T.func_attr(attributes)
        X = T.match_buffer(x, x_shape, kind)
        W = T.match_buffer(w, w_shape, kind)
        Y = T.match_buffer(y, y_shape, out)
        for b in T.thread_binding(-(-regions // threads), thread="blockIdx.x"):
            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("thread"):
                    T.reads()
                    T.writes()
                    acc = T.sblock_alloc_buffer((rows, pixels), sums, scope="local")
                    for p in T.unroll(rows):
                        for q in T.unroll(pixels):
                            with T.sblock("init"):
                                acc[p, q] = tirx.const(0, sums)
                    for h in range(reach):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            row = T.sblock_alloc_buffer((run,), kind, scope="local")
                            if before > 0:
                                for j in T.unroll(before):
                                    with T.sblock("before"):
                                        row[j] = pixel(X, b, tx, h, j, False)
                            for j in T.vectorized(middle):
                                with T.sblock("middle"):
                                    row[before + j] = pixel(X, b, tx, h, before + j, whole)
                            if after > 0:
                                for j in T.unroll(after):
                                    with T.sblock("after"):
                                        row[before + middle + j] = pixel(
                                            X, b, tx, h, before + middle + j, False
                                        )
                            for p in T.unroll(rows):
                                if all_of(vertical.reads(h, p)):
                                    for t in T.unroll(wide):
                                        for q in T.unroll(pixels):
                                            if meets(q, t):
                                                with T.sblock("update"):
                                                    acc[p, q] = acc[p, q] + term(
                                                        row, W, b, tx, h, p, t, q
                                                    )
                    for p in T.unroll(rows):
                        for u in T.unroll(pixels // together):
                            for v in T.vectorized(together):
                                with T.sblock("store"):
                                    T.where(is_output(b, tx, p, u * together + v))
                                    Y[
                                        plane(b, tx) // conv.c,
                                        channel(b, tx),
                                        top(b, tx) + p,
                                        first(b, tx) + u * together + v,
                                    ] = cast(acc[p, u * together + v], out)

    return depthwise


def _middle(what: Channelwise, pixels: int) -> int | None:
    """Where in a row of a region's inputs an aligned access begins; None: there is none."""
    axis = what.reads[1]
    start = -axis.before if isinstance(axis, GradientReads) else axis.low
    aligned = axis.stride == 1 and axis.size % pixels == 0
    return start if aligned and 0 <= start <= axis.reach(pixels) - pixels else None
