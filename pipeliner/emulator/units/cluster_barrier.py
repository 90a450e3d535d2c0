"""barrier.cluster: every thread of a cluster arrives, then waits for all others (PTX 9.7.13.4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..memory.snapshot import Snapshot
from ..memory.state import ClusterState, GroupState

Array = np.ndarray[Any, Any]


class ClusterBarrier:
    """The one hardware barrier of a cluster, phase by phase."""

    def __init__(self, cluster: ClusterState, threads: int) -> None:
        self._cluster = cluster
        self._phase = 0
        self._of = np.full(threads, -1)  # phase at which each thread arrived, -1: waited since
        self._arrived = np.zeros(threads, np.bool_)
        self._exited = np.zeros(threads, np.bool_)
        self._building = cluster.clocks.blank()
        self._completed = self._building

    def arrive(self, group: GroupState, tids: Array, *, release: bool = True) -> None:
        """Run barrier.cluster.arrive."""
        again = tids[self._of[tids] >= 0]
        if len(again):
            group.hazard(
                "barrier-divergence",
                thread=int(again[0]),
                detail=Reason("hazard.cluster_arrives_twice"),
            )
        if release:
            clock = self._cluster.clocks.release(tids, group.event)
            self._building = self._cluster.clocks.merged(self._building, clock)
        self._of[tids] = self._phase
        self._arrived[tids] = True
        self._settle()

    def exit(self, tids: Array) -> None:
        """Wait no more for threads that have exited."""
        self._exited[tids] = True
        if self._arrived.any():
            self._settle()

    def _settle(self) -> None:
        if not (self._arrived | self._exited).all():
            return
        self._completed = self._building.copy()
        self._arrived[:] = False
        self._phase += 1
        self._cluster.changes += 1

    def passed(self, group: GroupState, tids: Array) -> bool:
        """Return whether a wait of ``tids`` returns; if so they acquire what others released."""
        absent = tids[self._of[tids] < 0]
        if len(absent):
            group.hazard(
                "barrier-divergence",
                thread=int(absent[0]),
                detail=Reason("hazard.cluster_waits_first"),
            )
            return True
        if (self._of[tids] >= self._phase).any():
            return False
        self._cluster.clocks.acquire(tids, self._completed)
        self._of[tids] = -1
        return True

    def snapshot(self, into: Snapshot) -> None:
        """Add who has arrived, at this phase or the one before."""
        into.plain(np.where(self._of < 0, -1, self._phase - self._of))
        into.plain(self._arrived, self._exited)
        into.acquired(self._building)
        into.acquired(self._completed)

    def state(self) -> Reason:
        """What it waits for."""
        arrived = int(self._arrived.sum())
        return Reason("hazard.cluster_barrier", arrived=arrived, expected=len(self._of))
