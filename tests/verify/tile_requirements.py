"""What a program that binds no threads, and a request for it, need; which refusals are expected.

Written down apart from the product. Sources: PTX ISA for the shapes of mma.sync and the widths of
cp.async; the documentation of the passes for the forms that they say they do not handle.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from .random_programs import BYTES
from .random_strategies import Trial
from .tile_programs import Item, Product, Tile, TileLoop, TileProgram

_MMA_K: Final = {"float32": 8, "float16": 16, "bfloat16": 16, "int8": 32}
_ALL_BYTES: Final = {**BYTES, "bfloat16": 2}

_Rule: TypeAlias = "Callable[[Trial, re.Match[str]], bool]"


def is_expected(trial: Trial, message: str) -> bool:
    """Whether ``trial`` lacks what the refusal ``message`` says it lacks."""
    return any(
        found is not None and rule(trial, found)
        for pattern, rule in _RULES
        for found in [re.fullmatch(pattern, message)]
    )


def _holds_otherwise(program: TileProgram) -> bool:
    """Whether products of different forms add to one accumulator."""
    forms = {
        (item.acc, _form(program, item)) for item in program.items if isinstance(item, Product)
    }
    return len(forms) > len(program.accs)


def _never_multiplies(program: TileProgram) -> bool:
    """Whether TVM drops every product of an accumulator: a condition in a loop of no iterations.

    Nothing then reads what is copied.
    """
    left = {
        item.acc
        for loop in program.loops
        for item in loop.body
        if isinstance(item, Product) and not _is_dropped(loop, item)
    }
    return any(name not in left for name, *_ in program.accs)


def _multiplies_not(trial: Trial, found: re.Match[str]) -> bool:
    """Whether TVM drops every product of the loop."""
    (loop,) = (loop for loop in trial.program.loops if loop.var == found["loop"])
    return all(_is_dropped(loop, item) for item in loop.body if isinstance(item, Product))


def _is_dropped(loop: TileLoop, item: Item) -> bool:
    return loop.trips == 0 and bool(loop.guard or getattr(item, "guard", ""))


def _is_read_by_nothing(trial: Trial, found: re.Match[str]) -> bool:
    """Whether TVM drops what would read the tile."""
    return any(_is_dropped(loop, item) for loop in trial.program.loops for item in loop.body)


def _has_one_iteration(trial: Trial, found: re.Match[str]) -> bool:
    program = trial.program
    return program.outer <= 1 and all(loop.trips in (0, 1) for loop in program.loops)


def _form(program: TileProgram, item: Product) -> tuple[object, ...]:
    return tuple(
        (_root(program, name).k_last, program.named(name).dtype) for name in (item.a, item.b)
    )


def _root(program: TileProgram, name: str) -> Tile:
    """The copied tile that the tile called ``name`` is, or is made of."""
    item = program.named(name)
    return item if isinstance(item, Tile) else _root(program, item.source)


def _is_no_multiple(trial: Trial, found: re.Match[str]) -> bool:
    program = trial.program
    m, n, k = program.tile
    (dtype,) = {tile.dtype for tile in program.tiles}
    return trial.request.instruction == "mma" and bool(m % 16 or n % 8 or k % _MMA_K[dtype])


def _does_not_split(trial: Trial, found: re.Match[str]) -> bool:
    """Whether no grid of warps of 32 equal thread tiles covers the tile, or none of as many."""
    m, n, _ = trial.program.tile
    powers = [1 << e for e in range(6)]
    threads = {
        32 * rows * columns
        for rows, columns, lanes in itertools.product(powers, powers, powers)
        if rows * columns <= 32 and m % (rows * lanes) == 0 and n % (columns * (32 // lanes)) == 0
    }
    return int(found["threads"]) not in threads if found["threads"] else not threads


def _moves_too_little(trial: Trial, found: re.Match[str]) -> bool:
    """Whether rows of the tile are aligned to fewer than 4 bytes, or masked in such pieces."""
    program = trial.program
    tile = program.named(found["tile"])
    assert isinstance(tile, Tile)
    size = _ALL_BYTES[tile.dtype]
    if tile.vector or tile.k_last != tile.source_k_last:
        return trial.request.mechanism == "cp_async" and size < 4
    row = program.columns(tile) if tile.k_last else program.extent(tile.side)
    first = tile.offset if tile.k_last else 0
    masked = [program.columns(tile)] if tile.k_last else [program.extent(tile.side)]
    return (
        trial.request.mechanism == "cp_async"
        and math.gcd(row, first, *masked, 16 // size) * size < 4
    )


def _outlives(trial: Trial, found: re.Match[str]) -> bool:
    """Whether some iterations leave in the tile what another one copied."""
    tile = trial.program.named(found["tile"])
    return isinstance(tile, Tile) and bool(tile.guard)


def _all_outlive(trial: Trial, found: re.Match[str]) -> bool:
    """Whether some iterations leave in each of the tiles what another one copied."""
    tiles = [trial.program.named(name.strip("' ")) for name in found["tiles"].split(",")]
    return all(isinstance(tile, Tile) and bool(tile.guard) for tile in tiles)


def _asks_memory(trial: Trial, found: re.Match[str]) -> bool:
    """Whether memory decides which iterations copy the tile; it may change before they read it."""
    loop = next(loop for loop in trial.program.loops if loop.var == found["loop"])
    tile = trial.program.named(found["tile"])
    return "flags" in loop.guard or (isinstance(tile, Tile) and "flags" in tile.guard)


def _peels_unknown(trial: Trial, found: re.Match[str]) -> bool:
    loops = {loop.var: loop for loop in trial.program.loops}
    loop = loops[found["loop"]]
    return trial.request.epilogue == "peeled" and (isinstance(loop.trips, str) or bool(loop.guard))


_NAME: Final = r"'[\w.]+'"

_RULES: Final[tuple[tuple[str, _Rule], ...]] = (
    (rf"cannot map {_NAME} to mma: tile \S+ is not a multiple of m16n8k\d+", _is_no_multiple),
    (
        (
            rf"cannot map {_NAME}: tile \d+x\d+ does not split into warps of 32 equal thread tiles "
            r"[^(]*(\(asked for: (.*?(?P<threads>\d+) threads)?.*\))?"
        ),
        _does_not_split,
    ),
    (
        r"cannot copy '(?P<tile>\w+)' by cp.?async: (cp.async|it) moves 4, 8 or 16 bytes, here .*",
        _moves_too_little,
    ),
    (
        (
            r"cannot give '(?P<tile>\w+)' \d+ slots in loop '\w+': some iterations read it without "
            r"writing it"
        ),
        _outlives,
    ),
    (
        (
            r"cannot give '(?P<tile>\w+)' \d+ slots in loop '(?P<loop>\w+)': it is written under a "
            r"condition loaded from memory"
        ),
        _asks_memory,
    ),
    (
        r"cannot peel the epilogue of loop '(?P<loop>\w+)': its trip count is dynamic .*",
        _peels_unknown,
    ),
    (r"cannot copy '\w+' by cp_async: nothing reads '\w+'", _is_read_by_nothing),
    (
        (
            r"cannot give depth \d+ to kernel 'main': loop '\w+': it has no ring, as its body does not "
            r"allocate what its copies fill \((?P<tiles>'\w+'(, '\w+')*)\)"
        ),
        _all_outlive,
    ),
    (
        r"cannot give depth \d+ to kernel 'main': .*: nothing to overlap",
        _has_one_iteration,
    ),
    (
        (
            rf"cannot give {_NAME} \d+ slots in loop '(?P<loop>\w+)': its dependences let at most 1 be "
            "in use"
        ),
        lambda trial, found: _never_multiplies(trial.program) or _multiplies_not(trial, found),
    ),
    (
        (
            rf"cannot map op {_NAME} to \S+: an earlier matmul spreads {_NAME} over the threads in "
            "another way"
        ),
        lambda trial, found: _holds_otherwise(trial.program),
    ),
)
