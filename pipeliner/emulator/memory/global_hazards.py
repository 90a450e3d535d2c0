"""Report a hazard in global memory: its kind, between whom, at which statements.

Between two threads, and between clusters, it is a race; between a thread and a copy engine of its
cluster it has the kind that the access gives it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...diagnostics import Reason, Why
from ..base.report import HazardKind
from .agents import Agents, GlobalAccess
from .grid import Grid

Array = np.ndarray[Any, Any]

_IN_FLIGHT: Final = ("read-before-arrival", "write-in-flight")
"""Kinds of hazards between a thread and an engine."""


class GlobalHazards:
    """Reports hazards of one memory in one launch; ``granule``: bytes of the smallest access."""

    def __init__(self, granule: int, grid: Grid, agents: Agents) -> None:
        self._granule = granule
        self._grid = grid
        self._agents = agents

    def report(
        self,
        access: GlobalAccess,
        kind: HazardKind,
        who: Array,
        at: Array,
        bad: Array,
        codes: Array,
        events: Array,
    ) -> None:
        """Report the first bad row, against the access ``codes`` at ``events``."""
        row = int(np.argmax(bad.reshape(-1)))
        code, event, mine = (int(each.reshape(-1)[row]) for each in (codes, events, who))
        index, agent = self._agents.rival(access, mine, code, event)
        self.complain(access, kind, mine, int(at.reshape(-1)[row]), index, agent, event)

    def complain(
        self,
        access: GlobalAccess,
        kind: HazardKind,
        mine: int,
        granule: int,
        index: int,
        agent: int,
        event: int,
    ) -> None:
        """Report a hazard of thread ``mine`` against an agent of cluster ``index``."""
        cluster, cta = access.cluster, access.group.cta
        rank, rival = divmod(agent, cluster.threads)
        blocks = self._grid.blocks[index]
        threads = [cta.local(mine)]
        detail: Why = ""
        if rank < len(blocks):
            threads.append(rival)
            if blocks[rank] != cta.block:
                detail = Reason("hazard.unordered_cta", block=blocks[rank])
            kind = "race" if kind in _IN_FLIGHT else kind
        elif index != cluster.index:
            detail = Reason("hazard.unordered_copy", block=blocks[0])
        kind = "race" if index != cluster.index else kind
        cta.add_hazard(
            kind,
            access.group.event,
            buffer=access.name,
            offset=granule * self._granule - access.start,
            threads=tuple(threads),
            detail=detail,
            against=self._grid.sites.get((index, event), ()),
        )
