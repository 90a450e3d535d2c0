"""Happens-before over shared memory: who wrote, who read, and what each thread knows of it.

Time is the number of the memory statement being executed by the CTA (its *event*; the log of events
gives statement and iteration).  ``knows[t, u]`` is the last event of thread u that happens before
the present of thread t: a vector clock whose components are events.  A barrier joins the clocks of
its threads.  An access at event e by thread u is ordered before thread t's present iff
``e <= knows[t, u]``; the execution order of the emulator plays no part in the judgement.

Shadow state is kept for each granule, the smallest access size of the kernel:

    writer, wrote   thread of the last write and its event; ``IN_FLIGHT`` from the issue of an
                    asynchronous copy to the wait that completes it, then the event of that wait
    site            event of the statement that wrote (for an asynchronous copy, its issue)
    seen[t]         event of the last read by thread t
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
# report(kind, granule, thread, other thread or -1, other event or 0)
Report = Callable[[str, int, int, int, int], None]

IN_FLIGHT: Final = 2**31 - 1
_SELF: Final = 2**31 - 2  # a thread knows all of its own past, but not what is still in flight


class Shadow:
    """Shadow state of one CTA's shared window."""

    def __init__(self, granules: int, threads: int, report: Report) -> None:
        self.threads = threads
        self._report = report
        # Column `threads` stands for "never written": known to nobody.
        self.knows = np.full((threads, threads + 1), -1, np.int32)
        self.knows[:, :threads] = 0
        self._keep_own_past()
        self.floor = np.zeros(threads, np.int32)  # min over knows[t, :threads]
        self.writer = np.full(granules, threads, np.int32)
        self.wrote = np.zeros(granules, np.int32)
        self.site = np.zeros(granules, np.int32)
        self.atomic = np.zeros(granules, np.bool_)
        self.seen = np.zeros((granules, threads), np.int32)
        self.last_seen = np.zeros(granules, np.int32)

    def _keep_own_past(self) -> None:
        own = np.arange(self.threads)
        self.knows[own, own] = _SELF

    def join(self, tids: Array, now: int) -> None:
        """A barrier among ``tids``, completing at event ``now``."""
        if len(tids) == self.threads:
            self.knows[:, : self.threads] = now
        else:
            merged = self.knows[tids].max(axis=0)
            merged[tids] = now
            self.knows[tids] = merged
        self.knows[:, self.threads] = -1
        self._keep_own_past()
        self.floor[tids] = self.knows[tids, : self.threads].min(axis=1)

    def read(self, tids: Array, granules: Array, now: int) -> None:
        """Threads ``tids`` (a,) read ``granules``, shaped (), (a,), (a, k) or (1, k)."""
        who = tids if granules.ndim < 2 else tids[:, None]
        bad = self.wrote[granules] > self.knows[who, self.writer[granules]]
        if bad.any():
            self._blame_read(who, granules, bad)
        self.seen[granules, who] = now
        self.last_seen[granules] = now

    def _blame_read(self, who: Array, granules: Array, bad: Array) -> None:
        who, granules = np.broadcast_arrays(who, granules)
        for t, g in _examples(who[bad], granules[bad]):
            if self.writer[g] == self.threads:
                self._report("uninitialised-read", g, t, -1, 0)
                continue
            kind = "read-before-arrival" if self.wrote[g] == IN_FLIGHT else "race"
            self._report(kind, g, t, int(self.writer[g]), int(self.site[g]))

    def write(self, tids: Array, granules: Array, now: int, *, in_flight: bool = False) -> None:
        """Threads write; ``in_flight`` marks an asynchronous copy issued now."""
        who, granules = np.broadcast_arrays(tids if granules.ndim < 2 else tids[:, None], granules)
        self._check_write(who, granules, atomic=False)
        self.writer[granules] = who
        self.wrote[granules] = IN_FLIGHT if in_flight else now
        self.site[granules] = now
        self.atomic[granules] = False

    def update(self, tids: Array, granules: Array, now: int) -> None:
        """Threads update atomically: ordered among themselves, not against plain accesses."""
        who, granules = np.broadcast_arrays(tids, granules)
        fresh = self.writer[granules] == self.threads
        if fresh.any():
            self._blame_read(who, granules, fresh)
        self._check_write(who, granules, atomic=True)
        self.writer[granules] = who
        self.wrote[granules] = now
        self.site[granules] = now
        self.atomic[granules] = True

    def clash(self, tids: Array, granules: Array, now: int) -> None:
        """Two threads wrote different values to one granule in the same statement."""
        for t, g in _examples(tids, granules):
            self._report("race", g, t, int(self.writer[g]), now)

    def _check_write(self, who: Array, granules: Array, *, atomic: bool) -> None:
        writer = self.writer[granules]
        bad = self.wrote[granules] > self.knows[who, writer]
        bad &= writer != self.threads
        if atomic:
            bad &= ~self.atomic[granules]
        if bad.any():
            for t, g in _examples(who[bad], granules[bad]):
                kind = "write-in-flight" if self.wrote[g] == IN_FLIGHT else "race"
                self._report(kind, g, t, int(self.writer[g]), int(self.site[g]))
        # Reads older than anything unknown to the writer cannot conflict: the common case, cheap.
        late = self.last_seen[granules] > self.floor[who]
        if not late.any():
            return
        writers, places = who[late], granules[late]
        unseen = self.seen[places] > self.knows[writers, : self.threads]
        rows = np.flatnonzero(unseen.any(axis=1))
        for row in rows[:1]:
            reader = int(np.argmax(unseen[row]))
            event = int(self.seen[places[row], reader])
            self._report("race", int(places[row]), int(writers[row]), reader, event)

    def arrive(self, tids: Array, granules: Array, now: int) -> None:
        """Asynchronous copies of ``tids`` are complete for them, by a wait at event ``now``."""
        who, granules = np.broadcast_arrays(tids[:, None], granules)
        mine = (self.writer[granules] == who) & (self.wrote[granules] == IN_FLIGHT)
        self.wrote[granules[mine]] = now


def _examples(threads: Array, granules: Array) -> list[tuple[int, int]]:
    """First example of a conflict; one is enough, the report counts by pairs of statements."""
    return [(int(threads.flat[0]), int(granules.flat[0]))]
