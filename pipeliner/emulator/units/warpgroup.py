"""The asynchronous matrix units: wgmma operations in flight, one queue for each warpgroup.

PTX ISA 9.7.15: the four warps of a warpgroup issue each ``wgmma.mma_async`` together; it reads its
operands and writes its accumulators at any time until a warp has waited for the group that it was
committed to (``timing``).  Until then its registers must not be touched, and touching them before
needs a ``wgmma.fence`` between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ..base.clocks import Clock
from ..base.report import in_flight
from ..memory.snapshot import Snapshot
from ..memory.spaces import LocalView
from ..memory.state import ClusterState, CtaState, GroupState
from . import wgmma
from .fragments import WARP
from .wgmma import WARPGROUP, Major, Wgmma

Array = np.ndarray[Any, Any]
_WARPS: Final = WARPGROUP // WARP
_COMMITS: Final = 9
"""Groups that a wait may leave in flight, at most, and the one that it completes."""

_ROWS: Final = wgmma.M // _WARPS
"""Rows of A and D that a warp holds."""


@dataclass(frozen=True)
class Registers:
    """Registers of a warp: columns of a register array, of some rows of its group."""

    view: LocalView
    columns: tuple[int, ...]
    rows: slice

    def get(self) -> Array:
        """Return the values, (32, registers)."""
        return np.ascontiguousarray(self.view.array[self.rows, self.at])

    def put(self, values: Array) -> None:
        self.view.array[self.rows, self.at] = values.view(self.view.array.dtype)

    def of_warp(self, at: int) -> Registers:
        """Return the registers of the ``at``-th warp among its rows."""
        first = self.rows.start + at * WARP
        return Registers(self.view, self.columns, slice(first, first + WARP))

    @property
    def at(self) -> Any:
        """The columns as an index of arrays: a slice if they are neighbours."""
        return _as_index(self.columns)


@dataclass(frozen=True)
class WgmmaOperation:
    """What all four warps of a wgmma.mma_async must agree on; ``a`` is None in registers."""

    spec: Wgmma
    a_type: str  # as PTX names it
    a: int | None
    b: int
    a_major: Major
    b_major: Major
    scale_d: bool
    scale_a: int
    scale_b: int
    saturate: bool


@dataclass(frozen=True)
class _WarpPart:
    """What one warp gives to an operation."""

    d: Registers
    a: Registers | None
    event: int


@dataclass
class _Issued:
    operation: WgmmaOperation
    warps: dict[int, _WarpPart] = field(default_factory=dict)
    done: bool = False


class _Unit:
    """The queue of one warpgroup, whose first thread is ``first``."""

    def __init__(self, cta: CtaState, first: int, owner: MatrixUnits) -> None:
        self.cta = cta
        self.owner = owner
        self.first = first
        self.engine = cta.cluster.clocks.engine()
        self.queue: list[_Issued] = []
        self.events: list[list[int]] = [[] for _ in range(_WARPS)]  # of the issues of each warp
        self.commits: list[list[int]] = [[0] for _ in range(_WARPS)]  # issued before each commit
        self.waited = [0] * _WARPS  # operations that each warp has waited for
        self._done = 0

    def complete(self, count: int) -> None:
        """Complete the first ``count`` operations."""
        for issued in self.queue[self._done : count]:
            if not issued.done and self.owner.computes:
                self.run(issued)
            issued.done = True
        self._done = max(self._done, count)

    def run(self, issued: _Issued) -> None:
        """Read the operands, write the accumulators."""
        op, warps = issued.operation, [issued.warps[w] for w in range(_WARPS)]
        spec = op.spec
        issued.done = True
        b = self._shared(op.b, spec.n, spec.k, spec.b_type, op.b_major)
        if op.a is not None:
            a = self._shared(op.a, wgmma.M, spec.k, spec.a_type, op.a_major)
        else:
            words = np.concatenate([p.a.get() for p in warps if p.a is not None])
            a = words.view(spec.a_type).reshape(-1)[wgmma.a_register_positions(op.a_type)]
        d = np.concatenate([p.d.get() for p in warps]).view(spec.d_type)
        out = wgmma.multiply(
            spec,
            a,
            b,
            d,
            scale_d=op.scale_d,
            scale_a=op.scale_a,
            scale_b=op.scale_b,
            saturate=op.saturate,
        )
        out = np.ascontiguousarray(out)
        for warp, part in enumerate(warps):
            part.d.put(out[warp * WARP : (warp + 1) * WARP])

    def _shared(self, desc: int, rows: int, k: int, dtype: np.dtype[Any], major: Major) -> Array:
        memory = self.cta.window.bytes
        at = wgmma.operand_offsets(wgmma.decode_descriptor(desc), rows, k, dtype.itemsize, major)
        inside = np.minimum(at, len(memory) - dtype.itemsize)
        values: Array = memory.view(f"u{dtype.itemsize}")[inside // dtype.itemsize].view(dtype)
        return values


class MatrixUnits:
    """The matrix units of all warpgroups of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self.computes = True  # whether anything is multiplied; if not, what is written stays
        self._cluster = cluster
        self._units: dict[int, _Unit] = {}

    def _unit(self, cta: CtaState, tid: int) -> tuple[_Unit, int]:
        """Return the unit of a thread, and which of its warps the thread is in."""
        local = cta.local(tid)
        first = tid - local % WARPGROUP
        if first not in self._units:
            self._units[first] = _Unit(cta, first, self)
        return self._units[first], local % WARPGROUP // WARP

    def issue(
        self,
        group: GroupState,
        rows: slice,
        operation: WgmmaOperation,
        d: Registers,
        a: Registers | None,
    ) -> None:
        """Issue the parts of some warps (``rows`` of the thread group) of an operation."""
        cta, tids = group.cta, group.tids[rows]
        unit, first = self._unit(cta, int(tids[0]))
        if cta.threads - cta.local(unit.first) < WARPGROUP:
            group.hazard(
                "divergent-warp", thread=int(tids[0]), detail=Reason("hazard.partial_warpgroup")
            )
            return
        warps = range(first, first + len(tids) // WARP)
        index = len(unit.events[first])
        if any(len(unit.events[warp]) != index for warp in warps):
            for at in range(len(warps)):
                source = None if a is None else a.of_warp(at)
                self.issue(group, d.of_warp(at).rows, operation, d.of_warp(at), source)
            return
        if index == len(unit.queue):
            unit.queue.append(_Issued(operation))
        issued = unit.queue[index]
        if issued.operation != operation:
            group.hazard(
                "divergent-warp",
                thread=int(tids[0]),
                detail=Reason("hazard.different_wgmma"),
            )
        self._read_shared(group, unit, warps, tids, operation)
        for at, warp in enumerate(warps):
            issued.warps[warp] = _WarpPart(
                d.of_warp(at), None if a is None else a.of_warp(at), group.event
            )
            unit.events[warp].append(group.event)
        if len(issued.warps) < _WARPS:
            return
        self._cluster.changes += 1
        if self._early():
            self._in_order(unit, index)

    def _early(self) -> bool:
        timing = self._cluster.timing
        if not self.computes:
            return False
        return timing == "early" or (timing == "random" and self._cluster.rng.random() < 0.5)

    def _in_order(self, unit: _Unit, index: int) -> None:
        """Run the operations up to ``index``: accumulation keeps their order."""
        for issued in unit.queue[: index + 1]:
            if not issued.done:
                unit.run(issued)

    def _read_shared(
        self, group: GroupState, unit: _Unit, warps: range, tids: Array, operation: WgmmaOperation
    ) -> None:
        """Note that operands are read from now until the group is waited for."""
        spec, cta = operation.spec, group.cta
        clock = self._cluster.clocks.common(tids)
        whole = range(0, spec.n)
        mine = range(warps.start * _ROWS, warps.stop * _ROWS)
        for desc, rows, total, dtype, major in (
            (operation.a, mine, wgmma.M, spec.a_type, operation.a_major),
            (operation.b, whole, spec.n, spec.b_type, operation.b_major),
        ):
            if desc is None:
                continue
            low, high, granules = _rows_of_operand(
                desc, total, spec.k, dtype.itemsize, major, rows.start, rows.stop, cta.granule
            )
            if low < 0 or high > cta.window.nbytes:
                group.hazard("out-of-bounds", "wgmma", high, thread=int(tids[0]))
                continue
            cta.shadow.engine_read(unit.engine, tids, clock, granules, group.event)

    def commit(self, group: GroupState, rows: slice) -> None:
        for unit, warp, _ in self._each_warp(group, [rows]):
            unit.commits[warp].append(len(unit.events[warp]))

    def _each_warp(
        self, group: GroupState, parts: Sequence[slice]
    ) -> Iterator[tuple[_Unit, int, slice]]:
        """The unit of each warp, which of its warps it is, and its rows."""
        for part in parts:
            unit, first = self._unit(group.cta, int(group.tids[part.start]))
            for at, row in enumerate(range(part.start, part.stop, WARP)):
                yield unit, first + at, slice(row, row + WARP)

    def complete(self, group: GroupState, parts: Sequence[slice], in_flight: int) -> bool:
        """Complete all but the last ``in_flight`` groups of warps; False: not all are issued."""
        found = list(self._each_warp(group, parts))
        targets = [u.commits[w][max(0, len(u.commits[w]) - 1 - in_flight)] for u, w, _ in found]
        for (unit, _, _), target in zip(found, targets, strict=True):
            if any(len(events) < target for events in unit.events):
                return False
        for (unit, warp, rows), target in zip(found, targets, strict=True):
            unit.complete(target)
            unit.waited[warp] = max(unit.waited[warp], target)
            if target:
                last = max(events[target - 1] for events in unit.events)
                tids = group.tids[rows]
                self._cluster.clocks.learn(tids, unit.engine, last)
                group.waited[rows] = unit.events[warp][target - 1]
        return True

    def ordered(self, tid: int, event: int, clock: Clock) -> bool:
        """Whether ``event`` of a thread precedes ``clock`` through an operation that it issued.

        An operation cannot complete before each warp has issued its part.
        """
        cta = self._cluster.cta_of(tid)
        unit, warp = self._unit(cta, tid)
        following = bisect_right(unit.events[warp], event)
        if following == len(unit.events[warp]):
            return False
        return bool(unit.events[warp][following] <= clock.of(unit.engine))

    def note_issues(self, tids: Array, event: int, into: Snapshot) -> None:
        """Add the first operation that the warp of each of ``tids`` has issued since ``event``."""
        cta = self._cluster.cta_of(int(tids[0]))
        issued: dict[int, list[int]] = {}
        for warp in sorted({tid // WARP for tid in tids.tolist()}):
            tid = warp * WARP
            first = tid - cta.local(tid) % WARPGROUP
            if first not in self._units:
                continue
            unit = self._units[first]
            events = unit.events[(tid - first) // WARP]
            at = bisect_right(events, event)
            into.plain(at < len(events))
            issued.setdefault(unit.engine, []).extend(events[at : at + 1])
        for engine, found in issued.items():
            into.judge(engine, np.array(found, np.int64))

    def snapshot(self, into: Snapshot) -> None:
        """Add what is in flight, counted from what each warp has waited for."""
        for first, unit in sorted(self._units.items()):
            into.plain(first, unit.engine)
            issued = max(map(len, unit.events))
            for events, commits, waited in zip(unit.events, unit.commits, unit.waited, strict=True):
                into.plain(issued - len(events), len(events) - waited)
                recent = commits[-_COMMITS:]
                into.plain([max(0, at - waited) for at in recent], len(recent) < _COMMITS)
                into.judge(unit.engine, np.array(events[waited:], np.int64))
            by_all = min(map(len, unit.events))
            into.plain([repr(one.operation) for one in unit.queue[by_all:]])

    def in_flight(self, tid: int, event: int) -> int:
        """How many operations the warp of a thread has issued from ``event`` on."""
        unit, warp = self._unit(self._cluster.cta_of(tid), tid)
        return len(unit.events[warp]) - bisect_left(unit.events[warp], event)

    def finish(self) -> None:
        """Report what is in flight after all threads have exited."""
        for unit in self._units.values():
            for warp, events in enumerate(unit.events):
                if len(events) > unit.waited[warp]:
                    thread = unit.cta.local(unit.first) + warp * WARP
                    unit.cta.add_hazard(
                        "never-waited",
                        events[unit.waited[warp]],
                        threads=(thread,),
                        detail=in_flight(
                            "wgmma", committed=unit.commits[warp][-1] > unit.waited[warp]
                        ),
                    )


@lru_cache(maxsize=1024)
def _rows_of_operand(
    desc: int,
    total: int,
    k: int,
    itemsize: int,
    major: Major,
    start: int,
    stop: int,
    granule: int,
) -> tuple[int, int, Array]:
    """First byte of an operand, one past its last, and the shadow granules of some of its rows."""
    at = wgmma.operand_offsets(wgmma.decode_descriptor(desc), total, k, itemsize, major)
    return int(at.min()), int(at.max()) + itemsize, np.unique(at[start:stop] // granule)


@lru_cache(maxsize=1024)
def _as_index(columns: tuple[int, ...]) -> slice | list[int]:
    """Columns of an array as numpy takes them fastest."""
    first, last = columns[0], columns[-1]
    return slice(first, last + 1) if columns == tuple(range(first, last + 1)) else list(columns)
