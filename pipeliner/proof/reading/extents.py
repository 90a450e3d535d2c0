"""How many iterations loops make, told apart by what they are computed from and not by names.

Loops of several roles make equally many iterations if their extents are one expression of the
launch, with named values put in and the loops around them in the same places. Such an expression
says also whether a loop makes the same number of iterations each time that it is begun, and how
many it makes at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import Range

from ...emulator.base.dtypes import split_lanes
from ...emulator.launch.evaluate import evaluate
from ...emulator.launch.host import Launch
from ...errors import EmulatorError
from ...passes.ir.nodes import const_int, simplify, substitute, variables
from .reaching import CLUSTER, GRID, Reaching, tags_of

MOST: Final = (1 << 31) - 1
"""What an argument of 32 bits is at most."""

_MOST_CTAS: Final = 1 << 14
"""CTAs of a launch for which trip counts are computed one by one."""


class LoopExtents:
    """The extents of the loops of one device function, each different one once."""

    def __init__(self, reaching: Reaching, values: Mapping[Any, Any]) -> None:
        self._reaching = reaching
        self._values = values
        self._known: list[Any] = []
        self._places: dict[tuple[int, str], Any] = {}

    def number(self, extent: Any, around: Sequence[Any]) -> int:
        """Return the number of an extent, in loops of the variables ``around``."""
        placed = {var: self._place(at, var) for at, var in enumerate(around)}
        canonical = simplify(substitute(self.whole(extent), placed))
        for number, other in enumerate(self._known):
            if tvm_ffi.structural_equal(canonical, other):
                return number
        self._known.append(canonical)
        return len(self._known) - 1

    def difference(self, one: int, other: int) -> int | None:
        """Return how many iterations more loops of one extent make than those of another."""
        return const_int(self._known[one] - self._known[other])

    def whole(self, extent: Any) -> Any:
        """Return an extent with named values put in, those that may differ between threads not."""
        while named := {v: self._values[v] for v in variables(extent) if v in self._values}:
            extent = substitute(extent, named)
        return extent

    def is_even(self, loop: Any) -> bool:
        """Whether all threads of a CTA make as many iterations of a loop, one for each value."""
        stride = getattr(loop, "step", None)
        if stride is not None and const_int(stride) != 1:
            return False
        return all(map(self._reaching.is_uniform, (loop.min, loop.extent)))

    def _place(self, at: int, var: Any) -> Any:
        """A variable that stands for the ``at``-th loop around."""
        return self._places.setdefault((at, str(var.ty)), ir.Var(f"around_{at}", var.ty))


def is_even_in_cluster(func: Any, launch: Launch, extent: Any, *, any_values: bool = False) -> bool:
    """Whether all CTAs of each cluster make as many iterations, by an extent as a whole.

    ``any_values``: also of launches with other arguments than this one has.
    """
    tags = {var: tag for var, tag in tags_of(func).items() if tag.startswith((GRID, CLUSTER))}
    size = [launch.extent(f"{CLUSTER}.{letter}") for letter in "xyz"]
    if variables(extent).isdisjoint(tags) or max(size) == 1:
        return True
    if any_values:
        return False
    grid = [range(launch.extent(f"{GRID}.{letter}")) for letter in "xyz"]
    if math.prod(map(len, grid)) > _MOST_CTAS:
        return False
    known = {param: value.value for param, value in arguments(func, launch)}
    counts: dict[tuple[int, ...], set[int]] = {}
    for block in product(*grid):
        place = {f"{GRID}.{letter}": at for letter, at in zip("xyz", block, strict=True)}
        for letter, at, among in zip("xyz", block, size, strict=True):
            place[f"{CLUSTER}.{letter}"] = at % among
        cluster = tuple(at // among for at, among in zip(block, size, strict=True))
        try:
            count = evaluate(extent, known | {var: place[tag] for var, tag in tags.items()})
        except (EmulatorError, KeyError):
            return False
        counts.setdefault(cluster, set()).add(int(count))
    return all(len(found) == 1 for found in counts.values())


def least_count(
    func: Any,
    launch: Launch,
    extent: Any,
    around: Sequence[Any],
    least: Mapping[Any, int] | None = None,
) -> int:
    """Return a bound of how few iterations some CTA makes, in loops ``around`` as they are.

    Less than none is said too: another loop, of one more, makes no more then. ``least``: arguments
    that may have any value from these on.
    """
    many = least or {}
    given = {var: value for var, value in arguments(func, launch) if var not in many}
    known = substitute(extent, given)
    prover = sym.Analyzer()
    for var, least_value in many.items():
        prover.bind(var, Range(least_value, MOST))
    for var, tag in tags_of(func).items():
        prover.bind(var, Range(0, max(1, launch.extent(tag))))
    for loop in around:
        low, count = const_int(loop.min), const_int(loop.extent)
        if low is not None and count is not None:
            prover.bind(loop.loop_var, Range(low, low + max(1, count)))
    return int(prover.const_int_bound(prover.simplify(known)).min_value)


def arguments(func: Any, launch: Launch) -> Iterator[tuple[Any, Any]]:
    """The scalar arguments of a launch, by parameter."""
    for param, value in zip(func.params, launch.args, strict=True):
        if isinstance(value, int):
            yield param, tirx.const(value, split_lanes(param.ty)[0])
