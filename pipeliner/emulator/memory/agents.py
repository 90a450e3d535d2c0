"""Who makes an access to global memory, as a number in the grid, and whether it is ordered.

An agent is a thread, an engine of its cluster, or a *crowd*: the threads of one thread group whose
rows touch one place in one statement. Zero is nobody, crowds are below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .grid import Grid
from .state import ClusterState, GroupState

Array = np.ndarray[Any, Any]

WIDE: Final = 2
"""The reach of an access that is strong for all threads of the GPU; 1: of its cluster, 0: CTA."""


@dataclass(frozen=True)
class GlobalAccess:
    """What a statement does to a buffer: who, which granules of its memory, by which agent.

    ``agent``: the engine that does it for thread ``tids[0]``; -1: the threads themselves.
    ``reach``: for which threads it is a strong operation, -1 for a weak one.
    """

    group: GroupState
    name: str
    start: int  # of the buffer in its memory
    tids: Array
    granules: Array
    agent: int = -1
    reach: int = -1

    @property
    def cluster(self) -> ClusterState:
        """The cluster of the threads."""
        return self.group.cta.cluster

    def rows(self) -> tuple[Array, Array]:
        """The thread of each granule, and the granules."""
        if self.agent >= 0:
            return np.full(self.granules.shape, self.tids[0]), self.granules
        tids = self.tids[:, None] if self.granules.ndim == 2 else self.tids
        who, at = np.broadcast_arrays(tids, self.granules)
        return who, at


class Agents:
    """The agents of one grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def codes(self, access: GlobalAccess, who: Array) -> Any:
        """The agents of an access."""
        agents = access.agent if access.agent >= 0 else who
        return access.cluster.index * self._grid.agents + agents + 1

    def gather(self, access: GlobalAccess, who: Array, at: Array, into: Array) -> None:
        """Enter the crowd of ``access`` where several of its threads touch one granule.

        ``into``: agent by granule, where they were entered one by one.
        """
        lost = into[at] != self.codes(access, who)
        if not lost.any():
            return
        shared = np.isin(at, at[lost])
        tids, granules = who[shared], at[shared]
        order = np.lexsort((tids, granules))
        tids, granules = tids[order], granules[order]
        places, starts = np.unique(granules, return_index=True)
        for place, members in zip(places, np.split(tids, starts[1:]), strict=True):
            into[place] = self._grid.crowd(access.cluster.index, np.unique(members))

    def singles(self, code: int) -> tuple[int, Array]:
        """The cluster of an agent, and the columns of its clock that it stands for."""
        if code < 0:
            return self._grid.crowds[-code - 1]
        index, agent = divmod(code - 1, self._grid.agents)
        return index, np.array([agent])

    def unordered(self, access: GlobalAccess, who: Array, codes: Array, events: Array) -> Array:
        """Which accesses of agents are not ordered before the present of ``who``."""
        cluster = access.cluster
        index, agent = np.divmod(codes - 1, self._grid.agents)
        own = index == cluster.index
        known = cluster.clocks.known(who, np.where(own, agent, 0))
        bad: Array = own & (events > known)
        foreign = (codes > 0) & ~own
        if foreign.any():
            bad[foreign] = cluster.scoped.unordered(
                who[foreign], index[foreign], agent[foreign], events[foreign]
            )
        if codes.min() < 0:
            for code in map(int, np.unique(codes[codes < 0])):
                here = codes == code
                bad[here] = self._after_crowd(access, code, who[here], events[here])
        return bad

    def _after_crowd(self, access: GlobalAccess, code: int, who: Array, events: Array) -> Array:
        cluster = access.cluster
        index, members = self._grid.crowds[-code - 1]
        if index == cluster.index:
            known = cluster.clocks.known(who[:, None], members).min(axis=1)
            late: Array = events > known
            return late
        late = np.zeros(who.shape, np.bool_)
        for member in members:
            each = np.full(who.shape, member)
            late |= cluster.scoped.unordered(who, np.full(who.shape, index), each, events)
        return late

    def rival(self, access: GlobalAccess, who: int, code: int, event: int) -> tuple[int, int]:
        """Cluster and agent of ``code``: of a crowd one that is not ordered before ``who``."""
        index, members = self.singles(code)
        for member in members if code < 0 else ():
            alone = np.array([index * self._grid.agents + member + 1])
            if self.unordered(access, np.array([who]), alone, np.array([event]))[0]:
                return index, int(member)
        return index, int(members[0])

    def is_strong(self, access: GlobalAccess, who: Array, codes: Array, reach: Array) -> Array:
        """Which accesses are morally strong with ``access``; ``reach``: theirs, -1 for weak."""
        both = np.minimum(reach, access.reach)
        if access.reach < 0 or both.min() == WIDE:
            return np.asarray(both >= 0)
        threads, ctas = access.cluster.threads, np.empty(codes.shape, np.int64)
        index = np.empty(codes.shape, np.int64)
        for code in map(int, np.unique(codes)):
            cluster, agents = self.singles(code) if code else (-1, np.zeros(1, np.int64))
            index[codes == code], ctas[codes == code] = cluster, agents[0] // threads
        distance = np.where(index != access.cluster.index, 2, (ctas != who // threads).astype(int))
        return np.asarray(both >= distance)

    def unfenced(self, access: GlobalAccess, codes: Array, events: Array) -> Array:
        """Which generic writes the thread of an engine knows of, with no proxy fence since."""
        clocks, thread = access.cluster.clocks, int(access.tids[0])
        bad = np.zeros(codes.shape, np.bool_)
        index, agent = np.divmod(codes - 1, self._grid.agents)
        single = (codes > 0) & (index == access.cluster.index) & (agent < clocks.threads)
        agent = np.where(single, agent, 0)
        bad |= single & (events > clocks.fenced_globally(thread, agent))
        bad &= events <= clocks.known(thread, agent)
        for code in map(int, np.unique(codes[codes < 0])):
            cluster, members = self.singles(code)
            if cluster == access.cluster.index:
                here, known = codes == code, clocks.known(thread, members).min()
                fenced = clocks.fenced_globally(thread, members).min()
                bad |= here & (events > fenced) & (events <= known)
        return bad
