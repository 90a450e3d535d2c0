"""Shadow state of global memory: who wrote, who read, and whether the next access is ordered.

Kept for memory that the kernel writes, one record for each granule, the smallest access: the last
write (its agent and event) and, where the kernel also reads that memory, the last read. The order
within a cluster is that of ``Clocks``, between clusters that of ``grid``: nothing but releases and
acquires at the scope of the GPU, and the end of the kernel. What a later access must still be
compared with is kept aside where it is more than one access: reads, or atomic updates, that are
not ordered among themselves.

    two writes, a write and a read   a race where neither happens before the other
    two writes of equal values       no hazard, whichever is last
    atomic or strong accesses        do not race with each other and order nothing by themselves;
                                     with plain accesses they race as these do
    bulk copies                      write and read by the async proxy until a wait for their
                                     group (without ``.read``) or their mbarrier; generic accesses
                                     before them need a proxy fence
    cp.async                         reads until it has been waited for

PTX ISA, memory consistency model: data races, morally strong operations, proxies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .report import HazardKind
from .sparse import sparse

if TYPE_CHECKING:
    from .grid import Grid
    from .machine import Cluster, Strand

Array = np.ndarray[Any, Any]

_ATOMIC_WRITE: Final = 1
_ATOMIC_READ: Final = 2
_MORE_READS: Final = 4
_MORE_UPDATES: Final = 8
_PENDING: Final = 16  # the last read is by a copy that has not been waited for
_PLAIN_BEFORE: Final = 32  # a plain write lies before the atomic updates
_LARGE: Final = 1 << 28
_IN_FLIGHT: Final = ("read-before-arrival", "write-in-flight")


@dataclass(frozen=True)
class Access:
    """What a statement does to a buffer: who, which granules of its memory, by which agent.

    ``agent``: the engine that does it for thread ``tids[0]``; -1: the threads themselves.
    """

    strand: Strand
    name: str
    start: int  # of the buffer in its memory
    tids: Array
    granules: Array
    agent: int = -1
    atomic: bool = False

    @property
    def cluster(self) -> Cluster:
        """Of the threads."""
        return self.strand.cta.cluster


@dataclass
class _Aside:
    """Accesses that are not ordered among themselves, beside the last one."""

    codes: Array
    events: Array
    granules: Array
    pending: Array

    def part(self, rows: Array) -> _Aside:
        """Some of them."""
        return _Aside(self.codes[rows], self.events[rows], self.granules[rows], self.pending[rows])


class GlobalShadow:
    """Shadow state of one memory in one launch; ``whole``: with reads and atomic updates."""

    def __init__(self, nbytes: int, granule: int, grid: Grid, *, whole: bool) -> None:
        self.granule = granule
        self._grid = grid
        count = -(-nbytes // granule)
        self._writer = _zeros(count, np.int32)
        self._wrote = _zeros(count, np.int32)
        self._whole = whole
        self._reader = _zeros(count if whole else 0, np.int32)
        self._read_at = _zeros(count if whole else 0, np.int32)
        self._flags = _zeros(count if whole else 0, np.uint8)
        self._reads: list[_Aside] = []
        self._updates: list[_Aside] = []
        self._plain: list[_Aside] = []

    def granules(self, first: Any, nbytes: int) -> Array:
        """Of ``nbytes`` from each byte ``first`` on."""
        at = np.asarray(first, np.int64) // self.granule
        count = max(1, nbytes // self.granule)
        if count == 1:
            return at
        spread = at[..., None] + np.arange(count)
        return spread.reshape(spread.shape[0] if spread.ndim > 1 else 1, -1)

    # Accesses

    def write(self, access: Access, equal: Callable[[], Any] | None = None) -> None:
        """Judge and note a write; ``equal()``: which of its rows store what is there already."""
        who, at = _rows(access)
        if self._writer[at].any():
            self._against_writes(access, who, at, equal)
        if self._whole:
            self._against_reads(access, who, at)
            self._reader[at] = 0
            keep = self._flags[at] & (_MORE_UPDATES | _PLAIN_BEFORE) if access.atomic else 0
            self._flags[at] = keep | (_ATOMIC_WRITE if access.atomic else 0)
        if access.agent >= 0:
            self._check_fenced(access, at)
        self._writer[at] = self._codes(access, who)
        self._wrote[at] = access.strand.event
        self._grid.sites[access.cluster.index, access.strand.event] = access.strand.at

    def read(self, access: Access, *, pending: bool = False) -> None:
        """Judge and note a read; ``pending``: by cp.async, until ``arrived``."""
        who, at = _rows(access)
        if self._writer[at].any():
            self._against_writes(access, who, at, None, reading=True)
        if access.agent >= 0:
            self._check_fenced(access, at)
        if not self._whole:
            return
        earlier = self._unordered(access, who, self._reader[at], self._read_at[at])
        if earlier is not None:
            earlier |= (self._flags[at] & _PENDING) != 0
            earlier &= self._reader[at] != self._codes(access, who)
            if earlier.any():
                self._set_aside(self._reads, at[earlier], self._reader, self._read_at)
                self._flags[at[earlier]] |= _MORE_READS
        self._reader[at] = self._codes(access, who)
        self._read_at[at] = access.strand.event
        marks = (_ATOMIC_READ if access.atomic else 0) | (_PENDING if pending else 0)
        self._flags[at] = self._flags[at] & ~np.uint8(_ATOMIC_READ | _PENDING) | np.uint8(marks)
        self._grid.sites[access.cluster.index, access.strand.event] = access.strand.at

    def arrived(self, access: Access, now: int) -> None:
        """The copies that read by ``access`` are complete for their threads."""
        if not self._whole:
            return
        index = access.cluster.index
        who, at = (rows.reshape(-1) for rows in _rows(access))
        codes = self._coded(index, who)
        mine = (self._reader[at] == codes) & ((self._flags[at] & _PENDING) != 0)
        self._read_at[at[mine]] = now
        self._flags[at[mine]] &= ~np.uint8(_PENDING)
        for aside in self._reads:
            done = aside.pending & np.isin(aside.codes, codes) & np.isin(aside.granules, at)
            aside.events[done] = now
            aside.pending[done] = False
        self._grid.sites[index, now] = access.strand.at

    def check_equal(self, access: Access, equal: Callable[[], Any]) -> None:
        """After a write: threads of one statement that stored different values to one place."""
        who, at = _rows(access)
        other = self._writer[at] != self._codes(access, who)
        if not other.any():
            return
        clash = other & ~_by_row(equal(), other.shape)
        if clash.any():
            self._report(access, "race", who, at, clash, self._writer[at], self._wrote[at])

    # Judgement

    def _coded(self, cluster: int, agents: Any) -> Any:
        return cluster * self._grid.agents + agents + 1

    def _codes(self, access: Access, who: Array) -> Any:
        """The agents of an access, as numbers in the grid."""
        return self._coded(access.cluster.index, access.agent if access.agent >= 0 else who)

    def _unordered(self, access: Access, who: Array, codes: Array, events: Array) -> Array | None:
        """Which accesses are not ordered before the present of ``who``; None: there are none."""
        if not codes.any():
            return None
        index, agent = np.divmod(codes - 1, self._grid.agents)
        own = index == access.cluster.index
        known = access.cluster.clocks.knows[who, np.where(own, agent, 0)]
        bad: Array = own & (events > known)
        foreign = (codes != 0) & ~own
        if foreign.any():
            bad[foreign] = access.cluster.scoped.unordered(
                who[foreign], index[foreign], agent[foreign], events[foreign]
            )
        return bad

    def _against_writes(
        self, access: Access, who: Array, at: Array, equal: Callable[[], Any] | None, *,
        reading: bool = False,
    ) -> None:  # fmt: skip
        """Judge an access against the writes before it."""
        early: HazardKind = "read-before-arrival" if reading else "write-in-flight"
        codes, events = self._writer[at], self._wrote[at]
        bad = self._unordered(access, who, codes, events)
        if bad is None:
            return
        if self._whole:
            updated = (self._flags[at] & _ATOMIC_WRITE) != 0
            if access.atomic:
                self._behind_plain(access, who, at, updated, early, reading)
                crowd = bad & updated
                if crowd.any():
                    self._set_aside(self._updates, at[crowd], self._writer, self._wrote)
                    self._flags[at[crowd]] |= _MORE_UPDATES
                bad = bad & ~updated
            elif ((self._flags[at] & _MORE_UPDATES) != 0).any():
                self._against_aside(access, who, at, self._updates, early, keep=reading)
            if not access.atomic and ((self._flags[at] & _PLAIN_BEFORE) != 0).any():
                self._against_aside(access, who, at, self._plain, early, keep=reading)
        if bad.any() and equal is not None:
            bad = bad & ~_by_row(equal(), bad.shape)
        if bad.any():
            self._report(access, early, who, at, bad, codes, events)

    def _behind_plain(
        self, access: Access, who: Array, at: Array, updated: Array, early: HazardKind,
        reading: bool,
    ) -> None:  # fmt: skip
        """Atomic accesses are compared with the plain write that others may have updated since."""
        if ((self._flags[at] & _PLAIN_BEFORE) != 0).any():
            self._against_aside(access, who, at, self._plain, early, keep=True)
        first = ~updated & (self._writer[at] != 0)
        if first.any() and not reading:
            self._set_aside(self._plain, at[first], self._writer, self._wrote)
            self._flags[at[first]] |= _PLAIN_BEFORE

    def _against_reads(self, access: Access, who: Array, at: Array) -> None:
        codes, events, flags = self._reader[at], self._read_at[at], self._flags[at]
        bad = self._unordered(access, who, codes, events)
        if bad is None:
            return
        bad |= (flags & _PENDING) != 0
        if access.atomic:
            bad &= (flags & _ATOMIC_READ) == 0
        if bad.any():
            self._report(access, "write-while-read", who, at, bad, codes, events)
        elif ((flags & _MORE_READS) != 0).any():
            self._against_aside(access, who, at, self._reads, "write-while-read")

    def _set_aside(self, into: list[_Aside], at: Array, agents: Array, events: Array) -> None:
        pending = (self._flags[at] & _PENDING) != 0 if into is self._reads else at < 0
        into.append(_Aside(agents[at], events[at], at, pending))

    def _against_aside(
        self, access: Access, who: Array, at: Array, kept: list[_Aside], kind: HazardKind, *,
        keep: bool = False,
    ) -> None:  # fmt: skip
        """Judge an access against all that were kept of its granules.

        It replaces them unless they are to ``keep``.
        """
        by = dict(zip(map(int, at.reshape(-1)), map(int, who.reshape(-1)), strict=True))
        for aside in list(kept):
            hit = np.isin(aside.granules, at)
            if not hit.any():
                continue
            found = aside.part(hit)
            tids = np.array([by[int(granule)] for granule in found.granules])
            bad = self._unordered(access, tids, found.codes, found.events)
            assert bad is not None
            bad |= found.pending
            if bad.any():
                self._report(access, kind, tids, found.granules, bad, found.codes, found.events)
            if keep:
                continue
            kept.remove(aside)
            if not hit.all():
                kept.append(aside.part(~hit))

    def _check_fenced(self, access: Access, at: Array) -> None:
        """Generic writes that the thread of an engine knows of, and no proxy fence after them."""
        clocks, thread = access.cluster.clocks, int(access.tids[0])
        codes, events = self._writer[at], self._wrote[at]
        index, agent = np.divmod(codes - 1, self._grid.agents)
        generic = (index == access.cluster.index) & (agent < clocks.threads)
        agent = np.where(generic, agent, 0)
        bad = generic & (events > clocks.fenced_globally[thread, agent])
        bad &= events <= clocks.knows[thread, agent]
        if bad.any():
            who = np.full(at.shape, thread)
            self._report(access, "missing-proxy-fence", who, at, bad, codes, events)

    def _report(
        self, access: Access, kind: HazardKind, who: Array, at: Array, bad: Array, codes: Array,
        events: Array,
    ) -> None:  # fmt: skip
        """A hazard of the first bad row, against the access ``codes`` at ``events``."""
        cluster, cta = access.cluster, access.strand.cta
        row = int(np.argmax(bad.reshape(-1)))
        code, event = int(codes.reshape(-1)[row]), int(events.reshape(-1)[row])
        index, agent = divmod(code - 1, self._grid.agents)
        rank, rival = divmod(agent, cluster.threads)
        blocks = self._grid.blocks[index]
        threads = [cta.local(int(who.reshape(-1)[row]))]
        detail = ""
        if rank < len(blocks):
            threads.append(rival)
            if blocks[rank] != cta.block:
                detail = f"a thread of CTA {blocks[rank]}, and nothing orders the two"
            kind = "race" if kind in _IN_FLIGHT else kind
        elif index != cluster.index:
            detail = f"an asynchronous copy of CTA {blocks[0]}, and nothing orders the two"
        kind = "race" if index != cluster.index else kind
        offset = int(at.reshape(-1)[row]) * self.granule - access.start
        cta.add_hazard(kind, access.strand.event, buffer=access.name, offset=offset,
                       threads=tuple(threads), detail=detail,
                       against=self._grid.sites.get((index, event), ()))  # fmt: skip


def _rows(access: Access) -> tuple[Array, Array]:
    tids = access.tids[:, None] if access.granules.ndim == 2 else access.tids
    if access.agent >= 0:
        return np.full(access.granules.shape, access.tids[0]), access.granules
    who, at = np.broadcast_arrays(tids, access.granules)
    return who, at


def _by_row(rows: Any, shape: tuple[int, ...]) -> Array:
    """A truth for each row, or for all, in the shape of granules."""
    given = np.asarray(rows)
    if given.ndim == 1 and len(shape) == 2:
        given = given[:, None]
    return np.broadcast_to(given, shape)


def _zeros(count: int, dtype: Any) -> Array:
    """Zeros that take memory as they are touched."""
    large = count * np.dtype(dtype).itemsize > _LARGE
    return sparse(count, dtype) if large else np.zeros(count, dtype)
