"""The loops of a lowered kernel whose trip counts a proof leaves open, and where they repeat.

A candidate is a loop in which threads wait for each other or for copies. Loops of several roles
that are one loop of the program have the same variable and extent in the same loops: they make
equally many iterations. A loop of which threads of a CTA make different numbers, or as many as a
register says, is none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx

from ...emulator.translate.control_flow import may_wait
from ...passes.ir.kernels import bodies
from ...passes.ir.nodes import const_int, uses
from .deciding import Deciding, reaches
from .ends import as_written
from .entering import ThreadMask
from .eventually import Repeats, Unbounded
from .extents import LoopExtents

_Key: TypeAlias = tuple[tuple[str, ...], str, int, int]
"""The loops around some and their variable, by name, the number of their extent, and which of those
that one thread makes one after the other."""

LAPS: Final = 6
"""Trip counts of an inner loop from which on a walk leaves them open, each run's its own.

Those below are walked one by one. Any number is right; with less than the slots of a ring there are
many states, as runs through several loops are in the ring at once. The longest proof of the suites,
of rings of four slots, has 183 states with 4, 139 with 6 and 105 with 8, which takes longer again.
"""

_NEAR: Final = 64
"""Iterations of a loop that grows which a walk makes before it leaves more open, at most."""

_APART: Final = 2
"""Iterations that one role peels at most, of a loop that others make whole."""


@dataclass(frozen=True)
class Family:
    """Loops that make equally many iterations.

    ``numbers``: of their statements. ``around``: the variables of the loops around them.
    ``extent``: their own trip count, None where that is computed. ``after``, ``every``: from which
    iteration on what decides repeats, and how often. ``least``: iterations that it makes at least.
    ``fixed``: those that it makes, None where that is left open. ``more``: of some of the loops, by
    number, how many iterations more they make, as where one role has peeled an iteration.
    ``whole``: their extent, of the launch and of loops ``outside``; ``varies``: of these too.
    ``fewest``: iterations that they make at least, as launched, and ``most``, None where that is
    not known: of the CTAs that are alike. ``horizon``: from how many to go on
    their number decides nothing, the present one included. ``grows``: with values of the launch
    that are left open. ``remainder``: what a trip count leaves, divided by the first number.
    ``by_end``: whether constants that stand near their trip count, a constant, are read as so far
    from it, whatever it is. ``count``: a parameter of the launch that is their trip count; from
    ``since`` on it decides by what it leaves, divided by ``modulus``, alone.
    """

    name: str
    numbers: frozenset[int]
    around: tuple[str, ...]
    extent: int | None
    text: str
    after: int = 0
    every: int = 1
    least: int = 0
    fixed: int | None = None
    more: Mapping[int, int] = field(default_factory=dict)
    whole: Any = None
    outside: tuple[Any, ...] = ()
    varies: bool = False
    fewest: int = 0
    most: int | None = None
    horizon: int = 1
    grows: bool = False
    remainder: tuple[int, int] = (1, 0)
    by_end: bool = False
    count: Any = None
    since: int = 0
    modulus: int = 1

    @property
    def launched(self) -> int:
        """A trip count that decides like all of which a walk is, where it is asked for outside."""
        modulus, rest = self.remainder
        least = max(self.least, self.since)
        return self.fixed if self.fixed is not None else least + (rest - least) % modulus

    @property
    def far(self) -> int:
        """Trip counts from which on a walk leaves those of a loop open that grows."""
        return max(self.horizon - 1, LAPS if self.around and not self.varies else 0)

    @property
    def near(self) -> int:
        """Trip counts that a walk need not leave open: there are none below these, or too few.

        Of a loop that grows what it makes at least, as other values are walked by themselves.
        """
        return max(self.horizon - 1, min(self.fewest, _NEAR) if self.grows else 0)

    def may_end(self, count: int) -> bool:
        """Whether the last ones may be those that a run knows of which has made so many."""
        modulus, rest = self.remainder
        return (count + self.horizon - 1) % modulus == rest

    def phase(self, iteration: int) -> int:
        """What stands for an iteration: itself, or the first one that is like it."""
        if iteration < self.after:
            return iteration
        return self.after + (iteration - self.after) % self.every


@dataclass(frozen=True)
class _Loop:
    stmt: Any
    number: int
    outside: tuple[Any, ...]  # the loops around it, from the outermost
    threads: ThreadMask  # that may come to it

    @property
    def around(self) -> tuple[str, ...]:
        """The variables of these, by name."""
        return tuple(str(loop.loop_var.name) for loop in self.outside)


@dataclass(frozen=True)
class OpenValues:
    """Parameters of a launch that may have any value from ``least`` on.

    ``known``: values of others. ``idle``: statements that decide nothing, whatever the values are.
    ``naturals``: registers that are never negative, with any of these.
    """

    least: Mapping[Any, int] = field(default_factory=dict)
    known: Mapping[Any, int] = field(default_factory=dict)
    idle: frozenset[int] = frozenset()
    naturals: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Loops:
    """The families of a kernel.

    ``after``, ``every``: of open values, from which on what decides repeats, and how often.
    ``unbounded``: an expression with such values that decides, and does not come to repeat.
    """

    families: tuple[Family, ...] = ()
    after: Mapping[Any, int] = field(default_factory=dict)
    every: Mapping[Any, int] = field(default_factory=dict)
    unbounded: str = ""


def families(
    func: Any,
    deciding: Deciding,
    extents: LoopExtents,
    entering: Mapping[int, ThreadMask],
    values: OpenValues,
) -> Loops:
    """Return the families of candidates, those whose iterations do not come to repeat left out.

    ``entering``: by loop, which threads may come to it. No thread comes to two loops of a family.
    """
    grouped: dict[_Key, list[_Loop]] = {}
    for loop in _candidates(func, entering):
        if not all(map(extents.is_even, (loop.stmt, *loop.outside))):
            continue
        if (const_int(loop.stmt.min) or 0) < 0:
            continue  # a variable stands for how many iterations were made at least
        number = extents.number(loop.stmt.extent, [one.loop_var for one in loop.outside])
        name = str(loop.stmt.loop_var.name)
        keys = ((loop.around, name, number, place) for place in count())
        key = next(key for key in keys if _are_apart([loop], grouped.get(key, [])))
        grouped.setdefault(key, []).append(loop)
    left, unbounded = list(grouped), ""
    while True:
        repeats = _repeats(func, deciding, {key: grouped[key] for key in left}, values)
        if isinstance(repeats, Repeats):
            break
        blamed, expr = repeats
        unbounded = unbounded or (
            as_written(expr) if reaches(expr, values.least, deciding.values) else ""
        )
        if blamed is None:
            return Loops(unbounded=unbounded)
        left.remove(blamed)
    found = tuple(_family(loops, repeats, extents) for loops in _related(grouped, left, extents))
    after = {one: repeats.after[one] for one in values.least}
    every = {one: repeats.every[one] for one in values.least}
    settled = []
    for family in found:
        by_launch = Repeats(set(values.least), {}, deciding.values)
        try:
            by_launch.decide(family.whole)
        except Unbounded:
            settled.append(replace(family, grows=True))
            continue
        settled.append(family)
        after = {one: max(after[one], by_launch.after[one]) for one in after}
        every = {one: math.lcm(every[one], by_launch.every[one]) for one in every}
    return Loops(tuple(settled), after, every)


def _are_apart(some: Sequence[_Loop], others: Sequence[_Loop]) -> bool:
    """Whether no thread comes to loops of both."""
    return not any((one.threads & other.threads).any() for one in some for other in others)


def loops_inside(func: Any) -> dict[int, tuple[int, ...]]:
    """Return the numbers of the loops around each statement, from the outermost."""
    found: dict[int, tuple[int, ...]] = {}
    number = -1

    def visit(stmt: Any, around: tuple[int, ...]) -> None:
        nonlocal number
        number += not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt)
        found.setdefault(number, around)
        if isinstance(stmt, tirx.For):
            around = (*around, number)
        for part in bodies(stmt):
            visit(part, around)

    visit(func.body, ())
    return found


def _related(
    grouped: Mapping[_Key, list[_Loop]], keys: list[_Key], extents: LoopExtents
) -> list[list[tuple[_Loop, int]]]:
    """The loops of each family: of one variable, with extents alike or a few iterations apart.

    With each loop, how many iterations more than the first one of its family it makes.
    """
    found: list[tuple[_Key, list[tuple[_Loop, int]]]] = []
    for key in keys:
        for first, loops in found:
            more = extents.difference(key[2], first[2])
            alike = key[:2] == first[:2] and more is not None and abs(more) <= _APART
            if alike and more is not None and _are_apart(grouped[key], [one for one, _ in loops]):
                loops.extend((loop, more) for loop in grouped[key])
                break
        else:
            found.append((key, [(loop, 0) for loop in grouped[key]]))
    return [loops for _, loops in found]


def _family(members: list[tuple[_Loop, int]], repeats: Repeats, extents: LoopExtents) -> Family:
    loops = [loop for loop, _ in members]
    shortest, fewest = min(members, key=lambda member: member[1])
    own = [loop.stmt.loop_var for loop in loops]
    whole, outside = extents.whole(shortest.stmt.extent), shortest.outside
    return Family(
        str(loops[0].stmt.loop_var.name),
        frozenset(loop.number for loop in loops),
        loops[0].around,
        const_int(shortest.stmt.extent),
        str(shortest.stmt.extent),
        max(repeats.after[var] for var in own),
        _lcm(repeats.every[var] for var in own),
        more={loop.number: more - fewest for loop, more in members if more > fewest},
        whole=whole,
        outside=outside,
        varies=uses(whole, [loop.loop_var for loop in outside]),
        horizon=max(repeats.horizon[var] for var in own),
    )


def _lcm(values: Any) -> int:
    return math.lcm(*values)


def _repeats(
    func: Any, deciding: Deciding, grouped: dict[_Key, list[_Loop]], values: OpenValues
) -> Any:
    """Return how what decides repeats; or the key of loops for which it does not, and why.

    No key: it does not for the values of the launch that are left open.
    """
    free = {loop.stmt.loop_var: key for key, loops in grouped.items() for loop in loops}
    numbers = {loop.number: loop.stmt.loop_var for loops in grouped.values() for loop in loops}
    extents = [loop.stmt.extent for loops in grouped.values() for loop in loops]
    ranges = _ranges(func, set(free)) | {var: (one, one) for var, one in values.known.items()}
    variables = {*free, *values.least}
    repeats = Repeats(variables, ranges, deciding.values, numbers, values.naturals)
    for expr, number in (*deciding.roots, *deciding.stored):
        if number in values.idle:
            continue
        if number in numbers and any(expr.same_as(extent) for extent in extents):
            continue
        try:
            repeats.decide(expr)
        except Unbounded:
            blamed = [key for var, key in free.items() if reaches(expr, [var], deciding.values)]
            if not blamed and (values.least or not free):
                return None, expr
            return (max(blamed) if blamed else next(iter(free.values()))), expr
    return repeats


def _ranges(func: Any, free: Collection[Any]) -> dict[Any, tuple[int, int]]:
    """The values of axes and of the variables of other loops, where they are known."""
    found: dict[Any, tuple[int, int]] = {}

    def axis(stmt: Any) -> None:
        extent = const_int(stmt.value) if stmt.attr_key == "thread_extent" else None
        if extent is not None:
            found[stmt.node.var] = (0, extent - 1)

    def loop(stmt: Any) -> None:
        low, extent = const_int(stmt.min), const_int(stmt.extent)
        if low is not None and extent is not None and stmt.loop_var not in free:
            found[stmt.loop_var] = (low, low + max(0, extent - 1))

    tvm_ffi.structural_walk(func.body, [(tirx.AttrStmt, axis), (tirx.For, loop)])
    return found


def _candidates(func: Any, entering: Mapping[int, ThreadMask]) -> list[_Loop]:
    """The loops in which threads wait, with the loops around each; not those in ``while`` loops."""
    found: list[_Loop] = []
    number = -1

    def visit(stmt: Any, around: tuple[Any, ...] | None) -> None:
        nonlocal number
        number += not isinstance(stmt, tirx.SeqStmt | tirx.AttrStmt)
        if isinstance(stmt, tirx.While):
            around = None
        elif isinstance(stmt, tirx.For) and around is not None:
            if may_wait(stmt):
                found.append(_Loop(stmt, number, around, entering[number]))
            around = (*around, stmt)
        for part in bodies(stmt):
            visit(part, around)

    visit(func.body, ())
    return found
