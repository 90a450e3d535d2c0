"""The un-pipelined schedule of a grouped convolution by rows: each input row is read once.

    for blockIdx.y in blocks of channels:
      for blockIdx.x in images x rows of regions x columns of regions:
        weights: of a warp's channels, on a diagonal of blocks, in registers
        sums: of as many output rows as an input row is part of = 0
        for p in output rows, and those that end the window:
          row = X[the stride's input rows]        # a box, zero outside X, in shared memory
          for pixels, positions of the kernel's row, input channels:
            sums[each output row] += row * weights        # 16 x 8 x 16 of a warp
          Y[the output row that is complete] = sums[0]
          sums = sums[1:], 0                      # the window slides

A warp has 16 output channels of all pixels, so its weights stay in its registers. An input row is
copied once, for all groups of 64 or so channels, and read from shared memory once for each position
of the kernel's row: the rows of the kernel add what was read to different sums. Blocks of channels
of neighbouring pixels lie in different banks.

A lane has four neighbouring channels of its pixels and of its filters, and those four of the output
: whole sectors are stored.

Not handled: epilogues, outputs of a group that are more or fewer than its inputs, holes between the
rows of a kernel, other types than 16-bit floats. Those are tiled as matmuls.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import s_tir, tirx
from tvm.script import tirx as T

from ...passes.fragments.words import multiply, word
from ...values.notes import NOTE, note_text
from ..tiles import GroupTile
from ..workloads import Conv
from ..workloads.base.blocks import all_of, cast
from .cut import BLOCK, CHUNK, WARP, GroupCut, checked

LANES: Final = 4
"""That share a pixel of a tile, with four channels each."""


def schedule_groups(conv: Conv, tile: GroupTile) -> Any:
    """``conv`` with ``tile.rows`` x ``tile.pixels`` outputs a CTA, as a TVM schedule.

    WorkloadError: it is none of those that are cut so.
    """
    return s_tir.Schedule(_function(conv, tile, checked(conv, tile)))


def _function(conv: Conv, tile: GroupTile, cut: GroupCut) -> Any:
    rows, tiles, threads, live = tile.rows, tile.pixels // BLOCK, cut.threads, cut.live
    (down, across), (high, wide) = conv.stride, conv.kernel
    hole, ((above, _), (left, _)) = conv.dilation[1], conv.pad
    (height, width), (out_high, out_wide) = conv.size, conv.out_size
    each, run, blocks_read = cut.each, cut.run, cut.reads // BLOCK
    channels, warps, chunks = tile.channels, tile.channels // BLOCK, tile.channels // CHUNK
    pieces = cut.fresh * run * chunks
    x_shape, w_shape, y_shape = conv.shapes()
    kind, out = conv.storage, conv.out
    ragged = out_high % rows, out_wide % tile.pixels
    filters, steps = (high, wide, blocks_read, 2), (tiles, cut.fresh, wide, blocks_read)
    each_row = tiles * BLOCK // 2
    attributes: dict[str, Any] = {"global_symbol": conv.name, "tirx.noalias": True}
    if tile.why:
        attributes[NOTE] = note_text(tile.why)

    def image(b: Any) -> Any:
        return b // (cut.down * cut.across)

    def top(b: Any) -> Any:
        return b // cut.across % cut.down * rows

    def first(b: Any) -> Any:
        return b % cut.across * tile.pixels

    def place(tx: Any) -> Any:
        """The row of a lane: a pixel, or a filter."""
        return tx % WARP // LANES

    def four(tx: Any) -> Any:
        """The first of the four channels of a block that a lane has."""
        return tx % LANES * 4

    def loaded(X: Any, g: Any, b: Any, p: Any, at: Any, e: Any) -> Any:
        """Element ``e`` of piece ``at`` of the input rows of step ``p``, zero outside."""
        t, j, chunk = at // (run * chunks), at // chunks % run, at % chunks
        y, x = (top(b) + p) * down + t - above, first(b) * across + j - left
        inside = all_of([y >= 0, y < height, x >= 0, x < width])
        value = X[image(b), y, x, g * channels + chunk * CHUNK + e]
        return tirx.if_then_else(inside, value, tirx.const(0, kind))

    def spot(j: Any, block: Any) -> Any:
        """Where block ``block`` of pixel ``j`` lies among the pixel's blocks.

        Four neighbouring pixels of a tile are read at once: 32 bytes each, of different banks.
        """
        if warps % 4 == 0:
            return tirx.bitwise_xor(block, tirx.floormod(tirx.floordiv(j, across), 4))
        if warps % 2 == 0:
            return tirx.bitwise_xor(block, tirx.floormod(tirx.floordiv(j, 2 * across), 2))
        return block

    def column(m: Any, h: Any, s: Any, tx: Any) -> Any:
        """The input pixel of a lane; of pixels beyond the last, which are not stored, the last."""
        j = (m * BLOCK + h * 8 + place(tx)) * across + s * hole
        return (
            j if run >= (tile.pixels - 1) * across + (wide - 1) * hole + 1 else tirx.min(j, run - 1)
        )

    def operand(row: Any, tx: Any, at: Any, h: Any, e: Any) -> Any:
        m, t, s, k = _digits(at, steps)
        j = column(m, h, s, tx)
        block = tx // WARP * BLOCK // cut.reads * blocks_read + k
        return row[t, j, spot(j, block) * BLOCK + four(tx) + e]

    def weight(W: Any, g: Any, tx: Any, at: Any, e: Any) -> Any:
        """The weight of a lane's filter in each half of a block; zero: of another group."""
        r, s, k, n = _digits(at, filters)
        filt = place(tx) // 2 * 4 + 2 * n + place(tx) % 2
        of, channel = g * channels + tx // WARP * BLOCK + filt, four(tx) + k * BLOCK + e
        if each >= BLOCK:
            return W[of, r, s, channel]
        alike = tirx.floordiv(filt, each) == tirx.floordiv(channel, each)
        return tirx.if_then_else(alike, W[of, r, s, channel % each], tirx.const(0, kind))

    def product(sums: Any, left: Any, weights: Any, q: Any, at: Any, n: Any) -> Any:
        m, t, s, k = _digits(at, steps)
        total = [sums[(live - 1 - q) * each_row + (m * 2 + n) * 4 + e] for e in range(4)]
        filt = (((q * down + t) * wide + s) * blocks_read + k) * 2 + n
        right = [weights[filt, h] for h in range(2)]
        return multiply(kind, total, [left[h] for h in range(4)], right)

    def is_output(b: Any, p: Any, m: Any, h: Any, tx: Any) -> Any:
        inside = [p >= live - 1]
        inside += [top(b) + p < out_high + live - 1] if ragged[0] else []
        inside += [first(b) + m * BLOCK + h * 8 + place(tx) < out_wide] if ragged[1] else []
        return all_of(inside)

    def following(sums: Any, at: Any) -> Any:
        """The sum of the next output row; zero of the last."""
        last = (live - 1) * each_row
        moved = sums[tirx.min(at + each_row, live * each_row - 1)]
        return tirx.if_then_else(at < last, moved, T.float32(0))

    @T.prim_func(s_tir=True)
    def grouped(x: T.handle, w: T.handle, y: T.handle) -> None:
        T.func_attr(attributes)
        X = T.match_buffer(x, x_shape, kind)
        W = T.match_buffer(w, w_shape, kind)
        Y = T.match_buffer(y, y_shape, out)
        for g in T.thread_binding(cut.blocks, thread="blockIdx.y"):
            for b in T.thread_binding(cut.images * cut.down * cut.across, thread="blockIdx.x"):
                with T.sblock("cta"):
                    T.reads()
                    T.writes()
                    weights = T.sblock_alloc_buffer(
                        (math.prod(filters), 2), "uint32", scope="local"
                    )
                    sums = T.sblock_alloc_buffer((live * each_row,), "float32", scope="local")
                    for tx in T.thread_binding(threads, thread="threadIdx.x"):
                        for at in T.unroll(math.prod(filters)):
                            with T.sblock("weights"):
                                T.reads()
                                T.writes()
                                filt = T.sblock_alloc_buffer((4,), kind, scope="local")
                                for e in T.vectorized(4):
                                    filt[e] = weight(W, g, tx, at, e)
                                for h in T.unroll(2):
                                    weights[at, h] = word(filt, [h * 2])
                    for _tx in T.thread_binding(threads, thread="threadIdx.x"):
                        for at in T.unroll(live * each_row):
                            with T.sblock("init"):
                                sums[at] = T.float32(0)
                    for p in range(cut.steps):
                        with T.sblock("step"):
                            T.reads()
                            T.writes()
                            row = T.sblock_alloc_buffer(
                                (cut.fresh, run, channels), kind, scope="shared"
                            )
                            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                                for i in T.unroll(-(-pieces // threads)):
                                    for e in T.vectorized(CHUNK):
                                        with T.sblock("row"):
                                            T.where(i * threads + tx < pieces)
                                            row[
                                                (i * threads + tx) // (run * chunks),
                                                (i * threads + tx) // chunks % run,
                                                spot(
                                                    (i * threads + tx) // chunks % run,
                                                    (i * threads + tx) % chunks // 2,
                                                )
                                                * BLOCK
                                                + (i * threads + tx) % 2 * CHUNK
                                                + e,
                                            ] = loaded(X, g, b, p, i * threads + tx, e)
                            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                                with T.sblock("multiply"):
                                    T.reads()
                                    T.writes()
                                    part = T.sblock_alloc_buffer((2, 4), kind, scope="local")
                                    left = T.sblock_alloc_buffer((4,), "uint32", scope="local")
                                    for at in T.unroll(math.prod(steps)):
                                        for h in T.unroll(2):
                                            for e in T.vectorized(4):
                                                part[h, e] = operand(row, tx, at, h, e)
                                        for h in T.unroll(4):
                                            left[h] = word(part, [h % 2, h // 2 * 2])
                                        for q in T.unroll(live):
                                            if (
                                                q * down + at // (wide * blocks_read) % cut.fresh
                                                < high
                                            ):
                                                for n in T.unroll(2):
                                                    T.evaluate(
                                                        product(sums, left, weights, q, at, n)
                                                    )
                            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                                for m in T.unroll(tiles):
                                    for h in T.unroll(2):
                                        for e in T.vectorized(4):
                                            with T.sblock("store"):
                                                T.where(is_output(b, p, m, h, tx))
                                                Y[
                                                    image(b),
                                                    top(b) + p - (live - 1),
                                                    first(b) + m * BLOCK + h * 8 + place(tx),
                                                    g * channels
                                                    + tx // WARP * BLOCK
                                                    + four(tx)
                                                    + e,
                                                ] = cast(
                                                    sums[m * 8 + e // 2 * 4 + h * 2 + e % 2], out
                                                )
                            for _tx in T.thread_binding(threads, thread="threadIdx.x"):
                                for at in T.unroll(live * each_row):
                                    with T.sblock("slide"):
                                        sums[at] = following(sums, at)

    return grouped


def _digits(at: Any, extents: tuple[int, ...]) -> list[Any]:
    """The indices of a nest of these extents in its iteration ``at``."""
    found: list[Any] = []
    for extent in reversed(extents):
        found.insert(0, at % extent)
        at = at // extent
    return found
