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
    from .machine import Cluster

Array = np.ndarray[Any, Any]
Block = tuple[int, int, int]
At = tuple[int, ...]

SCOPES: Final = ("cta", "cluster", "gpu", "sys")
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


@dataclass(eq=False)
class Grid:
    """One launch: its clusters by number, and where each judged access was made."""

    blocks: list[list[Block]] = field(default_factory=list)
    sites: dict[tuple[int, int], At] = field(default_factory=dict)
    releases: dict[tuple[int, int], list[Release]] = field(default_factory=dict)
    agents: int = _ENGINES  # of one cluster, at most

    def enter(self, blocks: list[Block], threads: int) -> int:
        """The number of the next cluster, of so many threads."""
        self.agents = 4 * threads + _ENGINES
        self.blocks.append(blocks)
        if len(self.blocks) * self.agents >= 2**31:
            raise EmulatorError(f"cannot emulate more than {len(self.blocks)} clusters in one call")
        return len(self.blocks) - 1


class Scoped:
    """Synchronisation of one cluster's threads at the scope of the GPU."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._columns: dict[Release, int] = {}
        self._fenced: dict[
            int, tuple[int, Array, tuple[Release, ...]]
        ] = {}  # thread -> scope, clock, known
        self._observed: dict[int, list[Release]] = {}  # read, and no fence since

    # What happens before what

    def unordered(self, who: Array, cluster: Array, agent: Array, event: Array) -> Array:
        """Which accesses of other clusters do not happen before the present of threads ``who``."""
        if not self._columns:
            return np.ones(who.shape, np.bool_)
        knows = self._cluster.clocks.knows
        return np.array([
            not any(knows[t, column] and release.covers(int(c), int(a), int(e))
                    for release, column in self._columns.items())
            for t, c, a, e in zip(who, cluster, agent, event, strict=True)
        ], np.bool_)  # fmt: skip

    def _known(self, clock: Array) -> tuple[Release, ...]:
        columns = self._columns.items()
        return tuple(r for r, c in columns if c < clock.shape[1] and clock[0, c])

    def _acquire(self, tid: int, releases: list[Release], scope: int) -> None:
        clocks, mine = self._cluster.clocks, self._cluster.index
        who = np.array([tid])
        for release in releases:
            if min(scope, release.scope) < self._needed(tid, release):
                continue
            if release.cluster == mine:
                clocks.acquire(who, release.clock)
                continue
            if release not in self._columns:
                self._columns[release] = clocks.engine()
            clocks.mark(tid, self._columns[release])

    def _needed(self, tid: int, release: Release) -> int:
        """The least scope that holds both threads."""
        if release.cluster != self._cluster.index:
            return SCOPES.index("gpu")
        threads = self._cluster.threads
        return int(release.thread // threads != tid // threads)

    # Operations

    def fence(self, tids: Array, event: int, scope: int) -> None:
        """A fence: what was read before is acquired, what follows may release."""
        clocks = self._cluster.clocks
        for tid in map(int, tids):
            self._acquire(tid, self._observed.pop(tid, []), scope)
            clock = clocks.release(np.array([tid]), event)
            self._fenced[tid] = scope, clock, self._known(clock)

    def read(self, tid: int, key: tuple[int, int], scope: int, *, acquire: bool) -> None:
        """A strong read of what others may have released by it."""
        releases = self._cluster.grid.releases.get(key)
        if not releases:
            return
        if acquire:
            self._acquire(tid, releases, scope)
        else:
            self._observed.setdefault(tid, []).extend(releases)

    def write(
        self, tid: int, event: int, key: tuple[int, int], scope: int, *, release: bool, update: bool
    ) -> None:
        """A strong write; an ``update``, which has read what it replaces, passes that on."""
        grid = self._cluster.grid
        known: tuple[Release, ...] = ()
        clock: Array | None = None
        if release:
            clock = self._cluster.clocks.release(np.array([tid]), event)
            known = self._known(clock)
        elif tid in self._fenced:
            fenced, clock, known = self._fenced[tid]
            scope = min(scope, fenced)
        earlier = grid.releases.get(key, []) if update else []
        if clock is not None:
            mine = self._cluster.index
            earlier = [r for r in earlier if (r.cluster, r.thread) != (mine, tid)]
            earlier.append(Release(mine, tid, scope, clock, known))
        if earlier:
            grid.releases[key] = earlier
        else:
            grid.releases.pop(key, None)
