"""What is drawn: random programs, what is asked of the pipeliner for them, and how they are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from pipeliner.emulator.engine.scheduler import ORDERS
from pipeliner.emulator.units.cp_async import TIMINGS
from pipeliner.plan.request import Request

from .memory_programs import MemoryProgram
from .random_programs import (
    BYTES,
    COLUMNS,
    GUARDS,
    MASKS,
    MAX_TRIPS,
    TRIPS,
    UNIFORM,
    Loop,
    Program,
    Read,
    Statement,
    Tile,
)
from .tile_programs import TileProgram
from .wide_programs import WideProgram

VECTOR_BYTES: Final = 16


def trip_counts(most: int) -> list[int | str]:
    """What to draw from: mostly loops that have something to overlap, of up to ``most`` trips."""
    return [*([*range(2, most + 1), *2 * sorted(TRIPS)] * 3), 0, 1]


_TRIPS: Final = trip_counts(MAX_TRIPS)


@dataclass(frozen=True)
class Trial:
    """A program, what is asked for it, and the arguments of one run."""

    program: Program | TileProgram | MemoryProgram | WideProgram
    request: Request
    target: str
    timing: str
    order: str
    n: int
    m: int


@st.composite
def trials(draw: Any) -> Trial:
    """A program, a request that most programs can have, and a run."""
    program = draw(programs())
    target = draw(st.sampled_from(["sm_80", "sm_90", "sm_75"]))
    free = st.just("auto")
    asynchronous = [] if target == "sm_75" else ["cp_async"]
    mechanisms = st.sampled_from(["register", "direct", *asynchronous])
    epilogues = st.sampled_from(["rolled", "peeled"])
    request = Request(
        depth=draw(st.one_of(free, *3 * [st.integers(1, 6)])),
        mechanism=draw(st.one_of(*7 * [free], mechanisms)),
        epilogue=draw(st.one_of(free, free, epilogues)),
    )
    return draw(runs(program, request, target, program.blocks))


@st.composite
def runs(
    draw: Any,
    program: Program | TileProgram | MemoryProgram | WideProgram,
    request: Request,
    target: str,
    ctas: int,
) -> Trial:
    """One run of ``program``, which has ``ctas`` CTAs."""
    return Trial(
        program,
        request,
        target,
        draw(st.sampled_from(TIMINGS)),
        draw(st.sampled_from(ORDERS)),
        draw(st.integers(0, MAX_TRIPS - ctas + 1)),
        draw(st.integers(0, 12)),
    )


@st.composite
def programs(draw: Any) -> Program:
    """One or two loops, perhaps in a third."""
    threads = draw(st.sampled_from([64, 64, 32, 48]))
    names = iter(range(100))
    count = draw(st.sampled_from([1, 1, 2]))
    loops = tuple(draw(_loops(f"k{number}", threads, names)) for number in range(count))
    return Program(
        threads,
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 1, 2, 3])),
        loops,
        stated=draw(st.booleans()),
    )


@st.composite
def _loops(draw: Any, var: str, threads: int, names: Any) -> Loop:
    tiles = [draw(_tiles(next(names), threads)) for _ in range(draw(st.integers(1, 3)))]
    pending = list(tiles)
    body: list[Tile | Statement] = [pending.pop(0)]
    readable: list[Any] = [body[0]]
    for _ in range(draw(st.integers(1, 3))):
        while pending and draw(st.booleans()):
            readable.append(pending.pop(0))
            body.append(readable[-1])
        statement = draw(_statements(readable, next(names)))
        body.append(statement)
        if statement.target.startswith("U"):
            readable.append(statement.target)
    body += pending
    reads = {read.name for item in body if isinstance(item, Statement) for read in item.reads}
    unread = [tile for tile in tiles if tile.name not in reads]
    if unread:
        body.append(Statement("acc", tuple(draw(_reads(tile)) for tile in unread), recurs=True))
    return Loop(
        var,
        tuple(body),
        low=draw(st.sampled_from([0, 0, 0, 1, 3])),
        trips=draw(st.sampled_from(_TRIPS)),
        guard=draw(st.sampled_from(["", "", "", "", *UNIFORM])),
        inside=draw(st.booleans()),
    )


@st.composite
def _tiles(draw: Any, number: int, threads: int) -> Tile:
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "int32", "int8"]))
    local = draw(st.sampled_from([False] * 5 + [True]))
    rows = 1 if local else draw(st.sampled_from([1, 1, 2, 4]))
    columns = draw(st.sampled_from([threads, threads, threads // 2, threads + 4, 20]))
    widths = [width for width in (1, 2, 4, 8, 16) if width * BYTES[dtype] <= VECTOR_BYTES]
    return Tile(
        f"S{number}",
        dtype,
        rows,
        columns,
        step=draw(st.integers(1, rows)),
        shift=draw(st.sampled_from([0, 0, 4, 1, 2])),
        vector=draw(st.sampled_from([w for w in widths if local or columns % w == 0])),
        mask=draw(st.sampled_from(["", "", "", *MASKS])),
        guard=draw(st.sampled_from([""] * 30 + [*UNIFORM])),
        scope="local" if local else "shared",
    )


@st.composite
def _statements(draw: Any, readable: list[Any], number: int) -> Statement:
    kind = draw(st.sampled_from(["acc", "acc", "C", "C", "h", "U"]))
    reads = [draw(_reads(draw(st.sampled_from(readable))))]
    reads += draw(st.lists(_extra_reads(readable), max_size=2))
    guard = "" if kind == "U" else draw(st.sampled_from(["", "", "", *GUARDS]))
    if kind in ("C", "U"):
        # One element an iteration: a loop over rows would only write it again.
        reads = [Read(read.name, read.column, 0 if read.row == "r" else read.row) for read in reads]
    if kind == "h":
        reads = [read for read in reads if read.name != "h"]
    target = f"{kind}{number}" if kind in ("C", "U") else kind
    recurs = kind in ("acc", "h") or (kind == "C" and draw(st.booleans()))
    # One read twice is zero to the simplifier, and what is copied for it is never read.
    return Statement(target, tuple(reads), recurs, guard)


@st.composite
def _extra_reads(draw: Any, readable: list[Any]) -> Read:
    kind = draw(st.sampled_from(["tile", "tile", "B", "acc", "h"]))
    if kind == "tile":
        return draw(_reads(draw(st.sampled_from(readable))))
    return Read(kind, draw(st.sampled_from(sorted(COLUMNS))))


@st.composite
def _reads(draw: Any, source: Any) -> Read:
    column = draw(st.sampled_from(sorted(COLUMNS)))
    if isinstance(source, str):
        return Read(source, column)
    if source.scope == "local":
        return Read(source.name, row=draw(st.integers(0, source.vector - 1)))
    rows = [*range(source.rows), *(["tx", "r", "r"] if source.rows > 1 else [])]
    return Read(source.name, column, draw(st.sampled_from(rows)))
