"""Random programs that bind no threads: tiles, what is done to them, and what that means to numpy.

A program is a grid of CTAs, each of which holds accumulators and walks one or two loops of tiles,
perhaps inside a third. Every copy, product and elementwise block is a nest of loops that nobody has
given to threads. ``meaning`` follows the description; it shares nothing with the lowering.

Every value is a small integer, so that floating point arithmetic is exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from .random_programs import GUARDS, MAX_TRIPS, Arrays, iterations, random_arrays

LARGEST: Final = 2
"""Of the values: sums of products of a whole program are exact in 16 bits."""

Side: TypeAlias = "Literal['m', 'n']"
"""Whose rows a tile has: those of the results, or their columns."""


@dataclass(frozen=True)
class Tile:
    """A box of an array in shared memory: rows of ``side`` by one step of K, or a column of rows.

    ``k_last``: K is the contiguous dimension of the tile; ``source_k_last``: of the array. The box
    begins ``offset`` columns of K further than the step, perhaps before the array, of whose columns
    there are ``columns``; elements outside the array are zero. ``guard``: the copy happens under it
    only, and what was in the tile stays. ``vector``: one column, the first of the step. ``clipped``:
    not below zero, which is no copy.
    """

    name: str
    side: Side
    dtype: str
    k_last: bool = True
    source_k_last: bool = True
    offset: int = 0
    columns: int = 1 << 30
    guard: str = ""
    vector: bool = False
    clipped: bool = False


@dataclass(frozen=True)
class Computed:
    """A shared tile made of another: doubled, converted, or less its neighbour along K."""

    name: str
    source: str
    dtype: str
    how: Literal["doubled", "same", "neighbour"]


@dataclass(frozen=True)
class Product:
    """``acc += a b^T`` over one step of K."""

    acc: str
    a: str
    b: str
    guard: str = ""


@dataclass(frozen=True)
class Update:
    """``acc`` becomes a column of rows, or 1, less itself."""

    acc: str
    vector: str = ""
    guard: str = ""


@dataclass(frozen=True)
class Tap:
    """What a tile holds goes to an array of all steps; where it adds, with what was there."""

    name: str
    tile: str
    adds: bool = False
    guard: str = ""


@dataclass(frozen=True)
class RowSum:
    """``total`` becomes the sum of a tile along K less itself: a row in shared memory."""

    total: str
    tile: str


Item: TypeAlias = "Tile | Computed | Product | Update | Tap | RowSum"


@dataclass(frozen=True)
class TileLoop:
    """``body`` for ``var`` from ``low`` over ``trips`` iterations, those where ``guard`` holds."""

    var: str
    body: tuple[Item, ...]
    low: int = 0
    trips: int | str = 4
    guard: str = ""


@dataclass(frozen=True)
class Epilogue:
    """One array of results: ``sign * acc``, plus what it ``adds``; perhaps not below zero.

    ``staged``: by way of shared memory, where each element adds its neighbour along N. ``odd``:
    first less the largest of its row, or at last in another row, which several may share.
    """

    name: str
    acc: str
    dtype: str
    negated: bool = False
    adds: Literal["", "row", "column", "residual", "acc"] = ""
    clipped: bool = False
    staged: bool = False
    odd: Literal["", "largest", "scattered"] = ""


@dataclass(frozen=True)
class TileProgram:
    """CTAs of ``grid`` tiles of ``tile`` (M, N, K); results have ``ragged`` rows and columns fewer.

    ``accs``: accumulators, their types, and whether they begin as a row of values or as zero.
    ``rows_in``: the memory of rows that are kept beside them.
    """

    tile: tuple[int, int, int]
    grid: tuple[int, int]
    ragged: tuple[int, int]
    outer: int
    accs: tuple[tuple[str, str, bool], ...]
    loops: tuple[TileLoop, ...]
    epilogues: tuple[Epilogue, ...]
    rows_in: Literal["shared", "local"] = "shared"

    @property
    def ctas(self) -> int:
        """CTAs, numbered row by row."""
        return self.grid[0] * self.grid[1]

    @property
    def items(self) -> list[Item]:
        """What all loops do."""
        return [item for loop in self.loops for item in loop.body]

    @property
    def tiles(self) -> list[Tile]:
        """The tiles that are copied."""
        return [item for item in self.items if isinstance(item, Tile)]

    @property
    def sums(self) -> list[str]:
        """The rows that sums are kept in."""
        return list(dict.fromkeys(i.total for i in self.items if isinstance(i, RowSum)))

    def rows(self, side: Side) -> int:
        """Rows of results (m) or columns (n) in one CTA."""
        return self.tile[side == "n"]

    def extent(self, side: Side) -> int:
        """Rows or columns of the results."""
        axis = int(side == "n")
        return self.grid[axis] * self.tile[axis] - self.ragged[axis]

    def columns(self, tile: Tile) -> int:
        """Columns of K that the array of ``tile`` has."""
        steps = self.outer * MAX_TRIPS
        return min(tile.columns, steps if tile.vector else steps * self.tile[2] + tile.offset)

    def side(self, name: str) -> Side:
        """The side of the tile called ``name``."""
        item = self.named(name)
        return item.side if isinstance(item, Tile) else self.side(item.source)

    def named(self, name: str) -> Tile | Computed:
        """The tile called ``name``."""
        made = (item for item in self.items if isinstance(item, Tile | Computed))
        return next(item for item in made if item.name == name)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every array parameter, in order; ``n`` and ``m`` follow them."""
        steps, (_, _, k) = self.outer * MAX_TRIPS, self.tile
        rows, columns = self.extent("m"), self.extent("n")
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        for tile in self.tiles:
            shape = (self.extent(tile.side), self.columns(tile))
            shapes[source(tile)] = (shape if tile.source_k_last else shape[::-1]), tile.dtype
        for item in self.items:
            if isinstance(item, Tap):
                height = self.rows(self.side(item.tile))
                shapes[item.name] = (self.ctas, steps, height, k), self.named(item.tile).dtype
        for name in self.sums:
            shapes[f"{name}_out"] = (self.ctas, self.outer, self.tile[0]), "float32"
        for name, dtype, begins in self.accs:
            if begins:
                shapes[f"{name}_begin"] = (columns,), dtype
        for one in self.epilogues:
            shapes[one.name] = (self.outer, rows, columns), one.dtype
            if one.adds in ("row", "column"):
                shapes[f"{one.name}_more"] = (columns if one.adds == "row" else rows,), one.dtype
            if one.adds == "residual":
                shapes[f"{one.name}_more"] = (rows, columns), one.dtype
            if one.odd == "scattered":
                shapes[f"{one.name}_to"] = (rows,), "int32"
        shapes["flags"] = ((MAX_TRIPS + 4,), "int32")
        shapes["trips"] = ((self.ctas,), "int32")
        return shapes

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Random contents of the parameters; ``n``: what ``trips`` says."""
        return random_arrays(self.shapes(), n, LARGEST, seed)

    def meaning(self, arrays: Arrays, n: int, m: int) -> dict[str, np.ndarray]:
        """The arrays afterwards: one CTA, and one statement, after the other."""
        after = {name: array.copy() for name, array in arrays.items()}
        for cta in range(self.ctas):
            _Cta(self, after, cta, m).run(n)
        return after


def source(tile: Tile) -> str:
    """The name of the array that ``tile`` is a box of."""
    return "A" + tile.name[1:]


@dataclass
class _Cta:
    """One CTA at work. ``state``: what its tiles, accumulators and rows hold."""

    program: TileProgram
    arrays: dict[str, np.ndarray]
    number: int
    m: int
    state: dict[str, np.ndarray] = field(default_factory=dict)

    def run(self, n: int) -> None:
        program = self.program
        for tile in program.tiles:
            self.state[tile.name] = np.zeros(self._shape(tile))
        for name in program.sums:
            self.state[name] = np.zeros(program.tile[0])
        for o in range(program.outer):
            for name, _, begins in program.accs:
                self.state[name] = np.zeros(program.tile[:2])
                if begins:
                    self.state[name] += self._part(self.arrays[f"{name}_begin"], "n")
            for loop in program.loops:
                for k in iterations(loop, n, self.number, o):
                    if self._taken(loop.guard, k):
                        for item in loop.body:
                            if self._taken(getattr(item, "guard", ""), k):
                                self._do(item, o * MAX_TRIPS + k - loop.low)
            for name in program.sums:
                self.arrays[f"{name}_out"][self.number, o] = self.state[name]
            for one in program.epilogues:
                self._store(one, o)

    def _taken(self, guard: str, k: int) -> bool:
        return not guard or bool(GUARDS[guard](k, 0, self.m))

    def _do(self, item: Item, step: int) -> None:
        state = self.state
        if isinstance(item, Tile):
            state[item.name] = self._box(item, step)
        elif isinstance(item, Computed):
            tile = state[item.source]
            state[item.name] = {
                "doubled": lambda: 2 * tile,
                "same": tile.copy,
                "neighbour": lambda: tile - np.roll(tile, -1, 1),
            }[item.how]()
        elif isinstance(item, Product):
            state[item.acc] = state[item.acc] + state[item.a] @ state[item.b].T
        elif isinstance(item, Update):
            value = np.ones(1)
            if item.vector:
                value = state[item.vector]
                value = value[:, None] if self.program.side(item.vector) == "m" else value
            state[item.acc] = value - state[item.acc]
        elif isinstance(item, Tap):
            place = self.arrays[item.name][self.number, step]
            place[:] = state[item.tile] + (place if item.adds else 0)
        else:
            for column in state[item.tile].T:
                state[item.total] = column - state[item.total]

    def _shape(self, tile: Tile) -> tuple[int, ...]:
        rows = self.program.rows(tile.side)
        return (rows,) if tile.vector else (rows, self.program.tile[2])

    def _box(self, tile: Tile, step: int) -> np.ndarray:
        array = self.arrays[source(tile)]
        array = array if tile.source_k_last else array.T
        width = 1 if tile.vector else self.program.tile[2]
        rows = self._first(tile.side) + np.arange(self.program.rows(tile.side))[:, None]
        columns = step * width + tile.offset + np.arange(width)[None, :]
        inside = (rows < array.shape[0]) & (columns >= 0) & (columns < array.shape[1])
        found = array[rows.clip(0, array.shape[0] - 1), columns.clip(0, array.shape[1] - 1)]
        box = np.where(inside, found, 0).astype(float).reshape(self._shape(tile))
        return np.maximum(box, 0) if tile.clipped else box

    def _store(self, one: Epilogue, o: int) -> None:
        state = self.state[one.acc]
        if one.odd == "largest":
            state = state - state.max(1)[:, None]
        value = -state if one.negated else state
        more = self.arrays.get(f"{one.name}_more", np.zeros(1))
        if one.adds == "acc":
            value = value + next(self.state[name] for name, _, _ in self.program.accs[::-1])
        elif one.adds == "residual":
            value = value + self._part(self._part(more, "m").T, "n").T
        elif one.adds:
            side: Side = "n" if one.adds == "row" else "m"
            part = self._part(more, side)
            value = value + (part if side == "n" else part[:, None])
        if one.clipped:
            value = np.maximum(value, 0)
        if one.staged:
            value = value + np.roll(value, -1, 1)
        rows, columns = self._first("m"), self._first("n")
        place = self.arrays[one.name][o, rows:, columns:][: value.shape[0], : value.shape[1]]
        if one.odd == "scattered":
            for row, to in zip(value, self.arrays[f"{one.name}_to"]):
                self.arrays[one.name][o, max(to, 0), columns:][: len(row)] = row[: place.shape[1]]
            return
        place[:] = value[: place.shape[0], : place.shape[1]]

    def _first(self, side: Side) -> int:
        along = self.number // self.program.grid[1], self.number % self.program.grid[1]
        return along[side == "n"] * self.program.rows(side)

    def _part(self, array: np.ndarray, side: Side) -> np.ndarray:
        """The CTA's share of ``array`` along its first dimension, zero where there is none."""
        first, rows = self._first(side), self.program.rows(side)
        part = array[first : first + rows].astype(float)
        return np.pad(part, [(0, rows - len(part)), *[(0, 0)] * (array.ndim - 1)])
