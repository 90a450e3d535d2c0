"""Make tile copies by TMA: a tensor map on the host, box copies in the kernel.

``pipeliner/mechanisms/tma.py`` says what it requires of a copy.

    for i, j in T.grid(128, 64): A_shared[i, j] = A[m * 128 + i, k * 64 + j]
 => host:   cuTensorMapEncodeTiled(A_map, A, shape, strides, box 128 x 64, swizzle 128B)
    kernel: cp.async.bulk.tensor.2d [A_shared], [A_map, (k * 64, m * 128)], [full]

A swizzled box is at most 128 bytes wide; wider tiles are several column blocks side by side, a box
each. The last may have fewer columns than its block has room for: it is a box of a map of its own,
whose rows lie as far apart in shared memory as the others'. What is outside the tensor is filled
with zero, so a copy's mask must say exactly that of each element. If the mask also has a condition
on the whole tile, the tile is read from outside the tensor where that fails. Pixels of an
implicit-GEMM operand A are a box if a tile ends with rows or images (``boxes``); all others are
loaded in im2col mode, whose instruction also takes an offset.

Sources: CUDA driver API, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col; PTX ISA,
cp.async.bulk.tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from tvm import sym, tirx
from tvm.ir import Range
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...machine.values import capability_of
from ...mechanisms.tma import column_block_bytes, row_boxes
from ...plan import Eviction
from ..ir.indexing import conjunction
from ..ir.linear import affine
from ..ir.nodes import Buffer, Expr, Stmt, const_int, dtype_bytes, i32, seq, substitute, uses
from ..ir.patterns import Copy, dimension_of
from ..ir.wide_indices import WIDE
from .boxes import Boxes, boxes_of, keeps_order, window_of
from .clusters import Sharers, sharers
from .eviction import cache_hint
from .im2col import Im2col, im2col_of
from .issued import Issued, TileFill
from .layouts import ColumnBlocks
from .tensor_maps import TensorMap, im2col_map, tiled_map
from .tensor_views import View, beyond, flattened, inside, joined, tensor_obstacle

LOAD: Final = "cp.async.bulk.tensor.{rank}d.{space}.global{mode}.mbarrier::complete_tx::bytes"
IM2COL: Final = ".im2col"
MULTICAST: Final = ".multicast::cluster"

OWN_CTA: Final = 100
"""The capability from which on a load that is no multicast names its own CTA's shared memory.

There ptxas has code at each load for addresses in other CTAs, unless the state space rules them
out (nvcc 13.0, sm_120); for sm_90 it has none. PTX ISA: .shared::cta as destination, since 8.6.
"""

TmaSource: TypeAlias = "Boxes | Im2col"
"""What a tile is copied from, as TMA sees it: boxes of a tensor, or im2col pixels."""


def source_of(copy: Copy, ranges: Any) -> TmaSource | Reason:
    """Return what ``copy`` reads as TMA sees it, or why TMA cannot make the copy.

    ``ranges``: an analyzer that knows the bounds of every variable outside the copy.
    """
    if copy.nest.predicate:
        condition = str(copy.nest.predicate[0])
        return Reason("tma.partial_box", buffer=str(copy.dst.name), condition=condition)
    unreached = tensor_obstacle(copy.src)
    if unreached is not None:
        return unreached
    declared = View(tuple(copy.src.shape), copy.src_indices)
    tiled = _boxed(copy, declared)
    if isinstance(tiled, Boxes) and _runs(copy, declared):
        return tiled
    for var in copy.order:
        ranges.bind(var, Range(0, copy.nest.extent_of[var]))
    merged = flattened(declared, copy.order, ranges)
    if merged is not None and _runs(copy, merged) and keeps_order(copy, merged.indices):
        flat = _boxed(copy, merged)
        if isinstance(flat, Boxes):
            return flat
    for view in joined(declared, copy.nest.extent_of, ranges):
        in_order = _runs(copy, view) and keeps_order(copy, view.indices)
        last = _boxed(copy, view, ranges) if in_order else None
        if isinstance(last, Boxes):
            return replace(last, kind="tensor", joined=True)
    if isinstance(tiled, Boxes):
        return tiled
    pixels = im2col_of(copy, ranges)
    if not isinstance(pixels, Im2col):
        return Reason("tma.both", tiled=tiled, im2col=pixels)
    return window_of(copy, pixels, ranges) or pixels


def _runs(copy: Copy, view: View) -> bool:
    """Whether a dimension of the tile runs along the last one of ``view``."""
    return dimension_of(view.indices[-1], copy.order) is not None


def _boxed(copy: Copy, view: View, ranges: Any = None) -> Boxes | Reason:
    """Return the boxes of ``view`` that ``copy`` reads, or why it reads none.

    ``ranges``: an analyzer that knows the bounds of every variable; None: those of the tile matter.
    """
    name = str(copy.src.name)
    for dimension, index in enumerate(view.indices):
        known = affine(index, copy.order)
        if dimension_of(index, copy.order) is None and (known is None or known.coefficients):
            return Reason("tma.index", dimension=dimension, buffer=name, index=str(index))
    masks = _beyond_bounds(copy, view, ranges)
    for part in masks:
        if uses(part, copy.order):
            return Reason("tma.mask", buffer=name, condition=str(part))
    return boxes_of(copy, replace(view, when=conjunction(masks)))


def _beyond_bounds(copy: Copy, view: View, ranges: Any = None) -> list[Expr]:
    """Return the conjuncts of the mask other than the source's bounds."""
    if not copy.mask:
        return []
    analyzer = ranges
    if analyzer is None:
        analyzer = sym.Analyzer()
        for var in copy.order:
            analyzer.bind(var, Range(0, copy.nest.extent_of[var]))
    return beyond(copy.mask, inside(view.shape, view.indices, copy.order, analyzer), analyzer)


def column_blocks_of(tile: Buffer, *, spare: bool = False) -> ColumnBlocks:
    """Return the layout in shared memory of a tile that TMA fills, or that wgmma reads.

    ``spare``: the last block of a row may have room to spare.
    """
    row = (const_int(tile.shape[-1]) or 0) * dtype_bytes(tile.dtype)
    return ColumnBlocks.of(tile, column_block_bytes(row, spare=spare))


def issue_boxes(fill: TileFill) -> Issued:
    """Return the boxes that fill a tile, and their tensor map; raises LoweringError if none do."""
    copy, blocks, ranges = fill.copy, fill.stored, fill.ranges
    source = source_of(copy, ranges)
    if isinstance(source, Reason):
        raise fill.refused(source)
    group = None if fill.cluster is None else sharers(copy, fill.cluster)
    if group is not None and isinstance(source, Boxes):
        source = source.pixels or source
    parts = row_parts(copy, source, 1 if group is None else group.size)
    maps = copy_maps(copy, source, blocks, parts)
    own = capability_of(fill.arch) >= OWN_CTA and group is None
    eviction = fill.plan.eviction
    boxes = load_boxes(
        copy, source, blocks, maps, fill.full, ranges, group, eviction, parts=parts, own=own
    )
    return Issued(boxes, tuple(dict.fromkeys(maps)), multicast=group is not None)


def row_parts(copy: Copy, source: TmaSource, ctas: int = 1) -> int:
    """Return how many boxes the rows of a tile are, of which ``ctas`` copy equally many each.

    Rows in several dimensions, and pixels, are one box of each CTA.
    """
    if isinstance(source, Im2col) or source.rows is None or len(copy.shape) != 2:
        return ctas
    return ctas * row_boxes(copy.shape[0] // ctas)


def copy_maps(
    copy: Copy, source: TmaSource, column_blocks: ColumnBlocks, parts: int = 1
) -> list[TensorMap]:
    """Return the map of each column block's boxes, ``parts`` of them along the rows.

    Those with as many columns have the same.
    """
    widths = column_blocks.widths
    maps = {
        width: _copy_map(copy, source, column_blocks, parts, width)
        for width in dict.fromkeys(widths)
    }
    return [maps[width] for width in widths]


def _copy_map(
    copy: Copy, source: TmaSource, column_blocks: ColumnBlocks, parts: int, columns: int
) -> TensorMap:
    if isinstance(source, Im2col):
        rows = column_blocks.rows // parts
        return im2col_map(copy.src, source, rows, columns, column_blocks.span)
    extents = [*source.extents, columns]
    if parts > 1 and source.rows is not None:
        extents[source.rows] //= parts
    return tiled_map(copy.src, source.shape, extents, column_blocks.span)


def coordinate(index: Expr) -> Expr:
    """Return ``index`` as a box's coordinate, which has 32 bits."""
    return tirx.Cast("int32", index) if str(index.ty.dtype) == WIDE else index


def load_boxes(
    copy: Copy,
    source: TmaSource,
    column_blocks: ColumnBlocks,
    maps: Sequence[TensorMap],
    barrier: Buffer,
    analyzer: Any,
    group: Sharers | None = None,
    eviction: Eviction = "evict_normal",
    *,
    parts: int = 1,
    own: bool = False,
) -> Stmt:
    """Return the copies that one thread issues to fill the tile; ``barrier`` counts the bytes.

    ``maps``: that of each column block. ``group``: each of its CTAs copies a chunk of the rows for
    all (multicast). ``eviction``: L2's eviction priority of what it reads. ``parts``: boxes that
    the rows are, those of all CTAs. ``own``: the instruction names the CTA's own memory.
    """
    ctas, rank = (1, i32(0)) if group is None else (group.size, group.rank)
    masks = [] if group is None else [group.mask]
    hint, policy = cache_hint(eviction)
    offsets = [tirx.Cast("uint16", offset) for offset in reversed(source.offsets)]

    def corner_at(part: Expr) -> list[Expr]:
        start = {**dict.fromkeys(copy.order, i32(0)), copy.order[0]: part}
        corner = [analyzer.simplify(substitute(index, start)) for index in source.indices]
        if source.when is not None:
            corner[0] = tirx.Select(source.when, coordinate(corner[0]), coordinate(source.outer))
        return corner

    space = "shared::cta" if own else "shared::cluster"
    name = (
        LOAD.format(rank=len(source.indices), space=space, mode=IM2COL if offsets else "")
        + (MULTICAST if masks else "")
        + hint
    )

    def box(column_block: int, at: int) -> Stmt:
        first = rank * (parts // ctas) + at
        row = analyzer.simplify(first * (column_blocks.rows // parts))
        *outer, inner = corner_at(first * (copy.shape[0] // parts))
        last = inner + column_block * column_blocks.columns if column_block else inner
        coordinates = [coordinate(index) for index in (*outer, last)]
        target = T.address_of(tirx.BufferLoad(column_blocks.stored, [column_block, row, 0]))
        full = T.address_of(tirx.BufferLoad(barrier, [0]))
        there = T.address_of(maps[column_block].var)
        call = T.ptx[name](target, there, *reversed(coordinates), full, *offsets, *masks, *policy)
        return tirx.Evaluate(call)

    places = itertools.product(range(column_blocks.count), range(parts // ctas))
    return seq(*[box(column_block, at) for column_block, at in places])
