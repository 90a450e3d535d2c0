"""Shadow state of shared memory: who wrote, who read, and whether the next access is ordered.

Kept for each granule, the smallest access size of the kernel; ``Clocks`` says what is ordered:

    writer, wrote   agent of the last write and its event; ``IN_FLIGHT`` before the first one, and
                    from the issue of an asynchronous copy to the wait that completes it, then the
                    event of that wait
    site            event of the statement that wrote (for an asynchronous copy, its issue)
    seen[t]         event of the last read by thread t; ``engine_seen`` the same for engines

Threads access through the generic proxy, engines (TMA, wgmma, bulk copies) through the async proxy.
Accesses of the same bytes through both are in causality order only with a fence.proxy.async between
them (PTX ISA, memory consistency model, "proxy-preserved base causality order"):

    generic write, then an engine reads     fence by the writer, then a barrier: what cp.async or
                                            st.shared wrote for wgmma, what stmatrix did for TMA
    generic read or write, then an          fence by who read or wrote, before it says that the slot
    engine writes                           is free: nothing else keeps a read from seeing the write
    an engine writes, then generic          none: completion, once a wait has observed it, is
                                            followed by an implicit fence (PTX ISA, "async proxy")
    an engine reads or writes, then         none: one proxy; its waits order them
    the same kind of engine does

The second line is the strict one. CUTLASS keeps it too: the epilogue of its Hopper kernels fences
between its reads of a tile and the release of the tile to TMA, as it does before every TMA store.
Kernels of the passes need it where lanes read a ring that TMA fills: mma.sync, and wgmma with an
operand in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..base.clocks import Clock, Clocks
from ..base.report import HazardKind
from .snapshot import Snapshot, first_of_runs

Array = np.ndarray[Any, Any]
Report = Callable[[HazardKind, int, int, int, int], None]
"""Takes kind, granule, thread, other thread or -1, other event or 0."""

IN_FLIGHT: Final = 2**31 - 1
"""Event of a write by an asynchronous copy that no wait has completed."""


@dataclass
class _EngineReads:
    """By granule, when an engine read it last; the ``first`` and ``last`` that it ever did."""

    seen: Array
    first: int = IN_FLIGHT
    last: int = -1


class Shadow:
    """Shadow state of one CTA's shared window."""

    def __init__(self, granules: int, clocks: Clocks, report: Report) -> None:
        self.clocks = clocks
        self._report = report
        self.writer = np.full(granules, clocks.never, np.int32)
        self.wrote = np.full(granules, IN_FLIGHT, np.int32)
        self.site = np.zeros(granules, np.int32)
        self.atomic = np.zeros(granules, np.bool_)
        self.seen = np.zeros((granules, clocks.threads), np.int32)
        self.last_seen = np.zeros(granules, np.int32)
        self.engine_seen: dict[int, _EngineReads] = {}
        self.guarded: Array | None = None  # granules that hold a live mbarrier
        # Whether threads that write one granule in one statement race whatever they write.
        self.strict = False
        # What is told which granules an event begins to write.
        self.told: Callable[[Array, int], None] | None = None

    # Threads

    def read(self, tids: Array, granules: Array, now: int) -> None:
        """Judge a read by ``tids`` (a,) of ``granules``, shaped (), (a,), (a, k) or (1, k)."""
        who = tids if granules.ndim < 2 else tids[:, None]
        wrote = self.wrote[granules]
        if not self._is_known(wrote):
            bad = wrote > self.clocks.known(who, self.writer[granules])
            if bad.any():
                who, places = np.broadcast_arrays(who, granules)
                self._blame_read(int(who[bad][0]), int(places[bad][0]))
        self.seen[granules, who] = now
        self.last_seen[granules] = now

    def _is_known(self, wrote: Array) -> bool:
        """Whether every thread knows of these writes: the common case, by one comparison."""
        return not self.clocks.has_engines and wrote.max(initial=0) <= self.clocks.lowest

    def _blame_read(self, thread: int, granule: int) -> None:
        """Report a read of bytes whose write is not ordered before it."""
        writer = int(self.writer[granule])
        if writer == self.clocks.never:
            self._report("uninitialised-read", granule, thread, -1, 0)
            return
        arriving = self.wrote[granule] == IN_FLIGHT or writer > self.clocks.never
        kind: HazardKind = "read-before-arrival" if arriving else "race"
        self._report(kind, granule, thread, self._thread(writer), int(self.site[granule]))

    def _thread(self, agent: int) -> int:
        return agent if agent < self.clocks.threads else -1

    def write(self, tids: Array, granules: Array, now: int, *, in_flight: bool = False) -> None:
        """Judge a write of threads; ``in_flight`` marks an asynchronous copy issued now."""
        who, granules = np.broadcast_arrays(tids if granules.ndim < 2 else tids[:, None], granules)
        self._check_write(who, granules, atomic=False)
        self._record(who, granules, IN_FLIGHT if in_flight else now, now)
        if self.strict:
            several = self.writer[granules] != who
            if several.any():
                self.clash(who[several], granules[several], now)

    def _record(self, who: Array | int, granules: Array, wrote: int, site: int) -> None:
        if self.told is not None:
            self.told(granules, site)
        self.writer[granules] = who
        self.wrote[granules] = wrote
        self.site[granules] = site
        self.atomic[granules] = False

    def update(self, tids: Array, granules: Array, now: int) -> None:
        """Judge atomic updates: ordered among themselves, not against plain accesses."""
        who, granules = np.broadcast_arrays(tids, granules)
        fresh = self.writer[granules] == self.clocks.never
        if fresh.any():
            self._blame_read(int(who[fresh][0]), int(granules[fresh][0]))
        self._check_write(who, granules, atomic=True)
        self._record(who, granules, now, now)
        self.atomic[granules] = True

    def clash(self, tids: Array, granules: Array, now: int) -> None:
        """Report two threads that write different values to one granule in one statement."""
        thread, granule = int(tids.flat[0]), int(granules.flat[0])
        self._report("race", granule, thread, int(self.writer[granule]), now)

    def _check_write(self, who: Array, granules: Array, *, atomic: bool) -> None:
        wrote = self.wrote[granules]
        if not self._is_known(wrote):
            writer = self.writer[granules]
            bad = wrote > self.clocks.known(who, writer)
            bad &= writer != self.clocks.never
            if atomic:
                bad &= ~self.atomic[granules]
            if bad.any():
                self._blame_write(int(who[bad][0]), int(granules[bad][0]))
        if self.guarded is not None:
            self._check_guarded(int(who.flat[0]), granules)
        self._check_engines(who, granules)
        # Reads older than anything unknown to the writer cannot conflict: the common case, cheap.
        late = self.last_seen[granules] > self.clocks.floor(who)
        if not late.any():
            return
        writers, places = who[late], granules[late]
        unseen = self.seen[places] > self.clocks.of_threads(writers)
        rows = np.flatnonzero(unseen.any(axis=1))
        for row in rows[:1]:
            reader = int(np.argmax(unseen[row]))
            event = int(self.seen[places[row], reader])
            place = int(places[row])
            self._report("write-while-read", place, int(writers[row]), reader, event)

    def _check_engines(self, who: Array, granules: Array) -> None:
        """Report what engines may still be reading where threads write."""
        low, high = (granules.min(), granules.max()) if granules.size else (0, -1)
        for engine, reads in self.engine_seen.items():
            if reads.last < low or high < reads.first:
                continue
            unseen = reads.seen[granules] > self.clocks.of_engine(who, engine)
            if unseen.any():
                place = int(granules[unseen][0])
                thread = int(who[unseen][0])
                self._report("write-while-read", place, thread, -1, int(reads.seen[place]))

    def _blame_write(self, thread: int, granule: int) -> None:
        writer = int(self.writer[granule])
        arriving = self.wrote[granule] == IN_FLIGHT or writer > self.clocks.never
        kind: HazardKind = "write-in-flight" if arriving else "race"
        self._report(kind, granule, thread, self._thread(writer), int(self.site[granule]))

    def _check_guarded(self, thread: int, granules: Array) -> None:
        assert self.guarded is not None
        hit = self.guarded[granules]
        if hit.any():
            place = int(granules[hit][0])
            self._report("mbarrier-overwritten", place, thread, -1, int(self.site[place]))

    def arrive(self, tids: Array, granules: Array, now: int) -> None:
        """Complete asynchronous copies of ``tids`` for them, by a wait at event ``now``."""
        who, granules = np.broadcast_arrays(tids[:, None], granules)
        mine = (self.writer[granules] == who) & (self.wrote[granules] == IN_FLIGHT)
        self.wrote[granules[mine]] = now

    # Engines

    def engine_read(
        self, engine: int, tids: Array, clock: Clock, granules: Array, now: int
    ) -> None:
        """Judge a read by an engine from ``now`` on; ``clock``: what is ordered before it.

        ``granules`` ascend.
        """
        if not len(granules):
            return
        writer, wrote = self.writer[granules], self.wrote[granules]
        late = wrote > clock.of(writer, self.clocks.plane)
        if late.any():  # else known, as what is fenced is
            self._blame_engine(int(tids[0]), granules, late, wrote > clock.of(writer))
        if engine not in self.engine_seen:
            self.engine_seen[engine] = _EngineReads(np.zeros(len(self.writer), np.int32))
        reads = self.engine_seen[engine]
        reads.seen[granules] = now
        reads.first = min(reads.first, int(granules[0]))
        reads.last = max(reads.last, int(granules[-1]))

    def _blame_engine(self, thread: int, granules: Array, unfenced: Array, bad: Array) -> None:
        """Report reads of what is not known, and of what a thread wrote that is not fenced."""
        if bad.any():
            self._blame_read(thread, int(granules[bad][0]))
        unfenced = ~bad & (self.writer[granules] < self.clocks.threads) & unfenced
        if unfenced.any():
            place = int(granules[unfenced][0])
            self._report(
                "missing-proxy-fence", place, thread, int(self.writer[place]), int(self.site[place])
            )

    def engine_write(self, engine: int, thread: int, granules: Array, now: int) -> None:
        """Judge a write by an engine for ``thread``, in flight until ``landed`` and waited for."""
        who = np.full(granules.shape, thread)
        self._check_write(who, granules, atomic=False)
        self._check_fenced(thread, granules)
        self._record(engine, granules, IN_FLIGHT, now)

    def _check_fenced(self, thread: int, granules: Array) -> None:
        """Report generic accesses that ``thread`` knows of without a proxy fence since."""
        knows, fenced = self.clocks.row(thread), self.clocks.row(thread, self.clocks.plane)
        threads = self.clocks.threads
        writer, wrote = self.writer[granules], self.wrote[granules]
        bad = (writer < threads) & (wrote > fenced[writer]) & (wrote <= knows[writer])
        if bad.any():
            place = int(granules[bad][0])
            self._report(
                "missing-proxy-fence", place, thread, int(self.writer[place]), int(self.site[place])
            )
            return
        read = granules[self.last_seen[granules] > fenced[:threads].min()]
        seen = self.seen[read]
        unfenced = (seen > fenced[:threads]) & (seen <= knows[:threads])
        for row in np.flatnonzero(unfenced.any(axis=1))[:1]:
            reader = int(np.argmax(unfenced[row]))
            self._report(
                "missing-proxy-fence", int(read[row]), thread, reader, int(seen[row, reader])
            )

    def landed(self, engine: int, granules: Array, site: int, now: int) -> None:
        """Complete the write issued at ``site`` at ``now`` for who waits for the engine."""
        mine = (self.writer[granules] == engine) & (self.site[granules] == site)
        self.wrote[granules[mine]] = now

    def snapshot(self, into: Snapshot) -> None:
        """Add who wrote and who read what is not known to all, and which statement wrote it."""
        live = into.is_live(self.writer, self.wrote)
        into.judge(self.writer, self.wrote)
        flying = np.flatnonzero((self.wrote == IN_FLIGHT) & (self.writer != self.clocks.never))
        into.plain(flying, into.statements(self.site[flying]))
        into.plain(np.flatnonzero(live & self.atomic))
        into.plain(None if self.guarded is None else np.flatnonzero(self.guarded))
        oldest = int(into.floor[: self.clocks.threads].min())
        read = np.flatnonzero(self.last_seen > oldest)
        seen = self.seen[read]
        first = first_of_runs(seen)
        into.plain(read, first)
        into.judge(np.arange(self.clocks.threads), seen[first])
        for engine, reads in sorted(self.engine_seen.items()):
            into.plain(engine)
            into.judge(engine, reads.seen)
