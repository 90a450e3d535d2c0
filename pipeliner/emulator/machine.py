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
from typing import Any, Final

import numpy as np

from ..diagnostics import Reason, Why
from ..origin import Origin
from .bulk import BulkCopies
from .clocks import Clocks
from .cluster_barrier import ClusterBarrier
from .copies import CopyEngine
from .grid import Block, Grid, Scoped
from .mbarrier import Mbarriers
from .memory import SharedWindow
from .report import Hazard, HazardKind, Site
from .requests import Barrier, Spin
from .shadow import Shadow
from .warpgroup import MatrixUnits

Array = np.ndarray[Any, Any]
Mask = Array | None
WARP: Final = 32


class _Nobody:
    """The mask under which no thread is active; nothing runs under it."""

    def __repr__(self) -> str:
        return "NOBODY"


NOBODY: Final = _Nobody()


def narrow(mask: Mask, cond: Any) -> Any:
    """Threads of ``mask`` for which ``cond`` holds: ``mask`` itself if all, NOBODY if none."""
    if not isinstance(cond, np.ndarray) or cond.ndim == 0:
        return mask if cond else NOBODY
    if mask is None:
        if cond.all():
            return None
        return cond if cond.any() else NOBODY
    both = mask & cond
    if not both.any():
        return NOBODY
    return mask if both.sum() == mask.sum() else both


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
    ) -> None:
        self.threads = threads  # of one CTA
        self.timing = timing
        self.rng = rng
        self.grid = Grid() if grid is None else grid
        self.index = self.grid.enter(list(blocks), size * threads)  # among its clusters
        self.clocks = Clocks(size * threads, proxies=proxies, mixed=mixed)
        self.scoped = Scoped(self)
        self.log: list[tuple[int, ...]] = [()]  # event 0 is the launch
        self.changes = 0  # counts what may let a waiting thread go on
        self.ctas: list[Cta] = []
        # Of each wait for the preceding kernel: a thread and the event, in order.
        self.waited: list[tuple[int, int]] = []
        self.mbarriers = Mbarriers(self)
        self.bulk = BulkCopies(self)
        self.matrix_units = MatrixUnits(self)
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

    def finish(self) -> None:
        """All threads have exited: judge what they left behind."""
        self.bulk.finish()
        for cta in self.ctas:
            cta.finish()
        self.mbarriers.finish()
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
        self.copies = CopyEngine(self)
        self.log = cluster.log
        self._sites = sites
        self._hazards = hazards
        self._buffer_at = buffer_at
        # Threads that have not waited for the preceding kernel, which may still run.
        self.unwaited = np.full(cluster.threads, dependent)
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


class ThreadGroup:
    """A lockstep thread group; ``tx``, ``ty``, ``tz`` and ``tids`` have a row for each."""

    def __init__(self, cta: Cta, dims: tuple[int, int, int], first: int, count: int) -> None:
        self.cta = cta
        self.n = count
        lin = np.arange(first, first + count, dtype=np.int32)
        self.tids = lin.astype(np.int64) + cta.first
        self.tx = lin % np.int32(dims[0])
        self.ty = lin // np.int32(dims[0]) % np.int32(dims[1])
        self.tz = lin // np.int32(dims[0] * dims[1])
        self.event = 0
        self.registers: list[Array] = []  # bytes of each local buffer
        self.at: tuple[int, ...] = ()
        # Arithmetic that has left its type: in which rows (or all), and the exact values.
        self.wrapped: dict[str, tuple[Any, Any]] = {}
        # Events, by thread: the last wgmma waited for, and the last wgmma.fence.
        self.waited = np.zeros(self.n, np.int32)
        self.registers_fenced = np.zeros(self.n, np.int32)

    def step(self, at: tuple[int, ...]) -> None:
        """Begin the statement ``at`` = (site number, enclosing loop variables)."""
        self.at = at
        self.cta.log.append(at)
        self.event = len(self.cta.log) - 1

    def active(self, mask: Mask) -> Array:
        return self.tids if mask is None else self.tids[mask]

    def full(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """Return a uniform scalar as a row for each thread."""
        return np.full(self.n, value, dtype)

    def hazard(
        self,
        kind: HazardKind,
        buffer: str = "",
        offset: int = -1,
        mask: Mask = None,
        *,
        thread: int | None = None,
        detail: Why = "",
    ) -> None:
        """Report a hazard of the present statement, by ``thread`` or the first active one."""
        who = int(self.active(mask)[0]) if thread is None else thread
        self.cta.add_hazard(
            kind,
            self.event,
            buffer=buffer,
            offset=int(offset),
            threads=(self.cta.local(who),),
            detail=detail,
        )

    def note_wrap(self, key: str, where: Any, exact: Any) -> None:
        """Note that the arithmetic ``key`` wraps ``where``, and its ``exact`` results."""
        if np.any(where):
            self.wrapped[key] = where, exact
        elif self.wrapped:
            self.wrapped.pop(key, None)

    def use(self, keys: Sequence[str], mask: Mask) -> None:
        """Check that the arithmetic ``keys``, whose results active threads use, has not wrapped."""
        for key in keys:
            where, exact = self.wrapped.get(key, (False, 0))
            rows = np.asarray(where)
            if rows.ndim == 2 or rows.shape not in ((), (self.n,)):
                rows = np.asarray(rows.any(axis=-1))
            hit = np.broadcast_to(rows, self.n) if mask is None else rows & mask
            if not hit.any():
                continue
            row = int(np.argmax(hit))
            values = np.asarray(exact)
            values = values[row] if values.shape[:1] == (self.n,) else values
            worst = int(values.flat[int(np.argmax(np.abs(values)))])
            self.hazard(
                "index-overflow",
                thread=int(self.tids[row]),
                detail=Reason("hazard.index_wraps", bits=32, value=worst),
            )

    def touch_global(self, buffer: str, mask: Mask) -> None:
        """Check that active threads about to access global memory have waited, if they must.

        A dependent launch must wait before any access, since what the preceding kernel reads and
        writes is not known here. It is enough that another thread has waited whose wait happens
        before: what that grid wrote is visible to the whole grid (PTX ISA, griddepcontrol).
        """
        cta = self.cta
        if not cta.unwaited.any():
            return
        unwaited = self.active(mask)
        unwaited = unwaited[cta.unwaited[unwaited - cta.first]]
        if len(unwaited) and cta.cluster.waited:
            who, events = np.array(cta.cluster.waited).T
            told = (cta.cluster.clocks.knows[unwaited[:, None], who] >= events).any(axis=1)
            cta.unwaited[unwaited[told] - cta.first] = False
            unwaited = unwaited[~told]
        if len(unwaited):
            self.hazard(
                "before-predecessor",
                buffer,
                -1,
                thread=int(unwaited[0]),
                detail=Reason("hazard.preceding_kernel"),
            )

    def barrier(
        self,
        mask: Mask,
        number: int = 0,
        count: int | None = None,
        *,
        aligned: bool = True,
        wait: bool = True,
    ) -> Barrier:
        """Return the request to yield for a CTA-level barrier."""
        return Barrier(self.active(mask), self.at, number, count, aligned, wait)

    def spin(self, mask: Mask) -> Spin:
        """Return the request to yield where a loop that reads memory comes round."""
        tids = self.active(mask)

        def state() -> int:
            windows = (cta.window.bytes.tobytes() for cta in self.cta.cluster.ctas)
            registers = (data.tobytes() for data in self.registers)
            return hash((tids.tobytes(), *windows, *registers))

        return Spin(tids, self.event, state)

    def sync_warp(self, mask: Mask) -> None:
        """Run __syncwarp, which orders memory among the active threads of each warp."""
        tids = self.active(mask)
        for warp in np.unique(tids // WARP):
            self.cta.cluster.clocks.join(tids[tids // WARP == warp], self.event)

    def warps(self, mask: Mask, what: str) -> Mask:
        """Return the mask of a warp-collective instruction; reports warps that are not whole."""
        if self.n % WARP:
            detail = Reason("hazard.partial_warp", operation=what, threads=self.cta.threads)
            self.hazard("divergent-warp", mask=mask, detail=detail)
            return mask
        if mask is None:
            return None
        lanes = mask.reshape(-1, WARP)
        whole = lanes.all(axis=1)
        if (lanes.any(axis=1) & ~whole).any():
            self.hazard(
                "divergent-warp", mask=mask, detail=Reason("hazard.divergence", operation=what)
            )
        return mask

    def count(self, name: str, amount: int = 1) -> None:
        self.cta.counts[name] += amount
