"""What races in a random program, by a computation of its own: who happens before whom.

The events of every thread are a graph: program order, barriers, and an edge from each release to
what acquires it, as the flags that were read tell (PTX ISA, memory consistency model: release and
acquire patterns, synchronizes-with, causality order). It shares nothing with the emulator.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np
import tvm

from pipeliner.emulator import emulate
from tests.emulator.raw import lower

from .race_programs import FLAGS, THREADS, WARP, RaceProgram, Statement, script

SCOPES: Final = ("cta", "cluster", "gpu", "sys")
HAZARDS: Final = {"race", "write-while-read"}
_FLAG_WRITES: Final = ("signal", "exchange")
_FLAG_READS: Final = ("look", "exchange")


@dataclass
class _Event:
    statement: int = -1
    cta: int = -1
    thread: int = -1
    before: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Races:
    """Elements of ``G``: ``surely`` those where the outcome depends on who is first.

    ``perhaps``: those where two accesses are not ordered that find or leave equal values.
    ``flags``: those whose accesses are not of one another's scope, nor ordered.
    """

    surely: frozenset[int]
    perhaps: frozenset[int]
    flags: frozenset[int]


class _Oracle:
    def __init__(self, program: RaceProgram, out: np.ndarray[Any, Any]) -> None:
        self._program = program
        self._out = out
        self._events: list[_Event] = []
        self._last: dict[tuple[int, int], int] = {}
        self._of: dict[tuple[int, int, int], int] = {}
        for number, statement in enumerate(program.statements):
            self._add(number, statement)
        self._synchronise()
        self._reach = self._closure()

    def _add(self, number: int, one: Statement) -> None:
        ctas = range(self._program.ctas) if one.cta is None else [one.cta]
        together = {"warp": WARP, "cta": THREADS, "cluster": self._program.cluster * THREADS}
        if one.what in together:
            size = together[one.what]
            groups = defaultdict(list)
            for cta in ctas:
                for thread in range(THREADS):
                    groups[(cta * THREADS + thread) // size].append((cta, thread))
            for members in groups.values():
                event = _Event(before=[self._last[m] for m in members if m in self._last])
                self._events.append(event)
                self._last |= dict.fromkeys(members, len(self._events) - 1)
            return
        for cta in ctas:
            for thread in range(one.first, one.last):
                before = [self._last[cta, thread]] if (cta, thread) in self._last else []
                self._events.append(_Event(number, cta, thread, before))
                self._last[cta, thread] = self._of[number, cta, thread] = len(self._events) - 1

    # Flags

    def _synchronise(self) -> None:
        wrote: dict[int, int] = {}
        for at, event in enumerate(self._events):
            if self._what(event) in _FLAG_WRITES:
                wrote[int(self._program.value(event.statement, event.cta, event.thread))] = at
        for at, event in enumerate(self._events):
            if self._what(event) not in _FLAG_READS:
                continue
            source, reader = self._source(event, wrote), event
            while source is not None and self._is_strong(self._events[source], reader):
                self._edges(source, at)
                reader = self._events[source]
                source = self._source(reader, wrote) if self._what(reader) == "exchange" else None

    def _source(self, event: _Event, wrote: dict[int, int]) -> int | None:
        return wrote.get(int(self._out[event.statement, event.cta, event.thread]))

    def _edges(self, write: int, read: int) -> None:
        for give, first in self._points(write, ("release", "acq_rel"), earlier=True):
            for take, second in self._points(read, ("acquire", "acq_rel"), earlier=False):
                giver, taker = self._events[give], self._events[take]
                if give != take and min(first, second) >= self._distance(giver, taker):
                    taker.before.append(give)

    def _points(
        self, at: int, semantics: tuple[str, ...], *, earlier: bool
    ) -> list[tuple[int, int]]:
        """Where a pattern of releasing or acquiring begins or ends, and at which scope."""
        event = self._events[at]
        own = self._program.statements[event.statement].order
        found = [(at, SCOPES.index(own[1]))] if own[0] in semantics else []
        for number, one in enumerate(self._program.statements):
            on_its_side = one.what == "fence" and (number < event.statement) == earlier
            if on_its_side and one.runs(event.cta, event.thread):
                fence = self._of[number, event.cta, event.thread]
                found.append((fence, SCOPES.index(one.order[1])))
        return found

    def _is_strong(self, one: _Event, other: _Event) -> bool:
        """Whether two strong operations are morally strong: the scope of each has the other."""
        scopes = [self._program.statements[e.statement].order[1] for e in (one, other)]
        return min(map(SCOPES.index, scopes)) >= self._distance(one, other)

    def _distance(self, one: _Event, other: _Event) -> int:
        if one.cta == other.cta:
            return 0
        return 1 if one.cta // self._program.cluster == other.cta // self._program.cluster else 2

    def _what(self, event: _Event) -> str:
        return self._program.statements[event.statement].what if event.statement >= 0 else ""

    def _closure(self) -> list[int]:
        """For each event those before it, as bits."""
        reach: dict[int, int] = {}
        stack = list(range(len(self._events)))
        while stack:
            at = stack[-1]
            if at in reach:
                stack.pop()
                continue
            missing = [b for b in self._events[at].before if b not in reach]
            if missing:
                stack += missing
                continue
            bits = 0
            for b in self._events[at].before:
                bits |= reach[b] | 1 << b
            reach[at] = bits
            stack.pop()
        return [reach[at] for at in range(len(self._events))]

    # Races

    def races(self) -> Races:
        cells: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(self._events):
            if self._what(event) in ("load", "store", "add", "ld", "st"):
                statement = self._program.statements[event.statement]
                cells[self._program.place(statement, event.cta, event.thread)].append(at)
        surely, perhaps = set(), set()
        flags: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(self._events):
            if self._what(event) in ("look", "signal", "exchange"):
                flags[self._program.statements[event.statement].flag].append(at)
        torn = [f for f, ats in flags.items() if any(self._clash(*p) for p in combinations(ats, 2))]
        for cell, accesses in cells.items():
            pairs = [pair for pair in combinations(accesses, 2) if self._clash(*pair)]
            if any(not self._equal(*pair) for pair in pairs):
                surely.add(cell)
            elif any(self._mixed(*pair) for pair in pairs):
                perhaps.add(cell)
        return Races(frozenset(surely), frozenset(perhaps), frozenset(torn))

    def _clash(self, a: int, b: int) -> bool:
        if self._reach[a] >> b & 1 or self._reach[b] >> a & 1:
            return False
        one, other = self._events[a], self._events[b]
        what = {self._what(one), self._what(other)}
        if (one.cta, one.thread) == (other.cta, other.thread) or what <= {"load", "ld", "look"}:
            return False
        if what <= {"add", "ld", "st", "look", "signal", "exchange"}:
            return not self._is_strong(one, other)
        return True

    def _value(self, at: int) -> int | None:
        event = self._events[at]
        what = self._what(event)
        if what == "store":
            return int(self._program.value(event.statement, event.cta, event.thread))
        if what in ("load", "ld"):
            return int(self._out[event.statement, event.cta, event.thread])
        return None

    def _equal(self, a: int, b: int) -> bool:
        return self._value(a) is not None and self._value(a) == self._value(b)

    def _mixed(self, a: int, b: int) -> bool:
        what = {self._what(self._events[at]) for at in (a, b)}
        return what in ({"load", "store"}, {"ld", "store"})


def judged(program: RaceProgram) -> str:
    """Check what the emulator says of ``program`` against what races in it."""
    text = script(program)
    shape = (len(program.statements), program.ctas, THREADS)
    arrays = [np.zeros(n, np.int32) for n in (program.elements, FLAGS, shape)]
    result = emulate(lower(tvm.script.from_source(text)), arrays, order=program.order)
    races = _Oracle(program, result.outputs["OUT"]).races()
    about = "\n".join([f"{program}", text, f"{races}", *map(str, result.hazards)])
    assert {h.kind for h in result.hazards} <= HAZARDS, about
    flags = {h.offset // 4 for h in result.hazards if h.buffer == "F"}
    found = {h.offset // 4 for h in result.hazards if h.buffer == "G"}
    assert found <= races.surely | races.perhaps, f"objects to what is ordered\n{about}"
    assert found or not races.surely, f"misses a race\n{about}"
    assert flags == races.flags, f"flags are torn\n{about}"
    if races.surely:
        return "race"
    return "equal values" if races.perhaps else "ordered"
