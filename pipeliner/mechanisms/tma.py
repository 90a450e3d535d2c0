"""What TMA requires of a tile copy.

``passes/copy/tma.py`` emits such copies.

One thread names a box of a tensor by the coordinates of its corner; TMA moves it to shared memory,
swizzled, zero where it lies outside, and counts its bytes at an mbarrier. Source of the limits:
CUDA driver API, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col; PTX ISA, tensor swizzle modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..diagnostics import Reason, Value, Why
from ..instructions.dtypes import BOX_ROWS, LINE_BYTES, SECTOR_BYTES, element_bytes
from ..instructions.wgmma_shapes import SPANS, covering_span
from ..machine import Machine
from ..machine.constant import constant, documented, fitted
from ..plan.kinds import CopyMechanism
from ..values.elements import element
from ..values.facts import PIXEL_VIEWS, CopyInfo

TMA: Final = CopyMechanism(
    "tma", "mbarrier", by_producer=True, moves_boxes=True, async_proxy=True, pipe="tma"
)

MAX_RANK: Final = constant(
    "MAX_RANK",
    5,
    "dimensions",
    "the most dimensions of a tensor map",
    formula="rank <= MAX_RANK",
    source=documented("CUDA driver API, cuTensorMapEncodeTiled"),
    date="2026-11-21",
)
MAX_BOX: Final = constant(
    "MAX_BOX",
    256,
    "elements",
    "the most elements of a box along one dimension",
    formula="extent <= MAX_BOX",
    source=documented("CUDA driver API, cuTensorMapEncodeTiled, boxDim"),
    date="2026-11-21",
)

MAX_PIXELS: Final = constant(
    "MAX_PIXELS",
    1024,
    "pixels",
    "the most pixels that one im2col load gathers",
    formula="pixels <= MAX_PIXELS",
    source=documented("CUDA driver API, cuTensorMapEncodeIm2col, pixelsPerColumn"),
    date="2026-11-21",
)

SECOND_LINE: Final = constant(
    "SECOND_LINE",
    0.5,
    "requests",
    "what a second line of L2 costs in which a row of a TMA box lies that begins with a sector",
    formula="requests = 1 + SECOND_LINE * (lines - 1)",
    source=fitted(
        "H200, 2,880 kernels of 210 drawn products",
        "regret of 16 of which tiles were compared in clusters 1.055 with 0, 1.044 with 0.25, "
        "1.027 with 0.5; of the others 1.033, 1.033, 1.034; 583x3040x1872 by 128x128 takes 20.8 "
        "us, 17.5 in clusters of four",
    ),
    date="2026-11-28",
)

CORNERS: Final = constant(
    "CORNERS",
    {1: (-32768, 32767), 2: (-128, 127), 3: (-16, 15)},
    "pixels",
    "least and greatest offset of an im2col map's corner, by the number of spatial dimensions",
    formula="CORNERS[d][0] <= corner <= CORNERS[d][1]",
    source=documented("CUDA driver API, cuTensorMapEncodeIm2col"),
    date="2026-11-21",
)

OFFSETS: Final = constant(
    "OFFSETS",
    {1: 65535, 2: 255, 3: 31},
    "pixels",
    "greatest offset of an im2col load, by the number of spatial dimensions",
    formula="offset <= OFFSETS[d]",
    source=documented("PTX ISA, cp.async.bulk.tensor, im2col offsets"),
    date="2026-11-21",
)

MAX_STEP: Final = constant(
    "MAX_STEP",
    8,
    "pixels",
    "greatest step of an im2col map through a dimension",
    formula="step <= MAX_STEP",
    source=documented("CUDA driver API, cuTensorMapEncodeIm2col, elementStrides"),
    date="2026-11-21",
)

STRIDE_UNIT: Final = constant(
    "STRIDE_UNIT",
    16,
    "bytes",
    "what divides every stride but the innermost, which is one element",
    formula="stride % STRIDE_UNIT = 0",
    source=documented("CUDA driver API, cuTensorMapEncodeTiled, globalStrides"),
    date="2026-11-21",
)

MAX_STRIDE: Final = constant(
    "MAX_STRIDE",
    (1 << 40) - STRIDE_UNIT,
    "bytes",
    "greatest stride",
    formula="stride <= MAX_STRIDE",
    source=documented("CUDA driver API, cuTensorMapEncodeTiled, globalStrides"),
    date="2026-11-22",
)

MAX_EXTENT: Final = constant(
    "MAX_EXTENT",
    1 << 31,
    "elements",
    "extent of a dimension that coordinates of 32 bits, signed, reach",
    formula="extent <= MAX_EXTENT",
    source=documented("PTX ISA, cp.async.bulk.tensor, tensorCoords"),
    date="2026-11-22",
)


def tma_obstacle(copy: CopyInfo, machine: Machine, *, spare: bool = False) -> Why | None:
    """The requirement of TMA that ``copy`` misses, with its numbers; None: none.

    ``spare``: the last column block of a row may have room for more than the tile has.
    """
    if not machine.has_tma:
        return Reason("box.machine", machine=machine.name, arch=machine.arch)
    if copy.bound:
        return Reason("box.bound")
    if not copy.dst_scope.startswith("shared"):
        return Reason("box.scope", buffer=copy.dst, scope=copy.dst_scope)
    if copy.no_tma or copy.no_producer:
        return copy.no_tma or copy.no_producer
    if element(copy.dtype).tensor_map is None:
        return Reason("box.dtype", dtype=copy.dtype)
    rank = len(copy.src_dims)
    if not 2 <= rank <= MAX_RANK:
        return Reason("box.rank", most=MAX_RANK, buffer=copy.src, rank=rank)
    unit = STRIDE_UNIT if spare else min(SPANS)
    return stride_obstacle(copy.src, copy.dtype, copy.src_strides) or _box_obstacle(copy, unit)


def stride_obstacle(name: str, dtype: str, strides: tuple[int | None, ...]) -> Reason | None:
    """The requirement that the strides of tensor ``name`` miss; None: none."""
    size = element_bytes(dtype)
    *outer, inner = strides
    if inner != 1:
        return Reason("box.inner_stride", buffer=name, stride=inner)
    for dimension, stride in enumerate(outer):
        at: dict[str, Value] = {"dimension": dimension, "buffer": name}
        if stride is None:
            return Reason("box.run_time_stride", multiple=STRIDE_UNIT, **at)
        if stride * size % STRIDE_UNIT:
            return Reason("box.stride", multiple=STRIDE_UNIT, stride=stride * size, **at)
        if stride * size > MAX_STRIDE:
            return Reason("box.long_stride", most=MAX_STRIDE, stride=stride * size, **at)
    return None


def extent_obstacle(name: str, extents: Sequence[int | None]) -> Reason | None:
    """The dimension of tensor ``name`` that coordinates do not reach; None: there is none.

    An extent of None is known at run time, when the host checks it.
    """
    for dimension, extent in enumerate(extents):
        if extent is not None and extent > MAX_EXTENT:
            at: dict[str, Value] = {"dimension": dimension, "buffer": name}
            return Reason("box.extent", most=MAX_EXTENT, extent=extent, **at)
    return None


def im2col_obstacle(axes: Sequence[tuple[int, int, int, int]]) -> Reason | None:
    """The number of an im2col map or load that is too large; None: there is none.

    ``axes``: of each spatial dimension the lower and the upper corner, the greatest offset and the
    step.
    """
    rank = len(axes)
    (low, high), most = CORNERS[rank], OFFSETS[rank]
    for lower, upper, offset, step in axes:
        for corner in (lower, upper):
            if not low <= corner <= high:
                return Reason("box.corner", rank=rank, least=low, most=high, corner=corner)
        if offset > most:
            return Reason("box.offset", rank=rank, most=most, offset=offset)
        if step > MAX_STEP:
            return Reason("box.step", most=MAX_STEP, step=step)
    return None


def window_extents(pixels: int, counts: Sequence[int]) -> tuple[int, ...] | None:
    """Extents of the tiled-mode window of ``pixels`` consecutive outputs; None: they are no box.

    ``counts``: outputs in each dimension, outer ones first, images before all. The outputs are so
    many images, rows that divide an image, or a part that divides a row, from a multiple of their
    number on; images beyond the last are outside of the tensor.
    """
    images, *inner = counts
    found: list[int] = []
    for count in reversed(inner):
        extent = math.gcd(pixels, count)
        if extent != min(pixels, count):
            return None
        found.append(extent)
        pixels //= extent
    found.append(pixels)
    fits = pixels <= images and max(found) <= MAX_BOX
    return tuple(reversed(found)) if fits else None


def _box_obstacle(copy: CopyInfo, unit: int) -> Reason | None:
    """What keeps a tile from being boxes; ``unit``: bytes that divide its rows."""
    walked = [dim for dim in copy.src_dims if dim is not None]
    if copy.view == "tensor" and walked != list(range(len(copy.shape))):
        return Reason("box.order", buffer=copy.dst, dimensions=tuple(walked))
    row = copy.shape[-1] * element_bytes(copy.dtype)
    if row % unit:
        return Reason("box.row", buffer=copy.dst, nbytes=row, multiple=unit)
    if copy.view == "tensor" and len(copy.shape) == 2 and row_boxes(copy.shape[0]):
        return None
    pixels = copy.view in PIXEL_VIEWS
    most, what = (MAX_PIXELS, "pixels") if pixels else (MAX_BOX, "elements")
    for extent in copy.shape[:-1]:
        if extent > most:
            size: dict[str, Value] = {"most": most, "unit": what, "extent": extent}
            return Reason("box.large", buffer=copy.dst, **size)
    return None


def row_boxes(rows: int) -> int:
    """How many boxes of equal rows, in whole fours, rows of a matrix are; 0: none."""
    count = math.ceil(rows / MAX_BOX)
    return count if count == 1 or rows % (count * BOX_ROWS) == 0 else 0


def are_chunks(rows: int, ctas: int) -> bool:
    """Whether rows of a tile are chunks that so many CTAs of a cluster copy for each other.

    A chunk is boxes of equal rows, in whole fours: it may begin in the middle of a swizzle.
    """
    return rows % (BOX_ROWS * ctas) == 0 and row_boxes(rows // ctas) > 0


def is_off_sectors(copy: CopyInfo) -> bool:
    """Whether some rows of the boxes begin inside a sector of L2."""
    return _starts(copy) % SECTOR_BYTES != 0


def requests_of_row(copy: CopyInfo) -> float:
    """Requests of a row of a TMA box to L2, at most a line long, as a mean over all rows.

    As many as it lies in lines where rows begin inside sectors; ``SECOND_LINE`` of one for each
    line but the first where they begin with sectors. A step of an H200 takes so many cycles for a
    row: 2.1 of 503x1736x1440, whose rows begin every 64 bytes, 3.8 of 672x1504x1624, whose rows
    begin every 16.
    """
    lines = lines_of_row(copy)
    return lines if is_off_sectors(copy) else 1 + SECOND_LINE * (lines - 1)


def sectors_of_row(copy: CopyInfo) -> float:
    """Sectors in which a row of a TMA box lies, over those that it fills."""
    sectors = min(LINE_BYTES, copy.shape[-1] * element_bytes(copy.dtype)) // SECTOR_BYTES
    return 1 + 1 / max(1, sectors) if is_off_sectors(copy) else 1.0


def lines_of_row(copy: CopyInfo) -> float:
    """Lines of L2 in which a row of the boxes lies, at most a line long, as a mean over all rows.

    ``2 - inside / starts``: rows begin at the ``starts`` multiples, within a line, of what their
    strides have in common with it; from ``inside`` of those a row ends in the same line.
    """
    step = _starts(copy)
    row = min(LINE_BYTES, copy.shape[-1] * element_bytes(copy.dtype))
    inside = (LINE_BYTES - row) // step + 1
    return 2 - inside / (LINE_BYTES // step)


def _starts(copy: CopyInfo) -> int:
    """Bytes that divide where rows of the boxes begin, and a line: a tile lies beside another."""
    size = element_bytes(copy.dtype)
    strides = [stride * size for stride in copy.src_strides[:-1] if stride is not None]
    return math.gcd(LINE_BYTES, *strides, copy.shape[-1] * size)


def column_block_bytes(row: int, *, spare: bool = False) -> int:
    """Bytes of a row that one box takes: the widest swizzle that divides it.

    ``spare``: the least that it fits into, or the widest, of which the last may have room to spare.
    """
    return covering_span(row) if spare else next(span for span in SPANS if row % span == 0)


def box_reasons(copy: CopyInfo, *, spare: bool = False) -> tuple[Reason, ...]:
    """What a plan says of a copy by TMA: its boxes, and what is in them."""
    row = copy.shape[-1] * element_bytes(copy.dtype)
    span = column_block_bytes(row, spare=spare)
    boxes, count = Reason("box.one"), -(-row // span)
    if len(copy.shape) == 2:
        count *= max(1, row_boxes(copy.shape[0]))
    if count > 1:
        boxes = Reason("box.blocks", boxes=count, nbytes=span)
    if row > span and row % span:
        boxes = Reason("box.narrower", boxes=count, nbytes=span, last=row % span)
    filled = (Reason("mechanism.zero_filled"),) if copy.masked else ()
    view = _VIEWS.get(copy.view)
    return boxes, *filled, *((Reason(view),) if view else ())


_VIEWS: Final = {
    "flattened": "box.flattened",
    "window": "box.window",
    "im2col": "box.im2col",
}
"""What a plan says of an implicit GEMM's operand A, by how TMA sees it."""
