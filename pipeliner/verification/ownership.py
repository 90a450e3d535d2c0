"""Which CTA of which kernel writes which element, and whether CTAs of a kernel meet in any.

The index of every access of the un-pipelined function is evaluated for the whole grid, so what is
known of CTAs that are not run is exact: no two of a kernel write one element, and none reads what
another writes. The end of a kernel orders it before the next, so each is judged by itself; what a
CTA of a later kernel touches names the CTAs of earlier ones that have to run before it. Where an
index is not known without running (it is loaded, or memory is reached through a pointer or a view),
the reason is kept in place of an answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..diagnostics import Reason, Why
from ..passes.ir.kernels import kernels_of
from .accessed import (
    Accesses,
    Block,
    GlobalAccess,
    KernelAccesses,
    UnknownError,
    accesses_of,
    places,
)
from .arrays import Array


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the CTAs of one kernel write.

    ``owners``: for each argument or workspace that is written, the CTA of each element, or -1; one
    of them where they meet. CTAs are counted through, x fastest, over ``grid``. ``unknown``: why
    nothing more is known, or ``meeting``: where two CTAs meet; both empty where every CTA is on its
    own.
    """

    grid: Block = (1, 1, 1)
    owners: Mapping[str, Array] = field(default_factory=dict)
    unknown: Why = ""
    meeting: Why = ""

    @property
    def disjoint(self) -> bool:
        """Whether no CTA depends on another."""
        return not self.unknown and not self.meeting

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return math.prod(self.grid)

    def block(self, cta: int) -> Block:
        """BlockIdx of the CTA with that number."""
        return _block(cta, self.grid)

    def number(self, block: Sequence[int]) -> int:
        """The number of the CTA at ``block``."""
        x, y, _ = self.grid
        return int(block[0] + x * (block[1] + y * block[2]))

    def owned_by(self, name: str, blocks: Collection[Block]) -> Array:
        """Which elements of ``name``, which this kernel writes, the CTAs ``blocks`` own."""
        numbers = np.fromiter((self.number(block) for block in blocks), np.int64)
        return np.isin(self.owners[name], numbers)

    def has(self, block: Block) -> bool:
        """Whether the grid has a CTA at ``block``."""
        return all(0 <= at < extent for at, extent in zip(block, self.grid, strict=True))

    def counts(self) -> Array:
        """Elements that each CTA writes."""
        found = np.zeros(self.ctas, np.int64)
        for owner in self.owners.values():
            found += np.bincount(owner[owner >= 0].ravel(), minlength=self.ctas)
        return found

    def kinds(self) -> Array:
        """For each CTA how many elements it writes, and in how many runs of neighbours."""
        runs = np.zeros(self.ctas, np.int64)
        for owner in self.owners.values():
            rows = owner.reshape(-1, owner.shape[-1] if owner.ndim else 1)
            starts = np.ones(rows.shape, bool)
            starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
            runs += np.bincount(rows[starts & (rows >= 0)], minlength=self.ctas)
        return np.stack([self.counts(), runs], 1)


@dataclass(frozen=True, slots=True)
class Owned:
    """Who writes what in each kernel of a function, in the order in which they run."""

    kernels: tuple[Ownership, ...] = (Ownership(),)
    accesses: Accesses | None = field(default=None, repr=False)

    @staticmethod
    def of_unknown(why: Why, count: int = 1) -> Owned:
        """Nothing is known of so many kernels."""
        return Owned((Ownership(unknown=why),) * count)

    def needs(self, kernel: int, ctas: Array) -> dict[int, set[int] | Reason]:
        """For each earlier kernel the CTAs that write what ``ctas`` of ``kernel`` read or write.

        A reason stands where they are not known, or meet. What these CTAs need in turn is not among
        them.
        """
        found: dict[int, set[int] | Reason] = {at: set() for at in range(kernel)}
        if not len(ctas):
            return found
        for at in found:
            if why := self.kernels[at].unknown or self.kernels[kernel].unknown:
                found[at] = Reason("ownership.touched", why=why)
        if self.accesses is None or self.kernels[kernel].unknown:
            return found
        earlier = [(at, self.kernels[at].owners) for at in found]
        for access in self.accesses.kernels[kernel].found:
            makers = [(at, owners[access.name]) for at, owners in earlier if access.name in owners]
            for at, _ in makers:
                if why := self.kernels[at].meeting:
                    found[at] = Reason("ownership.touched", why=why)
            if not makers:
                continue
            shape = makers[0][1].shape
            try:
                for _, place in places(access, self.kernels[kernel].grid, shape, ctas):
                    for at, owner in makers:
                        known = found[at]
                        if isinstance(known, set):
                            known.update(map(int, np.unique(owner.reshape(-1)[place])))
            except UnknownError as err:
                for at, _ in makers:
                    found[at] = Reason("ownership.touched", why=err.reason)
        for known in found.values():
            if isinstance(known, set):
                known.discard(-1)
        return found

    def trusts(self, ran: Sequence[Collection[Block]]) -> bool:
        """Whether what every kernel writes is known, where these CTAs of each have run."""
        return all(
            kernel.disjoint or (not kernel.unknown and len(blocks) == kernel.ctas)
            for kernel, blocks in zip(self.kernels, ran, strict=True)
        )

    def writes(self, name: str) -> bool:
        """Whether some kernel is known to write elements of ``name``."""
        return any(name in kernel.owners for kernel in self.kernels)

    def written(self, name: str, ran: Sequence[Collection[Block]]) -> tuple[Any, Any]:
        """Which elements of ``name`` any CTA that ran owns, and those that are done.

        An element is done if the last kernel that writes it has.
        """
        some: Any = np.zeros((), bool)
        done: Any = np.zeros((), bool)
        for kernel, blocks in zip(self.kernels, ran, strict=True):
            if name in kernel.owners:
                mine = kernel.owned_by(name, blocks)
                some = some | mine
                done = np.where(kernel.owners[name] >= 0, mine, done)
        return some, done


def ownership(func: Any, names: Sequence[str], arrays: Sequence[Any]) -> Owned:
    """Who writes what of ``arrays``, the arguments of the PrimFunc ``func``, called ``names``."""
    try:
        _check_apart(names, arrays)
        accesses = accesses_of(func, names, arrays)
    except UnknownError as err:
        return Owned.of_unknown(err.reason, max(1, len(kernels_of(func.body))))
    kernels = tuple(_owned(kernel, accesses.shapes) for kernel in accesses.kernels)
    return Owned(kernels, accesses=accesses)


def _check_apart(names: Sequence[str], arrays: Sequence[Any]) -> None:
    """UnknownError: two arguments share memory."""
    given = [(n, a) for n, a in zip(names, arrays) if isinstance(a, np.ndarray) and a.size]
    for at, (name, array) in enumerate(given):
        for other, second in given[:at]:
            if np.may_share_memory(array, second):
                raise UnknownError(Reason("ownership.shared", buffer=name, other=other))


def _owned(kernel: KernelAccesses, shapes: Mapping[str, tuple[int, ...]]) -> Ownership:
    """Who writes what in one kernel."""
    if kernel.unknown:
        return Ownership(kernel.grid, unknown=kernel.unknown)
    owners: dict[str, Array] = {}
    written = {access.name for access in kernel.found if access.writes}
    for name in sorted(written):
        owners[name] = np.full(shapes[name], -1, np.int32)
    meeting: Why = ""
    try:
        for access in sorted(kernel.found, key=lambda access: not access.writes):
            if access.name in written and (access.writes or not meeting):
                meeting = _enter(access, kernel.grid, owners[access.name]) or meeting
    except UnknownError as err:
        return Ownership(kernel.grid, unknown=err.reason)
    return Ownership(kernel.grid, owners, meeting=meeting)


def _enter(access: GlobalAccess, grid: Block, owner: Array) -> Why:
    """Enter who writes what ``access`` does; where two meet, or one reads what another writes."""
    flat = owner.reshape(-1)
    meeting: Why = ""
    for ctas, place in places(access, grid, owner.shape):
        before = flat[place]
        taken = (before >= 0) & (before != ctas)
        wrong = taken
        if access.writes:
            flat[place] = ctas
            before = np.where(taken, before, flat[place])
            wrong = taken | (flat[place] != ctas)
        if not meeting and wrong.any():
            at = int(np.argmax(wrong))
            index = tuple(int(i) for i in np.unravel_index(int(place[at]), owner.shape))
            pair = [int(before[at]), int(ctas[at])]
            pair = sorted(pair) if access.writes else pair
            first, second = (_block(cta, grid) for cta in pair)
            meeting = _meeting(access, first, second, index)
    return meeting


def _meeting(access: GlobalAccess, first: Block, second: Block, index: tuple[int, ...]) -> Reason:
    """Return where two CTAs meet in an element."""
    if access.writes:
        return Reason(
            "ownership.both_write", first=first, second=second, buffer=access.name, index=index
        )
    return Reason(
        "ownership.write_and_read", first=first, second=second, buffer=access.name, index=index
    )


def _block(cta: int, grid: Block) -> Block:
    """Return blockIdx of the CTA with that number."""
    x, y, _ = grid
    return cta % x, cta // x % y, cta // (x * y)
