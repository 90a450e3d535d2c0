"""Split-K: a contraction whose reduction is split, with a tensor of partial sums for each part.

    P[part, batch, m, n] = sum over the part's tiles of A * B        # as many times the CTAs
    C[batch, m, n] = epilogue(P[0, batch, m, n] + P[1, batch, m, n] + ...)

A part is one more independent matmul, so whatever schedules, pipelines or checks a contraction does
so with parts. Their sum is written out term by term: its order is fixed, and with it every bit of
the result, whichever part is done first; and no load of it waits for another.

Of two matmuls each has parts of its own, and what is made of both is made of their sums.

All tiles of the reduction are counted through, positions of a kernel and pieces of K alike, and
each part gets as many neighbours. What the last part has beyond the last tile is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm import tirx

from ...errors import WorkloadError
from ...passes.ir.nodes import i32
from .base.operand import Coordinates, Element, Operand
from .contraction import Contraction

PART: Final = "part"
"""The axis that counts parts."""

STEP: Final = "step"
"""The axis of the tiles that one part sums."""

MAX_SPLITS: Final = 64
"""Terms of one sum. Each is a load of its own: more of them would not all be in flight."""


def reduction_tiles(what: Contraction, size: int) -> int:
    """Tiles of ``size`` that the reduction of ``what`` takes."""
    return _Tiles.of(what, 1, size).count


def split(what: Contraction, splits: int, tile_k: int) -> Contraction:
    """``what`` as ``splits`` matmuls over steps of ``tile_k``; itself with one.

    WorkloadError where a part would have nothing to sum.
    """
    if splits == 1:
        return what
    if what.length is not None:
        raise WorkloadError("split.uneven", workload=what.name)
    tiles = _Tiles.of(what, splits, tile_k)
    if splits > tiles.count:
        raise WorkloadError(
            "split.few_tiles", workload=what.name, splits=splits, tiles=tiles.count, size=tile_k
        )
    if splits > MAX_SPLITS:
        raise WorkloadError("split.many_terms", workload=what.name, splits=splits, most=MAX_SPLITS)
    return replace(
        what,
        batch_axes=((PART, splits), *what.batch_axes),
        reduction_axes=((STEP, tiles.each),),
        k=(what.k[0], tile_k),
        a=_part_of(what.a, tiles),
        b=_part_of(what.b, tiles),
        second=None if what.second is None else _part_of(what.second, tiles),
        whole=what,
    )


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a reduction: how many there are, and how many each part gets."""

    what: Contraction
    size: int
    pieces: int
    count: int
    each: int
    splits: int

    @staticmethod
    def of(what: Contraction, splits: int, size: int) -> _Tiles:
        pieces = -(-(what.k[1] or 1) // size)
        count = pieces * math.prod(extent or 1 for _, extent in what.reduction_axes)
        return _Tiles(what, size, pieces, count, -(-count // splits), splits)

    @property
    def is_uneven(self) -> bool:
        """Whether the last parts have tiles beyond the last one."""
        return self.each * self.splits > self.count

    @property
    def is_ragged(self) -> bool:
        """Whether the last piece of K reaches beyond it."""
        return self.pieces * self.size != self.what.k[1]

    @property
    def ends_early(self) -> bool:
        """Whether the last parts must be kept from tiles that are not beyond K."""
        return self.is_uneven and bool(self.what.reduction_axes)

    @property
    def passes_k(self) -> bool:
        """Whether tiles reach beyond K: the last piece, or without steps those beyond the last."""
        return self.is_ragged or (self.is_uneven and not self.what.reduction_axes)

    def coordinates(self, at: Coordinates, end: int) -> tuple[Coordinates, list[Any]]:
        """Steps and k of the whole at a place of a part; what holds where there is such a place.

        ``end``: where K ends in memory.
        """
        name, _ = self.what.k
        tile = at[PART] * self.each + at[STEP]
        found, piece = _digits(tile, [*self.what.reduction_axes, (name, self.pieces)])
        k = piece * self.size + at[name]
        conditions = [k < i32(end)] if self.passes_k else []
        if self.ends_early:
            conditions.append(tile < i32(self.count))
        return {**at, **found, name: k}, conditions


def _digits(number: Any, axes: list[tuple[str, int | None]]) -> tuple[dict[str, Any], Any]:
    """The digits of ``number`` by axis, the outermost unbounded, and the last one by itself."""
    values: list[Any] = []
    for _, extent in reversed(axes[1:]):
        values.append(tirx.floormod(number, i32(extent or 1)))
        number = tirx.floordiv(number, i32(extent or 1))
    values = [number, *reversed(values)]
    named = {name: value for (name, _), value in zip(axes[:-1], values)}
    return named, values[-1]


def _part_of(side: Operand, tiles: _Tiles) -> Operand:
    """``side`` as the matmul of one part reads it: gathered, a tile at a time.

    Zeros behind K in memory are read as any other element.
    """
    extent = tiles.what.k[1] or 1
    end = (side.pitch or extent) if side.k_major else extent
    beyond = tiles.is_ragged or tiles.is_uneven
    if end > extent:
        beyond = tiles.splits * tiles.each * tiles.size > end

    def element(at: Coordinates) -> Element:
        whole, conditions = tiles.coordinates(at, end)
        indices, when = side.element(whole)
        return indices, [*when, *conditions]

    return replace(
        side,
        element=element,
        tile=side.tile or f"{side.param}_part",
        sliced=side.is_box,
        masked=side.masked or beyond,
    )
