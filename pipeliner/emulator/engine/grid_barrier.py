"""grid.sync() as the generated code calls it: the barrier of a cooperative launch."""

from __future__ import annotations

from ...diagnostics import Reason
from ..base.requests import Wait, Waiting
from ..memory.state import GroupState, Mask


def sync(group: GroupState, mask: Mask) -> Waiting:
    """Run grid.sync() of cooperative groups, behind a barrier of the CTA."""
    cluster, tids = group.cta.cluster, group.active(mask)
    barrier = cluster.grid.barrier
    assert barrier is not None
    if not barrier.cooperative:
        detail = Reason("hazard.not_cooperative")
        group.hazard("barrier-divergence", mask=mask, detail=detail)
    group.count("grid_waits")
    phase = barrier.arrive(cluster.index, cluster.clocks, tids, group.event)
    if barrier.met(phase) is not None:
        cluster.grid.changes += 1
        cluster.changes += 1

    def passed() -> bool:
        meeting = barrier.met(phase)
        if meeting is None:
            return False
        cluster.scoped.meet(tids, meeting, meeting.clocks[cluster.index])
        return True

    return (yield Wait(tids, group.event, passed, barrier.state, outside=True))
