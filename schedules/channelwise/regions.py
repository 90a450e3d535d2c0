"""The un-pipelined schedule of a depthwise convolution by regions: each input row is read once.

Also that of the gradient of its input, whose inputs are the convolution's outputs: which of them an
output reads, and by which position of the kernel, is asked of [reads.py](reads.py).

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

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.script import tirx as T

from ...errors import WorkloadError
from ...passes.ir.nodes import buffer
from ...values.notes import NOTE, note_text
from ..tiles import DepthwiseTile
from ..workloads.base.blocks import all_of, cast
from .cut import SHARED_BYTES, DepthwiseSpec, RegionCut, fits
from .sums import Channelwise, channelwise


def schedule_regions(spec: DepthwiseSpec, tile: DepthwiseTile) -> Any:
    """``spec`` with ``tile.rows`` x ``tile.pixels`` outputs for each thread, as a TVM schedule.

    WorkloadError: it is none of those that are cut so, or its weights do not fit.
    """
    if not fits(spec, tile):
        raise WorkloadError(
            "tile.regions", workload=spec.name, vector=tile.vector, most=SHARED_BYTES
        )
    what = channelwise(spec)
    return s_tir.Schedule(named(_function(what, tile, RegionCut.of(spec, tile)), what.names))


def _function(what: Channelwise, tile: DepthwiseTile, cut: RegionCut) -> Any:
    rows, pixels, vector = tile.rows, tile.pixels, tile.vector
    conv, (vertical, horizontal) = what.conv, what.reads
    (high, wide), (height, width) = conv.kernel, what.size
    lanes, threads, channels = cut.lanes, cut.threads, cut.lanes * vector
    positions, reach, run = high * wide, vertical.reach(rows), horizontal.reach(pixels)
    x_shape, w_shape, y_shape = what.shapes
    kind, sums, out = conv.storage, conv.accumulator, conv.out
    weights, ragged_channels = channels * positions, conv.c % channels
    ragged = what.out_size[0] % rows, what.out_size[1] % pixels, cut.regions % cut.strips
    attributes: dict[str, Any] = {"global_symbol": what.name, "tirx.noalias": True}
    if what.why is not None:
        attributes[NOTE] = note_text(what.why)

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
        y, x = vertical.first(top(b, tx)) + h, horizontal.first(first(b, tx)) + j
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

    def term(row: Any, shared: Any, tx: Any, h: Any, p: Any, t: Any, q: Any, v: Any) -> Any:
        position = vertical.position(h, p) * wide + t
        of_row = row[horizontal.place(q, t), v]
        return of_row * shared[position, tx % lanes * vector + v]

    def meets(q: Any, t: Any) -> Any:
        """Whether output ``q`` of a row of the region reads an input by position ``t``."""
        conditions = horizontal.meets(q, t)
        return all_of(conditions) if conditions else True

    def is_output(g: Any, b: Any, tx: Any, p: Any, q: Any) -> Any:
        inside = [top(b, tx) + p < what.out_size[0]] if ragged[0] else []
        inside += [first(b, tx) + q < what.out_size[1]] if ragged[1] else []
        return all_of([*inside, *exists(g, b, tx), tirx.const(True, "bool")])

    @T.prim_func(s_tir=True)
    def depthwise(x: T.handle, w: T.handle, y: T.handle) -> None:
        T.func_attr(attributes)
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
                                        if all_of(vertical.reads(h, p)):
                                            for t in T.unroll(wide):
                                                for q in T.unroll(pixels):
                                                    if meets(q, t):
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


def named(func: Any, names: Mapping[str, str]) -> Any:
    """Return ``func`` with other names of its parameters."""
    renamed = {
        param: buffer(param.shape, param.dtype, names[param.name], "global")
        for param in func.params
        if param.name in names
    }
    params = [renamed.get(param, param) for param in func.params]
    body = tvm_ffi.structural_map(func.body, [(Var, lambda v: renamed.get(v, v))], order="post")
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
