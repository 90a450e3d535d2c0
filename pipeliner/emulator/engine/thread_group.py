"""Lockstep thread groups: threads that the generated code runs together, as rows of numpy arrays.

A group is a whole CTA, or one warp of it. Lock step is only a way to be fast: conflicts are judged
by ``Shadow`` on happens-before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason, Why
from ..base.report import HazardKind
from ..base.requests import Barrier, Spin
from ..memory.snapshot import Snapshot
from ..memory.spaces import LocalView
from ..units.fragments import WARP
from .machine import Cta

Array = np.ndarray[Any, Any]
Mask = Array | None


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
        self.views: list[LocalView] = []  # and the buffers
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

    def trips(
        self, number: int, low: int, high: int, step: int, around: tuple[int, ...]
    ) -> Iterable[int]:
        """Return the iterations of the loop that is statement ``number``, in loops at ``around``.

        A proof decides them itself.
        """
        return range(low, high, step)

    def active(self, mask: Mask) -> Array:
        return self.tids if mask is None else self.tids[mask]

    def others(self, mask: Mask, *branches: Any) -> Array:
        """Return the threads of ``mask`` that are in none of its ``branches``."""
        inside = [self.active(branch) for branch in branches if branch is not NOBODY]
        found: Array = np.setdiff1d(self.active(mask), np.concatenate(inside))
        return found

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
        if where.any() if isinstance(where, np.ndarray) else where:
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
        if not cta.dependent or not cta.unwaited.any():
            return
        unwaited = self.active(mask)
        unwaited = unwaited[cta.unwaited[unwaited - cta.first]]
        if len(unwaited) and cta.cluster.waited:
            who, events = np.array(cta.cluster.waited).T
            told = (cta.cluster.clocks.known(unwaited[:, None], who) >= events).any(axis=1)
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

    def snapshot(self, into: Snapshot, deciding: Collection[str]) -> None:
        """Add the local buffers ``deciding`` the way, and which registers a wgmma still uses."""
        units, fenced = self.cta.cluster.matrix_units, self.registers_fenced[:, None]
        into.plain(fenced > 0)
        for view in self.views:
            if view.name in deciding:
                into.plain(view.name, view.data)
            if not view.is_marked:
                continue
            if not view.marks("used").any():
                into.plain(view.marks("touched") > fenced)
                continue
            used = np.where(view.marks("used") > self.waited[:, None], view.marks("used"), 0)
            later = np.zeros(used.shape, np.int32)
            for first in range(0, self.n, WARP):
                warp = slice(first, first + WARP)
                for event in np.unique(used[warp][used[warp] > 0]):
                    count = units.in_flight(int(self.tids[first]), int(event))
                    later[warp][used[warp] == event] = count
            into.plain(later, view.marks("touched") > fenced)

    def count(self, name: str, amount: int = 1) -> None:
        self.cta.counts[name] += amount
