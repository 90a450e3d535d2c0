"""Recognise im2col pixels that are a box of the image: a tiled-mode window.

    for i, c in T.grid(224, 64):                # x = m * 224 + i: outputs of all images, row by row
        S[i, c] = X[x // 3136, x % 3136 // 56 + r - 1, x % 56 + s - 1, k * 64 + c]  or zero
 => a box of 1 x 4 x 56 pixels and 64 channels from (n, h + r - 1, w + s - 1, k * 64) at i = 0

That is so if each tile is a number of rows of an image, a piece of one row, or a number of images.
The box is zero outside the tensor, as the mask says. TMA loads boxes faster in tiled mode than
pixels in im2col mode, which takes any number of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ...mechanisms.tma import window_extents
from ..ir.nodes import Expr, const_int, i32
from ..ir.patterns import Copy
from .im2col import Im2col


@dataclass(frozen=True)
class TiledWindow:
    """The ``pixels`` as a box; ``extents``: of all dimensions of the tensor but the channels."""

    pixels: Im2col
    extents: tuple[int, ...]

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The tensor's indices of the first pixel at the kernel's position."""
        found = self.pixels
        return (found.image, *[axis.first + axis.offset for axis in found.axes], found.channel)

    @property
    def when(self) -> Expr | None:
        """The condition without which the tile is zero; None if there is none."""
        return self.pixels.when


def window_of(copy: Copy, pixels: Im2col, ranges: Any) -> TiledWindow | None:
    """Return ``pixels``, which ``copy`` reads, as a box; None if they are not provably one.

    ``ranges``: an analyzer that knows the bounds of every variable.
    """
    counts = [const_int(copy.src.shape[0]) or 0, *[axis.count for axis in pixels.axes]]
    extents = window_extents(copy.shape[0], counts)
    if extents is None or any(axis.step != 1 for axis in pixels.axes):
        return None
    aligned = tirx.EQ(tirx.floormod(pixels.first, copy.shape[0]), i32(0))
    return TiledWindow(pixels, extents) if ranges.can_prove(aligned) else None
