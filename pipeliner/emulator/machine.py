"""One CTA in execution: strands, barriers, the event log and the hazards found.

A *strand* is a set of threads that the generated code runs in lock step, as the rows of numpy
arrays.  The generated function of a kernel is a generator: it yields at every operation that may
block (``Barrier``) and where a branch that contains one divides its threads (``Fork``).  Lock step
is only a way to be fast: conflicts are judged by ``Shadow`` on happens-before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from ..origin import Origin
from .copies import CopyEngine
from .memory import SharedWindow
from .report import Hazard, Site
from .shadow import Shadow

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


@dataclass(frozen=True)
class Barrier:
    """Yielded by threads that wait at barrier ``number`` for ``count`` threads (None: the CTA)."""

    tids: Array
    at: tuple[int, ...]
    number: int = 0
    count: int | None = None
    aligned: bool = True  # __syncthreads: every thread must arrive at the same statement


@dataclass(frozen=True)
class Fork:
    """Yielded where a branch divides a strand; resumed when every part has reached its end."""

    parts: tuple[Generator[Any, None, None], ...]


Program = Generator[Barrier | Fork, None, None]


@dataclass
class HazardLog:
    """Hazards of a whole emulation: one entry for each kind, pair of statements and buffer."""

    found: dict[tuple[Any, ...], Hazard] = field(default_factory=dict)

    def add(self, key: tuple[Any, ...], make: Callable[[], Hazard]) -> None:
        known = self.found.get(key)
        self.found[key] = make() if known is None else replace(known, count=known.count + 1)


class Cta:
    """State of one CTA: memory, shadow, copies in flight, counters."""

    def __init__(
        self,
        *,
        kernel: str,
        block: tuple[int, int, int],
        threads: int,
        window_bytes: int,
        granule: int,
        sites: Sequence[SiteInfo],
        hazards: HazardLog,
        buffer_at: Callable[[int], str],
        timing: str,
        rng: np.random.Generator,
    ) -> None:
        self.kernel = kernel
        self.block = block
        self.threads = threads
        self.granule = granule
        self.counts: Counter[str] = Counter()
        self.window = SharedWindow(window_bytes)
        self.shadow = Shadow(len(self.window.bytes) // granule, threads, self._conflict)
        self.copies = CopyEngine(self, threads, timing, rng)
        self.log: list[tuple[int, ...]] = [()]  # event 0 is the launch
        self._sites = sites
        self._hazards = hazards
        self._buffer_at = buffer_at

    def site(self, event: int) -> Site | None:
        """The statement of an event, None for the launch."""
        at = self.log[event]
        if not at:
            return None
        info = self._sites[at[0]]
        loops = tuple(zip(info.variables, at[1:], strict=True))
        origin = None if info.origin is None else info.origin.at(dict(loops))
        return Site(info.statement(), origin, loops, info.number)

    def add_hazard(self, kind: str, event: int, **details: Any) -> None:
        """Report a hazard of the statement of ``event``; ``other`` is an earlier event or 0."""
        other = details.pop("other", 0)
        here, there = self.log[event], self.log[other]
        key = (self.kernel, kind, here[:1], there[:1], details.get("buffer", ""))

        def make() -> Hazard:
            site = self.site(event)
            assert site is not None
            return Hazard(
                kind, site, other=self.site(other), kernel=self.kernel, block=self.block, **details
            )

        self._hazards.add(key, make)

    def _conflict(self, kind: str, granule: int, thread: int, rival: int, event: int) -> None:
        threads = (thread,) if rival < 0 else (thread, rival)
        offset = granule * self.granule
        self.add_hazard(kind, len(self.log) - 1, buffer=self._buffer_at(offset), offset=offset,
                        threads=threads, other=event)  # fmt: skip

    def run(self, program: Program) -> None:
        """Run to the end, or to a deadlock, which is reported."""
        _Scheduler(self).run(program)


class Strand:
    """Threads in lock step; ``tx``, ``ty``, ``tz`` and ``tids`` have a row for each."""

    def __init__(self, cta: Cta, dims: tuple[int, int, int]) -> None:
        self.cta = cta
        self.n = dims[0] * dims[1] * dims[2]
        self.tids = np.arange(self.n)
        lin = self.tids.astype(np.int32)
        self.tx = lin % np.int32(dims[0])
        self.ty = lin // np.int32(dims[0]) % np.int32(dims[1])
        self.tz = lin // np.int32(dims[0] * dims[1])
        self.event = 0
        self.at: tuple[int, ...] = ()

    def step(self, at: tuple[int, ...]) -> None:
        """Begin the statement ``at`` = (site number, enclosing loop variables)."""
        self.at = at
        self.cta.log.append(at)
        self.event = len(self.cta.log) - 1

    def active(self, mask: Mask) -> Array:
        return self.tids if mask is None else self.tids[mask]

    def full(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """A uniform scalar as a row for each thread."""
        return np.full(self.n, value, dtype)

    def hazard(
        self, kind: str, buffer: str, offset: int, mask: Mask, thread: int | None = None,
        *, detail: str = "",
    ) -> None:  # fmt: skip
        """A hazard of the statement being executed, by ``thread`` (or the first active one)."""
        who = int(self.active(mask)[0]) if thread is None else thread
        self.cta.add_hazard(kind, self.event, buffer=buffer, offset=int(offset), threads=(who,),
                            detail=detail)  # fmt: skip

    def barrier(
        self, mask: Mask, number: int = 0, count: int | None = None, *, aligned: bool = True
    ) -> Barrier:
        """The request to yield for a CTA-level barrier."""
        return Barrier(self.active(mask), self.at, number, count, aligned)

    def sync_warp(self, mask: Mask) -> None:
        """__syncwarp: orders memory among the active threads of each warp."""
        tids = self.active(mask)
        for warp in np.unique(tids // WARP):
            self.cta.shadow.join(tids[tids // WARP == warp], self.event)

    def warps(self, mask: Mask, what: str) -> Mask:
        """Active warps of a warp-collective instruction as a mask of threads, whole warps only."""
        if self.n % WARP:
            self.hazard("divergent-warp", "", -1, mask, detail=f"{what} in a CTA of {self.n}")
            return mask
        if mask is None:
            return None
        lanes = mask.reshape(-1, WARP)
        whole = lanes.all(axis=1)
        if (lanes.any(axis=1) & ~whole).any():
            self.hazard("divergent-warp", "", -1, mask, detail=f"{what} under divergence")
        return mask

    def count(self, name: str, amount: int = 1) -> None:
        self.cta.counts[name] += amount


@dataclass
class _Task:
    program: Program
    parent: _Task | None = None
    pending: int = 0


@dataclass
class _Waiting:
    """Threads gathered at one barrier."""

    arrivals: list[tuple[_Task, Barrier]] = field(default_factory=list)

    def total(self) -> int:
        return sum(len(barrier.tids) for _, barrier in self.arrivals)


class _Scheduler:
    """Runs the tasks of a CTA until all are done or none can move."""

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._ready: list[_Task] = []
        self._waiting: dict[int, _Waiting] = {}

    def run(self, program: Program) -> None:
        self._ready.append(_Task(program))
        while self._ready:
            self._advance(self._ready.pop(0))
        if self._waiting:
            self._deadlock()

    def _advance(self, task: _Task) -> None:
        try:
            request = next(task.program)
        except StopIteration:
            parent = task.parent
            if parent is not None:
                parent.pending -= 1
                if not parent.pending:
                    self._ready.append(parent)
            return
        if isinstance(request, Fork):
            task.pending = len(request.parts)
            self._ready.extend(_Task(part, task) for part in request.parts)
            return
        self._arrive(task, request)

    def _arrive(self, task: _Task, barrier: Barrier) -> None:
        waiting = self._waiting.setdefault(barrier.number, _Waiting())
        waiting.arrivals.append((task, barrier))
        needed = barrier.count or self._cta.threads
        if barrier.aligned and _splits_warp(barrier.tids, self._cta.threads):
            self._diverged(barrier, "part of a warp arrives")
        if waiting.total() < needed:
            return
        del self._waiting[barrier.number]
        sites = {b.at[0] for _, b in waiting.arrivals if b.aligned}
        if len(sites) > 1:
            self._diverged(barrier, f"threads meet from {len(sites)} different statements")
        tids = np.concatenate([b.tids for _, b in waiting.arrivals])
        self._cta.shadow.join(tids, len(self._cta.log) - 1)
        self._cta.copies.tick()
        self._cta.counts["barriers"] += 1
        self._ready.extend(t for t, _ in waiting.arrivals)

    def _deadlock(self) -> None:
        for waiting in self._waiting.values():
            barrier = waiting.arrivals[0][1]
            needed = barrier.count or self._cta.threads
            self._diverged(
                barrier, f"{waiting.total()} of {needed} threads arrive, the CTA stops here"
            )

    def _diverged(self, barrier: Barrier, detail: str) -> None:
        event = max(e for e, at in enumerate(self._cta.log) if at == barrier.at)
        self._cta.add_hazard("barrier-divergence", event, threads=(int(barrier.tids[0]),),
                             detail=detail)  # fmt: skip


def _splits_warp(tids: Array, threads: int) -> bool:
    if len(tids) == threads:
        return False
    arrived = np.zeros(-(-threads // WARP) * WARP, np.bool_)
    arrived[tids] = True
    arrived[threads:] = arrived[threads - 1]
    lanes = arrived.reshape(-1, WARP)
    return bool((lanes.any(axis=1) & ~lanes.all(axis=1)).any())
