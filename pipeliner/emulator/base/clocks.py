"""What each thread of a cluster knows of every other's past: vector clocks whose units are events.

Time is the number of the statement being executed by the cluster (its *event*; the log of events
gives statement and iteration).  ``knows[t, u]`` is the last event of agent u that happens before
the present of thread t: an access at event e by u is ordered before it iff ``e <= knows[t, u]``.
The order in which the emulator happened to run things plays no part.

Agents are the threads and, in further columns, asynchronous engines: one for every mbarrier (the
copies that it counts), for the matrix unit of every warpgroup and for the bulk stores of a thread.

``fenced[t, u]`` is the last event of u that is followed, on its way to the present of t, by a proxy
fence (PTX ISA 8.8, causality order: accesses through different proxies need one).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_SELF: Final = 2**31 - 2
"""What a thread knows of itself: all of its past, but not what is still in flight."""

_ENGINES: Final = 32
"""Columns for engines that a clock begins with."""


class Clocks:
    """Vector clocks of all threads of one cluster; ``proxies`` adds fences and engines.

    ``mixed``: with fences of global memory, which is touched through both proxies.
    ``timed``: with what is earlier in time, whether or not it can be seen.

    A clock that is passed around is an array (planes, columns): what is known and, with proxies,
    what is fenced.  It may lack the columns of engines made after it.
    """

    def __init__(
        self, threads: int, *, proxies: bool, mixed: bool = False, timed: bool = False
    ) -> None:
        self.threads = threads
        self.never = threads  # column of "never written": known to nobody
        self._fences = proxies + mixed
        self._timed = timed
        self._planes = 1 + self._fences + timed
        self._used = threads + 1
        columns = self._used + (_ENGINES if proxies else 0)
        self._set_state(np.zeros((threads, self._planes, columns), np.int32))
        self._state[:, :, self.never] = -1
        self._keep_own_past(np.arange(threads))
        self.floor = np.zeros(threads, np.int32)  # min over knows[t, :threads]
        self._lives = np.ones(threads, np.bool_)  # whether a thread may go on
        self.lowest = 0  # min of these: what every thread knows of every other one

    def _set_state(self, state: Array) -> None:
        self._state = state
        self.knows = state[:, 0]
        # Without proxies everything counts as fenced.
        self.fenced = state[:, self.plane]
        self.fenced_globally = state[:, self._fences]
        # Of mbarriers: the last phase that had completed at some time before now.
        self.earlier = state[:, -1 if self._timed else 0]

    @property
    def plane(self) -> int:
        """The plane of a clock that says what is fenced in shared memory."""
        return min(1, self._fences)

    @property
    def has_engines(self) -> bool:
        """Whether there are agents besides the threads."""
        return self._used > self.threads + 1

    def _keep_own_past(self, tids: Array) -> None:
        self.knows[tids, tids] = _SELF

    def end(self, tids: Array) -> None:
        """Note that threads make no more accesses."""
        self._lives[tids] = False

    def planes(self, agents: Array) -> Array:
        """What each thread knows of ``agents``, and what is fenced for it: (threads, planes, ...).

        Only of threads that may go on; then once what those that may not know together. Of itself
        each knows all, which says nothing: there stands what its neighbour knows of it, so that
        rows of threads that go together are one.
        """
        planes = [*range(self.plane + 1), *([self._planes - 1] if self._timed else [])]
        state = self._state if len(planes) == self._planes else self._state[:, planes]
        whole = np.take(state, agents, axis=2)
        own = np.flatnonzero(agents < self.threads)
        who = agents[own]
        beside = np.where(who ^ 1 < self.threads, who ^ 1, who - 1)
        whole[who, 0, own] = self.knows[beside, who]
        if self._lives.all():
            return whole
        return np.concatenate([whole[self._lives], whole[~self._lives].max(axis=0)[None]])

    def covered(self) -> Array:
        """By agent, the last event that every thread that may go on knows, fenced if need be."""
        whole = self._state[:, : self.plane + 1, : self._used]
        least: Array = whole[self._lives].min(axis=(0, 1), initial=_SELF)
        return least

    def engine(self) -> int:
        """Return the column of a new engine."""
        if self._used == self._state.shape[2]:
            self._set_state(_widened(self._state, 2 * self._used))
        self._used += 1
        return self._used - 1

    def release(self, tids: Array, event: int) -> Array:
        """Return what ``tids`` know together at ``event``, for others to acquire."""
        clock: Array = self._state[_rows(tids)].max(axis=0)
        clock[0, tids] = event
        return clock

    def precede(self, clock: Array, tids: Array) -> None:
        """Let who acquires ``clock`` come later in time than what ``tids`` do now."""
        if self._timed:
            np.maximum(clock[-1], self.earlier[tids].max(axis=0), out=clock[-1])

    def blank(self) -> Array:
        """Return a clock that knows of the launch alone."""
        clock = np.zeros(self._state.shape[1:], np.int32)
        clock[:, self.never] = -1
        return clock

    def merged(self, first: Array, second: Array) -> Array:
        """Return a clock that knows what either does."""
        return np.maximum(self.whole(first), self.whole(second))

    def whole(self, clock: Array) -> Array:
        """Return ``clock`` with a column for every engine."""
        missing = clock.shape[1] < self._state.shape[2]
        return _widened(clock, self._state.shape[2]) if missing else clock

    def acquire(self, tids: Array, clock: Array) -> None:
        """Order the past of ``clock`` before the present of ``tids``."""
        rows = _rows(tids)
        known = self._state[rows]
        np.maximum(known, self.whole(clock), out=known)
        if not isinstance(rows, slice):
            self._state[rows] = known
        self._keep_own_past(tids)
        self.floor[rows] = self.knows[rows, : self.threads].min(axis=1)
        self.lowest = int(self.floor.min())

    def mark(self, tid: int, column: int) -> None:
        """Let ``tid``, and who synchronises with it, know all that an engine stands for."""
        self._state[tid, :, column] = 1

    def join(self, tids: Array, now: int) -> None:
        """Complete a barrier among ``tids`` at event ``now``."""
        if self._used == self.threads + 1 and self._planes == 1 and len(tids) == self.threads:
            self.knows[:, : self.threads] = now
            self._keep_own_past(tids)
            self.floor[:] = self.lowest = now
            return
        self.acquire(tids, self.release(tids, now))

    def fence(self, tids: Array, event: int, *, spaces: tuple[str, ...]) -> None:
        """Run a proxy fence: what the threads know by now may be used through any proxy."""
        if not self._fences:
            return
        known = self.knows[tids]
        known[np.arange(len(tids)), tids] = event
        if "shared" in spaces:
            self.fenced[tids] = np.maximum(self.fenced[tids], known)
        if "global" in spaces and self._fences > 1:
            self.fenced_globally[tids] = np.maximum(self.fenced_globally[tids], known)

    def common(self, tids: Array) -> Array:
        """Return what each of ``tids`` knows: the past of an operation that they make together."""
        clock: Array = self._state[_rows(tids)].min(axis=0)
        return clock


def _rows(tids: Array) -> Array | slice:
    """Return threads as a slice if they are neighbours, so that numpy need not gather."""
    first, last = int(tids[0]), int(tids[-1])
    return slice(first, last + 1) if last - first == len(tids) - 1 else tids


def _widened(array: Array, columns: int) -> Array:
    """Return ``array`` with more columns of zeros, along the last axis."""
    out = np.zeros((*array.shape[:-1], columns), array.dtype)
    out[..., : array.shape[-1]] = array
    return out
