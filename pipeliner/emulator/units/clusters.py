"""What the CTAs of a cluster share beside mbarriers: their barrier, and each other's shared memory.

barrier.cluster: every thread of a cluster arrives, then waits for all others (PTX ISA 9.7.13.4).
Behind a relaxed arrival it knows of them that they have started, and of what they did before only
which mbarriers they initialised and fenced by fence.mbarrier_init (PTX ISA, membar/fence).

Distributed shared memory (PTX ISA, shared::cluster; CUDA C++ Programming Guide): a CTA's shared
memory is there from its start to its exit. So who touches it must know that the CTA has started,
and the CTA must know of the access when it exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..memory.snapshot import Snapshot
from ..memory.state import ClusterState, CtaState, GroupState

Array = np.ndarray[Any, Any]

Inits = Mapping[tuple[int, int], Array]
"""Initialised mbarriers by rank and byte offset: which threads of the cluster know of each."""


class ClusterBarrier:
    """The one hardware barrier of a cluster, phase by phase."""

    def __init__(self, cluster: ClusterState, threads: int) -> None:
        self._cluster = cluster
        self._phase = 0
        self._of = np.full(threads, -1)  # phase at which each thread arrived, -1: waited since
        self._arrived = np.zeros(threads, np.bool_)
        self._exited = np.zeros(threads, np.bool_)
        self._met = np.zeros(threads, np.bool_)  # which threads know that all have started
        self._building = cluster.clocks.blank()
        self._completed = self._building
        self._telling: Inits = {}
        self._told: Inits = {}

    def arrive(self, group: GroupState, tids: Array, inits: Inits, *, release: bool = True) -> None:
        """Run barrier.cluster.arrive of threads that have fenced the initialisations ``inits``."""
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
        self._telling = {**self._telling, **inits}
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
        self._completed, self._told = self._building.copy(), self._telling
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
        for told in self._told.values():
            told[tids] = True
        self._met[tids] = True
        self._of[tids] = -1
        return True

    def snapshot(self, into: Snapshot) -> None:
        """Add who has arrived, at this phase or the one before."""
        into.plain(np.where(self._of < 0, -1, self._phase - self._of))
        into.plain(self._arrived, self._exited, self._met)
        into.plain(sorted(self._telling), sorted(self._told))
        into.acquired(self._building)
        into.acquired(self._completed)

    def met(self, tids: Array) -> bool:
        """Whether ``tids`` know that all threads of the cluster have started."""
        return bool(self._met[tids].all())

    def state(self) -> Reason:
        """What it waits for."""
        arrived = int(self._arrived.sum())
        return Reason("hazard.cluster_barrier", arrived=arrived, expected=len(self._of))


class Peers:
    """The last access of each thread of a cluster to each other CTA."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._last: dict[tuple[int, int], int] = {}  # (thread, rank) -> event

    def reach(self, group: GroupState, tids: Array, peer: CtaState) -> None:
        """Note an access of ``tids`` to the shared memory of ``peer``, if that is not theirs."""
        if group.cta is not peer:
            self._last.update({(int(tid), peer.rank): group.event for tid in tids})

    def check_started(self, group: GroupState, tids: Array, peer: CtaState) -> None:
        """Report ``tids`` that do not know that ``peer`` has started."""
        if group.cta is peer:
            return
        clocks = self._cluster.clocks
        threads = range(peer.first, peer.first + peer.threads)
        known = np.max([clocks.known(tids, thread) for thread in threads], axis=0)
        if (known > 0).all():
            return
        group.hazard(
            "before-start",
            thread=int(tids[int(np.argmin(known))]),
            detail=Reason("hazard.peer_started", block=peer.block),
        )

    def snapshot(self, into: Snapshot) -> None:
        """Add who has reached where."""
        for (tid, rank), event in sorted(self._last.items()):
            into.plain(tid, rank)
            into.judge(tid, event)

    def finish(self) -> None:
        """Report CTAs that may exit before another of the cluster touches their memory."""
        clocks = self._cluster.clocks
        for (tid, rank), event in self._last.items():
            peer = self._cluster.ctas[rank]
            threads = np.arange(peer.first, peer.first + peer.threads)
            if clocks.known(threads, tid).max() < event:
                cta = self._cluster.cta_of(tid)
                cta.add_hazard(
                    "exit-before-peer",
                    event,
                    threads=(cta.local(tid),),
                    detail=Reason("hazard.peer_exited", block=peer.block),
                )
