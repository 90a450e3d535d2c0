"""A cluster of CTAs in execution: threads, memory, the event log and the hazards found.

A *thread group* is a set of threads that the generated code runs in lock step, as the rows of numpy
arrays: a whole CTA, or one warp of it.  The generated function of a kernel is a generator: it
yields at every operation that may block and where a branch that contains one divides its threads
(``requests``).  Lock step is only a way to be fast: conflicts are judged by ``Shadow`` on
happens-before.  A kernel without clusters runs each CTA as a cluster of one.

Threads are numbered through the cluster: those of the CTA of rank r follow those of rank r - 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...diagnostics import Reason, Why
from ...values.origin import Origin
from ..base.clocks import Clocks
from ..base.report import Hazard, HazardKind, Site
from ..memory.grid import Block, Grid
from ..memory.scoped import Scoped
from ..memory.shadow import Shadow
from ..memory.shared_window import SharedWindow
from ..memory.snapshot import Snapshot
from ..units.bulk import BulkCopies
from ..units.clusters import ClusterBarrier, Peers
from ..units.cp_async import CopyEngine
from ..units.mbarrier import Mbarriers
from ..units.warpgroup import MatrixUnits

Array = np.ndarray[Any, Any]
Mask = Array | None


@dataclass(frozen=True)
class SiteInfo:
    """A statement of the device function, by its number in the generated code.

    ``number``: in the device function, in preorder; sequences and attributes do not count.
    """

    statement: Callable[[], str]
    origin: Origin | None
    variables: tuple[str, ...]
    number: int | None = None


class Stopped(Exception):
    """A hazard was found, and the run was to end with the first."""


@dataclass
class HazardLog:
    """Hazards of a whole emulation: one entry for each kind, pair of statements and buffer."""

    found: dict[tuple[Any, ...], Hazard] = field(default_factory=dict)
    only_first: bool = False

    def add(self, key: tuple[Any, ...], make: Callable[[], Hazard]) -> None:
        known = self.found.get(key)
        self.found[key] = make() if known is None else replace(known, count=known.count + 1)
        if self.only_first:
            raise Stopped


class Cluster:
    """State that the CTAs of one cluster share: clocks, event log, asynchronous engines."""

    def __init__(
        self,
        *,
        size: int,
        threads: int,
        proxies: bool,
        timing: str,
        rng: np.random.Generator,
        grid: Grid | None = None,
        blocks: Sequence[Block] = ((0, 0, 0),),
        mixed: bool = False,
        timed: bool = False,
    ) -> None:
        self.threads = threads  # of one CTA
        self.timing = timing
        self.rng = rng
        self.grid = Grid() if grid is None else grid
        self.index = self.grid.enter(list(blocks), size * threads)  # among its clusters
        self.clocks = Clocks(
            size * threads, proxies=proxies, mixed=mixed, timed=timed, of_cta=threads
        )
        self.scoped = Scoped(self.clocks, self.grid, cluster=self.index, threads=threads)
        self.log: list[tuple[int, ...]] = [()]  # event 0 is the launch
        self.moves_data = True
        self.changes = 0  # counts what may let a waiting thread go on
        self.ctas: list[Cta] = []
        # Of each wait for the preceding kernel: a thread and the event, in order.
        self.waited: list[tuple[int, int]] = []
        self.matrix_units = MatrixUnits(self)
        self.peers = Peers(self)
        self.mbarriers = Mbarriers(self, self.matrix_units, self.peers)
        self.bulk = BulkCopies(self, self.mbarriers)
        self.barrier = ClusterBarrier(self, size * threads)

    def cta_of(self, thread: int) -> Cta:
        return self.ctas[thread // self.threads]

    def tick(self) -> None:
        """Complete some asynchronous work, under random timing: time has passed."""
        self.bulk.tick()

    def land_awaited(self, keys: set[Hashable]) -> bool:
        """Complete work that these waits are for: nothing else can move; whether there was any."""
        return self.bulk.land_awaited(keys) or any(
            cta.copies.land_awaited(keys) for cta in self.ctas
        )

    def snapshot(self, into: Snapshot) -> None:
        """Add what its units and its CTAs know."""
        self.mbarriers.snapshot(into)
        self.peers.snapshot(into)
        self.matrix_units.snapshot(into)
        self.bulk.snapshot(into)
        self.barrier.snapshot(into)
        into.plain(self.grid.waited, len(self.waited))
        for tid, event in self.waited:
            into.judge(tid, event)
        for cta in self.ctas:
            cta.copies.snapshot(into)
            cta.shadow.snapshot(into)
            into.plain(cta.unwaited)

    def finish(self) -> None:
        """All threads have exited: judge what they left behind."""
        self.bulk.finish()
        for cta in self.ctas:
            cta.finish()
        self.mbarriers.finish()
        self.peers.finish()
        self.matrix_units.finish()


class Cta:
    """State of one CTA: memory, shadow, copies in flight, counters."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        kernel: str,
        block: tuple[int, int, int],
        place: tuple[int, int, int],
        window_bytes: int,
        granule: int,
        sites: Sequence[SiteInfo],
        hazards: HazardLog,
        dependent: bool,
        buffer_at: Callable[[int], str],
    ) -> None:
        self.cluster = cluster
        self.rank = len(cluster.ctas)
        self.kernel = kernel
        self.block = block
        self.place = place  # in the cluster, clusterCtaIdx (x, y, z)
        self.threads = cluster.threads
        self.first = self.rank * cluster.threads  # its first thread's number
        self.granule = granule
        self.counts: Counter[str] = Counter()
        self.window = SharedWindow(window_bytes)
        self.shadow = Shadow(len(self.window.bytes) // granule, cluster.clocks, self._conflict)
        self.copies = CopyEngine(self, cluster.mbarriers)
        self.log = cluster.log
        self._sites = sites
        self._hazards = hazards
        self._buffer_at = buffer_at
        # Threads that have not waited for the preceding kernel, which may still run.
        self.unwaited = np.full(cluster.threads, dependent)
        self.dependent = dependent
        cluster.ctas.append(self)

    @property
    def alone(self) -> bool:
        """Whether the CTA is its whole cluster."""
        return self.cluster.clocks.threads == self.threads

    def local(self, thread: int) -> int:
        """Number of a thread in its own CTA."""
        return thread % self.threads

    def site(self, at: tuple[int, ...]) -> Site | None:
        """Return a statement with its loop variables, None for the launch."""
        if not at:
            return None
        info = self._sites[at[0]]
        loops = tuple(zip(info.variables, at[1:], strict=True))
        origin = None if info.origin is None else info.origin.at(dict(loops))
        return Site(info.statement(), origin, loops, info.number)

    def add_hazard(self, kind: HazardKind, event: int, **details: Any) -> None:
        """Report a hazard of the statement of ``event``.

        ``other`` is an earlier event of the cluster or 0, ``against`` a statement of any.
        """
        here, there = self.log[event], self.log[details.pop("other", 0)]
        there = details.pop("against", ()) or there
        key = (self.kernel, kind, here[:1], there[:1], details.get("buffer", ""))

        def make() -> Hazard:
            site = self.site(here)
            assert site is not None
            return Hazard(
                kind, site, other=self.site(there), kernel=self.kernel, block=self.block, **details
            )

        self._hazards.add(key, make)

    def _conflict(
        self, kind: HazardKind, granule: int, thread: int, rival: int, event: int
    ) -> None:
        threads = (thread,) if rival < 0 else (thread, rival)
        offset = granule * self.granule
        foreign = [t for t in threads if t // self.threads != self.rank]
        detail: Why = ""
        if foreign:
            detail = Reason("hazard.other_cta", block=self.cluster.cta_of(foreign[0]).block)
        self.add_hazard(
            kind,
            len(self.log) - 1,
            buffer=self.buffer_at(offset),
            offset=offset,
            threads=tuple(map(self.local, threads)),
            other=event,
            detail=detail,
        )

    def finish(self) -> None:
        """All threads have exited: judge what they left behind."""
        self.copies.finish()

    def buffer_at(self, offset: int) -> str:
        """Name of the allocation that holds a byte of the window."""
        return self._buffer_at(offset)

    def granules(self, start: int, nbytes: int) -> Array:
        """Shadow granules of a range of bytes."""
        return np.arange(start // self.granule, -(-(start + nbytes) // self.granule))
