"""Distributed shared memory: what threads touch in the other CTAs of their cluster.

PTX ISA, shared::cluster; CUDA C++ Programming Guide, distributed shared memory: a CTA's shared
memory is there from its start to its exit. So who touches it must know that the CTA has started,
and the CTA must know of the access when it exits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics import Reason
from ..memory.snapshot import Snapshot
from ..memory.state import ClusterState, CtaState, GroupState

Array = np.ndarray[Any, Any]


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
        threads = range(peer.first, peer.first + peer.threads)
        known = np.max([self._cluster.clocks.known(tids, thread) for thread in threads], axis=0)
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
