"""cp.async: copies in flight, commit groups and waits, one queue for each thread of a CTA.

PTX: a copy belongs to the group that its thread commits next; ``wait_group n`` returns when at most
the n most recent groups of the thread are in flight; ``wait_all`` waits for every copy, committed
or not.  ``cp.async.mbarrier.arrive`` is an arrival at an mbarrier as soon as all copies of the
thread so far are complete.  When a copy lands between its issue and the wait is not specified: that
is the ``timing``.  The bytes are captured at issue (kernels do not write what they copy
asynchronously).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from ..base.report import in_flight
from ..memory.agents import GlobalAccess
from ..memory.snapshot import Snapshot
from ..memory.spaces import GlobalView
from ..memory.state import CtaState, GroupState
from .mbarrier import Mbarrier, Mbarriers

Array = np.ndarray[Any, Any]

TIMINGS: Final = ("late", "early", "random")
"""When asynchronous copies land: at their wait, at their issue, or in between."""

_LANDING_CHANCE: Final = 0.25
"""Chance that a copy has landed by the next issue, commit or barrier (timing "random")."""


_MANY: Final = 2**62
"""A tick that does not come."""

_NEVER: Final = np.zeros(0, np.int64)
"""When copies land that do not land at random."""


@dataclass
class Source:
    """The global memory that copies read, where the kernel also writes it; a row for each."""

    view: GlobalView
    access: GlobalAccess

    @classmethod
    def begin(
        cls, group: GroupState, view: GlobalView, tids: Array, start: Array, wanted: Array
    ) -> Source | None:
        """Note that copies are issued; ``wanted``: which bytes from each ``start`` on they read."""
        count = np.asarray(wanted.sum(axis=1))
        reads = count > 0
        access = view.access(group, tids, start, wanted.shape[1])
        shadow = view.region.memory.shadow
        if access is None or shadow is None or not reads.any():
            return None
        granules = access.granules.reshape(len(tids), -1)
        last = shadow.granules(view.region.start + start + np.maximum(count, 1) - 1, 1)
        granules = np.minimum(granules, last[:, None])
        source = cls(view, replace(access, granules=granules))
        shadow.read(source.part(reads).access, pending=True)
        return source

    def part(self, rows: Array) -> Source:
        """Return some of the copies."""
        access = self.access
        return Source(
            self.view, replace(access, tids=access.tids[rows], granules=access.granules[rows])
        )

    def complete(self, event: int) -> None:
        """Note that they are complete for their threads from ``event`` on."""
        shadow = self.view.region.memory.shadow
        if shadow is not None:
            shadow.arrived(self.access, event)


@dataclass
class _Batch:
    """The copies of one statement execution, a row for each thread.

    ``due``: under random timing, by which tick of the engine each lands.
    """

    tids: Array
    group: Array  # number of the commit group of each row
    dst: Array  # byte offsets in the window
    data: Array  # (rows, size) uint8
    granules: Array  # (rows, granules)
    landed: Array
    event: int
    due: Array
    source: Source | None = None
    first: int = field(init=False)  # of the threads, and the last
    last: int = field(init=False)
    oldest: int = field(init=False)  # group
    next: int = field(init=False)  # tick at which some land

    def __post_init__(self) -> None:
        self.first, self.last = int(self.tids[0]), int(self.tids[-1])
        self.oldest = int(self.group.min())
        self.next = int(self.due.min()) if self.due.size else _MANY

    def part(self, rows: Array) -> _Batch:
        """Return some of the rows."""
        return _Batch(
            self.tids[rows],
            self.group[rows],
            self.dst[rows],
            self.data[rows],
            self.granules[rows],
            self.landed[rows],
            self.event,
            self.due[rows] if self.due.size else self.due,
            None if self.source is None else self.source.part(rows),
        )

    def of_any(self, first: int, last: int) -> bool:
        """Whether some of the threads may be among ``first`` to ``last``."""
        return self.first <= last and first <= self.last


@dataclass(eq=False)
class _Trigger:
    """Threads that arrive at an mbarrier when their copies before ``event`` are complete."""

    barrier: Mbarrier
    tids: Array
    event: int


class CopyEngine:
    """All cp.async traffic of one CTA."""

    def __init__(self, cta: CtaState, mbarriers: Mbarriers) -> None:
        self._cta = cta
        self._mbarriers = mbarriers
        self._timing = cta.cluster.timing
        self._rng = cta.cluster.rng
        threads = cta.cluster.clocks.threads
        self._open = np.zeros(threads, np.int64)  # number of the group each thread fills now
        self._queue: list[_Batch] = []
        self._triggers: list[_Trigger] = []
        self._ticks = 0  # of random timing

    def issue(
        self, tids: Array, dst: Array, data: Array, event: int, source: Source | None = None
    ) -> None:
        """Issue copies of ``data`` (rows, size) by ``tids`` to byte offsets ``dst``."""
        size = data.shape[1]
        step = self._cta.granule
        granules = (dst // step)[:, None] + np.arange(max(1, size // step))
        self._cta.shadow.write(tids, granules, event, in_flight=True)
        landed = np.zeros(len(tids), np.bool_)
        due = _NEVER
        if self._timing == "random":
            due = self._ticks + self._rng.geometric(_LANDING_CHANCE, len(tids))
        batch = _Batch(tids, self._open[tids], dst, data, granules, landed, event, due, source)
        self._queue.append(batch)
        if self._timing == "early":
            self._land(batch, ~landed)
        self.tick()

    def commit(self, tids: Array) -> None:
        self._open[tids] += 1
        self.tick()

    def wait(self, tids: Array, in_flight: int, event: int) -> None:
        """Complete all but the last ``in_flight`` committed groups of the threads (wait_group)."""
        self._complete(tids, self._open[tids] - in_flight, event)

    def wait_all(self, tids: Array, event: int) -> None:
        self._complete(tids, self._open[tids] + 1, event)

    def _complete(self, tids: Array, oldest: Array, event: int) -> None:
        """Complete the copies of ``tids`` in groups before the ``oldest`` that each keeps."""
        kept = np.full(len(self._open), -1, np.int64)
        kept[tids] = oldest
        first, last, newest = int(tids.min()), int(tids.max()), int(oldest.max())
        rest = []
        for batch in self._queue:
            if not batch.of_any(first, last) or batch.oldest >= newest:
                rest.append(batch)
                continue
            done = batch.group < kept[batch.tids]
            if not done.any():
                rest.append(batch)
                continue
            self._land(batch, done & ~batch.landed)
            self._cta.shadow.arrive(batch.tids[done], batch.granules[done], event)
            if batch.source is not None:
                batch.source.part(done).complete(event)
            if not done.all():
                rest.append(batch.part(~done))
        self._queue = rest

    def arrive_on(self, barrier: Mbarrier, tids: Array, event: int) -> None:
        """Let each thread arrive at ``barrier`` when its copies so far are complete."""
        trigger = _Trigger(barrier, tids, event)
        self._triggers.append(trigger)
        if self._timing == "early":
            self._fire(trigger)
        self.tick()

    def _fire(self, trigger: _Trigger) -> None:
        """Land the copies that a trigger is for, and let its threads arrive."""
        self._triggers.remove(trigger)
        rest = []
        for batch in self._queue:
            mine = np.isin(batch.tids, trigger.tids) & (batch.event < trigger.event)
            self._land(batch, mine & ~batch.landed)
            if mine.any():
                done = batch.part(mine)
                if done.source is not None:
                    done.source.complete(trigger.event)
                trigger.barrier.copies.append((done.tids, done.granules, trigger.event, done.event))
            if not mine.all():
                rest.append(batch.part(~mine))
        self._queue = rest
        self._mbarriers.arrive_later(trigger.barrier, trigger.tids, trigger.event)

    def land_awaited(self, keys: set[Hashable]) -> bool:
        """Let one trigger fire that a wait is for; whether there was one."""
        awaited = [trigger for trigger in self._triggers if trigger.barrier in keys]
        if awaited:
            self._fire(awaited[-1])
        return bool(awaited)

    def tick(self) -> None:
        """Land some copies in flight, under random timing: time has passed."""
        if self._timing != "random":
            return
        self._ticks += 1
        for batch in self._queue:
            if batch.next <= self._ticks:
                self._land(batch, (batch.due <= self._ticks) & ~batch.landed)
                later = batch.due[~batch.landed]
                batch.next = int(later.min()) if later.size else _MANY
        for trigger in list(self._triggers):
            if self._rng.random() < _LANDING_CHANCE:
                self._fire(trigger)

    def snapshot(self, into: Snapshot) -> None:
        """Add the copies in flight, their groups counted back from the one that is open."""
        for batch in self._queue:
            behind = self._open[batch.tids] - batch.group
            into.plain(batch.tids, behind, batch.granules, into.name(batch.event))
        for trigger in self._triggers:
            earlier = sum(batch.event < trigger.event for batch in self._queue)
            into.plain(trigger.barrier.offset, trigger.tids, earlier)

    def finish(self) -> None:
        """Report the copies that nobody has waited for when all threads have exited."""
        for trigger in list(self._triggers):
            self._fire(trigger)
        for batch in self._queue:
            committed = batch.group < self._open[batch.tids]
            row = int(np.argmin(committed))
            offset = int(batch.dst[row])
            self._cta.add_hazard(
                "never-waited",
                batch.event,
                buffer=self._cta.buffer_at(offset),
                offset=offset,
                threads=(self._cta.local(int(batch.tids[row])),),
                detail=in_flight("cp.async", committed=bool(committed.all())),
            )

    def _land(self, batch: _Batch, rows: Array) -> None:
        if rows.any():
            size = batch.data.shape[1]
            self._cta.window.rows(size)[batch.dst[rows] // size] = batch.data[rows]
            batch.landed |= rows
