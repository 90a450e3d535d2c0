"""How a tile cuts attention: where its rows and keys lie in Q, K, V and O.

Rows of a tile are queries: of one head or, ``grouped``, of all heads that share one of K and V. The
keys are those of all steps of all splits; the last ones may lie beyond the last key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...diagnostics import Reason, Why
from ...diagnostics import all_of as every
from ...errors import WorkloadError
from ..tiles import AttentionTile
from ..workloads import Attention
from ..workloads.base.blocks import all_of

COLUMNS: Final = 16
"""Columns of a head are read in multiples of so many, those beyond the last as zero."""

CUT_SHORT: Final = "it moves boxes, which end where their tensor does, and this part ends before"
"""What the closed form says of tokens that are part of a larger axis, whose last tile is not full,
and of queries of several heads that do not lie one after the other."""

TILES: Final = "tile"
"""The loop over the tiles of a persistent CTA."""

COMBINED: Final = 1024
"""Outputs of a CTA that combines splits: four of each of 256 threads."""

MANY_CTAS: Final = 1024
"""CTAs that combine splits, from which on one takes several queries: seven or more an SM."""

MOST_SPLITS: Final = 128
"""Of the keys. Each is a term of one sum, whose loads are in flight at once."""


def check_splits(what: Attention, tile: AttentionTile) -> None:
    """WorkloadError: ``tile`` splits or groups what it cannot."""
    if what.causal and (tile.splits > 1 or tile.grouped):
        raise WorkloadError("split.causal", workload=what.name)
    if tile.splits > 1 and tile.persistent is not None:
        raise WorkloadError("split.persistent", workload=what.name, splits=tile.splits)
    if tile.splits > MOST_SPLITS:
        raise WorkloadError(
            "split.many_terms", workload=what.name, splits=tile.splits, most=MOST_SPLITS
        )
    steps = -(-what.keys // tile.n)
    if tile.splits > steps:
        raise WorkloadError(
            "split.few_tiles", workload=what.name, splits=tile.splits, tiles=steps, size=tile.n
        )


def splits_of(steps: int, at_most: int) -> int:
    """The most splits of so many steps, up to a number, each of which has a step."""
    return -(-steps // -(-steps // min(steps, at_most)))


def is_grouped(attention: Attention, m: int) -> bool:
    """Whether tiles of ``m`` rows are fewer with the queries of all heads that share keys."""
    queries, group = attention.queries, attention.group
    return not attention.causal and -(-queries * group // m) < -(-queries // m) * group


def note_of(tile: AttentionTile) -> Why:
    """What the plan is to say of the kernel that combines the splits of ``tile``."""
    return every((Reason("split.combined", splits=tile.splits), tile.why))


def ctas_of(attention: Attention, tile: AttentionTile) -> int:
    """CTAs of the kernel with the loop over keys."""
    cut = Cut(attention, tile)
    return attention.batch * cut.heads * cut.tiles * tile.splits


def columns_of(attention: Attention) -> int:
    """Columns of a tile of Q, K, V or O, those beyond the last of a head included."""
    return -(-attention.dim // COLUMNS) * COLUMNS


def rows_of(attention: Attention, tile: AttentionTile) -> int:
    """Rows that tiles cut: the queries of a head, or of all that share one of K and V."""
    return attention.queries * (attention.group if tile.grouped else 1)


def steps_of(attention: Attention, tile: AttentionTile, at: Any) -> Any:
    """Steps of tile ``at`` of queries, a number or an expression: as far as its last query sees.

    Those of one split, where the keys are split.
    """
    steps, tiles = -(-attention.keys // tile.n), -(-attention.queries // tile.m)
    if not attention.causal:
        return -(-steps // tile.splits)
    sees = (at * tile.m + tile.m + tile.n - 1) // tile.n
    if tiles * tile.m <= steps * tile.n:
        return sees
    return min(sees, steps) if isinstance(at, int) else tirx.min(sees, steps)


@dataclass(frozen=True)
class Cut:
    """Where the rows and keys of a tile of attention lie in Q, K, V and O.

    CTAs are counted by ``x``; ``h``: heads, or those of K and V where they are ``grouped``.
    """

    what: Attention
    tile: AttentionTile

    @property
    def rows(self) -> int:
        """Of all tiles of a head."""
        return rows_of(self.what, self.tile)

    @property
    def tiles(self) -> int:
        """Of the rows of a head."""
        return -(-self.rows // self.tile.m)

    @property
    def heads(self) -> int:
        """Of the grid."""
        return self.what.groups if self.tile.grouped else self.what.heads

    @property
    def all_tiles(self) -> int:
        """Of the rows of all heads of all batches."""
        return self.what.batch * self.heads * self.tiles

    @property
    def is_persistent(self) -> bool:
        """Whether CTAs take several tiles one after the other."""
        return self.tile.persistent is not None and self.tile.persistent < self.all_tiles

    @property
    def ctas(self) -> int:
        """CTAs that share all tiles, without those of splits."""
        return (self.tile.persistent or 1) if self.is_persistent else self.all_tiles

    @property
    def lines(self) -> int:
        """Queries of all heads of all batches."""
        return self.what.batch * self.what.heads * self.what.queries

    @property
    def combined_together(self) -> int:
        """Queries of which a CTA combines the splits: several where there are many."""
        return max(1, min(COMBINED // self.what.dim, self.lines // MANY_CTAS))

    @property
    def combining_ctas(self) -> int:
        """CTAs that combine the splits; the last may have fewer queries."""
        return -(-self.lines // self.combined_together)

    @property
    def keys(self) -> int:
        """Keys of all steps of all splits."""
        steps = -(-self.what.keys // self.tile.n)
        return -(-steps // self.tile.splits) * self.tile.splits * self.tile.n

    @property
    def empty(self) -> int:
        """Splits that have no key."""
        steps = -(-self.what.keys // self.tile.n)
        return self.tile.splits - -(-steps // -(-steps // self.tile.splits))

    def is_cut_short(self, which: int) -> bool:
        """Whether tiles of Q, K or V (0, 1, 2) are no boxes that end where their tensor does."""
        what = self.what
        ordered = what.lying(which, 0, 1) == (0, 1)
        if which:
            return bool(self._misses and what.within[which] and ordered)
        if not self.tile.grouped or what.queries % self.tile.m == 0:
            return bool(self.rows % self.tile.m and what.within[0] and ordered)
        return what.queries > 1 and not ordered

    @property
    def is_masked(self) -> bool:
        """Whether there are scores that do not count."""
        return self.what.causal or self.keys != self.what.keys

    @property
    def is_partial(self) -> bool:
        """Whether a tile has rows or columns that are not stored."""
        return self.rows % self.tile.m != 0 or self.what.dim % COLUMNS != 0

    def at(self, x: Any) -> Any:
        """The tile of rows that a CTA computes: those that see most keys first."""
        at = x if self.tile.splits == 1 else x // self.tile.splits
        return self.tiles - 1 - at if self.what.causal else at

    def row(self, x: Any, i: Any) -> Any:
        """Row ``i`` of a CTA's tile."""
        return self.at(x) * self.tile.m + i

    def key(self, x: Any, step: Any, j: Any) -> Any:
        """Key ``j`` of a step of a CTA."""
        if self.tile.splits > 1:
            steps = self.keys // self.tile.splits // self.tile.n
            step = x % self.tile.splits * steps + step
        return step * self.tile.n + j

    def head(self, x: Any, h: Any, i: Any) -> Any:
        """The head of a row of a CTA's tile."""
        if not self.tile.grouped:
            return h
        return (h * self.rows + self.row(x, i)) // self.what.queries

    def query(self, x: Any, h: Any, i: Any) -> Any:
        """The query of a row of a CTA's tile."""
        if not self.tile.grouped:
            return self.row(x, i)
        return (h * self.rows + self.row(x, i)) % self.what.queries

    def second(self, x: Any, h: Any, i: Any) -> Any:
        """The second index in O of a row of a CTA's tile."""
        return self.what.lying(3, self.head(x, h, i), self.query(x, h, i))[0]

    def third(self, x: Any, h: Any, i: Any) -> Any:
        """The third one."""
        return self.what.lying(3, self.head(x, h, i), self.query(x, h, i))[1]

    def batch_of(self, line: Any) -> Any:
        """The batch of a line."""
        return line // (self.what.heads * self.what.queries)

    def second_of(self, line: Any) -> Any:
        """The second index in O of a line."""
        return self._of_line(line)[0]

    def third_of(self, line: Any) -> Any:
        """The third one."""
        return self._of_line(line)[1]

    def line(self, b: Any, h: Any, x: Any, i: Any) -> Any:
        """Which of the queries of all heads of all batches a row of a CTA's tile is."""
        return (b * self.heads + h) * self.rows + self.row(x, i)

    def stored(self, x: Any, i: Any, column: Any) -> Any:
        """Whether there is such a row and such a column."""
        return all_of(self._inside(self.row(x, i), self.rows, self.rows % self.tile.m, column))

    def read_query(self, q: Any, b: Any, h: Any, x: Any, i: Any, column: Any) -> Any:
        """An element of Q; zero beyond the last row of all and the last column.

        Beyond the last row of grouped heads are those of the next, of which nothing is stored.
        """
        place = self.what.place(0, self.head(x, h, i), self.query(x, h, i))
        value = q[(b, *place, column)]
        row, last = self.row(x, i), self.rows
        if self.tile.grouped:
            row, last = h * self.rows + row, self.heads * self.rows
        if self.tile.grouped and self.what.queries == 1:
            ordered = self.what.lying(0, 0, 1) == (0, 1)
            last = self.what.shapes()[0][1 if ordered else 2] - self.what.first[0]
        return self._or_zero(value, self._inside(row, last, self.rows % self.tile.m, column))

    def read_key(self, which: int, x: Any, b: Any, h: Any, key: Any, column: Any) -> Any:
        """An element of K or V (1, 2); zero beyond the last key and the last column."""
        head = h if self.tile.grouped else h // self.what.group
        value = x[(b, *self.what.place(which, head, key), column)]
        return self._or_zero(value, self._inside(key, self.what.keys, self._misses, column))

    def sees(self, x: Any, i: Any, key: Any) -> Any:
        """Whether there is such a key, and the query of a row of a CTA's tile sees it."""
        conditions = (key <= self.row(x, i), self.what.causal), (key < self.what.keys, self._misses)
        return all_of([condition for condition, asked in conditions if asked])

    def _of_line(self, line: Any) -> tuple[Any, Any]:
        what = self.what
        return what.lying(3, line // what.queries % what.heads, line % what.queries)

    @property
    def _misses(self) -> int:
        """Keys of steps that lie beyond the last."""
        return self.keys - self.what.keys

    def _inside(self, row: Any, rows: int, rest: int, column: Any) -> list[Any]:
        """The conditions that there is such a row and column, of those that tiles may pass."""
        dim = self.what.dim
        ragged = (row < rows, rest), (column < dim, dim % COLUMNS)
        return [condition for condition, passed in ragged if passed]

    def _or_zero(self, value: Any, conditions: list[Any]) -> Any:
        zero = tirx.const(0, self.what.storage)
        return tirx.if_then_else(all_of(conditions), value, zero) if conditions else value
