"""Bulk asynchronous copies (TMA): loads that an mbarrier counts, stores in bulk groups.

When a load lands between its issue and the waits on its mbarrier, and when a store reads shared
memory between its issue and the wait for its group, is not specified: that is the ``timing``.
Global bytes are captured at issue: kernels do not write what they load asynchronously.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ..base.report import in_flight
from ..memory.snapshot import Snapshot
from ..memory.state import ClusterState, CtaState, GroupState
from .mbarrier import Mbarrier, Mbarriers

Array = np.ndarray[Any, Any]
_LANDING_CHANCE: Final = 0.25
"""Chance that a copy in flight has landed by the next step of time (timing "random")."""


@dataclass(eq=False)
class _Load:
    """One copy to the shared memory of one CTA."""

    barrier: Mbarrier
    event: int
    offsets: Array  # byte offsets in the window
    data: Array  # a byte for each
    granules: Array


@dataclass(eq=False)
class _Store:
    """One copy from shared to global memory; ``put`` writes its bytes."""

    cta: CtaState
    thread: int
    event: int
    group: int
    offsets: Array
    put: Callable[[Array], None] | None


class BulkCopies:
    """All bulk copies of one cluster."""

    def __init__(self, cluster: ClusterState, mbarriers: Mbarriers) -> None:
        self._cluster = cluster
        self._mbarriers = mbarriers
        self._loads: list[_Load] = []
        self._stores: list[_Store] = []
        self._open: dict[int, int] = {}  # number of the bulk group that each thread fills now
        self._engines: dict[int, int] = {}  # that read shared memory for each thread's stores
        self._writers: dict[int, int] = {}  # that write global memory, where it is judged
        self._unwritten: list[tuple[int, int, int]] = []  # thread, group, event of such stores

    # Loads

    def load(
        self, group: GroupState, tid: int, barrier: Mbarrier, offsets: Array, data: Array
    ) -> None:
        """Copy ``data`` (bytes) to byte ``offsets`` of the window of the mbarrier's CTA."""
        cta = barrier.cta
        granules = _granules(cta, offsets)
        cta.shadow.engine_write(barrier.engine, tid, granules, group.event)
        load = _Load(barrier, group.event, offsets, data, granules)
        self._loads.append(load)
        self._mbarriers.note_order(barrier, np.array([tid]))
        if self._cluster.timing == "early":
            self._land(load)
        self.tick()

    def read(self, group: GroupState, tid: int, barrier: Mbarrier, offsets: Array) -> Array:
        """Return bytes of the own CTA, which are read until a wait on ``barrier``."""
        cta, who = group.cta, np.array([tid])
        clock = self._cluster.clocks.common(who)
        granules = _granules(cta, offsets)
        cta.shadow.engine_read(barrier.engine, who, clock, granules, group.event)
        data: Array = cta.window.bytes[offsets]
        return data

    def _land(self, load: _Load) -> None:
        self._loads.remove(load)
        if self._cluster.moves_data:
            load.barrier.cta.window.bytes[load.offsets] = load.data
        load.barrier.landed.append((load.granules, load.event))
        self._mbarriers.complete(load.barrier, len(load.data))

    def land_awaited(self, keys: set[Hashable]) -> bool:
        """Land one load that a wait is for, the last issued first; whether there was one."""
        awaited = [load for load in self._loads if load.barrier in keys]
        if awaited:
            chance = self._cluster.timing == "random"
            self._land(awaited[int(self._cluster.rng.integers(len(awaited))) if chance else -1])
        return bool(awaited)

    def tick(self) -> None:
        """Land some copies in flight, under random timing: time has passed."""
        if self._cluster.timing != "random" or not self._loads:
            return
        chosen = self._cluster.rng.random(len(self._loads)) < _LANDING_CHANCE
        for load, lands in zip(list(self._loads), chosen, strict=True):
            if lands:
                self._land(load)

    # Stores

    def store(
        self,
        group: GroupState,
        tid: int,
        offsets: Array,
        put: Callable[[Array], None],
        note: Callable[[int], None] | None,
    ) -> None:
        """Copy the bytes at ``offsets`` of the own CTA's window to where ``put`` writes them.

        ``note`` judges what an engine writes there.
        """
        cta, clocks = group.cta, self._cluster.clocks
        if tid not in self._engines:
            self._engines[tid] = clocks.engine()
        who = np.array([tid])
        granules = _granules(cta, offsets)
        cta.shadow.engine_read(self._engines[tid], who, clocks.common(who), granules, group.event)
        if note is not None:
            if tid not in self._writers:
                self._writers[tid] = clocks.engine()
            note(self._writers[tid])
            self._unwritten.append((tid, self._open.get(tid, 0), group.event))
        store = _Store(cta, tid, group.event, self._open.get(tid, 0), offsets, put)
        self._stores.append(store)
        timing = self._cluster.timing
        if timing == "early" or (timing == "random" and self._cluster.rng.random() < 0.5):
            self._perform(store)

    def _perform(self, store: _Store) -> None:
        if store.put is not None and self._cluster.moves_data:
            store.put(store.cta.window.bytes[store.offsets])
            store.put = None
            self._cluster.grid.changes += 1

    def commit(self, tids: Array) -> None:
        for tid in map(int, tids):
            self._open[tid] = self._open.get(tid, 0) + 1

    def wait(self, tids: Array, in_flight: int, *, read: bool) -> None:
        """Complete all but the last ``in_flight`` committed groups of the threads.

        ``read``: as far as shared memory goes.
        """
        for tid in map(int, tids):
            limit = self._open.get(tid, 0) - in_flight
            if not read:
                self._written(tid, limit)
            done = [s for s in self._stores if s.thread == tid and s.group < limit]
            for store in done:
                self._perform(store)
                self._stores.remove(store)
                who = np.array([tid])
                self._cluster.clocks.learn(who, self._engines[tid], store.event)

    def _written(self, tid: int, limit: int) -> None:
        """Let ``tid`` know that its stores in groups below ``limit`` are in global memory."""
        for store in [s for s in self._unwritten if s[0] == tid and s[1] < limit]:
            self._unwritten.remove(store)
            self._cluster.clocks.learn(np.array([tid]), self._writers[tid], store[2])

    def snapshot(self, into: Snapshot) -> None:
        """Add the copies in flight, the groups of stores counted back from the one that is open."""
        for load in self._loads:
            into.plain(load.barrier.cta.rank, load.barrier.offset, load.granules)
            into.plain(into.name(load.event))
        for store in self._stores:
            into.plain(store.cta.rank, store.thread, store.put is None, store.offsets)
            into.plain(self._open.get(store.thread, 0) - store.group)
            into.judge(self._engines[store.thread], store.event)
        into.plain(sorted(self._engines.items()), sorted(self._writers.items()))

    def finish(self) -> None:
        """Report what is in flight after all threads have exited."""
        for load in list(self._loads):
            cta = load.barrier.cta
            cta.add_hazard(
                "never-waited",
                load.event,
                buffer=load.barrier.name,
                detail=Reason("hazard.load_unwaited", mbarrier=load.barrier.named()),
            )
            self._land(load)
        for store in self._stores:
            committed = store.group < self._open.get(store.thread, 0)
            store.cta.add_hazard(
                "never-waited",
                store.event,
                threads=(store.cta.local(store.thread),),
                detail=in_flight("bulk store", committed=committed),
            )
            self._perform(store)


def _granules(cta: CtaState, offsets: Array) -> Array:
    """Return the shadow granules of bytes, which are mostly a whole range in some order."""
    if not len(offsets):
        return np.empty(0, np.int64)
    low, high = int(offsets.min()), int(offsets.max()) + 1
    if high - low == len(offsets):
        return cta.granules(low, high - low)
    return np.unique(offsets // cta.granule)
