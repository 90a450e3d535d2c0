"""Which CTAs have to run so that every kind of them has run, as their numbers tell them apart.

What decides in a kernel depends on that number through some expressions of it alone, such as
``blockIdx.x == 0`` or ``blockIdx.x // 4 % 2``. CTAs for which these are the same do the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import ir
from tvm_ffi.structural import WalkResult

from ..emulator.launch.evaluate import evaluate
from ..emulator.launch.host import Launch
from ..emulator.memory.grid import Block
from ..errors import EmulatorError
from ..passes.ir.nodes import variables
from .reading.extents import LoopExtents, arguments
from .reading.loops import Family
from .reading.reaching import CLUSTER, GRID, Reaching, tags_of
from .running.launched import Launched

_MOST_KINDS: Final = 6
"""Kinds of CTAs of which one each is run: each takes as long as a proof."""

_MOST_CTAS: Final = 1 << 12
"""CTAs that are told apart: with more, the first and the last run."""


TripCounts: TypeAlias = Mapping[frozenset[int], tuple[int, int]]
"""By a family's loops, the fewest and the most iterations that CTAs which are alike make."""


def blocks_to_run(
    func: Any, launch: Launch, launched: Launched, counted: Sequence[Family]
) -> tuple[Mapping[Block, TripCounts], bool]:
    """Return the first CTAs of the clusters that have to run, and whether others are like them.

    With each, how many iterations those like it make, where their number alone says that.
    ``counted``: loops that make their own trip counts, though they may be left open.
    """
    deciding = launched.deciding
    reaching = Reaching(func, deciding)
    extents = LoopExtents(reaching, deciding.values)
    loops = {number for family in launched.families for number in family.numbers}
    exprs = [expr for expr, number in deciding.exprs if number not in loops]
    exprs += [family.whole for family in counted]
    if not any(GRID in reaching.origins(expr) for expr in exprs):
        return {(0, 0, 0): {}}, True
    grid = [launch.extent(f"{GRID}.{letter}") for letter in "xyz"]
    size = [launch.extent(f"{CLUSTER}.{letter}") for letter in "xyz"]
    last = tuple(most - among for most, among in zip(grid, size, strict=True))
    ends = (0, 0, 0), (last[0], last[1], last[2])
    if math.prod(grid) > _MOST_CTAS or any(map(_by_calls, exprs)):
        return {end: {} for end in ends}, ends[0] == ends[1]
    axes = {var: tag for var, tag in tags_of(func).items() if tag.startswith(GRID)}
    parts = [part for expr in exprs for part in _of_axes(extents.whole(expr), axes)]
    known = {param: value.value for param, value in arguments(func, launch)}
    wholes = {
        family.numbers: family.whole
        for family in launched.families
        if not variables(family.whole).isdisjoint(axes)
        and variables(family.whole) <= {*axes, *known}
    }
    kinds: dict[tuple[Any, ...], Block] = {}
    trips: dict[Block, dict[frozenset[int], tuple[int, int]]] = {}
    for first in product(*(range(0, most, among) for most, among in zip(grid, size, strict=True))):
        kind: tuple[Any, ...] = ()
        try:
            for place in _cluster(first, size):
                values = known | {var: place["xyz".index(tag[-1])] for var, tag in axes.items()}
                kind += tuple(evaluate(part, values) for part in parts)
            made = {loop: max(0, int(evaluate(whole, values))) for loop, whole in wholes.items()}
        except EmulatorError:
            break
        known = trips.setdefault(kinds.setdefault(kind, (first[0], first[1], first[2])), {})
        for loop, count in made.items():
            fewest, most = known.get(loop, (count, count))
            known[loop] = min(fewest, count), max(most, count)
        if len(kinds) > _MOST_KINDS:
            break
    else:
        return trips, True
    return {end: {} for end in ends}, ends[0] == ends[1]


def _cluster(first: tuple[int, ...], size: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for place in product(*map(range, size)):
        yield tuple(at + more for at, more in zip(first, place, strict=True))


def _by_calls(expr: Any) -> bool:
    """Whether an expression asks for the place of a CTA other than by the axes of the launch."""
    return "ctaid" in str(expr)


def _of_axes(expr: Any, axes: Any) -> list[Any]:
    """The largest parts of an expression that are made of axes of the grid and constants alone."""
    found: list[Any] = []

    def visit(node: Any) -> Any:
        inside = variables(node)
        if inside and inside <= set(axes):
            found.append(node)
            return WalkResult.SKIP
        return None

    tvm_ffi.structural_walk(expr, [(ir.Expr, visit)], order="pre")
    return found
