"""What of one cluster happens before another.

Nothing orders two clusters but synchronisation at the scope of the GPU. A *release* is what a
thread made known there: by an atomic operation or a store with release semantics, by one that
follows a fence, or at a barrier of the grid. A thread of another cluster that acquires it, by
reading what was written so, gets a column of its clock for it, which goes on to whoever
synchronises with that thread (PTX ISA, memory consistency model: release and acquire patterns,
synchronizes-with, causality order; the observation of a read-modify-write passes a release on).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.clocks import Clock, Clocks
from .grid import SCOPES, Grid, Release, Value

Array = np.ndarray[Any, Any]


class Scoped:
    """Synchronisation of one cluster's threads at the scope of the GPU."""

    def __init__(self, clocks: Clocks, grid: Grid, *, cluster: int, threads: int) -> None:
        self._clocks = clocks
        self._grid = grid
        self._cluster = cluster  # its number in the grid
        self._threads = threads  # of one CTA
        self._columns: dict[Release, int] = {}
        # By thread: fences, of falling scope, with the clock and what was known at each;
        self._fenced: dict[int, list[tuple[int, Clock, tuple[Release, ...]]]] = {}
        # and what was read, with the scope of the read, and no fence has acquired.
        self._observed: dict[int, list[tuple[Release, int]]] = {}

    # What happens before what

    def unordered(self, who: Array, cluster: Array, agent: Array, event: Array) -> Array:
        """Which accesses of other clusters do not happen before the present of threads ``who``."""
        if not self._columns:
            return np.ones(who.shape, np.bool_)
        known = self._clocks.known
        return np.array(
            [
                not any(
                    known(t, column) and release.covers(int(c), int(a), int(e))
                    for release, column in self._columns.items()
                )
                for t, c, a, e in zip(who, cluster, agent, event, strict=True)
            ],
            np.bool_,
        )

    def _known(self, clock: Clock) -> tuple[Release, ...]:
        return tuple(release for release, column in self._columns.items() if clock.of(column))

    def _acquire(self, tid: int, release: Release, scope: int) -> bool:
        """Whether ``tid`` acquires a release at a scope."""
        if min(scope, release.scope) < self._scope_between(tid, release.cluster, release.thread):
            return False
        clocks = self._clocks
        if release.cluster == self._cluster and release.clock is not None:
            clocks.acquire(np.array([tid]), release.clock)
            return True
        if release not in self._columns:
            self._columns[release] = clocks.engine()
        clocks.mark(np.array([tid]), self._columns[release])
        return True

    def _scope_between(self, tid: int, cluster: int, thread: int) -> int:
        """The least scope that holds both threads."""
        if cluster != self._cluster:
            return SCOPES.index("gpu")
        return int(thread // self._threads != tid // self._threads)

    def _sees(self, tid: int, value: Value | None, scope: int) -> tuple[Release, ...]:
        """What a strong operation that reads ``value`` observes: a write morally strong with it."""
        if value is None or min(scope, value.scope) < self._scope_between(
            tid, value.cluster, value.thread
        ):
            return ()
        return value.releases

    def meet(self, tids: Array, release: Release, clock: Clock) -> None:
        """Let threads acquire a ``release`` of the grid, their own cluster's part by its clock."""
        clocks = self._clocks
        clocks.acquire(tids, clock)
        if release not in self._columns:
            self._columns[release] = clocks.engine()
        clocks.mark(tids, self._columns[release])

    # Operations

    def fence(self, tids: Array, event: int, scope: int) -> None:
        """Run a fence: what was read before is acquired, what follows may release."""
        clocks = self._clocks
        for tid in map(int, tids):
            observed = self._observed.pop(tid, [])
            left = [(r, s) for r, s in observed if not self._acquire(tid, r, scope)]
            if left:
                self._observed[tid] = left
            clock = clocks.release(np.array([tid]), event)
            wider = [fenced for fenced in self._fenced.get(tid, []) if fenced[0] > scope]
            self._fenced[tid] = [*wider, (scope, clock, self._known(clock))]

    def read(self, tid: int, key: tuple[int, int], scope: int, *, acquire: bool) -> None:
        """Note a strong read of what others may have released by it."""
        for release in self._sees(tid, self._grid.values.get(key), scope):
            if not (acquire and self._acquire(tid, release, scope)):
                kept = self._observed.setdefault(tid, [])
                if (release, scope) not in kept:
                    kept.append((release, scope))

    def write(
        self, tid: int, event: int, key: tuple[int, int], scope: int, *, release: bool, update: bool
    ) -> None:
        """Note a strong write; an ``update``, which has read what it replaces, passes that on."""
        grid, mine = self._grid, self._cluster
        given: list[Release] = []
        if release:
            clock = self._clocks.release(np.array([tid]), event)
            given = [Release(mine, tid, scope, clock, self._known(clock))]
        for fenced, clock, known in self._fenced.get(tid, []):
            if not release or fenced > scope:
                given.append(Release(mine, tid, fenced, clock, known))
        earlier = self._sees(tid, grid.values.get(key), scope) if update else ()
        grid.values[key] = Value(mine, tid, scope, (*_not_renewed(earlier, given), *given))


def _not_renewed(earlier: tuple[Release, ...], given: list[Release]) -> list[Release]:
    """Return the releases of which the same thread gives none that is as wide."""
    return [
        old
        for old in earlier
        if not any(
            (new.cluster, new.thread) == (old.cluster, old.thread) and new.scope >= old.scope
            for new in given
        )
    ]
