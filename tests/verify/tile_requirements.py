"""What a program that binds no threads, and a request for it, need; which refusals are expected.

Written down apart from the product. Sources: PTX ISA for the shapes of mma.sync and the widths of
cp.async; the documentation of the passes for the forms that they say they do not handle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pipeliner.diagnostics import Reason

from .random_programs import BYTES
from .random_strategies import Trial
from .tile_programs import Item, Product, Tile, TileLoop, TileProgram

_MMA_K: Final = {"float32": 8, "float16": 16, "bfloat16": 16, "int8": 32}
_ALL_BYTES: Final = {**BYTES, "bfloat16": 2}

Said: TypeAlias = "Mapping[str, Any]"
"""Arguments of a refusal and of the reasons that it gives."""

_Rule: TypeAlias = "Callable[[Trial, Said], bool]"


def is_expected(trial: Trial, refusal: Reason) -> bool:
    """Whether ``trial`` lacks what ``refusal`` says it lacks."""
    given = list(refusal.walk())
    said = {name: value for reason in given for name, value in reason.args.items()}
    return any(_RULES[each.code](trial, said) for each in given if each.code in _RULES)


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


def _multiplies_not(trial: Trial, said: Said) -> bool:
    """Whether TVM drops every product of the loop."""
    (loop,) = (loop for loop in trial.program.loops if loop.var == said["loop"])
    return all(_is_dropped(loop, item) for item in loop.body if isinstance(item, Product))


def _is_dropped(loop: TileLoop, item: Item) -> bool:
    return loop.trips == 0 and bool(loop.guard or getattr(item, "guard", ""))


def _is_read_by_nothing(trial: Trial, said: Said) -> bool:
    """Whether TVM drops what would read the tile."""
    return any(_is_dropped(loop, item) for loop in trial.program.loops for item in loop.body)


def _has_one_iteration(trial: Trial, said: Said) -> bool:
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


def _is_no_multiple(trial: Trial, said: Said) -> bool:
    program = trial.program
    m, n, k = program.tile
    (dtype,) = {tile.dtype for tile in program.tiles}
    return trial.request.instruction == "mma" and bool(m % 16 or n % 8 or k % _MMA_K[dtype])


def _does_not_split(trial: Trial, said: Said) -> bool:
    """Whether no grid of warps of 32 equal thread tiles covers the tile, or none of as many."""
    m, n, _ = trial.program.tile
    powers = [1 << e for e in range(6)]
    threads = {
        32 * rows * columns
        for rows, columns, lanes in itertools.product(powers, powers, powers)
        if rows * columns <= 32 and m % (rows * lanes) == 0 and n % (columns * (32 // lanes)) == 0
    }
    return said["threads"] not in threads if "threads" in said else not threads


def _moves_too_little(trial: Trial, said: Said) -> bool:
    """Whether rows of the tile are aligned to fewer than 4 bytes, or masked in such pieces."""
    program = trial.program
    tile = program.named(said["copy"])
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


def _outlives(trial: Trial, said: Said) -> bool:
    """Whether some iterations leave in the tile what another one copied."""
    tile = trial.program.named(said["buffer"])
    return isinstance(tile, Tile) and bool(tile.guard)


def _all_outlive(trial: Trial, said: Said) -> bool:
    """Whether some iterations leave in each of the tiles what another one copied."""
    tiles = [trial.program.named(name) for name in said["buffers"]]
    return all(isinstance(tile, Tile) and bool(tile.guard) for tile in tiles)


def _asks_memory(trial: Trial, said: Said) -> bool:
    """Whether memory decides which iterations copy the tile; it may change before they read it."""
    loop = next(loop for loop in trial.program.loops if loop.var == said["loop"])
    tile = trial.program.named(said["buffer"])
    return "flags" in loop.guard or (isinstance(tile, Tile) and "flags" in tile.guard)


def _peels_unknown(trial: Trial, said: Said) -> bool:
    loops = {loop.var: loop for loop in trial.program.loops}
    loop = loops[said["loop"]]
    return trial.request.epilogue == "peeled" and (isinstance(loop.trips, str) or bool(loop.guard))


_RULES: Final[Mapping[str, _Rule]] = {
    "mapping.multiple": _is_no_multiple,
    "mapping.simt_split": _does_not_split,
    "cp_async.vector": _moves_too_little,
    "cp_async.bytes": _moves_too_little,
    "cp_async.mask": _moves_too_little,
    "version.not_always_written": _outlives,
    "version.loaded_condition": _asks_memory,
    "schedule.peeled": _peels_unknown,
    "copy.unread": _is_read_by_nothing,
    "depth.not_allocated": _all_outlive,
    "pipelined.short": _has_one_iteration,
    "loop.trip": _has_one_iteration,
    "ring.unused": lambda trial, said: (
        _never_multiplies(trial.program) or _multiplies_not(trial, said)
    ),
    "matmul.spread": lambda trial, said: _holds_otherwise(trial.program),
}
"""What a trial must be for a refusal to give a reason with that code."""
