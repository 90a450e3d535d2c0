"""What is drawn of programs that bind no threads, and of what is asked for them."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from pipeliner.plan.request import Request

from .random_programs import UNIFORM
from .random_strategies import Trial, runs, trip_counts
from .tile_programs import (
    Computed,
    Epilogue,
    Item,
    Product,
    RowSum,
    Side,
    Tap,
    Tile,
    TileLoop,
    TileProgram,
    Update,
)

KINDS: Final = (
    ("float16", "float32"),
    ("float16", "float32"),
    ("float32", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("int8", "int32"),
)
"""Types of factors and of sums."""

_TRIPS: Final = trip_counts(6)


@st.composite
def tile_trials(draw: Any) -> Trial:
    """A program that binds no threads, a request that most of them can have, and a run."""
    program = draw(tile_programs())
    target = draw(st.sampled_from(["sm_80", "sm_80", "sm_90", "sm_75"]))
    free = st.just("auto")
    mechanisms = ["register", "direct", *(["cp_async"] if target != "sm_75" else [])]
    instructions = ["simt", *(["mma"] if target != "sm_75" else [])]
    request = Request(
        depth=draw(st.one_of(free, *3 * [st.integers(1, 5)])),
        mechanism=draw(st.one_of(*4 * [free], st.sampled_from(mechanisms))),
        instruction=draw(st.one_of(*2 * [free], st.sampled_from(instructions))),
        epilogue=draw(st.one_of(free, free, st.sampled_from(["rolled", "peeled"]))),
    )
    return draw(runs(program, request, target, program.ctas))


@st.composite
def odd_trials(draw: Any) -> Trial:
    """A product with statements beside it that not every instruction has room for; all is free."""
    of, to = draw(st.sampled_from(KINDS))
    k = draw(st.sampled_from([16, 32]))
    tile = (draw(st.sampled_from([64, 64, 24])), draw(st.sampled_from([32, 64, 20])), k)
    k_last = draw(st.sampled_from([True, True, False]))
    left = Tile("S0", "m", of, clipped=draw(st.sampled_from([True, False, False])))
    right = Tile("S1", "n", of, k_last=k_last, source_k_last=k_last)
    extras = {
        "second": Product("acc1", "S0", "S1"),
        "tap": Tap("D3", "S0", draw(st.booleans())),
        "sum": RowSum("h", "S0"),
        "update": Update("acc0", guard=draw(st.sampled_from(["", UNIFORM[0]]))),
    }
    wanted = draw(st.lists(st.sampled_from([*extras]), max_size=2, unique=True))
    body = (left, right, Product("acc0", "S0", "S1"), *(extras[name] for name in wanted))
    names = ["acc0", "acc1"] if "second" in wanted else ["acc0"]
    loops = [
        TileLoop("k0", body, trips=draw(st.sampled_from([3, 3, "n", 0])),
                 guard=draw(st.sampled_from(["", "", *UNIFORM]))),
    ]  # fmt: skip
    if draw(st.sampled_from([True, False, False])):
        again = (Tile("S4", "m", of), Tile("S5", "n", of), Product("acc0", "S4", "S5"))
        loops.append(TileLoop("k1", again, trips=2))
    epilogues = tuple(
        Epilogue(
            f"C{n}",
            acc,
            to,
            adds="acc" if acc == "acc0" and len(names) > 1 and draw(st.booleans()) else "",
            odd=draw(st.sampled_from(["", "largest", "scattered"])),
        )
        for n, acc in enumerate(names)
    )
    program = TileProgram(
        tile,
        (1, 1),
        (0, draw(st.sampled_from([0, 0, 3]))),
        1,
        tuple((name, to, False) for name in names),
        tuple(loops),
        epilogues,
        draw(st.sampled_from(["shared", "local"])),
    )
    target = draw(st.sampled_from(["sm_80", "sm_90", "sm_90"]))
    return draw(runs(program, Request(), target, program.ctas))


@st.composite
def tile_programs(draw: Any) -> TileProgram:
    """One or two loops, perhaps in a third, and what becomes of their accumulators."""
    of, to = draw(st.sampled_from(KINDS))
    tile = (
        draw(st.sampled_from([16, 32, 32, 48, 24])),
        draw(st.sampled_from([16, 32, 32, 64, 24])),
        draw(st.sampled_from([8, 16, 16, 12])),
    )
    names = iter(range(100))
    multiplies = draw(st.sampled_from([True] * 5 + [False]))
    accs = ()
    if multiplies:
        count = draw(st.sampled_from([1, 1, 1, 2]))
        accs = tuple(
            (f"acc{n}", to, draw(st.sampled_from([False, False, True]))) for n in range(count)
        )
    loops = tuple(
        draw(_loops(f"k{n}", tile, of, [name for name, _, _ in accs], names))
        for n in range(draw(st.sampled_from([1, 1, 1, 2])))
    )
    return TileProgram(
        tile,
        draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (1, 2)])),
        (draw(st.sampled_from([0, 0, 0, 1, 8])), draw(st.sampled_from([0, 0, 0, 3, 8]))),
        draw(st.sampled_from([1, 1, 1, 2])),
        accs,
        loops,
        tuple(draw(_epilogues(f"C{n}", acc, to, len(accs))) for n, (acc, _, _) in enumerate(accs)),
    )


@st.composite
def _loops(draw: Any, var: str, tile: Any, of: str, accs: list[str], names: Any) -> TileLoop:
    """Pairs of tiles that are multiplied, and what else is done with them."""
    k = tile[2]
    left = draw(_tiles(next(names), "m", of, k))
    body: list[Item] = [left]
    usable = {"m": [left.name], "n": []}
    for acc in accs:
        if draw(st.sampled_from([True, False])):
            body.append(right := draw(_tiles(next(names), "n", of, k)))
            usable["n"].append(right.name)
        if not usable["n"]:
            body.append(right := draw(_tiles(next(names), "n", of, k)))
            usable["n"].append(right.name)
        body += draw(_extras(acc, usable, of, next(names), k))
        for side in ("m", "n"):
            if draw(st.sampled_from([True, False, False, False, False])):
                body.append(made := draw(_computed(next(names), usable[side][-1], of)))
                usable[side].append(made.name)
        guard = draw(st.sampled_from([""] * 5 + [*UNIFORM[:1]]))
        factors = (draw(st.sampled_from(usable[side])) for side in ("m", "n"))
        body.append(Product(acc, *factors, guard=guard))
    if not accs:
        body += draw(_uses(usable["m"], of, next(names), always=True))
    body += draw(_uses([*usable["m"], *usable["n"]], of, next(names)))
    # A tile that nothing reads has no elements left by the time that copies are made.
    body += [Tap(f"D{next(names)}", name) for name in _unread(body)]
    return TileLoop(
        var,
        tuple(body),
        low=draw(st.sampled_from([0, 0, 0, 2])),
        trips=draw(st.sampled_from(_TRIPS)),
        guard=draw(st.sampled_from([""] * 6 + [*UNIFORM])),
    )


def _unread(body: list[Item]) -> list[str]:
    """The tiles in ``body`` that no statement reads."""
    names = ("a", "b", "source", "tile", "vector")
    read = {
        getattr(item, name, "") for item in body for name in names if not isinstance(item, Tile)
    }
    return [item.name for item in body if isinstance(item, Tile) and item.name not in read]


@st.composite
def _tiles(draw: Any, number: int, side: Side, dtype: str, k: int) -> Tile:
    k_last = draw(st.sampled_from([True, True, False]))
    return Tile(
        f"S{number}",
        side,
        dtype,
        k_last=k_last,
        source_k_last=draw(st.sampled_from([k_last] * 4 + [not k_last])),
        offset=draw(st.sampled_from([0, 0, 0, 0, 8, 1, 4, -1, -2])),
        columns=draw(st.sampled_from([1 << 30, 1 << 30, 3 * k, 2 * k + 1, 2 * k + 4, 40])),
        guard=draw(st.sampled_from([""] * 20 + [*UNIFORM])),
    )


@st.composite
def _computed(draw: Any, number: int, source: str, dtype: str) -> Computed:
    return Computed(
        f"T{number}", source, dtype, draw(st.sampled_from(["doubled", "same", "neighbour"]))
    )


@st.composite
def _extras(draw: Any, acc: str, usable: Any, of: str, number: int, k: int) -> list[Item]:
    """Now and then the accumulator is changed between products."""
    if draw(st.sampled_from([True] * 5 + [False])):
        return []
    guard = draw(st.sampled_from(["", "", *UNIFORM]))
    side = draw(st.sampled_from(["", "m", "n"]))
    if not side:
        return [Update(acc, guard=guard)]
    column = Tile(f"S{number}", side, of, offset=draw(st.sampled_from([0, 1])), vector=True)
    return [column, Update(acc, column.name, guard)]


@st.composite
def _uses(draw: Any, tiles: list[str], of: str, number: int, always: bool = False) -> list[Item]:
    """Now and then a tile has another use."""
    if not always and draw(st.sampled_from([True] * 4 + [False])):
        return []
    tile = draw(st.sampled_from(tiles))
    if tiles.index(tile) == 0 and draw(st.booleans()):
        return [RowSum("h", tile)]
    guard = draw(st.sampled_from(["", "", *UNIFORM]))
    return [Tap(f"D{number}", tile, draw(st.booleans()), guard)]


@st.composite
def _epilogues(draw: Any, name: str, acc: str, to: str, accs: int) -> Epilogue:
    dtype = draw(st.sampled_from([to, to, "float16" if to == "float32" else to]))
    staged = draw(st.sampled_from([False] * 5 + [True]))
    more = ["", "", "", *(["row", "column", "residual"] if not staged else [])]
    more += ["acc"] * (accs > 1 and acc == "acc0" and draw(st.sampled_from([False] * 6 + [True])))
    return Epilogue(
        name,
        acc,
        dtype,
        negated=draw(st.booleans()),
        adds=draw(st.sampled_from(more)),
        clipped=draw(st.booleans()),
        staged=staged,
    )
