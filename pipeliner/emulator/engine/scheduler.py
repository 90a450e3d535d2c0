"""Run the thread groups of a cluster, in one of several orders, until none can move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ..base.clocks import Clock
from ..base.requests import AtHead, Barrier, Fork, Program, Spin, Wait
from ..memory.snapshot import Snapshot
from ..units.fragments import WARP
from .machine import Cluster, Cta
from .named_barriers import NamedBarriers

Array = np.ndarray[Any, Any]

LOCKSTEP: Final = "lockstep"
"""The order that interleaves nothing that need not be."""

ORDERS: Final = (LOCKSTEP, "round-robin", "reversed", "random")
"""How the warps of a cluster are interleaved."""

FIRST: Final = "first"
"""The order in which the first warp that can goes on: the others are stuck where it comes to be."""

_LISTED_WAITS: Final = 6
"""Waits that the report of a deadlock lists."""

_PATIENCE: Final = 4096
"""Rounds of loops that wait for memory, after which other clusters are let on."""


@dataclass
class _Task:
    program: Program
    cta: Cta
    number: int  # of the thread group in the cluster
    tids: Array
    parent: _Task | None = None
    pending: int = 0
    answer: bool | None = None
    gave_up: int = -1  # the state of the cluster when it last did
    seen: tuple[int, ...] = ()  # what a loop went by when it last came round
    at: int = 0  # the last event that it made

    @property
    def line(self) -> list[_Task]:
        """Itself, and those that wait for it to end, from the inside out."""
        return [self, *(self.parent.line if self.parent else [])]


@dataclass
class _Arrival:
    task: _Task
    barrier: Barrier
    event: int
    clock: Clock | None  # what those who do not wait knew when they arrived


@dataclass
class _Gathering:
    """Threads gathered at one barrier of a CTA."""

    arrivals: list[_Arrival] = field(default_factory=list)

    @property
    def tids(self) -> Array:
        return np.concatenate([a.barrier.tids for a in self.arrivals])

    @property
    def total(self) -> int:
        return sum(len(a.barrier.tids) for a in self.arrivals)

    @property
    def number(self) -> int:
        return self.arrivals[0].barrier.number


class Scheduler:
    """The tasks of a cluster: ready, gathered at barriers, or waiting for a condition."""

    def __init__(
        self,
        cluster: Cluster,
        order: str,
        rng: np.random.Generator,
        programs: Sequence[tuple[Cta, Array, Program]],
    ) -> None:
        self._cluster = cluster
        self._ready: list[_Task] = [
            _Task(p, cta, i, tids) for i, (cta, tids, p) in enumerate(programs)
        ]
        self._pick: Callable[[], int] = {
            LOCKSTEP: lambda: 0,
            "round-robin": lambda: 0,
            FIRST: lambda: min(range(len(self._ready)), key=lambda i: self._ready[i].number),
            "reversed": lambda: max(range(len(self._ready)), key=lambda i: self._ready[i].number),
            "random": lambda: int(rng.integers(len(self._ready))),
        }[order]
        self._spinning: list[tuple[_Task, Spin]] = []
        self._gathered: dict[tuple[int, int], _Gathering] = {}
        self._generations = NamedBarriers(cluster.clocks)
        self._blocked: list[tuple[_Task, Wait]] = []
        self._stopped: list[_Task] = []
        self.is_quiet = False  # whether one that was stopped may decide: nothing else can move
        self.running: _Task | None = None
        self._seen_changes = 0
        self._rounds = 0

    def run(self) -> bool:
        """Run as far as this cluster can on its own; whether the end was reached."""
        self._rounds = 0
        self._wake()
        while self._ready or self._unblock() or self._come_round() or self._let_go():
            self._advance(self._ready.pop(self._pick()))
            if self._cluster.changes != self._seen_changes:
                self._wake()
        return not (self._gathered or self._blocked or self._spinning)

    @property
    def standing(self) -> list[tuple[str, _Task]]:
        """The tasks that have not ended, and how each stands; by their numbers."""
        found = [("running", self.running)] if self.running else []
        found += [("ready", task) for task in self._ready]
        found += [("stopped", task) for task in self._stopped]
        found += [("blocked", task) for task, _ in self._blocked]
        found += [("spinning", task) for task, _ in self._spinning]
        for (rank, number), gathering in self._gathered.items():
            found += [(f"at {number} of {rank}", one.task) for one in gathering.arrivals]
        return sorted(found, key=lambda one: one[1].number)

    def snapshot(self, into: Snapshot) -> None:
        """Add where each task stands, and what those at barriers who do not wait made known."""
        for how, task in self.standing:
            line = [(step.number, into.place(step.at), step.pending) for step in task.line]
            into.plain(how, line, task.answer, task.gave_up == self._cluster.changes)
        for gathering in self._gathered.values():
            for one in gathering.arrivals:
                into.plain(one.barrier.tids, one.barrier.count, one.barrier.wait)
                if one.clock is not None:
                    into.acquired(one.clock)
        self._generations.snapshot(into)
        for task, wait in sorted(self._blocked, key=lambda pair: pair[0].number):
            into.plain(task.number, wait.tids)

    @property
    def unordered(self) -> set[int]:
        """The barriers of CTAs whose generations are not told apart by those who arrive."""
        return self._generations.unordered

    @property
    def awaits_others(self) -> bool:
        """Whether threads of other clusters may let it go on."""
        return bool(self._spinning) or any(wait.outside for _, wait in self._blocked)

    def _advance(self, task: _Task) -> None:
        self.running = task
        before = len(self._cluster.log)
        try:
            request = (
                task.program.send(task.answer) if task.answer is not None else next(task.program)
            )
        except StopIteration:
            self._end(task)
            return
        if len(self._cluster.log) > before:
            task.at = len(self._cluster.log) - 1
        task.answer = None
        if request is None:
            self._ready.append(task)
        elif isinstance(request, Fork):
            task.pending = len(request.branches)
            if request.ended is not None:
                self._cluster.clocks.end(request.ended)
            self._ready.extend(
                _Task(p, task.cta, task.number, task.tids, task) for p in request.branches
            )
        elif isinstance(request, Barrier):
            self._arrive(task, request)
        elif isinstance(request, AtHead):
            self._stopped.append(task)
        elif isinstance(request, Spin):
            self._spinning.append((task, request))
        else:
            self._blocked.append((task, request))
            self._wake()

    def _end(self, task: _Task) -> None:
        parent = task.parent
        if parent is None:
            self._cluster.clocks.end(task.tids)
            self._cluster.barrier.exit(task.tids)
            return
        parent.pending -= 1
        if not parent.pending:
            self._ready.append(parent)

    # Conditions

    def _wake(self) -> None:
        self._seen_changes = self._cluster.changes
        still = []
        for task, wait in self._blocked:
            if wait.attempt():
                self._answer(task, True)
            else:
                still.append((task, wait))
        self._blocked = still

    def _answer(self, task: _Task, answer: bool) -> None:
        task.answer = answer
        self._ready.append(task)

    def _unblock(self) -> bool:
        """Land copies that someone waits for, then let try_waits give up: nothing else can move."""
        while self._blocked and not self._ready:
            keys = {key for _, wait in self._blocked for key in wait.keys}
            if not self._cluster.land_awaited(keys):
                break
            self._wake()
        if not self._ready:
            self._give_up()
        return bool(self._ready)

    def _give_up(self) -> None:
        """Let try_waits return False, each once unless something has changed since."""
        changes = self._cluster.changes
        polling = [(t, w) for t, w in self._blocked if not w.patient and t.gave_up != changes]
        for pair in polling:
            self._blocked.remove(pair)
            pair[0].gave_up = changes
            self._answer(pair[0], False)

    def _come_round(self) -> bool:
        """Let loops go on that have seen a change, or made one: nothing else can move."""
        if not self._spinning or self._rounds == _PATIENCE:
            return False
        self._rounds += 1
        left = []
        for task, spin in self._spinning:
            now = (self._cluster.grid.changes, self._cluster.changes, spin.state())
            if task.seen == now:
                left.append((task, spin))
            else:
                task.seen = now
                self._ready.append(task)
        self._spinning = left
        return bool(self._ready)

    def _let_go(self) -> bool:
        """Let those go on that were stopped, the first of which decides: nothing else can move."""
        self._ready, self._stopped = self._stopped, []
        self.is_quiet = bool(self._ready)
        return self.is_quiet

    # Barriers of a CTA

    def _arrive(self, task: _Task, barrier: Barrier) -> None:
        cluster, cta = self._cluster, task.cta
        key = (cta.rank, barrier.number)
        gathering = self._gathered.setdefault(key, _Gathering())
        event = len(cluster.log) - 1
        self._generations.arrive(key, barrier.tids)
        clock = None if barrier.wait else cluster.clocks.release(barrier.tids, event)
        gathering.arrivals.append(_Arrival(task, barrier, event, clock))
        if not barrier.wait:
            self._ready.append(task)
        needed = barrier.count or cta.threads
        if barrier.aligned and _splits_warp(barrier.tids - cta.first, cta.threads):
            self._diverged(cta, barrier, Reason("hazard.part_of_warp"))
        counts = {a.barrier.count for a in gathering.arrivals}
        if len(counts) > 1:
            expected = tuple(sorted(int(count or cta.threads) for count in counts))
            self._diverged(cta, barrier, Reason("hazard.different_counts", expected=expected))
        if gathering.total < needed:
            return
        del self._gathered[key]
        if gathering.total > needed:
            surplus = Reason("hazard.surplus_threads", arrived=gathering.total, expected=needed)
            self._diverged(cta, barrier, surplus)
        sites = {a.barrier.at[0] for a in gathering.arrivals if a.barrier.aligned}
        if len(sites) > 1:
            self._diverged(cta, barrier, Reason("hazard.different_statements", count=len(sites)))
        self._complete(cta, key, gathering)

    def _complete(self, cta: Cta, key: tuple[int, int], gathering: _Gathering) -> None:
        cluster = self._cluster
        waiting = [a for a in gathering.arrivals if a.barrier.wait]
        tids = np.concatenate([a.barrier.tids for a in waiting])
        cluster.clocks.join(tids, len(cluster.log) - 1)
        self._generations.complete(key, tids, len(cluster.log) - 1)
        for arrival in gathering.arrivals:
            if arrival.clock is not None:
                cluster.clocks.acquire(tids, arrival.clock)
        cta.copies.tick()
        cluster.tick()
        cta.counts["barriers"] += 1
        cluster.changes += 1
        self._ready.extend(a.task for a in waiting)

    # Nothing can move

    def report_deadlock(self, why: Reason | None = None) -> None:
        """Report who waits for what; ``why`` nobody else can help."""
        spinning = [
            (task, Wait(spin.tids, spin.event, bool, lambda: Reason("hazard.poll")))
            for task, spin in self._spinning
        ]
        self._blocked += spinning
        gathered = [(self._cluster.ctas[rank], g) for (rank, _), g in self._gathered.items()]
        if not self._blocked and len(gathered) == 1:
            # Nobody waits for anything else: the other threads have passed the barrier by.
            ((cta, gathering),) = gathered
            arrived = _progress(cta, gathering)
            detail = Reason("hazard.passed_by", who=_who(cta, gathering.tids), **arrived)
            self._diverged(cta, gathering.arrivals[0].barrier, detail)
            return
        # Those that wait for an mbarrier first: the others mostly wait for them.
        blocked = sorted(self._blocked, key=lambda pair: not pair[1].keys)
        together: dict[tuple[int, Reason], list[Array]] = {}
        for task, wait in blocked:
            together.setdefault((task.cta.rank, wait.describe()), []).append(wait.tids)
        waits = [
            Reason(
                "hazard.waits_for",
                who=_who(self._cluster.ctas[rank], np.concatenate(tids)),
                what=what,
            )
            for (rank, what), tids in together.items()
        ]
        waits += [
            Reason("hazard.waits_at", who=_who(c, g.tids), barrier=g.number, **_progress(c, g))
            for c, g in gathered
        ]
        more = len(waits) - _LISTED_WAITS
        if more > 0:
            waits = [*waits[:_LISTED_WAITS], Reason("hazard.more_waits", count=more)]
        if blocked:
            task, wait = (spinning or blocked)[0]
            cta, event, tid = task.cta, wait.event, int(wait.tids[0])
        else:
            cta, arrival = gathered[0][0], gathered[0][1].arrivals[0]
            event, tid = self._event(arrival.barrier), int(arrival.barrier.tids[0])
        if why:
            waits.append(why)
        detail = Reason("hazard.deadlock", waits=tuple(waits))
        cta.add_hazard("deadlock", event, threads=(cta.local(tid),), detail=detail)

    def _event(self, barrier: Barrier) -> int:
        """The last time that a barrier's statement began."""
        log = self._cluster.log
        return next(e for e in range(len(log) - 1, -1, -1) if log[e] == barrier.at)

    def _diverged(self, cta: Cta, barrier: Barrier, detail: Reason) -> None:
        thread = cta.local(int(barrier.tids[0]))
        cta.add_hazard("barrier-divergence", self._event(barrier), threads=(thread,), detail=detail)


def _progress(cta: Cta, gathering: _Gathering) -> dict[str, int]:
    """How many threads are at a barrier, and how many it is for."""
    needed = gathering.arrivals[0].barrier.count or cta.threads
    return {"arrived": gathering.total, "expected": needed}


def _who(cta: Cta, tids: Array) -> str:
    """Return runs of threads by their number in the CTA: ``threads 0-31, 64``."""
    ids = np.unique(tids - cta.first)
    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    listed = ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)
    where = "" if cta.alone else f" of CTA {cta.block}"
    return f"thread{'s' if len(ids) > 1 else ''} {listed}{where}"


def _splits_warp(tids: Array, threads: int) -> bool:
    if len(tids) == threads:
        return False
    arrived = np.zeros(-(-threads // WARP) * WARP, np.bool_)
    arrived[tids] = True
    arrived[threads:] = arrived[threads - 1]
    lanes = arrived.reshape(-1, WARP)
    return bool((lanes.any(axis=1) & ~lanes.all(axis=1)).any())
