"""Search a modulo schedule (B. R. Rau, MICRO-27, 1994) on plain numbers, without IR.

    load -> mma, delay 500; the load is busy for 48 cycles, the mma for 64
 => II = 64; the load starts at cycle 0, the mma at cycle 500

A problem is a list of operations, each of which keeps one pipe busy for some cycles, and arcs ``(u,
v, delay, distance)``: ``v`` of iteration ``i + distance`` starts at least ``delay`` cycles after
``u`` of iteration ``i``. Operations are placed as late as their successors allow, so that loaded
values live only as long as their latency requires.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_BUDGET_PER_OP: Final = 8
"""Placements tried per operation before an interval is given up; Rau's loops needed 2 to 6."""
_INTERVAL_STEPS: Final = 64
"""Divisor of the interval that gives its growth between attempts."""


@dataclass(frozen=True, slots=True)
class Arc:
    """A delay between two operations.

    ``dst`` of iteration ``i + distance`` starts at least ``delay`` cycles after ``src`` of ``i``.
    """

    src: int
    dst: int
    delay: int
    distance: int


@dataclass(frozen=True, slots=True)
class ModuloProblem:
    """Operations by index: ``pipes[i]`` is busy for ``busy[i]`` cycles from the start of ``i``."""

    pipes: tuple[str, ...]
    busy: tuple[int, ...]
    arcs: tuple[Arc, ...]

    @property
    def size(self) -> int:
        """The number of operations."""
        return len(self.pipes)


def res_mii(problem: ModuloProblem) -> tuple[int, str]:
    """Return the least interval that the pipes allow, and the pipe that sets it."""
    load: dict[str, int] = {}
    for pipe, busy in zip(problem.pipes, problem.busy, strict=True):
        load[pipe] = load.get(pipe, 0) + busy
    pipe = max(load, key=lambda name: load[name])
    return max(1, load[pipe]), pipe


def rec_mii(problem: ModuloProblem, at_least: int = 1) -> int:
    """Return the least interval from ``at_least`` on that the recurrences allow.

    From 1 on it is the greatest delay / distance of any cycle: a cycle that is too slow for an
    interval determines the interval that it needs. A cycle within one iteration fits no interval;
    the sum of all delays stands for that.
    """
    interval = at_least
    while True:
        _, cycle = _heights(problem, interval)
        if not cycle:
            return interval
        distance = sum(arc.distance for arc in cycle)
        if distance == 0:
            return max(at_least + 1, sum(max(0, arc.delay) for arc in problem.arcs))
        interval = math.ceil(sum(arc.delay for arc in cycle) / distance)


def _heights(problem: ModuloProblem, interval: int) -> tuple[list[int], list[Arc]]:
    """Return the longest path into each operation, or a cycle of positive length.

    An arc weighs ``delay - interval * distance``. This is Bellman and Ford's algorithm, stopped as
    soon as the last arcs of the paths form a cycle: a path follows a cycle only if the cycle
    lengthens it.
    """
    height = [0] * problem.size
    came_by: list[Arc | None] = [None] * problem.size
    weighed = [(arc, arc.src, arc.dst, arc.delay - interval * arc.distance) for arc in problem.arcs]
    while True:
        grown = False
        for arc, src, dst, weight in weighed:
            if height[src] + weight > height[dst]:
                height[dst], came_by[dst], grown = height[src] + weight, arc, True
        cycle = _closed(came_by) if grown else []
        if not grown or cycle:
            return height, cycle


def _closed(came_by: Sequence[Arc | None]) -> list[Arc]:
    """Return the arcs of a cycle among those by which operations are reached, or nothing."""
    seen_from: dict[int, int] = {}
    for start in range(len(came_by)):
        at = start
        while at not in seen_from:
            seen_from[at] = start
            arc = came_by[at]
            if arc is None:
                break
            at = arc.src
        else:
            if seen_from[at] == start:
                return _around(at, came_by)
    return []


def _around(op: int, came_by: Sequence[Arc | None]) -> list[Arc]:
    """Return the arcs of the cycle that ``op`` is on."""
    arcs: list[Arc] = []
    at = op
    while (arc := came_by[at]) is not None:
        arcs.append(arc)
        at = arc.src
        if at == op:
            break
    return arcs


def schedule(problem: ModuloProblem) -> tuple[int, list[int]]:
    """Return the least interval found, at least both bounds, and each operation's start cycle."""
    bound = rec_mii(problem, res_mii(problem)[0])
    interval = bound
    limit = 2 * (bound + sum(problem.busy) + sum(max(0, arc.delay) for arc in problem.arcs))
    while interval <= limit:
        starts = attempt(problem, interval)
        if starts is not None:
            return interval, starts
        interval += max(1, math.ceil(interval / _INTERVAL_STEPS))
    raise AssertionError("a sequential schedule exists at the limit")


def attempt(problem: ModuloProblem, interval: int) -> list[int] | None:
    """Return start cycles for one interval, or None if the budget runs out."""
    height, cycle = _heights(problem, interval)
    if cycle or any(busy > interval for busy in problem.busy):
        return None
    # Schedule the reversed problem as soon as possible: that is, the problem as late as possible.
    backward: list[list[Arc]] = [[] for _ in range(problem.size)]
    forward: list[list[Arc]] = [[] for _ in range(problem.size)]
    for arc in problem.arcs:
        if arc.src != arc.dst:
            backward[arc.dst].append(arc)
            forward[arc.src].append(arc)
    state = _State(problem, interval)
    budget = _BUDGET_PER_OP * problem.size + 16
    pending = set(range(problem.size))
    last: dict[int, int] = {}
    while pending:
        if budget == 0:
            return None
        budget -= 1
        op = max(pending, key=lambda i: (height[i], i))
        pending.discard(op)
        # Reversed time r: the op ends its part of the iteration at -r.
        earliest = max(
            (
                state.placed[arc.dst] + arc.delay - interval * arc.distance
                for arc in forward[op]
                if arc.dst in state.placed
            ),
            default=0,
        )
        slot = state.free_slot(op, earliest)
        if slot is None:
            slot = max(earliest, last.get(op, earliest - 1) + 1)
            pending.update(state.evict(op, slot))
        last[op] = slot
        state.place(op, slot)
        for arc in backward[op]:
            other = state.placed.get(arc.src)
            if other is not None and other < slot + arc.delay - interval * arc.distance:
                state.remove(arc.src)
                pending.add(arc.src)
    return [-state.placed[op] for op in range(problem.size)]


class _State:
    """The modulo reservation table, in reversed time: a bit for each taken cycle of each pipe."""

    def __init__(self, problem: ModuloProblem, interval: int) -> None:
        self.problem = problem
        self.interval = interval
        self.placed: dict[int, int] = {}
        self._taken: dict[str, int] = dict.fromkeys(problem.pipes, 0)

    def _bits(self, op: int, slot: int) -> int:
        """Return the cycles modulo the interval in which ``op`` is busy, in forward time."""
        bits = ((1 << self.problem.busy[op]) - 1) << (-slot % self.interval)
        return (bits | bits >> self.interval) & ((1 << self.interval) - 1)

    def free_slot(self, op: int, earliest: int) -> int | None:
        """Return the first slot from ``earliest`` within one interval in which the pipe is free."""
        candidates = {earliest}
        pipe, busy = self.problem.pipes[op], self.problem.busy[op]
        for other, at in self.placed.items():
            if self.problem.pipes[other] == pipe:
                # In reversed time the op may sit directly after (r + its own length) another.
                candidates.add(earliest + (at + busy - earliest) % self.interval)
        taken = self._taken[pipe]
        for slot in sorted(candidates):
            if not taken & self._bits(op, slot):
                return slot
        return None

    def evict(self, op: int, slot: int) -> list[int]:
        """Remove the operations that occupy the pipe at ``slot``; return them."""
        pipe, bits = self.problem.pipes[op], self._bits(op, slot)
        victims = [
            other
            for other, at in self.placed.items()
            if self.problem.pipes[other] == pipe and self._bits(other, at) & bits
        ]
        for victim in victims:
            self.remove(victim)
        return victims

    def place(self, op: int, slot: int) -> None:
        """Place ``op`` at ``slot``."""
        self.placed[op] = slot
        self._taken[self.problem.pipes[op]] |= self._bits(op, slot)

    def remove(self, op: int) -> None:
        """Remove ``op``."""
        self._taken[self.problem.pipes[op]] &= ~self._bits(op, self.placed.pop(op))
