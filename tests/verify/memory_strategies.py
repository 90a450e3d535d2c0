"""What is drawn of programs about memory."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from pipeliner.plan.request import Request

from .memory_programs import (
    COLUMNS,
    FURTHEST,
    PARTS,
    ROW_VIEWS,
    TILE_VIEWS,
    Element,
    MemoryProgram,
    Row,
    Statement,
    Tile,
)
from .random_programs import GUARDS, MAX_TRIPS
from .random_strategies import Trial, runs

_WHOLE: Final = tuple(view for view in TILE_VIEWS if view != "half")
_TRIPS: Final = [*range(2, MAX_TRIPS + 1), "n", "n", "trips[bx]", 0, 1]


@st.composite
def memory_trials(draw: Any) -> Trial:
    """A program, a request that most programs can have, and a run."""
    program = draw(_programs())
    target = draw(st.sampled_from(["sm_80", "sm_90", "sm_75"]))
    free = st.just("auto")
    asynchronous = [] if target == "sm_75" else ["cp_async"]
    request = Request(
        depth=draw(st.one_of(free, free, st.integers(1, 5))),
        mechanism=draw(
            st.one_of(*5 * [free], st.sampled_from(["register", "direct", *asynchronous]))
        ),
        epilogue=draw(st.one_of(free, free, st.sampled_from(["rolled", "peeled"]))),
    )
    return draw(runs(program, request, target, 1))


@st.composite
def _programs(draw: Any) -> MemoryProgram:
    tiles = tuple(
        Tile(f"S{number}", draw(st.booleans())) for number in range(draw(st.integers(1, 3)))
    )
    names = [tile.name for tile in tiles]
    body = [draw(_statements(names)) for _ in range(draw(st.integers(2, 6)))]
    body.append(Statement(Row("C"), draw(_elements(names)), "all"))
    return MemoryProgram(
        tiles,
        tuple(draw(_filled(tiles, body))),
        trips=draw(st.sampled_from(_TRIPS)),
        early=draw(st.booleans()),
        tail=draw(st.booleans()),
        stated=draw(st.booleans()),
    )


@st.composite
def _filled(draw: Any, tiles: tuple[Tile, ...], body: list[Statement]) -> list[Statement]:
    """``body``, with what the loop allocates filled before anything else is done with it."""
    done: list[Statement] = []
    for tile in tiles:
        uses = [item for item in body if _touches(item, tile.name)]
        if tile.inside and uses:
            source = draw(_rows(["A", "B", "G"]))
            body.insert(body.index(uses[0]), Statement(draw(_elements([tile.name])), source))
    return done or body


def _touches(item: Statement, tile: str) -> bool:
    return any(isinstance(a, Element) and a.tile == tile for a in (item.target, item.value))


@st.composite
def _statements(draw: Any, tiles: list[str]) -> Statement:
    kind = draw(st.sampled_from(["fill", "fill", "fill", "compute", "out", "out"]))
    guard = draw(st.sampled_from(["", "", "", *GUARDS]))
    if kind == "out":
        target = draw(_rows(["C", "C", "G"]))
        return Statement(target, draw(_elements(tiles)), guard=guard, grows=draw(st.booleans()))
    part = draw(st.sampled_from(["all", "all", *PARTS]))
    filled = draw(_elements(tiles, part))
    others = [tile for tile in tiles if tile != filled.tile]
    if kind == "compute" and others:
        return Statement(filled, draw(_elements(others)), part, guard, grows=True)
    return Statement(filled, draw(_rows(["A", "B", "G"])), part, guard, grows=kind == "compute")


@st.composite
def _elements(draw: Any, tiles: list[str], part: str = "all") -> Element:
    views = [*_WHOLE, "half"] if part == "high" else _WHOLE
    return Element(
        draw(st.sampled_from(tiles)),
        draw(st.sampled_from(sorted(COLUMNS))),
        draw(st.sampled_from(views)),
    )


@st.composite
def _rows(draw: Any, arrays: list[str]) -> Row:
    array, view = draw(st.sampled_from(arrays)), draw(st.sampled_from(ROW_VIEWS))
    least = {"offset": 1, "pointer": 2}.get(view, 0)
    most = FURTHEST if array == "G" or least else 0
    return Row(array, draw(st.integers(least, most)), view)
