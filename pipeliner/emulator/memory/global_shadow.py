"""Shadow state of global memory: who wrote, who read, and whether the next access is ordered.

Kept for memory that the kernel writes, one record for each granule, the smallest access: the last
write (its agent and event) and, where the kernel also reads that memory, the last read. The order
within a cluster is that of ``Clocks``, between clusters that of ``scoped``: nothing but releases
and acquires at the scope of the GPU, and the end of the kernel. What a later access must still be
compared with is kept aside where it is more than one access: reads, or atomic updates, that are
not ordered among themselves (``aside``). Several threads that touch one granule in one statement
are one agent (``agents``).

    two writes, a write and a read   a race where neither happens before the other
    two writes of equal values       no hazard, whichever is last; nor a read between them, but one
                                     before the first that the second is not ordered after
    atomic or strong accesses        do not race with each other, where the scope of each has the
                                     other, and order nothing by themselves; with plain accesses
                                     they race as these do
    bulk copies                      write and read by the async proxy until a wait for their
                                     group (without ``.read``) or their mbarrier; generic accesses
                                     before them need a proxy fence
    cp.async                         reads until it has been waited for

PTX ISA, memory consistency model: data races, morally strong operations, proxies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..base.report import HazardKind
from ..base.sparse import sparse
from .agents import WIDE, Agents, GlobalAccess
from .aside import Aside
from .global_hazards import GlobalHazards
from .grid import Grid

Array = np.ndarray[Any, Any]
Equal = Callable[[], Any] | None
"""Which rows of a write store what is there already; None: none does."""

_REACH: Final = 3
"""Bits of a granule's flags: the reach of its last write, plus 1."""

_READ_REACH: Final = 2
"""The bit where the reach of its last read begins, plus 1."""

_PENDING: Final = 16
"""The last read is by a copy that has not been waited for."""

_MORE: Final = 32
"""Other accesses are kept aside."""

_LARGE: Final = 1 << 28
"""Bytes of shadow state from which on it takes memory only where it is touched."""


class GlobalShadow:
    """Shadow state of one memory in one launch; ``whole``: with reads and atomic updates."""

    def __init__(self, nbytes: int, granule: int, grid: Grid, *, whole: bool) -> None:
        self.granule = granule
        self._grid = grid
        self._agents = Agents(grid)
        self._hazards = GlobalHazards(granule, grid, self._agents)
        count = -(-nbytes // granule)
        self._writer = _zeros(count, np.int32)
        self._wrote = _zeros(count, np.int32)
        self._whole = whole
        self._reader = _zeros(count if whole else 0, np.int32)
        self._read_at = _zeros(count if whole else 0, np.int32)
        self._ended = _zeros(count if whole else 0, np.int32)
        self._ended_at = _zeros(count if whole else 0, np.int32)
        self._flags = _zeros(count, np.uint8)
        self._aside = Aside()

    def granules(self, first: Any, nbytes: int) -> Array:
        """Return the granules of ``nbytes`` from each byte ``first`` on."""
        at = np.asarray(first, np.int64) // self.granule
        count = max(1, nbytes // self.granule)
        if count == 1:
            return at
        spread = at[..., None] + np.arange(count)
        return spread.reshape(spread.shape[0] if spread.ndim > 1 else 1, -1)

    # Accesses

    def write(self, access: GlobalAccess, equal: Equal = None) -> None:
        """Judge and note a write; ``equal()``: which of its rows store what is there already."""
        who, at = access.rows()
        if self._aside:
            self._against_aside(access, who, at, equal)
        if self._writer[at].any():
            self._against_writes(access, who, at, equal)
        if self._whole:
            stays = self._against_reads(access, who, at, equal)
            self._end_reads(at, stays, equal)
        if access.agent >= 0:
            self._check_fenced(access, at)
        if self._whole or self._aside:
            self._flags[at] = self._flags[at] & np.uint8(~_REACH & 0xFF) | np.uint8(
                access.reach + 1
            )
        self._enter(access, who, at, self._writer, self._wrote)
        self._agents.gather(access, who, at, self._writer)

    def read(self, access: GlobalAccess, *, pending: bool = False) -> None:
        """Judge and note a read; ``pending``: by cp.async, until ``arrived``."""
        who, at = access.rows()
        if self._aside:
            self._against_aside(access, who, at, None, reading=True)
        if self._writer[at].any():
            self._against_writes(access, who, at, None, reading=True)
        if access.agent >= 0:
            self._check_fenced(access, at)
        if not self._whole:
            return
        before, then = self._reader[at], self._read_at[at]
        self._enter(access, who, at, self._reader, self._read_at)
        if not pending:
            self._agents.gather(access, who, at, self._reader)
        self._keep_readers(access, who, at, before, then)
        marks = access.reach + 1 << _READ_REACH | (_PENDING if pending else 0)
        others = self._flags[at] & np.uint8(~(_REACH << _READ_REACH | _PENDING) & 0xFF)
        self._flags[at] = others | np.uint8(marks)
        if pending:
            codes = self._agents.codes(access, who)
            lost = self._reader[at] != codes
            if lost.any():
                self._set_aside(at, lost, codes, self._read_at[at], reads=True)

    def arrived(self, access: GlobalAccess, now: int) -> None:
        """Note that the copies that read by ``access`` are complete for their threads."""
        if not self._whole:
            return
        who, at = (rows.reshape(-1) for rows in access.rows())
        codes = self._agents.codes(access, who)
        mine = (self._reader[at] == codes) & ((self._flags[at] & _PENDING) != 0)
        self._read_at[at[mine]] = now
        self._flags[at[mine]] &= ~np.uint8(_PENDING)
        self._aside.arrived(codes, at, now)
        self._grid.sites[access.cluster.index, now] = access.group.at

    def check_equal(self, access: GlobalAccess, equal: Callable[[], Any]) -> None:
        """Report threads of one statement that have stored different values to one place."""
        who, at = access.rows()
        codes = self._writer[at]
        if (codes == self._agents.codes(access, who)).all():
            return
        clash = (codes < 0) & ~_by_row(equal(), codes.shape)
        if clash.any():
            row = int(np.argmax(clash.reshape(-1)))
            mine, code = int(who.reshape(-1)[row]), int(codes.reshape(-1)[row])
            others = self._agents.singles(code)[1]
            rival = int(others[others != mine][0])
            self._hazards.complain(
                access,
                "race",
                mine,
                int(at.reshape(-1)[row]),
                access.cluster.index,
                rival,
                access.group.event,
            )

    def _enter(
        self, access: GlobalAccess, who: Array, at: Array, agent: Array, event: Array
    ) -> None:
        """Note the threads of ``access`` as the last that did this to the granules ``at``."""
        agent[at] = self._agents.codes(access, who)
        event[at] = access.group.event
        self._grid.sites[access.cluster.index, access.group.event] = access.group.at

    # Judgement

    def _against_writes(
        self, access: GlobalAccess, who: Array, at: Array, equal: Equal, *, reading: bool = False
    ) -> None:
        """Judge an access against the last writes; a write keeps those that it does not end."""
        early: HazardKind = "read-before-arrival" if reading else "write-in-flight"
        codes, events = self._writer[at], self._wrote[at]
        bad = self._agents.unordered(access, who, codes, events)
        reach = (self._flags[at] & _REACH).astype(np.int8) - 1
        if access.reach >= 0 and bad.any():
            bad = bad & ~self._agents.is_strong(access, who, codes, reach)
        same = np.zeros(bad.shape, np.bool_)
        if equal is not None and bad.any():
            same = bad & (reach < 0) & _by_row(equal(), bad.shape)
            bad = bad & ~same
            if self._whole and same.any():
                self._against_ended(access, who, at, same)
        if bad.any():
            self._hazards.report(access, early, who, at, bad, codes, events)
        if reading:
            return
        stays = same | self._outlives(access, who, codes, events, reach) & ~bad
        if stays.any():
            self._set_aside(at, stays, codes, events, reads=False, equal=same)

    def _outlives(
        self, access: GlobalAccess, who: Array, codes: Array, events: Array, reach: Array
    ) -> Array:
        """Return which earlier accesses a write leaves to be compared with what follows.

        A strong one those that are not ordered before it, and those that are weak or reach less:
        others may be strong with it, and not with them.
        """
        if access.reach < 0:
            return np.zeros(codes.shape, np.bool_)
        unordered = self._agents.unordered(access, who, codes, events)
        unordered &= codes != self._agents.codes(access, who)
        return np.asarray((codes != 0) & (unordered | (reach < access.reach)))

    def _against_reads(self, access: GlobalAccess, who: Array, at: Array, equal: Equal) -> Array:
        """Judge a write against the last reads and return which of them stay."""
        codes, events, flags = self._reader[at], self._read_at[at], self._flags[at]
        if not codes.any():
            return np.zeros(codes.shape, np.bool_)
        bad = self._agents.unordered(access, who, codes, events)
        bad |= ((flags & _PENDING) != 0) & (codes != 0)
        reach = (flags >> _READ_REACH & _REACH).astype(np.int8) - 1
        stays = self._outlives(access, who, codes, events, reach)
        if access.reach >= 0 and bad.any():
            bad = bad & ~self._agents.is_strong(access, who, codes, reach)
        if equal is not None and bad.any():
            same = bad & (reach < 0) & (self._writer[at] != 0) & _by_row(equal(), bad.shape)
            same &= (flags & _PENDING) == 0
            bad, stays = bad & ~same, stays | same
        if bad.any():
            self._hazards.report(access, "write-while-read", who, at, bad, codes, events)
        return np.asarray(stays & ~bad)

    def _end_reads(self, at: Array, stays: Array, equal: Equal) -> None:
        """Forget the last reads but those that stay; note those of another value aside.

        A write that is not ordered after such a read meets the write that ended it, unless it
        stores the same value: then it is compared with the read itself.
        """
        before = self._reader[at]
        ended = (before != 0) & ~stays
        if not ended.any():
            return
        self._reader[at] = np.where(stays, before, 0)
        if equal is not None:
            ended &= ~_by_row(equal(), ended.shape)
        self._ended[at[ended]] = before[ended]
        self._ended_at[at[ended]] = self._read_at[at[ended]]

    def _against_ended(self, access: GlobalAccess, who: Array, at: Array, same: Array) -> None:
        """Judge writes of a value that is there against the reads that the first of them ended."""
        codes, events = self._ended[at], self._ended_at[at]
        bad = same & self._agents.unordered(access, who, codes, events)
        if bad.any():
            self._hazards.report(access, "write-while-read", who, at, bad, codes, events)

    def _keep_readers(
        self, access: GlobalAccess, who: Array, at: Array, codes: Array, events: Array
    ) -> None:
        """Put aside the last reads before ``access`` that it is not ordered after, or may hide."""
        others = (codes != 0) & (codes != self._reader[at])
        flags = self._flags[at]
        weaker = (flags >> _READ_REACH & _REACH).astype(np.int8) <= access.reach
        if not others.any() and not weaker.any():
            return
        stays = self._agents.unordered(access, who, codes, events) | ((flags & _PENDING) != 0)
        stays = others & stays | (codes != 0) & weaker
        if stays.any():
            self._set_aside(at, stays, codes, events, reads=True)

    def _set_aside(
        self,
        at: Array,
        which: Array,
        codes: Array,
        events: Array,
        *,
        reads: bool,
        equal: Array | None = None,
    ) -> None:
        granules, flags = at[which], self._flags[at[which]]
        reach = (flags >> _READ_REACH if reads else flags) & _REACH
        same = np.zeros(len(granules), np.bool_) if equal is None else equal[which]
        pending = (flags & _PENDING) != 0 if reads else np.zeros(len(granules), np.bool_)
        self._aside.add(
            codes[which],
            events[which],
            granules,
            reach.astype(np.int8) - 1,
            writes=not reads,
            equal=same,
            pending=pending,
        )
        self._flags[granules] |= np.uint8(_MORE)

    def _against_aside(
        self, access: GlobalAccess, who: Array, at: Array, equal: Equal, *, reading: bool = False
    ) -> None:
        """Judge an access against all that were kept of its granules; a write ends some."""
        shape, who, at = at.shape, who.reshape(-1), at.reshape(-1)
        some = (self._flags[at] & _MORE) != 0
        if not some.any():
            return
        kind: HazardKind = "read-before-arrival" if reading else "write-in-flight"
        same = None
        gone: dict[int, Array] = {}
        for part, every, meets in self._aside.touching(at):
            relevant = part.writes & ~part.equal if reading else np.ones(len(part.codes), np.bool_)
            if access.reach == WIDE:
                relevant &= part.reach < WIDE
            if not relevant[every].any():
                continue
            kept, rows = every[relevant[every]], meets[relevant[every]]
            found = part.rows(kept)
            bad = self._agents.unordered(access, who[rows], found.codes, found.events)
            ordered = ~bad & ~found.pending
            bad |= found.pending
            if access.reach >= 0:
                bad &= ~self._agents.is_strong(access, who[rows], found.codes, found.reach)
            elif equal is not None and bad.any():
                if same is None:
                    same = _by_row(equal(), shape).reshape(-1)
                written = self._writer[at[rows]] != 0
                bad &= ~(
                    same[rows]
                    & (found.reach < 0)
                    & (found.equal | ~found.writes)
                    & written
                    & ~found.pending
                )
            if bad.any():
                hit = at[rows]
                self._hazards.report(
                    access,
                    kind if found.writes[np.argmax(bad)] else "write-while-read",
                    who[rows],
                    hit,
                    bad,
                    found.codes,
                    found.events,
                )
            if not reading:
                ends = ordered if access.reach < 0 else ordered & (found.reach >= access.reach)
                over = np.zeros(len(part.codes), np.bool_)
                over[kept] = True
                over[kept[~(ends | bad)]] = False
                gone[id(part)] = over
        if gone:
            self._aside.drop(gone)

    def _check_fenced(self, access: GlobalAccess, at: Array) -> None:
        """Report generic writes that the thread of an engine knows of without a fence since."""
        codes, events = self._writer[at], self._wrote[at]
        bad = self._agents.unfenced(access, codes, events)
        if bad.any():
            who = np.full(at.shape, int(access.tids[0]))
            self._hazards.report(access, "missing-proxy-fence", who, at, bad, codes, events)


def _by_row(rows: Any, shape: tuple[int, ...]) -> Array:
    """Return a truth for each row, or one for all, in the shape of granules."""
    given = np.asarray(rows)
    if given.ndim == 1 and len(shape) == 2:
        given = given[:, None]
    return np.broadcast_to(given, shape)


def _zeros(count: int, dtype: Any) -> Array:
    """Zeros that take memory as they are touched."""
    large = count * np.dtype(dtype).itemsize > _LARGE
    return sparse(count, dtype) if large else np.zeros(count, dtype)
