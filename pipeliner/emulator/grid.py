"""What the CTAs of one launch have in common, and what of one cluster happens before another.

Nothing orders two clusters but synchronisation at the scope of the GPU. A *release* is what a
thread made known there: by an atomic operation or a store with release semantics, by one that
follows a fence, or at a barrier of the grid. A thread of another cluster that acquires it, by
reading what was written so, gets a column of its clock for it, which goes on to whoever
synchronises with that thread (PTX ISA, memory consistency model: release and acquire patterns,
synchronizes-with, causality order; the observation of a read-modify-write passes a release on).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import EmulatorError

if TYPE_CHECKING:
    from .grid_barrier import GridBarrier
    from .machine import Cluster

Array = np.ndarray[Any, Any]
Block = tuple[int, int, int]
At = tuple[int, ...]

SCOPES: Final = ("cta", "cluster", "gpu", "sys")
"""Scopes of synchronisation, each within the next."""

_ENGINES: Final = 4096
"""Engines that a cluster may have beside four for each thread."""


@dataclass(eq=False)
class Release:
    """What one thread of a cluster knew when it released it; ``known``: of other clusters."""

    cluster: int
    thread: int
    scope: int
    clock: Array
    known: tuple[Release, ...]

    def covers(self, cluster: int, agent: int, event: int) -> bool:
        """Whether an event of a cluster happens before this release."""
        if cluster == self.cluster and agent < self.clock.shape[1]:
            return bool(self.clock[0, agent] >= event)
        return any(release.covers(cluster, agent, event) for release in self.known)


@dataclass(frozen=True, eq=False)
class Value:
    """What a strong write left at an address: by whom, at which scope, and what it released."""

    cluster: int
    thread: int
    scope: int
    releases: tuple[Release, ...]


@dataclass(eq=False)
class Grid:
    """One launch: its clusters by number, and where each judged access was made."""

    blocks: list[list[Block]] = field(default_factory=list)
    sites: dict[tuple[int, int], At] = field(default_factory=dict)
    values: dict[tuple[int, int], Value] = field(default_factory=dict)
    agents: int = _ENGINES  # of one cluster, at most
    changes: int = 0  # of memory, that a thread of another cluster may wait for
    barrier: GridBarrier | None = None
    waited: bool = False  # a thread has, for the preceding kernel
    crowds: list[tuple[int, Array]] = field(default_factory=list)  # cluster and threads of each
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def crowd(self, cluster: int, threads: Array) -> int:
        """The agent that stands for some threads of a cluster."""
        key = cluster, threads.tobytes()
        if key not in self._numbers:
            self.crowds.append((cluster, threads))
            self._numbers[key] = -len(self.crowds)
        return self._numbers[key]

    def enter(self, blocks: list[Block], threads: int) -> int:
        """Enter the next cluster, of so many threads, and return its number."""
        self.agents = 4 * threads + _ENGINES
        self.blocks.append(blocks)
        if len(self.blocks) * self.agents >= 2**31:
            raise EmulatorError("emulator.clusters", most=len(self.blocks) - 1)
        return len(self.blocks) - 1


class Scoped:
    """Synchronisation of one cluster's threads at the scope of the GPU."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._columns: dict[Release, int] = {}
        # By thread: fences, of falling scope, with the clock and what was known at each;
        self._fenced: dict[int, list[tuple[int, Array, tuple[Release, ...]]]] = {}
        # and what was read, with the scope of the read, and no fence has acquired.
        self._observed: dict[int, list[tuple[Release, int]]] = {}

    # What happens before what

    def unordered(self, who: Array, cluster: Array, agent: Array, event: Array) -> Array:
        """Which accesses of other clusters do not happen before the present of threads ``who``."""
        if not self._columns:
            return np.ones(who.shape, np.bool_)
        knows = self._cluster.clocks.knows
        return np.array(
            [
                not any(
                    knows[t, column] and release.covers(int(c), int(a), int(e))
                    for release, column in self._columns.items()
                )
                for t, c, a, e in zip(who, cluster, agent, event, strict=True)
            ],
            np.bool_,
        )

    def _known(self, clock: Array) -> tuple[Release, ...]:
        columns = self._columns.items()
        return tuple(r for r, c in columns if c < clock.shape[1] and clock[0, c])

    def _acquire(self, tid: int, release: Release, scope: int) -> bool:
        """Whether ``tid`` acquires a release at a scope."""
        if min(scope, release.scope) < self._scope_between(tid, release.cluster, release.thread):
            return False
        clocks = self._cluster.clocks
        if release.cluster == self._cluster.index:
            clocks.acquire(np.array([tid]), release.clock)
            return True
        if release not in self._columns:
            self._columns[release] = clocks.engine()
        clocks.mark(tid, self._columns[release])
        return True

    def _scope_between(self, tid: int, cluster: int, thread: int) -> int:
        """The least scope that holds both threads."""
        if cluster != self._cluster.index:
            return SCOPES.index("gpu")
        threads = self._cluster.threads
        return int(thread // threads != tid // threads)

    def _sees(self, tid: int, value: Value | None, scope: int) -> tuple[Release, ...]:
        """What a strong operation that reads ``value`` observes: a write morally strong with it."""
        if value is None or min(scope, value.scope) < self._scope_between(
            tid, value.cluster, value.thread
        ):
            return ()
        return value.releases

    def meet(self, tids: Array, release: Release, clock: Array) -> None:
        """Let threads acquire a ``release`` of the grid, their own cluster's part by its clock."""
        clocks = self._cluster.clocks
        clocks.acquire(tids, clock)
        if release not in self._columns:
            self._columns[release] = clocks.engine()
        for tid in map(int, tids):
            clocks.mark(tid, self._columns[release])

    # Operations

    def fence(self, tids: Array, event: int, scope: int) -> None:
        """Run a fence: what was read before is acquired, what follows may release."""
        clocks = self._cluster.clocks
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
        for release in self._sees(tid, self._cluster.grid.values.get(key), scope):
            if not (acquire and self._acquire(tid, release, scope)):
                kept = self._observed.setdefault(tid, [])
                if (release, scope) not in kept:
                    kept.append((release, scope))

    def write(
        self, tid: int, event: int, key: tuple[int, int], scope: int, *, release: bool, update: bool
    ) -> None:
        """Note a strong write; an ``update``, which has read what it replaces, passes that on."""
        grid, mine = self._cluster.grid, self._cluster.index
        given: list[Release] = []
        if release:
            clock = self._cluster.clocks.release(np.array([tid]), event)
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
