"""Random programs about memory: views, tiles filled more than once or never read, carried rows.

A program is one loop over statements on shared tiles of one row and on global rows. Each access may
go through a view: of another shape or type, from an offset on, of a pointer, matched to a region,
declared before the loop or in it. Statements are parallel over the threads and run one after the
other, which is all that ``meaning`` follows; to it a view is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .random_programs import GUARDS, LARGEST, MAX_TRIPS, TRIPS, Arrays, random_arrays
from .random_scripts import header

WIDTH: Final = 64
"""Threads, and elements of a tile and of a global row."""

HALF: Final = WIDTH // 2
ROWS: Final = MAX_TRIPS + 12
"""Of each global array; even, so that two rows make one of a view."""

FURTHEST: Final = 4
"""Rows from an iteration's own to those that it touches, at most."""

COLUMNS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "tx": lambda tx: tx,
    "63 - tx": lambda tx: WIDTH - 1 - tx,
    "(tx + 5) % 64": lambda tx: (tx + 5) % WIDTH,
    "tx // 2 + tx % 2 * 32": lambda tx: tx // 2 + tx % 2 * HALF,
}
"""Where a thread writes to a tile, or reads from it: each a permutation."""

PARTS: Final = {"all": "", "low": "tx < 32", "high": "tx >= 32"}
"""Threads that fill a part of a tile; those of a half fill it in their own order."""

TILE_VIEWS: Final = ("", "", "rows", "int32", "half")
ROW_VIEWS: Final = ("", "", "pairs", "flat", "int32", "offset", "pointer", "matched")


@dataclass(frozen=True)
class Tile:
    """A row in shared memory, allocated in the loop or before it, where it starts as zeros."""

    name: str
    inside: bool = True


@dataclass(frozen=True)
class Row:
    """Row ``ahead`` of the iteration's own, of a global array."""

    array: str
    ahead: int = 0
    view: str = ""


@dataclass(frozen=True)
class Element:
    """An element of a tile for each thread."""

    tile: str
    column: str = "tx"
    view: str = ""


@dataclass(frozen=True)
class Statement:
    """``target`` becomes ``value``, plus one where it ``grows``, for the threads of ``part``."""

    target: Row | Element
    value: Row | Element
    part: str = "all"
    guard: str = ""
    grows: bool = False


@dataclass(frozen=True)
class MemoryProgram:
    """``body`` for ``trips`` iterations; ``tail``: another tile behind the loop.

    ``early``: whether views of what outlives the loop are declared before it. ``stated``: memory is
    allocated by statements.
    """

    tiles: tuple[Tile, ...]
    body: tuple[Statement, ...]
    trips: int | str = 4
    early: bool = True
    tail: bool = False
    blocks: int = 1
    stated: bool = False

    def arrays(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Random contents of the parameters; ``n``: what ``trips`` says."""
        return random_arrays(_shapes(), n, LARGEST, seed)


def _shapes() -> dict[str, tuple[tuple[int, ...], str]]:
    rows = ((ROWS, WIDTH), "float32")
    return {
        **dict.fromkeys(("A", "B", "C", "G"), rows),
        "out": ((WIDTH,), "float32"),
        "flags": ((MAX_TRIPS + 4,), "int32"),
        "trips": ((1,), "int32"),
    }


def meaning(program: MemoryProgram, arrays: Arrays, n: int, m: int) -> dict[str, np.ndarray]:
    """The arrays afterwards: one statement after the other, all threads at once."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    tiles = {tile.name: np.zeros(WIDTH, "float32") for tile in program.tiles}
    tx = np.arange(WIDTH)
    trips = program.trips
    for k in range(trips if isinstance(trips, int) else TRIPS[trips](n, 0, 0)):
        for tile in program.tiles:
            if tile.inside:
                tiles[tile.name] = np.full(WIDTH, np.nan, "float32")
        for item in program.body:
            taken = np.broadcast_to(GUARDS[item.guard](k, tx, m) if item.guard else True, tx.shape)
            mine = tx[taken & _of(item.part, tx)]
            value = _read(item.value, arrays, tiles, k)[mine] + np.float32(item.grows)
            if isinstance(item.target, Row):
                arrays[item.target.array][k + item.target.ahead, mine] = value
            else:
                tiles[item.target.tile][_place(item.target, item.part, mine)] = value
    if program.tail:
        arrays["out"] = arrays["A"][0][::-1] + np.float32(1)
    return arrays


def _of(part: str, tx: np.ndarray) -> np.ndarray:
    return {"all": tx >= 0, "low": tx < HALF, "high": tx >= HALF}[part]


def _place(element: Element, part: str, tx: Any) -> Any:
    if part == "all":
        return COLUMNS[element.column](tx)
    return tx if element.column == "tx" else (HALF if part == "low" else 3 * HALF) - 1 - tx


def _read(source: Row | Element, arrays: Arrays, tiles: Arrays, k: int) -> np.ndarray:
    if isinstance(source, Row):
        return arrays[source.array][k + source.ahead]
    return tiles[source.tile][COLUMNS[source.column](np.arange(WIDTH))]


# As TVMScript.


def script(program: MemoryProgram) -> str:
    """``program`` as TVMScript, bound to threads."""
    globals_ = ", ".join(f"{name}[0:{ROWS}, 0:{WIDTH}]" for name in "ABCG")
    touched = [f"T.reads({globals_})", f"T.writes({globals_}, out[0:{WIDTH}])"]
    before = [tile for tile in program.tiles if not tile.inside]
    rows = list(_row_views(program))
    lines = [
        *header(_shapes(), program.blocks),
        f"        for tx in T.thread_binding({WIDTH}, thread='threadIdx.x'):",
        "            with T.sblock('kernel'):",
    ]
    pad = " " * 16
    lines += [pad + line for line in touched]
    lines += [pad + _allocation(tile) for tile in before]
    if program.early:
        lines += [pad + line for line in (*_tile_views(program, before), *rows)]
    lines += [f"{pad}{tile.name}[tx] = T.float32(0)" for tile in before]
    lines += [f"{pad}for k in T.serial({program.trips}):", f"{pad}    with T.sblock('body'):"]
    pad = " " * 24
    lines += [pad + line for line in touched]
    inside = [tile for tile in program.tiles if tile.inside]
    lines += [pad + _allocation(tile) for tile in inside]
    late = [*inside, *([] if program.early else before)]
    lines += [
        pad + line for line in (*_tile_views(program, late), *([] if program.early else rows))
    ]
    for number, item in enumerate(program.body):
        lines += [pad + line for line in _statement_lines(item, number)]
    if program.tail:
        lines += [" " * 16 + line for line in _tail_lines()]
    text = "\n".join(lines)
    return text.replace("T.sblock_alloc_", "T.alloc_") if program.stated else text


def _allocation(tile: Tile) -> str:
    return f"{tile.name} = T.sblock_alloc_buffer(({WIDTH},), 'float32', scope='shared')"


def _accesses(program: MemoryProgram) -> Iterator[Row | Element]:
    for item in program.body:
        yield item.target
        yield item.value


def _tile_views(program: MemoryProgram, tiles: list[Tile]) -> Iterator[str]:
    names = {tile.name for tile in tiles}
    shapes = {
        "rows": "(2, 32), 'float32'",
        "int32": "(64,), 'int32'",
        "half": "(32,), 'float32', elem_offset=32",
    }
    found = [a for a in _accesses(program) if isinstance(a, Element) and a.tile in names]
    for tile, view in dict.fromkeys((a.tile, a.view) for a in found if a.view):
        declared = f"T.decl_buffer({shapes[view]}, data={tile}.data, scope='shared')"
        yield f"{tile}_{view} = {declared}"


def _row_views(program: MemoryProgram) -> Iterator[str]:
    shapes = {
        "pairs": f"({ROWS // 2}, 128), 'float32'",
        "flat": f"({ROWS * WIDTH},), 'float32'",
        "int32": f"({ROWS}, 64), 'int32'",
        "offset": f"({ROWS - 1}, 64), 'float32', elem_offset=64",
    }
    found = [a for a in _accesses(program) if isinstance(a, Row)]
    for array, view in dict.fromkeys((a.array, a.view) for a in found):
        if view == "pointer":
            yield f"{array}_at: T.let[T.handle('float32')] = T.address_of({array}[2, 0])"
            yield f"{array}_pointer = T.decl_buffer(({ROWS - 2}, 64), 'float32', data={array}_at)"
        elif view in shapes:
            yield f"{array}_{view} = T.decl_buffer({shapes[view]}, data={array}.data)"


def _statement_lines(item: Statement, number: int) -> Iterator[str]:
    yield f"with T.sblock('s{number}'):"
    target, value = item.target, item.value
    yield f"    T.reads({_region(value)})"
    yield f"    T.writes({_region(target)})"
    matches = dict.fromkeys(
        a for a in (target, value) if isinstance(a, Row) and a.view == "matched"
    )
    for row in matches:
        name = f"{row.array}_matched_{row.ahead}"
        yield f"    {name} = T.match_buffer({_region(row)}, (64,), 'float32')"
    indent = "    "
    for guard in (item.guard.format(k="k"), PARTS[item.part]):
        if guard:
            yield f"{indent}if {guard}:"
            indent += "    "
    text = _text(value, "all") + (" + T.float32(1)" if item.grows else "")
    if target.view == "int32":
        text = f"T.reinterpret('int32', {text})"
    yield f"{indent}{_name(target, item.part)} = {text}"


def _region(access: Row | Element) -> str:
    if isinstance(access, Element):
        return f"{access.tile}[0:{WIDTH}]"
    if access.view == "matched":
        return f"{access.array}[k + {access.ahead}, 0:{WIDTH}]"
    return f"{access.array}[0:{ROWS}, 0:{WIDTH}]"


def _text(access: Row | Element, part: str) -> str:
    name = _name(access, part)
    return f"T.reinterpret('float32', {name})" if access.view == "int32" else name


def _name(access: Row | Element, part: str) -> str:
    """An access as it is written, through its view."""
    if isinstance(access, Element):
        column = access.column
        if part != "all" and column != "tx":
            column = "31 - tx" if part == "low" else "95 - tx"
        indices = {
            "rows": f"({column}) // 32, ({column}) % 32",
            "half": f"{column} - 32",
        }.get(access.view, column)
        return (
            f"{access.tile}_{access.view}[{indices}]" if access.view else f"{access.tile}[{column}]"
        )
    row = f"k + {access.ahead}"
    if access.view == "matched":
        return f"{access.array}_matched_{access.ahead}[tx]"
    indices = {
        "pairs": f"({row}) // 2, ({row}) % 2 * 64 + tx",
        "flat": f"({row}) * 64 + tx",
        "offset": f"{row} - 1, tx",
        "pointer": f"{row} - 2, tx",
    }.get(access.view, f"{row}, tx")
    return (
        f"{access.array}_{access.view}[{indices}]" if access.view else f"{access.array}[{row}, tx]"
    )


def _tail_lines() -> Iterator[str]:
    yield "with T.sblock('tail'):"
    yield f"    T.reads(A[0, 0:{WIDTH}])"
    yield f"    T.writes(out[0:{WIDTH}])"
    yield f"    Z = T.sblock_alloc_buffer(({WIDTH},), 'float32', scope='shared')"
    for name, written, line in (
        ("z", "Z", "Z[tx] = A[0, tx] + T.float32(1)"),
        ("w", "out", "out[tx] = Z[63 - tx]"),
    ):
        yield f"    with T.sblock('{name}'):"
        yield f"        T.reads({'A[0, 0:64]' if name == 'z' else 'Z[0:64]'})"
        yield f"        T.writes({written}[0:64])"
        yield f"        {line}"
