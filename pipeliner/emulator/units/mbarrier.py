"""mbarrier objects: phases, pending arrivals and transaction bytes, and what a wait acquires.

PTX ISA 9.7.13.15: an mbarrier counts the arrivals and the bytes that its current phase still
expects; when both are zero the phase completes and the next begins with the initial count.  Waits
are by parity: that of phase n returns when phase n, or phase n - 2, is the last to have completed.

Arrivals release and waits acquire the past of all arrivals up to the completed phase.  Bytes of
asynchronous copies are complete for those who wait for the phase in which they were counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason, Why
from ..base.clocks import Clock
from ..memory.snapshot import Snapshot
from ..memory.state import ClusterState, CtaState, GroupState
from .clusters import Peers
from .fragments import WARP
from .warpgroup import MatrixUnits

Array = np.ndarray[Any, Any]

SIZE: Final = 8
"""Bytes of an mbarrier object."""

_MAX_COUNT: Final = 2**20 - 1
"""The most arrivals, or bytes, of a phase."""

RANK_SHIFT: Final = 24
"""Where a shared::cluster address has 1 + the rank of its CTA; 0 there means the own CTA."""


@dataclass(eq=False)
class Mbarrier:
    """One live mbarrier; ``engine`` is the agent of the copies that it counts."""

    cta: CtaState
    offset: int
    name: str
    count: int
    engine: int
    thread: int  # that initialised it, and when
    event: int
    building: Clock  # of the arrivals so far
    completed: Clock  # the same at the end of the last phase
    pending: int
    told: Array  # which threads of the cluster know that it is initialised, and no more
    bytes: int = 0
    phase: int = 0  # the current, incomplete one
    visible: bool = False  # fenced for other CTAs and the async proxy
    fenced: bool = False  # by fence.mbarrier_init
    last: int = 0  # event of the last operation
    waits: list[tuple[Array, int]] = field(default_factory=list)  # on the last completed phase
    landed: list[tuple[Array, int]] = field(default_factory=list)  # granules, site in this phase
    # cp.async complete in this phase: threads, granules, events of arrival and of issue.
    copies: list[tuple[Array, Array, int, int]] = field(default_factory=list)
    copied: tuple[int, int] = (0, 0)  # last completion that covered copies, and the site of one

    def passed(self, parity: int) -> bool:
        """Whether a wait by ``parity`` returns."""
        return self.phase % 2 != parity

    def state(self) -> Reason:
        """What the current phase has and lacks."""
        arrived = self.count - self.pending
        has = Reason("hazard.phase", phase=self.phase, arrived=arrived, expected=self.count)
        if self.bytes > 0:
            return Reason("hazard.phase_lacks", phase=has, nbytes=self.bytes)
        if self.bytes < 0:
            return Reason("hazard.phase_exceeds", phase=has, nbytes=-self.bytes)
        return has

    def named(self) -> Reason:
        """The buffer and byte where it lies, and its CTA among several."""
        place = Reason("hazard.mbarrier", buffer=self.name, offset=self.offset)
        if self.cta.alone:
            return place
        return Reason("hazard.of_cta", what=place, block=self.cta.block)


class Mbarriers:
    """All mbarriers of a cluster, by CTA and byte offset."""

    def __init__(self, cluster: ClusterState, matrix_units: MatrixUnits, peers: Peers) -> None:
        self._cluster = cluster
        self._matrix_units = matrix_units
        self._peers = peers
        self._live: dict[tuple[int, int], Mbarrier] = {}
        # Those at which a thread arrived that did not know that the phase before had completed.
        self.unordered: set[str] = set()

    # Lifetime

    def init(self, group: GroupState, tid: int, offset: int, count: int, name: str) -> None:
        """Run mbarrier.init of one thread."""
        cta, cluster = group.cta, self._cluster
        if not 1 <= count <= _MAX_COUNT:
            group.hazard(
                "mbarrier-arrivals",
                name,
                offset,
                thread=tid,
                detail=Reason("hazard.mbarrier_count", arrivals=count, most=_MAX_COUNT),
            )
        if (cta.rank, offset) in self._live:
            group.hazard(
                "mbarrier-overwritten",
                name,
                offset,
                thread=tid,
                detail=Reason("hazard.mbarrier_again"),
            )
        self._guard(cta, offset, live=False)
        cta.shadow.write(np.array([tid]), cta.granules(offset, SIZE)[None], group.event)
        engine = cluster.clocks.engine()
        clock = cluster.clocks.blank()  # with a column for that
        self._live[cta.rank, offset] = Mbarrier(
            cta,
            offset,
            name,
            count,
            engine,
            tid,
            group.event,
            clock,
            clock.copy(),
            count,
            np.zeros(cluster.threads * len(cluster.ctas), np.bool_),
            last=group.event,
        )
        self._guard(cta, offset, live=True)

    def invalidate(self, group: GroupState, tid: int, offset: int) -> None:
        """Run mbarrier.inval of one thread."""
        if self.use(group, np.array([tid]), offset) is not None:
            del self._live[group.cta.rank, offset]
            self._guard(group.cta, offset, live=False)

    def _guard(self, cta: CtaState, offset: int, *, live: bool) -> None:
        shadow = cta.shadow
        if shadow.guarded is None:
            shadow.guarded = np.zeros(len(shadow.writer), np.bool_)
        shadow.guarded[cta.granules(offset, SIZE)] = live

    def fence(self, tids: Array, *, inits: bool = False) -> None:
        """Run a proxy fence of the threads that initialised; ``inits``: fence.mbarrier_init."""
        for barrier in self._live.values():
            by_them = bool((tids == barrier.thread).any())
            barrier.visible |= by_them
            barrier.fenced |= by_them and inits

    def told_by(self, tids: Array) -> dict[tuple[int, int], Array]:
        """Who knows of each mbarrier that ``tids`` initialised, with fence.mbarrier_init behind."""
        return {
            place: barrier.told
            for place, barrier in self._live.items()
            if barrier.fenced and (tids == barrier.thread).any()
        }

    def counts(self, cta: CtaState) -> dict[int, int]:
        """How many arrivals each mbarrier of a CTA waits for, by its byte offset."""
        return {at: one.count for (rank, at), one in self._live.items() if rank == cta.rank}

    # Use

    def use(
        self, group: GroupState, tids: Array, address: int, *, engine: bool = False
    ) -> Mbarrier | None:
        """Return the mbarrier at a shared::cluster address, checked to be initialised for ``tids``.

        ``engine``: used through the async proxy.
        """
        rank = group.cta.rank if address >> RANK_SHIFT == 0 else (address >> RANK_SHIFT) - 1
        offset = address & (1 << RANK_SHIFT) - 1
        barrier = self._live.get((rank, offset))
        name = group.cta.buffer_at(offset)
        if barrier is None:
            group.hazard(
                "mbarrier-uninitialised",
                name,
                offset,
                thread=int(tids[0]),
                detail=Reason("hazard.mbarrier_none"),
            )
            return None
        ordered = self._cluster.clocks.known(tids, barrier.thread) >= barrier.event
        ordered |= barrier.told[tids]
        detail: Why = ""
        if not ordered.all():
            detail = Reason("hazard.mbarrier_unordered")
        elif not barrier.visible and (engine or rank != group.cta.rank):
            detail = Reason("hazard.mbarrier_unfenced")
        if detail:
            who = int(tids[int(np.argmin(ordered))])
            group.cta.add_hazard(
                "mbarrier-uninitialised",
                group.event,
                buffer=barrier.name,
                offset=offset,
                threads=(group.cta.local(who),),
                detail=detail,
                other=barrier.event,
            )
        barrier.last = group.event
        return barrier

    def arrive(
        self,
        group: GroupState,
        barrier: Mbarrier,
        tids: Array,
        count: int,
        *,
        release: bool = True,
    ) -> None:
        """Let each of ``tids`` arrive ``count`` times."""
        self._peers.reach(group, tids, barrier.cta)
        self.note_order(barrier, tids)
        left = tids
        while len(left):
            # Those who arrive after a phase is complete belong to the next.
            fitting = max(1, barrier.pending // count)
            now, left = left[:fitting], left[fitting:]
            if count * len(now) > barrier.pending:
                group.hazard(
                    "mbarrier-arrivals",
                    barrier.name,
                    barrier.offset,
                    thread=int(now[0]),
                    detail=Reason("hazard.surplus_arrivals", count=count, state=barrier.state()),
                )
                return
            if release:
                clock = self._cluster.clocks.release(now, group.event)
                barrier.building = self._cluster.clocks.merged(barrier.building, clock)
            barrier.pending -= count * len(now)
            self._settle(barrier)

    def note_order(self, barrier: Mbarrier, tids: Array) -> None:
        """Note whether what ``tids`` do can be counted in one phase alone, in whatever order.

        That phase completes later in time than what they do, if it is counted there.
        """
        clocks = self._cluster.clocks
        known = clocks.earlier(tids, barrier.engine)
        if (known < barrier.completed.of(barrier.engine)).any():
            self.unordered.add(barrier.name)
        clocks.precede(barrier.building, tids)

    def arrive_later(self, barrier: Mbarrier, tids: Array, event: int) -> None:
        """Let ``tids`` arrive, as they asked at ``event``: their cp.async are complete."""
        if len(tids) > barrier.pending:
            thread = barrier.cta.local(int(tids[0]))
            barrier.cta.add_hazard(
                "mbarrier-arrivals",
                event,
                buffer=barrier.name,
                offset=barrier.offset,
                threads=(thread,),
                detail=Reason("hazard.surplus_arrivals", count=len(tids), state=barrier.state()),
            )
            return
        self._cluster.clocks.arrive(barrier.building, tids, event)
        barrier.pending -= len(tids)
        self._settle(barrier)

    def expect(self, barrier: Mbarrier, nbytes: int) -> None:
        """Let the current phase wait for so many more bytes (expect_tx)."""
        barrier.bytes += nbytes
        self._settle(barrier)

    def complete(self, barrier: Mbarrier, nbytes: int) -> None:
        """Count so many bytes that have arrived (complete_tx)."""
        barrier.bytes -= nbytes
        self._settle(barrier)

    def _settle(self, barrier: Mbarrier) -> None:
        """Complete the phase if nothing is missing."""
        if barrier.pending or barrier.bytes:
            return
        now = len(self._cluster.log) - 1
        for granules, site in barrier.landed:
            barrier.cta.shadow.landed(barrier.engine, granules, site, now)
            barrier.copied = (now, site)
        for tids, granules, event, site in barrier.copies:
            barrier.cta.shadow.arrive(tids, granules, event)
            barrier.copied = (now, site)
        barrier.landed, barrier.copies = [], []
        barrier.building.pass_on(barrier.engine, now)
        barrier.completed = barrier.building.copy()
        barrier.pending = barrier.count
        barrier.phase += 1
        self._check_waits(barrier)
        self._cluster.changes += 1

    def _check_waits(self, barrier: Mbarrier) -> None:
        """Check that every wait on the phase before is ordered before this one completed.

        Else that wait, had it been a little later, would have found the parity flipped back.
        """
        clock = barrier.completed
        for tids, event in barrier.waits:
            late = tids[clock.of(tids) < event]
            if late.size:
                # The warps of a thread group issue wgmma as one.
                warps, of = np.unique(late // WARP, return_inverse=True)
                passed = [
                    self._matrix_units.ordered(int(warp) * WARP, event, clock) for warp in warps
                ]
                late = late[~np.array(passed)[of]]
            if late.size:
                cta = self._cluster.cta_of(int(late[0]))
                cta.add_hazard(
                    "phase-aliasing",
                    event,
                    buffer=barrier.name,
                    offset=barrier.offset,
                    threads=(cta.local(int(late[0])),),
                    other=len(self._cluster.log) - 1,
                    detail=Reason(
                        "hazard.parity_gone", phase=barrier.phase - 1, waited=barrier.phase - 2
                    ),
                )
        barrier.waits = []

    def observe(self, barrier: Mbarrier, tids: Array, event: int) -> None:
        """Let ``tids``, which have waited, acquire the completed phase."""
        self._cluster.clocks.acquire(tids, barrier.completed)
        barrier.waits.append((tids, event))

    def snapshot(self, into: Snapshot) -> None:
        """Add phases as parities, what they lack, and what those who wait will know."""
        for (rank, offset), barrier in sorted(self._live.items()):
            into.plain(rank, offset, barrier.count, barrier.engine, barrier.pending, barrier.bytes)
            into.plain(barrier.phase % 2, barrier.visible, barrier.fenced, bool(barrier.last))
            into.plain(barrier.told)
            into.judge(barrier.thread, barrier.event)
            into.judge(barrier.engine, barrier.copied[0])
            into.judge(barrier.engine, int(barrier.completed.of(barrier.engine)))
            into.acquired(barrier.building)
            into.acquired(barrier.completed)
            for tids, event in sorted(barrier.waits, key=lambda wait: int(wait[0][0])):
                into.plain(tids)
                into.judge(tids, event)
                self._matrix_units.note_issues(tids, event, into)
            for granules, site in barrier.landed:
                into.plain(granules, into.name(site))
            for tids, granules, event, site in barrier.copies:
                into.plain(tids, granules, into.name(event), into.name(site))

    # The end

    def finish(self) -> None:
        """Report what is half done when all threads have exited."""
        clocks = self._cluster.clocks
        for barrier in self._live.values():
            known = clocks.known(self._threads(barrier.cta), barrier.engine)
            where = {"buffer": barrier.name, "offset": barrier.offset}
            left = Reason("hazard.at_exit", state=barrier.state())
            if barrier.pending != barrier.count and barrier.last:
                barrier.cta.add_hazard("mbarrier-arrivals", barrier.last, **where, detail=left)
            elif barrier.bytes:
                barrier.cta.add_hazard("mbarrier-bytes", barrier.last, **where, detail=left)
            completed, site = barrier.copied
            unfinished = [site for _, site in barrier.landed]
            unfinished += [site for *_, site in barrier.copies]
            if unfinished or known.max() < completed:
                site = unfinished[0] if unfinished else site
                detail = Reason("hazard.bytes_unwaited", mbarrier=barrier.named())
                barrier.cta.add_hazard("never-waited", site, **where, detail=detail)

    def _threads(self, cta: CtaState) -> Array:
        return np.arange(cta.first, cta.first + cta.threads)


def by_address(tids: Array, addresses: Array) -> Iterator[tuple[int, Array]]:
    """Yield each address with the threads that use it."""
    for address in np.unique(addresses):
        yield int(address), tids[addresses == address]
