"""One side of a contraction: the parameter it is read from, and where each element is.

An operand is a matrix in memory or is *gathered*. Or a kernel of its own first writes it in another
order, or with longer rows, in which tiles of it are boxes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ....diagnostics import Why
from ....values.facts import TmaView

Axis: TypeAlias = "tuple[str, int | None]"
"""Name and extent; None: known at run time."""

Coordinates: TypeAlias = "dict[str, Any]"
"""The value of each axis, by its name."""

Element: TypeAlias = "tuple[list[Any], list[Any]]"
"""Indices into a tensor, and the conditions outside which the element is zero."""


@dataclass(frozen=True, slots=True)
class Reordered:
    """A parameter whose elements a kernel of its own first writes in another order.

    ``shape``: of the parameter. ``axes``: what the kernel counts through, the last two as they lie
    side by side in the parameter and in the other order. ``read`` and ``written``: indices of an
    element there and here. ``note``: what a plan should say of the kernel. ``inside``: the order is
    the same, the last axis side by side in both, and these are the conditions outside which zero is
    written, which pads rows; None: there are none.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    read: Callable[[Coordinates], list[Any]]
    written: Callable[[Coordinates], list[Any]]
    note: Why = ""
    inside: Callable[[Coordinates], list[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of the matmul: the parameter it is read from, and how.

    ``tile``: name of the gathered operand, None where the parameter is the matrix itself.
    ``k_major``: whether K is its contiguous dimension. ``contiguous``: whether rows of a tile lie
    contiguous in memory. ``unit``: elements that divide where any row starts, whatever the tile
    (None: nothing known). ``masked``: whether elements outside the tensor are read as zero.
    ``sliced``: a gathered tile is a box of the parameter nevertheless, or of its ``view``: what its
    rows are to the tensor memory accelerator. ``slides``: boxes of it overlap, as positions of a
    kernel see them. ``counts``: of images, and of pixels in each
    dimension, that neighbours along a tile's rows walk without a step; empty: they do not.
    ``note``: what a plan should say of why it is read so. ``storage``: its type in memory where it
    is not the workload's. ``seen``: elements of the parameter that are read, 0 where all are.
    ``row_axis``: the dimension of the parameter along which rows of a box follow. ``within``:
    what it is to tiles that divide so many elements of an axis and are multiples of some, the first
    that fits. ``joined``: so many of its last dimensions are one to boxes. ``reordered``: tiles are
    read from what a kernel of its own writes, of ``shape``.
    """

    param: str
    shape: tuple[int | None, ...]
    k_major: bool
    element: Callable[[Coordinates], Element]
    tile: str | None = None
    contiguous: bool = True
    unit: int | None = None
    masked: bool = False
    sliced: bool = False
    view: TmaView = "tensor"
    slides: bool = False
    counts: tuple[int, ...] = ()
    note: Why = ""
    storage: str = ""
    seen: int = 0
    row_axis: int = -2
    within: tuple[tuple[str, int, int, Operand], ...] = ()
    joined: int = 1
    reordered: Reordered | None = None

    def cut(self, tile: Mapping[str, int]) -> Operand:
        """What it is to tiles of so many elements along each axis."""
        for axis, run, unit, form in self.within:
            if run % tile[axis] == 0 and tile[axis] % unit == 0:
                return replace(form.cut(tile), reordered=self.reordered)
        return self

    @property
    def extents(self) -> tuple[int | None, ...]:
        """The shape of what tiles are boxes of, its last dimensions ``joined``."""
        outer, last = self.shape[: -self.joined], self.shape[-self.joined :]
        return (
            (*outer, math.prod(extent or 1 for extent in last)) if self.joined > 1 else self.shape
        )

    @property
    def source(self) -> str:
        """The tensor in memory that tiles are read from."""
        return self.param if self.reordered is None else f"{self.param}_reordered"

    @property
    def pitch(self) -> int | None:
        """Elements of a row that is first written with zeros behind it; None: no row is."""
        made = self.reordered
        return None if made is None or made.inside is None else self.shape[-1]

    @property
    def is_box(self) -> bool:
        """Whether a tile is a box of the parameter or of its view."""
        return self.tile is None or self.sliced

    @property
    def name(self) -> str:
        """The tensor that the matmul reads."""
        return self.source if self.tile is None else self.tile
