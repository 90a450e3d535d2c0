"""What schedules of products in loops share: how C is cut into tiles, and pieces of their bodies.

zeroed(acc); copied(A); multiplied(acc, A_shared, B_shared)     blocks of TVMScript, by name
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...errors import WorkloadError
from ..tiles import RowTile, divisor
from ..workloads import PRODUCTS, GroupedGemm, Spec
from ..workloads.base.blocks import all_of

PIECE: Final = 512
"""Elements of C that a CTA of a second kernel adds, at most."""

EXPERTS: Final = 4
"""Of a smaller grouped GEMM, and tiles of rows, where there are as many: some groups differ."""


def place_of(at: Any, tiles: tuple[int, int], group: int) -> tuple[Any, Any]:
    """The row and the column of tile ``at``: in each ``group`` rows of tiles column by column."""
    rows, columns = tiles
    group = divisor(rows, group)
    inside = at % (group * columns)
    return at // (group * columns) * group + inside % group, inside // group


@dataclass(frozen=True)
class ProductCut:
    """C = A B of ``m``, ``n``, ``k`` in tiles and steps of ``step``; A and B are K-major.

    Of a grouped GEMM, whose tiles begin where groups do: so many rows as its tiles may have.
    """

    extents: tuple[int, int, int]
    tile: RowTile
    step: int
    storage: str

    @staticmethod
    def of(what: Spec, tile: RowTile) -> ProductCut:
        """``what`` cut by ``tile``; WorkloadError: it is no product with arithmetic on rows."""
        if not isinstance(what, PRODUCTS):
            raise WorkloadError("tile.kind", workload=what.name, kind=type(tile).__name__)
        rows = what.m
        if isinstance(what, GroupedGemm):
            rows = what.slots(tile.m, tile.raster_group) * tile.m
        return ProductCut((rows, what.n, what.k), tile, what.step, what.storage)

    @property
    def tiles(self) -> tuple[int, int]:
        """Along M and N."""
        m, n, _ = self.extents
        return -(-m // self.tile.m), -(-n // self.tile.n)

    @property
    def count(self) -> int:
        """Of all tiles."""
        return math.prod(self.tiles)

    @property
    def ctas(self) -> int:
        """Of the grid: one for each tile, or so many that take them one after the other."""
        return min(self.count, self.tile.persistent or self.count)

    @property
    def walked(self) -> int:
        """Tiles that a CTA takes, one after the other, at most."""
        return -(-self.count // self.ctas)

    @property
    def steps(self) -> int:
        """Of K; the last may end beyond it."""
        return -(-self.extents[2] // self.step)

    @property
    def ragged(self) -> tuple[int, int, int]:
        """What tiles and steps leave over of M, N and K."""
        m, n, k = self.extents
        return m % self.tile.m, n % self.tile.n, k % self.step

    def at(self, cta: Any, walked: Any) -> Any:
        """The tile that a CTA takes after so many others."""
        return walked * self.ctas + cta

    def row(self, at: Any) -> Any:
        """The first row of tile ``at``."""
        return place_of(at, self.tiles, self.tile.raster_group)[0] * self.tile.m

    def column(self, at: Any) -> Any:
        """The first column of tile ``at``."""
        return place_of(at, self.tiles, self.tile.raster_group)[1] * self.tile.n

    def read_a(self, x: Any, at: Any, step: Any, i: Any, d: Any) -> Any:
        """An element of A; zero beyond the last row and the end of K."""
        return self._element(x, 0, self.row(at) + i, step * self.step + d)

    def read_b(self, x: Any, at: Any, step: Any, j: Any, d: Any) -> Any:
        """An element of B; zero beyond the last column of C and the end of K."""
        return self._element(x, 1, self.column(at) + j, step * self.step + d)

    def of_rows(self, index: Any) -> list[Any]:
        """The condition that there is such a row, where tiles pass the last."""
        return [index < self.extents[0]] if self.ragged[0] else []

    def of_columns(self, index: Any) -> list[Any]:
        """The condition that there is such a column, where tiles pass the last."""
        return [index < self.extents[1]] if self.ragged[1] else []

    def of_depth(self, index: Any) -> list[Any]:
        """The condition that K reaches as far, where steps pass its end."""
        return [index < self.extents[2]] if self.ragged[2] else []

    def stored(self, at: Any, i: Any, j: Any) -> Any:
        """Whether C has this element of tile ``at``; for tiles that pass an edge alone."""
        row, column = self.row(at) + i, self.column(at) + j
        return all_of([*self.of_rows(row), *self.of_columns(column)])

    def _element(self, x: Any, side: int, index: Any, depth: Any) -> Any:
        edges = self.of_columns(index) if side else self.of_rows(index)
        edges += self.of_depth(depth)
        return guarded(x[index, depth], edges, self.storage)


def piece_of(columns: int) -> int:
    """Neighbouring elements of a row that a CTA adds the partial sums of."""
    return divisor(columns, PIECE)


def is_alike(small: ProductCut, whole: ProductCut, tiles: int, steps: int, cluster: int) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``whole`` has.

    At least ``tiles`` along M and N and ``steps`` of K, where there are as many; the same edges; in
    clusters of ``cluster`` CTAs the same neighbours.
    """
    (few, narrow), (many, wide) = small.tiles, whole.tiles
    enough = few >= min(tiles, many) and narrow >= min(tiles, wide)
    if small.ragged != whole.ragged or not enough or small.steps < min(steps, whole.steps):
        return False
    parts = whole.tile.splits
    if small.steps % parts or small.steps < min(steps * parts, whole.steps):
        return False
    if parts > 1 and piece_of(small.extents[1]) != piece_of(whole.extents[1]):
        return False
    down = [divisor(rows, whole.tile.raster_group) for rows in (few, many)]
    return down[0] % cluster == down[1] % cluster and narrow % cluster == wide % cluster


def has_groups(small: Spec, whole: Spec, tile: RowTile) -> bool:
    """Whether groups of ``small`` may have whole tiles, and several, where those of ``whole`` do.

    True of what has no groups.
    """
    if not isinstance(small, GroupedGemm) or not isinstance(whole, GroupedGemm):
        return True
    several = small.experts >= min(whole.experts, EXPERTS)
    return several and small.m >= min(whole.m, EXPERTS * tile.m)


def guarded(value: Any, conditions: list[Any], dtype: str) -> Any:
    """``value`` where all ``conditions`` hold, and zero elsewhere."""
    zero = tirx.const(0, dtype)
    return tirx.if_then_else(all_of(conditions), value, zero) if conditions else value
