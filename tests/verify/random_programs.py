"""Random programs to pipeline: as TensorIR, and what they mean to numpy, made from one description.

A program is a kernel of one or two tile loops, perhaps inside a third. Each iteration copies windows
of global arrays to tiles and computes on them. Statements are parallel over the threads and run one
after the other, which is all that ``meaning`` has to follow: it shares nothing with the lowering.

Every value is a small integer, so that floating point arithmetic is exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

MAX_TRIPS: Final = 8
"""Iterations of one loop, at most: the slots of the deepest ring and two more."""

Arrays = Mapping[str, np.ndarray]

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


@dataclass(frozen=True)
class Tile:
    """A window of ``source``: ``rows`` by ``columns`` from column ``shift``.

    ``step`` rows down in each iteration: with fewer than ``rows``, windows overlap. ``vector``
    elements are copied at once. ``mask``: a condition on row or column of the source that gives
    zero where it fails. ``guard``: the copy happens under it only, and what the tile held stays;
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
            shapes[_source(tile)] = ((self.blocks, rows, width + tile.shift), tile.dtype)
        shapes["B"] = ((self.blocks, steps, self.threads), "float32")
        for name in self.outputs:
            shapes[name] = ((self.blocks, steps + 1, self.threads), "float32")
        shapes["out"] = ((self.blocks, self.outer, self.threads), "float32")
        shapes["flags"] = ((MAX_TRIPS + 4,), "int32")
        shapes["trips"] = ((self.blocks,), "int32")
        return shapes

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Random contents of the parameters; ``n``: what ``trips`` says."""
        rng = np.random.default_rng(seed)
        found = {
            name: rng.integers(-4, 5, shape).astype(dtype)
            for name, (shape, dtype) in self.shapes().items()
        }
        found["flags"] = (np.arange(MAX_TRIPS + 4) % 3).astype("int32")
        found["trips"] = (n + np.arange(self.blocks)).astype("int32")
        return found


def meaning(program: Program, arrays: Arrays, n: int, m: int) -> dict[str, np.ndarray]:
    """The arrays afterwards: one statement after the other, all threads at once."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    tx = np.arange(program.threads)
    for bx in range(program.blocks):
        held = {"acc": np.zeros(program.threads, "float32")}
        held["h"] = held["acc"].copy()
        for tile in program.tiles:
            held[tile.name] = _unfilled(tile, program.threads, 0.0)
        for o in range(program.outer):
            for loop in program.loops:
                trips = loop.trips
                count = trips if isinstance(trips, int) else TRIPS[trips](n, bx, o)
                for k in range(loop.low, loop.low + count):
                    _iterate(program, loop, arrays, held, (bx, o, k, m), tx)
            arrays["out"][bx, o] = held["acc"] + held["h"][::-1]
    return arrays


def _iterate(
    program: Program,
    loop: Loop,
    arrays: dict[str, np.ndarray],
    held: dict[str, np.ndarray],
    at: tuple[int, int, int, int],
    tx: np.ndarray,
) -> None:
    bx, o, k, m = at
    if loop.guard and not GUARDS[loop.guard](k, 0, m):
        return
    step = o * MAX_TRIPS + k - loop.low
    for tile in loop.tiles:
        if not tile.guard:
            held[tile.name] = _unfilled(tile, program.threads, np.nan)
    for item in loop.body:
        taken = np.broadcast_to(GUARDS[item.guard](k, tx, m) if item.guard else True, tx.shape)
        if isinstance(item, Tile):
            if taken.all():
                held[item.name] = _window(item, arrays[_source(item)][bx], step, program, m)
            continue
        rows = _row_count(item, loop)
        for r in range(rows):
            value = np.zeros(tx.shape, "float32")
            for sign, read in zip(_signs(), item.reads):
                value = value + sign * _element(read, r, loop, arrays, held, (bx, step), tx)
            if item.target.startswith("C"):
                array = arrays[item.target][bx]
                value = value - array[step] if item.recurs else value
                array[step + 1] = np.where(taken, value, array[step + 1])
                continue
            old = held.get(item.target, np.full(tx.shape, np.nan, "float32"))
            value = value - old if item.recurs else value
            held[item.target] = np.where(taken, value, old)


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
    held: Arrays,
    at: tuple[int, int],
    tx: np.ndarray,
) -> np.ndarray:
    bx, step = at
    if read.name == "B":
        return arrays["B"][bx, step]
    if read.name == "acc":
        return held["acc"]
    found = held[read.name]
    tile = next((tile for tile in loop.tiles if tile.name == read.name), None)
    if tile is not None and tile.scope == "local":
        return found[:, int(read.row)]
    column = COLUMNS[read.column](tx, found.shape[-1])
    if tile is None:
        return found[column]
    row = {"r": r % tile.rows, "tx": tx % tile.rows}.get(str(read.row), read.row)
    return found[row, column]


MASKS: Final[Mapping[str, Callable[..., Any]]] = {
    "{row} < m": lambda row, column, m: row + 0 * column < m,
    "{row} >= 2": lambda row, column, m: row + 0 * column >= 2,
    "{column} >= 2": lambda row, column, m: 0 * row + column >= 2,
    "{row} >= 1 and {column} < 30": lambda row, column, m: (row >= 1) & (column < 30),
}


def script(program: Program) -> str:
    """``program`` as TVMScript, bound to threads."""
    parameters = [
        f"{name}: T.Buffer({shape}, {dtype!r})" for name, (shape, dtype) in program.shapes().items()
    ]
    lines = [
        "@T.prim_func(s_tir=True)",
        f"def main({', '.join([*parameters, 'n: T.int32', 'm: T.int32'])}):",
        "    T.func_attr({'global_symbol': 'main', 'tirx.noalias': True})",
        f"    for bx in T.thread_binding({program.blocks}, thread='blockIdx.x'):",
        f"        for tx in T.thread_binding({program.threads}, thread='threadIdx.x'):",
        "            with T.sblock('kernel'):",
        "                acc = T.sblock_alloc_buffer((1,), 'float32', scope='local')",
        f"                h = T.sblock_alloc_buffer(({program.threads},), 'float32', scope='shared')",
    ]
    early = [tile for loop in program.loops for tile in loop.tiles if _outlives(tile, loop)]
    for tile in early:
        lines.append(" " * 16 + _allocation(tile))
    for loop in program.loops:
        if not loop.inside:
            lines += [" " * 16 + _scratch(name, program) for name in loop.scratch]
    lines += [" " * 16 + line for line in ("acc[0] = T.float32(0)", "h[tx] = T.float32(0)")]
    for tile in early:
        if tile.guard:
            lines += [" " * 16 + line for line in _zeroed(tile, program)]
    lines.append(f"                for o in T.serial({program.outer}):")
    for loop in program.loops:
        lines += [" " * 20 + line for line in _loop_lines(loop, program)]
    lines.append(f"                    out[bx, o, tx] = acc[0] + h[{program.threads - 1} - tx]")
    return "\n".join(lines)


def _loop_lines(loop: Loop, program: Program) -> Iterator[str]:
    trips = str(loop.trips)
    span = f"{loop.low}, {loop.low} + {trips}" if loop.low else trips
    yield f"for {loop.var} in T.serial({span}):"
    indent = "    "
    if loop.guard:
        yield indent + f"if {loop.guard.format(k=loop.var)}:"
        indent += "    "
    yield indent + f"with T.sblock('body_{loop.var}'):"
    indent += "    "
    for tile in loop.tiles:
        if not _outlives(tile, loop):
            yield indent + _allocation(tile)
    if loop.inside:
        for name in loop.scratch:
            yield indent + _scratch(name, program)
    for number, item in enumerate(loop.body):
        lines = (
            _copy_lines(item, loop, program)
            if isinstance(item, Tile)
            else _statement_lines(item, number, loop, program)
        )
        for line in lines:
            yield indent + line


def _copy_lines(tile: Tile, loop: Loop, program: Program) -> Iterator[str]:
    indent = ""
    if tile.guard:
        yield f"if {tile.guard.format(k=loop.var)}:"
        indent = "    "
    first = f"({loop.var} - {loop.low} + o * {MAX_TRIPS}) * {tile.step}"
    each = tile.vector
    size = each * program.threads if tile.scope == "local" else tile.rows * tile.columns
    per_turn = program.threads * each
    turns = math.ceil(size / per_turn)
    flat = f"t * {per_turn} + tx * {each}" if turns > 1 else f"tx * {each}"
    if turns > 1:
        yield indent + f"for t in T.serial({turns}):"
        indent += "    "
    yield indent + f"with T.sblock('{tile.name}'):"
    indent += "    "
    if size % per_turn:
        yield indent + f"T.where({flat} < {size})"
    place = flat
    if each > 1:
        yield indent + f"for v in T.vectorized({each}):"
        indent += "    "
        place = f"({flat} + v)"
    row, column = f"({place}) // {tile.columns}", f"({place}) % {tile.columns}"
    target = f"{row}, {column}"
    if tile.scope == "local":
        row, column, target = "0", place, "v" if each > 1 else "0"
    row, column = f"{first} + {row}", f"{column} + {tile.shift}"
    value = f"{_source(tile)}[bx, {row}, {column}]"
    if tile.mask:
        mask = tile.mask.format(row=f"({row})", column=f"({column})")
        value = f"T.if_then_else({mask}, {value}, T.{tile.dtype}(0))"
    yield indent + f"{tile.name}[{target}] = {value}"


def _statement_lines(item: Statement, number: int, loop: Loop, program: Program) -> Iterator[str]:
    step = f"{loop.var} - {loop.low} + o * {MAX_TRIPS}"
    yield f"with T.sblock('{item.target}_{loop.var}_{number}'):"
    indent = "    "
    if item.guard:
        yield indent + f"if {item.guard.format(k=loop.var)}:"
        indent += "    "
    rows = _row_count(item, loop)
    if rows > 1:
        yield indent + f"for r in T.serial({rows}):"
        indent += "    "
    terms = [
        ("" if sign == 1 and not at else " + " if sign == 1 else " - ") + _text(read, loop, program)
        for at, (sign, read) in enumerate(zip(_signs(), item.reads))
    ]
    target = {"acc": "acc[0]", "h": "h[tx]"}.get(item.target, f"{item.target}[tx]")
    old = target
    if item.target.startswith("C"):
        target, old = (f"{item.target}[bx, {step} + {row}, tx]" for row in (1, 0))
    yield indent + f"{target} = {''.join(terms)}" + (f" - {old}" if item.recurs else "")


def _text(read: Read, loop: Loop, program: Program) -> str:
    if read.name == "B":
        return f"B[bx, {loop.var} - {loop.low} + o * {MAX_TRIPS}, tx]"
    if read.name == "acc":
        return "acc[0]"
    tile = next((tile for tile in loop.tiles if tile.name == read.name), None)
    if tile is None:
        return f"{read.name}[{read.column.format(w=program.threads)}]"
    index = str(read.row)
    if tile.scope == "shared":
        row = f"{read.row} % {tile.rows}" if isinstance(read.row, str) else read.row
        index = f"{row}, {read.column.format(w=tile.columns)}"
    text = f"{tile.name}[{index}]"
    return text if tile.dtype == "float32" else f"T.Cast('float32', {text})"


def _allocation(tile: Tile) -> str:
    shape = f"({tile.vector},)" if tile.scope == "local" else f"({tile.rows}, {tile.columns})"
    return f"{tile.name} = T.sblock_alloc_buffer({shape}, {tile.dtype!r}, scope={tile.scope!r})"


def _scratch(name: str, program: Program) -> str:
    return f"{name} = T.sblock_alloc_buffer(({program.threads},), 'float32', scope='shared')"


def _zeroed(tile: Tile, program: Program) -> Iterator[str]:
    if tile.scope == "local":
        yield f"for v in T.serial({tile.vector}):"
        yield f"    {tile.name}[v] = T.{tile.dtype}(0)"
        return
    size = tile.rows * tile.columns
    flat = f"(z * {program.threads} + tx)"
    yield f"for z in T.serial({math.ceil(size / program.threads)}):"
    yield f"    if {flat} < {size}:"
    place = f"{flat} // {tile.columns}, {flat} % {tile.columns}"
    yield f"        {tile.name}[{place}] = T.{tile.dtype}(0)"


def _outlives(tile: Tile, loop: Loop) -> bool:
    return bool(tile.guard) or not loop.inside


def _source(tile: Tile) -> str:
    return "A" + tile.name[1:]


def _row_count(item: Statement, loop: Loop) -> int:
    """Turns of the loop over rows that a statement needs: one where it reads no row ``r``."""
    rows = {tile.name: tile.rows for tile in loop.tiles}
    return max((rows[read.name] for read in item.reads if read.row == "r"), default=1)


def _signs() -> Iterator[int]:
    while True:
        yield 1
        yield -1
