"""The barrier of a grid: every thread of a cooperative launch arrives, and waits for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import Reason
from .grid import SCOPES, Release
from .requests import Wait, Waiting

if TYPE_CHECKING:
    from .machine import Cluster
    from .thread_group import ThreadGroup

Array = np.ndarray[Any, Any]
Mask = Array | None


class Meeting(Release):
    """What all threads of a grid knew when they met: the clock of each cluster."""

    def __init__(self, clocks: dict[int, Array]) -> None:
        nobody = np.zeros((1, 0), np.int32)
        super().__init__(-1, -1, SCOPES.index("gpu"), nobody, ())
        self.clocks = clocks

    def covers(self, cluster: int, agent: int, event: int) -> bool:
        """Whether an event of a cluster happens before they met."""
        clock = self.clocks.get(cluster)
        return clock is not None and agent < clock.shape[1] and bool(clock[0, agent] >= event)


class GridBarrier:
    """The phases of the barrier for so many ``threads``: those of the CTAs that are run."""

    def __init__(self, threads: int, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self._threads = threads
        self._arrived = 0
        self._building: dict[int, Array] = {}
        self._met: list[Meeting] = []

    def arrive(self, cluster: Cluster, tids: Array, event: int) -> int:
        """Let ``tids`` arrive and return the phase that they wait for."""
        clock = cluster.clocks.release(tids, event)
        known = self._building.get(cluster.index)
        self._building[cluster.index] = (
            clock if known is None else cluster.clocks.merged(known, clock)
        )
        self._arrived += len(tids)
        phase = len(self._met)
        if self._arrived >= self._threads:
            self._met.append(Meeting(self._building))
            self._building, self._arrived = {}, 0
            cluster.grid.changes += 1
            cluster.changes += 1
        return phase

    def passed(self, cluster: Cluster, tids: Array, phase: int) -> bool:
        """Whether a wait of ``tids`` returns; if so they know what all did before."""
        if len(self._met) <= phase:
            return False
        cluster.scoped.meet(tids, self._met[phase], self._met[phase].clocks[cluster.index])
        return True

    def state(self) -> Reason:
        """What it waits for."""
        return Reason("hazard.grid_barrier", arrived=self._arrived, expected=self._threads)


def sync(group: ThreadGroup, mask: Mask) -> Waiting:
    """Run grid.sync() of cooperative groups, behind a barrier of the CTA."""
    cluster, tids = group.cta.cluster, group.active(mask)
    barrier = cluster.grid.barrier
    assert barrier is not None
    if not barrier.cooperative:
        detail = Reason("hazard.not_cooperative")
        group.hazard("barrier-divergence", mask=mask, detail=detail)
    group.count("grid_waits")
    phase = barrier.arrive(cluster, tids, group.event)
    return (
        yield Wait(
            tids,
            group.event,
            lambda: barrier.passed(cluster, tids, phase),
            barrier.state,
            outside=True,
        )
    )
