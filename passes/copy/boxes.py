"""Describe boxes of a tensor that a tile is copied from: what planning and emission both read.

    S[i, j] = X[m * 128 + i, k * 64 + j]     =>   boxes of 128 x 64 of X
    S[x, c] = Y[x // 196, x // 14 % 14, ..]  =>   boxes of Y, its pixels counted as one dimension

Pixels that im2col would load are a box of the image, too, if each tile is a number of rows of an
image, a piece of one row, or a number of images: a tiled-mode window.

    for i, c in T.grid(224, 64):                # x = m * 224 + i: outputs of all images, row by row
        S[i, c] = X[x // 3136, x % 3136 // 56 + r - 1, x % 56 + s - 1, k * 64 + c]  or zero
 => a box of 1 x 4 x 56 pixels and 64 channels from (n, h + r - 1, w + s - 1, k * 64) at i = 0

The box is zero outside the tensor, as the mask says. TMA loads boxes faster in tiled mode than
pixels in im2col mode, which takes any number of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from ...mechanisms.tma import MAX_BOX, window_extents
from ...values.facts import TmaView
from ..ir.linear import terms_of
from ..ir.nodes import Expr, const_int, i32, uses
from ..ir.patterns import Copy, dimension_of
from .im2col import Im2col
from .tensor_views import View


@dataclass(frozen=True)
class Boxes(View):
    """A view that is read in boxes, one for each tile.

    ``extents``: of a box in all dimensions but the last, along which the tile's rows run. ``rows``:
    the dimension that the tile's first one runs along, None where several do. ``pixels``: of a
    window, what im2col mode would load. ``joined``: the last dimension is several of the tensor's.
    """

    extents: tuple[int, ...] = ()
    kind: TmaView = "tensor"
    rows: int | None = None
    pixels: Im2col | None = None
    joined: bool = False
    offsets: ClassVar[tuple[Expr, ...]] = ()

    @property
    def outer(self) -> Expr:
        """The extent of the first dimension: a box from there on is outside."""
        return self.shape[0]


def boxes_of(copy: Copy, view: View) -> Boxes:
    """Return the boxes of ``view`` that ``copy`` reads, which nothing hinders."""
    walked = [dimension_of(index, copy.order) for index in view.indices]
    extents = tuple(1 if dim is None else copy.shape[dim] for dim in walked[:-1])
    kind: TmaView = "window" if _slides(copy) else "tensor"
    if len(view.shape) != len(copy.src.shape):
        kind = "flattened"
    rows = walked.index(0) if 0 in walked else None
    return Boxes(view.shape, view.indices, view.when, extents, kind, rows)


def keeps_order(copy: Copy, indices: Sequence[Expr]) -> bool:
    """Whether the dimensions of the tile index different dimensions, in their order."""
    walked = [dimension_of(index, copy.order) for index in indices]
    return [dim for dim in walked if dim is not None] == list(range(len(copy.order)))


def window_of(copy: Copy, pixels: Im2col, ranges: Any) -> Boxes | None:
    """Return ``pixels``, which ``copy`` reads, as a box; None if they are not provably one.

    ``ranges``: an analyzer that knows the bounds of every variable.
    """
    counts = [const_int(copy.src.shape[0]) or 0, *[axis.count for axis in pixels.axes]]
    extents = window_extents(copy.shape[0], counts)
    if extents is None or any(axis.step != 1 for axis in pixels.axes):
        return None
    aligned = tirx.EQ(tirx.floormod(pixels.first, copy.shape[0]), i32(0))
    if not ranges.can_prove(aligned):
        return None
    first = [axis.first + axis.offset for axis in pixels.axes]
    indices = (pixels.image, *first, pixels.channel)
    return Boxes(tuple(copy.src.shape), indices, pixels.when, extents, "window", pixels=pixels)


def _slides(copy: Copy) -> bool:
    """Whether tiles of ``copy`` overlap: something moves them by less than their length.

    Those are pixels of a row that several positions of a convolution's kernel see. On an H100 they
    cost what pixels of several rows do: tiles of 224 of vgg's rows of 224 took 275 us, of 240 and
    256 270 and 273.
    """
    if not keeps_order(copy, copy.src_indices) or max(copy.shape) > MAX_BOX:
        return False
    walked = [dimension_of(index, copy.order) for index in copy.src_indices]
    return any(
        abs(by) < copy.shape[dim]
        for index, dim in zip(copy.src_indices, walked, strict=True)
        if dim is not None
        for by, term in terms_of(index).terms
        if not uses(term, copy.order)
    )
