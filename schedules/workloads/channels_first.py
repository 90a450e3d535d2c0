"""Convolutions with channels outside the image, of operands that are first written otherwise.

    X_reordered[n, h, w, c] = X[n, c, h, w]           # a kernel of its own
    W_reordered[k, r, s, c] = W[k, c, r, s]           # another
    Y[n, k, p, q] = sum over r, s, c of X_reordered[..] * W_reordered[..]

Pixels of a window lie nowhere aligned where the image's rows are what is contiguous; channels do.
So each element is read and written once more, and the matmul is that of channels innermost, with
its sides exchanged: neighbouring columns are then neighbouring pixels of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...diagnostics import Reason
from ...errors import WorkloadError
from .base.operand import Coordinates, Element, Operand, Reordered
from .contraction import Contraction
from .conv_shape import ConvShape
from .windows import IMAGE, PIXELS, filter_shape, image_shape, split_pixel


def channels_first(conv: ConvShape, last: Contraction) -> Contraction:
    """The matmul of ``conv``, where ``last`` is that of the same with channels innermost.

    WorkloadError: ``conv`` has them innermost itself.
    """
    if conv.channels_last:
        raise WorkloadError("conv.reordered", workload=conv.name)

    def place(at: Coordinates) -> list[Any]:
        return list(_outside(last.place(at)))

    pixels = last.a
    if conv.n > 1 and any(name == IMAGE for name, _ in last.batch_axes):
        pixels = _of_one_image(conv, pixels, last.m[1] or 1)
    made = replace(
        last,
        name=conv.name,
        a=_reordered(pixels, image_shape(conv, conv.size, conv.c)),
        b=_reordered(last.b, filter_shape(conv)),
        out=(last.out[0], image_shape(conv, conv.out_size, conv.k)),
        place=place,
        rows=False,
    )
    return made.exchanged()


def _of_one_image(conv: ConvShape, pixels: Operand, count: int) -> Operand:
    """``pixels``, boxes alone to tiles that end with an image, if what lies behind it is another.

    It is not where a tile that goes on reads outside of the image, as it has to.
    """
    walked = [dim for dim, extent in enumerate(conv.out_size) if extent > 1]
    ends = bool(walked) and _reads_outside(conv, walked[0])
    if pixels.view == "flattened" or ends:
        return pixels
    none = replace(pixels, sliced=False, view="tensor", counts=(), within=())
    return replace(none, within=(*pixels.within, (PIXELS, count, 1, replace(pixels, within=()))))


def _reads_outside(conv: ConvShape, dim: int) -> bool:
    """Whether an output behind the last one would read outside at each position of the kernel."""
    return conv.out_size[dim] * conv.stride[dim] - conv.pad[dim][0] >= conv.size[dim]


def _outside(indices: Sequence[Any]) -> tuple[Any, ...]:
    """``indices`` with the last one, the channel's, behind the first."""
    first, *inner, channel = indices
    return (first, channel, *inner)


def _reordered(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """``operand``, whose parameter has ``shape``, channels behind the first dimension.

    Nothing is written first where both orders are the same in memory.
    """
    outer, channels, *inner = shape
    places = math.prod(inner)
    if places == 1 or channels == 1:
        return _as_it_is(operand, shape)

    def read(at: Coordinates) -> list[Any]:
        _, place = split_pixel(at["place"], 1, inner)
        return [at["outer"], at["channel"], *place]

    def written(at: Coordinates) -> list[Any]:
        _, place = split_pixel(at["place"], 1, inner)
        return [at["outer"], *place, at["channel"]]

    axes = (("outer", outer), ("place", places), ("channel", channels))
    made = Reordered(shape, axes, read, written, Reason("conv.written_first"))
    return replace(operand, reordered=made)


def _as_it_is(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """``operand`` by the indices that its parameter has."""

    def element(at: Coordinates) -> Element:
        indices, conditions = operand.element(at)
        return list(_outside(indices)), conditions

    joined = 1 if shape[1] == 1 else len(shape) - 1
    return replace(operand, shape=shape, element=element, joined=joined)
