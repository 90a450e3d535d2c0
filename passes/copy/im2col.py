"""Express tile copies of an implicit-GEMM operand A as TMA loads in im2col mode.

    for i, c in T.grid(128, 64):                # x = m * 128 + i: outputs of all images, row by row
        S[i, c] = X[x // 196, x % 196 // 14 + r - 1, x % 14 + s - 1, k * 64 + c]  or zero outside X
 => pixels of a bounding box of each image, row by row and image by image, 128 of them, from
    (n, h, w) = (x // 196, x % 196 // 14 - 1, x % 14 - 1) at i = 0, each moved by (r, s)

The bounding box of an image contains the pixels at the kernel's first position. Its corners follow
from the padding, the step through it from the stride. Each coordinate is a sum of three terms:

    coordinate = lower corner + step * place + offset

The places of all dimensions together count the tile's pixels one by one; the offset is the same for
all of them.

Sources: PTX ISA, tensor im2col mode, cp.async.bulk.tensor (im2colOffsets); CUDA driver API,
cuTensorMapEncodeIm2col.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from tvm import sym, tirx
from tvm.ir import Range

from ...diagnostics import Reason
from ...mechanisms.tma import im2col_obstacle
from ...values.facts import TmaView
from ..ir.indexing import conjunction, together
from ..ir.linear import Term, affine, terms_of
from ..ir.nodes import Expr, Var, collect, const_int, i32, uses
from ..ir.patterns import Copy, dimension_of
from ..ir.wide_indices import ELEMENTS
from .tensor_views import beyond, inside

_MANY: Final = 1 << 30

_RANKS: Final = (3, 4, 5)


@dataclass(frozen=True)
class SpatialAxis:
    """One spatial dimension: a coordinate is ``lower + step * place + offset``.

    ``place`` is in ``0 .. count - 1``, ``offset`` in ``0 .. reach``. ``upper``: end of the bounding
    box, relative to the last coordinate of the tensor.
    """

    place: Expr
    offset: Expr
    reach: int
    step: int
    count: int
    lower: int
    upper: int

    @property
    def first(self) -> Expr:
        """The coordinate at the kernel's first position."""
        return self.place * self.step + self.lower


@dataclass(frozen=True)
class Im2col:
    """A tile of pixels, counted by the first of a copy's loop variables, by channels.

    ``image`` and ``channel``: indices of the tensor's first and last dimension; ``axes``: those
    between, outer first. ``first``: the number of the tile's first pixel among all pixels at the
    kernel's first position. ``outer``: the number of images. ``when``: the condition, the same for
    all pixels of a tile, without which they are zero; None: always true.
    """

    image: Expr
    axes: tuple[SpatialAxis, ...]
    channel: Expr
    first: Expr
    outer: Expr
    when: Expr | None = None
    kind: ClassVar[TmaView] = "im2col"

    @property
    def offsets(self) -> tuple[Expr, ...]:
        """The kernel's position, which the instruction gets beside coordinates."""
        return tuple(axis.offset for axis in self.axes)

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The tensor's indices of the kernel's first position."""
        return (self.image, *[axis.first for axis in self.axes], self.channel)


def im2col_of(copy: Copy, ranges: Any) -> Im2col | Reason:
    """Return the pixels that ``copy`` reads, or why im2col mode cannot load them.

    ``ranges``: an analyzer that knows the bounds of every variable outside the copy.
    """
    rank = len(copy.src_indices)
    runs = dimension_of(copy.src_indices[-1], copy.order) == 1
    if len(copy.order) != 2 or rank not in _RANKS or not runs:
        return Reason("im2col.rank")
    if None in [const_int(extent) for extent in copy.src.shape[:-1]]:
        return Reason("im2col.size", buffer=str(copy.src.name))
    for var in copy.order:
        ranges.bind(var, Range(0, copy.nest.extent_of[var]))
    found: Im2col | Reason = Reason("im2col.rank")
    for offsets in _offsets(copy):
        found = _with_offsets(copy, offsets, ranges)
        if isinstance(found, Im2col):
            return found
    return found


def _offsets(copy: Copy) -> Iterator[tuple[Var, ...]]:
    """Yield sets of variables that the kernel's position may depend on: few before many.

    Any choice that passes the proof is right. It only says which part of a coordinate the
    instruction gets as an offset.
    """
    pixel = copy.order[0]
    terms = [term for index in copy.src_indices[1:-1] for _, term in terms_of(index).terms]
    moving = [term for term in terms if not uses(term, [pixel])]
    variables = list(dict.fromkeys(var for term in moving for var in collect(term, Var)))
    for count in range(len(variables) + 1):
        yield from itertools.combinations(variables, count)


def _with_offsets(copy: Copy, offsets: Collection[Var], ranges: Any) -> Im2col | Reason:
    """Return the pixels if what depends only on ``offsets`` is the kernel's position."""
    name = str(copy.src.name)
    image, *spatial, channel = copy.src_indices
    extents = [const_int(extent) or 0 for extent in copy.src.shape[1:-1]]
    axes: list[SpatialAxis] = []
    for index, extent in zip(spatial, extents):
        axis = _axis(index, extent, copy.order[0], offsets, ranges)
        if axis is None:
            return Reason("im2col.walk", buffer=name, index=str(index))
        axes.append(axis)
    pixels = math.prod([const_int(copy.src.shape[0]) or 0, *[axis.count for axis in axes]])
    if pixels > ELEMENTS:
        return Reason("im2col.pixels", most=ELEMENTS, buffer=name, pixels=pixels)
    counted: Expr = image
    for axis in axes:
        counted = counted * axis.count + axis.place
    counted = together(counted, copy.order, ranges)
    known = affine(counted, copy.order)
    if known is None or known.coefficients != {copy.order[0]: 1}:
        return Reason("im2col.count", index=str(counted))
    if const_int(copy.src.shape[0]) == 1 and const_int(image) == 0:
        ended = _ended(axes[0], extents[0], math.prod(a.count for a in axes[1:]), copy, counted)
        image, axes[0] = _behind(ended)
    found = Im2col(image, tuple(axes), channel, known.base, copy.src.shape[0])
    numbers = [(axis.lower, axis.upper, axis.reach, axis.step) for axis in axes]
    obstacle = im2col_obstacle(numbers)
    if obstacle:
        return Reason.of(obstacle)
    beyond = _beyond_bounds(copy, found, counted, ranges)
    moving = next((part for part in beyond if uses(part, copy.order)), None)
    if moving is not None:
        return Reason("tma.mask", buffer=name, condition=str(moving))
    return replace(found, when=conjunction(beyond))


def _axis(
    index: Expr, extent: int, pixel: Var, offsets: Collection[Var], ranges: Any
) -> SpatialAxis | None:
    """Return ``index`` in its three terms; None if it has others."""
    form = terms_of(index)
    moved = [term for term in form.terms if not uses(term[1], [pixel]) and uses(term[1], offsets)]
    walked = [term for term in form.terms if term not in moved]
    step = math.gcd(*[coefficient for coefficient, _ in walked]) or 1
    place = ranges.simplify(_sum([(coefficient // step, term) for coefficient, term in walked]))
    offset = ranges.simplify(_sum(moved))
    places, shifts = ranges.const_int_bound(place), ranges.const_int_bound(offset)
    least, most = int(shifts.min_value), int(shifts.max_value)
    if int(places.min_value) < 0 or max(-least, most, int(places.max_value)) > _MANY:
        return None
    lower = form.base + least
    axis = SpatialAxis(place, offset - least, most - least, step, 0, lower, 0)
    return _with_count(axis, int(places.max_value) + 1, extent)


def _with_count(axis: SpatialAxis, count: int, extent: int) -> SpatialAxis:
    """Return ``axis`` with ``count`` places, in a dimension of ``extent``."""
    upper = axis.lower + (count - 1) * axis.step - (extent - 1)
    return replace(axis, count=count, upper=upper)


def _ended(axis: SpatialAxis, extent: int, inner: int, copy: Copy, counted: Expr) -> SpatialAxis:
    """Return the outermost axis of a lone image, ended where the copy's mask ends the pixels.

    Pixels behind that are in the next image, which does not exist: so they are zero, as the mask
    says.
    """
    for part in copy.mask:
        end = _end(part, counted)
        if end is not None and end % inner == 0 and end // inner < axis.count:
            axis = _with_count(axis, end // inner, extent)
    return axis


def _behind(axis: SpatialAxis) -> tuple[Expr, SpatialAxis]:
    """Return the image and the place of a pixel that may lie behind a lone image's last.

    The CTA of a cluster that copies the end of the last tile may start there, and whoever copies a
    tile that is there to fill up the grid. A load must start in the bounding box of some image.
    """
    image = tirx.floordiv(axis.place, axis.count)
    return image, replace(axis, place=tirx.floormod(axis.place, axis.count))


def _end(part: Expr, counted: Expr) -> int | None:
    """Return ``n`` of a conjunct that is equivalent to ``counted < n``."""
    if not isinstance(part, tirx.LT):
        return None
    return const_int(sym.Analyzer().simplify(counted + part.b - part.a))


def _beyond_bounds(copy: Copy, found: Im2col, counted: Expr, ranges: Any) -> list[Expr]:
    """Return the conditions of the copy's mask other than being inside the tensor."""
    places = [axis.count for axis in found.axes]
    pixels = counted < math.prod([const_int(copy.src.shape[0]) or 0, *places])
    bounds = tirx.And(pixels, inside(copy.src.shape, copy.src_indices, copy.order, ranges))
    return beyond(copy.mask, bounds, ranges)


def _sum(terms: Sequence[Term]) -> Expr:
    total: Expr = i32(0)
    for coefficient, term in terms:
        total = total + term * coefficient
    return total
