"""Random programs to pipeline, and what they mean to numpy.

A program is a kernel of one or two tile loops, perhaps inside a third. Each iteration copies windows
of global arrays to tiles and computes on them. Statements are parallel over the threads and run one
after the other, which is all that ``meaning`` has to follow: it shares nothing with the lowering.

Every value is a small integer, so that floating point arithmetic is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

MAX_TRIPS: Final = 8
"""Iterations of one loop, at most: the slots of the deepest ring and two more."""

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and type of every array parameter, in order."""

LARGEST: Final = 4
"""Of the values, either side of zero."""

BYTES: Final = {"float32": 4, "float16": 2, "int32": 4, "int8": 1}

TRIPS: Final[Mapping[str, Callable[..., int]]] = {
    "n": lambda n, bx, o: n,
    "n + bx": lambda n, bx, o: n + bx,
    "T.max(n - o, 0)": lambda n, bx, o: max(n - o, 0),
    "T.min(n, o + 2)": lambda n, bx, o: min(n, o + 2),
    "trips[bx]": lambda n, bx, o: n + bx,
}
"""Trip counts that are known at run time only; ``trips`` is an array in memory."""

GUARDS: Final[Mapping[str, Callable[..., Any]]] = {
    "{k} % 2 == 0": lambda k, tx, m: k % 2 == 0,
    "{k} < m": lambda k, tx, m: k < m,
    "flags[{k}] > 0": lambda k, tx, m: k % 3 > 0,
    "tx < 5": lambda k, tx, m: tx < 5,
    "tx % 2 == 1": lambda k, tx, m: tx % 2 == 1,
    "tx + {k} < m + 9": lambda k, tx, m: tx + k < m + 9,
}
UNIFORM: Final = tuple(guard for guard in GUARDS if "tx" not in guard)
"""Conditions, all of which every thread of a CTA takes alike in ``UNIFORM``."""

COLUMNS: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "tx % {w}": lambda tx, w: tx % w,
    "{w} - 1 - tx % {w}": lambda tx, w: w - 1 - tx % w,
    "(tx + 3) % {w}": lambda tx, w: (tx + 3) % w,
    "tx // 2 % {w}": lambda tx, w: tx // 2 % w,
    "{w} - 1": lambda tx, w: tx * 0 + w - 1,
}
"""Columns of a tile of width ``w`` that a thread reads; the first is its own where it has one."""

MASKS: Final[Mapping[str, Callable[..., Any]]] = {
    "{row} < m": lambda row, column, m: row + 0 * column < m,
    "{row} >= 2": lambda row, column, m: row + 0 * column >= 2,
    "{column} >= 2": lambda row, column, m: 0 * row + column >= 2,
    "{row} >= 1 and {column} < 30": lambda row, column, m: (row >= 1) & (column < 30),
}


@dataclass(frozen=True)
class Tile:
    """A window of ``source``: ``rows`` by ``columns`` from column ``shift``.

    ``step`` rows down in each iteration: with fewer than ``rows``, windows overlap. ``vector``
    elements are copied at once. ``mask``: a condition on row or column of the source that gives
    zero where it fails. ``guard``: the copy happens under it only, and what was in the tile stays;
    such a tile outlives its iteration. ``scope``: a local tile is one row of ``vector`` elements
    for each thread.
    """

    name: str
    dtype: str
    rows: int
    columns: int
    step: int = 1
    shift: int = 0
    vector: int = 1
    mask: str = ""
    guard: str = ""
    scope: str = "shared"


@dataclass(frozen=True)
class Read:
    """One element of a tile, of scratch, of the accumulator, the carried row or an input."""

    name: str
    column: str = "tx"
    row: int | str = 0


@dataclass(frozen=True)
class Statement:
    """``target`` becomes the alternating sum of ``reads``, less what it was where it ``recurs``.

    Targets: ``acc`` (a register), ``h`` (a shared row that lives through the loops), ``U0`` ...
    (shared scratch of one iteration), ``C0`` ... (a row of an output in each iteration).
    """

    target: str
    reads: tuple[Read, ...]
    recurs: bool = False
    guard: str = ""


@dataclass(frozen=True)
class Loop:
    """``body`` for ``var`` from ``low`` over ``trips`` iterations, those where ``guard`` holds."""

    var: str
    body: tuple[Tile | Statement, ...]
    low: int = 0
    trips: int | str = 4
    guard: str = ""
    inside: bool = True
    """Whether tiles and scratch are allocated in the loop, or before it."""

    @property
    def tiles(self) -> list[Tile]:
        return [item for item in self.body if isinstance(item, Tile)]

    @property
    def scratch(self) -> list[str]:
        targets = [item.target for item in self.body if isinstance(item, Statement)]
        return [name for name in dict.fromkeys(targets) if name.startswith("U")]


@dataclass(frozen=True)
class Program:
    """``loops`` one after the other, ``outer`` times, in each of ``blocks`` CTAs."""

    threads: int
    blocks: int
    outer: int
    loops: tuple[Loop, ...]
    stated: bool = False
    """Whether memory is allocated by statements, or by blocks."""

    @property
    def tiles(self) -> list[Tile]:
        return [tile for loop in self.loops for tile in loop.tiles]

    @property
    def outputs(self) -> list[str]:
        items = [item for loop in self.loops for item in loop.body]
        targets = [item.target for item in items if isinstance(item, Statement)]
        return [name for name in dict.fromkeys(targets) if name.startswith("C")]

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every array parameter, in order; ``n`` and ``m`` follow them."""
        steps = self.outer * MAX_TRIPS
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        for tile in self.tiles:
            rows = (steps - 1) * tile.step + tile.rows
            width = self.threads * tile.vector if tile.scope == "local" else tile.columns
            shapes[source(tile)] = ((self.blocks, rows, width + tile.shift), tile.dtype)
        shapes["B"] = ((self.blocks, steps, self.threads), "float32")
        for name in self.outputs:
            shapes[name] = ((self.blocks, steps + 1, self.threads), "float32")
        shapes["out"] = ((self.blocks, self.outer, self.threads), "float32")
        shapes["flags"] = ((MAX_TRIPS + 4,), "int32")
        shapes["trips"] = ((self.blocks,), "int32")
        return shapes

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Random contents of the parameters; ``n``: what ``trips`` says."""
        return random_arrays(self.shapes(), n, LARGEST, seed)


def random_arrays(shapes: Shapes, n: int, largest: int, seed: int) -> dict[str, np.ndarray]:
    """Small integers up to ``largest``; ``flags`` and ``trips`` as GUARDS and TRIPS have them."""
    rng = np.random.default_rng(seed)
    found = {
        name: rng.integers(-largest, largest + 1, shape).astype(dtype)
        for name, (shape, dtype) in shapes.items()
    }
    found["flags"] = (np.arange(len(found["flags"])) % 3).astype("int32")
    found["trips"] = (n + np.arange(len(found["trips"]))).astype("int32")
    return found


def iterations(loop: Any, n: int, bx: int, o: int) -> range:
    """The values of a loop's variable in CTA ``bx`` and turn ``o`` of the loop around it."""
    trips = loop.trips
    count = trips if isinstance(trips, int) else TRIPS[trips](n, bx, o)
    return range(loop.low, loop.low + count)


def meaning(program: Program, arrays: Arrays, n: int, m: int) -> dict[str, np.ndarray]:
    """The arrays afterwards: one statement after the other, all threads at once."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    tx = np.arange(program.threads)
    for bx in range(program.blocks):
        state = {"acc": np.zeros(program.threads, "float32")}
        state["h"] = state["acc"].copy()
        for tile in program.tiles:
            state[tile.name] = _unfilled(tile, program.threads, 0.0)
        for o in range(program.outer):
            for loop in program.loops:
                for k in iterations(loop, n, bx, o):
                    _iterate(program, loop, arrays, state, (bx, o, k, m), tx)
            arrays["out"][bx, o] = state["acc"] + state["h"][::-1]
    return arrays


def _iterate(
    program: Program,
    loop: Loop,
    arrays: dict[str, np.ndarray],
    state: dict[str, np.ndarray],
    at: tuple[int, int, int, int],
    tx: np.ndarray,
) -> None:
    bx, o, k, m = at
    if loop.guard and not GUARDS[loop.guard](k, 0, m):
        return
    step = o * MAX_TRIPS + k - loop.low
    for tile in loop.tiles:
        if not tile.guard:
            state[tile.name] = _unfilled(tile, program.threads, np.nan)
    for item in loop.body:
        taken = np.broadcast_to(GUARDS[item.guard](k, tx, m) if item.guard else True, tx.shape)
        if isinstance(item, Tile):
            if taken.all():
                state[item.name] = _window(item, arrays[source(item)][bx], step, program, m)
            continue
        rows = row_count(item, loop)
        for r in range(rows):
            value = np.zeros(tx.shape, "float32")
            for sign, read in zip(signs(), item.reads):
                value = value + sign * _element(read, r, loop, arrays, state, (bx, step), tx)
            if item.target.startswith("C"):
                array = arrays[item.target][bx]
                value = value - array[step] if item.recurs else value
                array[step + 1] = np.where(taken, value, array[step + 1])
                continue
            old = state.get(item.target, np.full(tx.shape, np.nan, "float32"))
            value = value - old if item.recurs else value
            state[item.target] = np.where(taken, value, old)


def _unfilled(tile: Tile, threads: int, value: float) -> np.ndarray:
    shape = (threads, tile.vector) if tile.scope == "local" else (tile.rows, tile.columns)
    return np.full(shape, value, "float32")


def _window(tile: Tile, source: np.ndarray, step: int, program: Program, m: int) -> np.ndarray:
    row, width = step * tile.step, source.shape[1] - tile.shift
    rows, columns = np.ogrid[row : row + tile.rows, tile.shift : tile.shift + width]
    found = source[rows, columns].astype("float32")
    if tile.mask:
        found = np.where(MASKS[tile.mask](rows, columns, m), found, np.float32(0))
    return found.reshape(program.threads, tile.vector) if tile.scope == "local" else found


def _element(
    read: Read,
    r: int,
    loop: Loop,
    arrays: Arrays,
    state: Arrays,
    at: tuple[int, int],
    tx: np.ndarray,
) -> np.ndarray:
    bx, step = at
    if read.name == "B":
        return arrays["B"][bx, step]
    if read.name == "acc":
        return state["acc"]
    found = state[read.name]
    tile = next((tile for tile in loop.tiles if tile.name == read.name), None)
    if tile is not None and tile.scope == "local":
        return found[:, int(read.row)]
    column = COLUMNS[read.column](tx, found.shape[-1])
    if tile is None:
        return found[column]
    row = {"r": r % tile.rows, "tx": tx % tile.rows}.get(str(read.row), read.row)
    return found[row, column]


def source(tile: Tile) -> str:
    """The name of the array that ``tile`` is a window of."""
    return "A" + tile.name[1:]


def row_count(item: Statement, loop: Loop) -> int:
    """Turns of the loop over rows that a statement needs: one where it reads no row ``r``."""
    rows = {tile.name: tile.rows for tile in loop.tiles}
    return max((rows[read.name] for read in item.reads if read.row == "r"), default=1)


def signs() -> Iterator[int]:
    """Of the terms of a statement."""
    while True:
        yield 1
        yield -1
