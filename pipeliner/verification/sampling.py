"""Which CTAs of a large grid are run: the first and the last, those at edges, some at random.

Of several kernels each has a sample of its own grid. The last is chosen first: what its CTAs read
or write has to be written before, so those of earlier kernels that do run too, and further ones are
taken from where no more is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..diagnostics import Reason, Value, Why
from ..errors import WorkloadError
from ..plan.options import AUTO
from .accessed import Block
from .ownership import Owned, Ownership

ALL: Final = "all"

ALL_CTAS: Final = Reason("sample.all")
"""What a sample of all CTAs says."""

FEW: Final = 8
"""CTAs of a grid that are all run."""

AT_RANDOM: Final = 2
"""CTAs beside the first, the last and those at edges."""

TRIED: Final = 32
"""CTAs at random of which those are taken that need the fewest of earlier kernels."""

EDGES: Final = 3
"""Kinds of CTAs that write fewer elements than a whole tile: right, bottom and corner."""

PART: Final = 8
"""A CTA that could be another is not run where it needs more than this part of earlier kernels."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The CTAs to run.

    ``blocks``: by the number of the kernel, all of those not in it; None for all of all. ``said``:
    which they are. ``between``: what is known of races with CTAs that are not run; '' where every
    CTA is run. ``asked``: those of ``blocks`` that were asked for. ``in_step``: those whose warps
    need not be interleaved: they are run for what they write.
    """

    blocks: Mapping[int, tuple[Block, ...]] | None
    said: Reason
    between: Why = ""
    asked: Mapping[int, tuple[Block, ...]] = field(default_factory=dict)
    in_step: Mapping[int, tuple[Block, ...]] = field(default_factory=dict)


def sample(
    asked: Any, owned: Owned, seed: int, cluster: int = 1, names: Sequence[str] = ()
) -> Sample:
    """The CTAs to run: ``"auto"``, ``"all"`` or blockIdx (x, y, z) of some.

    Those are of the last kernel, or of each by its number, from 0. ``cluster``: neighbouring CTAs
    that run together; a sample has whole clusters. ``names``: of the kernels. WorkloadError: a
    block or a kernel that is none.
    """
    if asked == ALL:
        return Sample(None, ALL_CTAS)
    blocks = None if asked is None or asked == AUTO else _asked(asked, len(owned.kernels))
    if len(owned.kernels) > 1:
        return _of_several(owned, seed, cluster, names, blocks)
    (kernel,) = owned.kernels
    if blocks is not None:
        ran = _with_clusters(kernel, blocks[0], cluster)
        return Sample({0: ran}, _said_asked(blocks[0]), _between(kernel), blocks)
    if not kernel.disjoint:
        return Sample(None, Reason("sample.all_because", why=kernel.unknown or kernel.meeting))
    if kernel.ctas <= FEW * cluster:
        return Sample(None, ALL_CTAS)
    chosen = _picks(kernel, seed, _Needs(owned, 0))
    listed = tuple(chosen[cta] for cta in sorted(chosen))
    said = _some(kernel, len(chosen), listed, cluster)
    ran = _blocks(kernel, _whole_clusters(kernel, chosen, cluster))
    return Sample({0: ran}, said, _between(kernel))


def in_turn(
    chosen: Sample, turn: int, turns: int, cluster: int = 1
) -> dict[int, tuple[Block, ...]]:
    """The CTAs whose warps go in step in one of the ``turns`` runs that interleave warps.

    Of a sample that was not asked for, each CTA is interleaved in one of these at least, with its
    cluster: the judgement is the same in any order.
    """
    found = dict(chosen.in_step)
    if chosen.asked or turns < 2:
        return found

    def first(block: Block) -> Block:
        return block[0] - block[0] % cluster, block[1], block[2]

    for at, blocks in (chosen.blocks or {}).items():
        calm = {first(block) for block in found.get(at, ())}
        clusters = [one for one in dict.fromkeys(map(first, blocks)) if one not in calm]
        mine = clusters[turn::turns] or clusters[:1]
        found[at] = tuple(block for block in blocks if first(block) not in mine)
    return found


def _of_several(
    owned: Owned,
    seed: int,
    cluster: int,
    names: Sequence[str],
    asked: Mapping[int, tuple[Block, ...]] | None,
) -> Sample:
    """A sample of each kernel; what the last ones touch says what earlier ones have to run."""
    count = len(owned.kernels)
    names = names or [f"kernel {at}" for at in range(count)]
    needed: list[set[int] | Reason] = [set() for _ in range(count)]
    found: dict[int, _Some] = {}
    for at in reversed(range(count)):
        kernel, mine = owned.kernels[at], needed[at]
        if asked is not None:
            one = _of_asked(kernel, asked.get(at, ()), mine, cluster)
        else:
            one = _automatic(owned, at, mine, seed, cluster)
        found[at] = one
        ctas = np.arange(kernel.ctas, dtype=np.int64)
        if one.blocks is not None:
            ctas = np.array([kernel.number(block) for block in one.blocks], np.int64)
        for earlier, more in owned.needs(at, ctas).items():
            before = needed[earlier]
            if isinstance(before, set):
                needed[earlier] = more if isinstance(more, Reason) else before | more
    some = {at: one.blocks for at, one in sorted(found.items()) if one.blocks is not None}
    if len({one.said for one in found.values()}) == 1 and not some:
        return Sample(None, found[0].said)
    between = [
        _between(kernel) if at in some else Reason("ownership.all_run")
        for at, kernel in enumerate(owned.kernels)
    ]
    return Sample(
        some or None,
        _said_of([(name, found[at].said) for at, name in enumerate(names)]),
        _known_of(list(zip(names, between, strict=True))) if some else "",
        asked or {},
        {at: one.in_step for at, one in sorted(found.items()) if one.in_step},
    )


@dataclass(frozen=True, slots=True)
class _Some:
    """CTAs of one kernel, None for all, which they are, and whose warps go in step."""

    said: Reason
    blocks: tuple[Block, ...] | None = None
    in_step: tuple[Block, ...] = ()


def _automatic(owned: Owned, at: int, needed: set[int] | Reason, seed: int, cluster: int) -> _Some:
    """CTAs of the kernel ``at``, with those that are ``needed``."""
    kernel = owned.kernels[at]
    if not kernel.disjoint:
        return _Some(Reason("sample.all_because", why=kernel.unknown or kernel.meeting))
    if kernel.ctas <= FEW * cluster:
        return _Some(ALL_CTAS)
    chosen = _picks(kernel, seed, _Needs(owned, at), needed)
    picked = _whole_clusters(kernel, chosen, cluster)
    listed = tuple(chosen[cta] for cta in sorted(chosen))
    if isinstance(needed, Reason):
        return _all_but(kernel, picked, listed, needed)
    ctas = picked | _whole_clusters(kernel, needed, cluster)
    if 2 * len(ctas) > kernel.ctas:
        return _all_but(kernel, picked, listed, Reason("sample.large", count=len(ctas)))
    more = ctas - picked
    if more:
        listed = (*listed, Reason("sample.needed", count=len(more)))
    said = _some(kernel, len(ctas), listed, cluster)
    return _Some(said, _blocks(kernel, ctas), _blocks(kernel, more))


def _of_asked(
    kernel: Ownership, asked: Sequence[Block], needed: set[int] | Reason, cluster: int
) -> _Some:
    """The CTAs that are asked for, with those that are ``needed``."""
    if kernel.unknown and not isinstance(needed, Reason):
        return _Some(_said_asked(asked), tuple(asked))
    there = {kernel.number(block) for block in asked if kernel.has(block)}
    picked = _whole_clusters(kernel, there, cluster)
    if isinstance(needed, Reason):
        if not kernel.disjoint:
            return _Some(Reason("sample.all_because", why=needed))
        return _all_but(kernel, picked, tuple(map(str, asked)), needed)
    ctas = picked | _whole_clusters(kernel, needed, cluster)
    more = ctas - picked
    listed = (*map(str, asked), *([Reason("sample.needed", count=len(more))] if more else []))
    said = _some(kernel, len(ctas), listed, cluster)
    return _Some(said, _blocks(kernel, ctas), _blocks(kernel, more))


def _all_but(kernel: Ownership, picked: set[int], listed: tuple[Value, ...], why: Reason) -> _Some:
    """All CTAs, in step but for those that are ``picked``."""
    said = Reason("sample.all_in_step", total=kernel.ctas, listed=listed, why=why)
    return _Some(said, None, _blocks(kernel, set(range(kernel.ctas)) - picked))


class _Needs:
    """What the chosen CTAs of one kernel need of earlier ones."""

    def __init__(self, owned: Owned, kernel: int) -> None:
        self._owned = owned
        self._kernel = kernel
        self._known: set[tuple[int, int]] = set()
        earlier = sum(each.ctas for each in owned.kernels[:kernel] if each.disjoint)
        self._most = max(FEW, earlier // PART)

    def take(self, cta: int) -> None:
        """Choose a CTA."""
        self._known |= self._of(cta)

    def more(self, cta: int) -> int:
        """How many CTAs ``cta`` needs that no chosen one does."""
        return len(self._of(cta) - self._known)

    def fits(self, cta: int) -> bool:
        """Whether ``cta`` needs none more, or few."""
        more = self.more(cta)
        return not more or len(self._known) + more <= self._most

    def _of(self, cta: int) -> set[tuple[int, int]]:
        if not self._kernel:
            return set()
        needed = self._owned.needs(self._kernel, np.array([cta], np.int64))
        return {(at, one) for at, some in needed.items() if isinstance(some, set) for one in some}


def _picks(
    owned: Ownership, seed: int, needs: _Needs, needed: Collection[int] | Reason = ()
) -> dict[int, Reason]:
    """CTAs of a grid and why they are run; none at random where others are ``needed``."""
    counts = owned.counts()
    most = int(counts.max())
    chosen: dict[int, Reason] = {}

    def choose(cta: int, reason: Reason) -> None:
        if cta not in chosen:
            needs.take(cta)
            chosen[cta] = reason

    choose(0, _cta(owned, 0, "first"))
    last = owned.ctas - 1
    if needs.fits(last):
        choose(last, _cta(owned, last, "last"))
    kinds, edges = np.unique(owned.kinds(), axis=0, return_index=True)
    for cta in map(int, edges[kinds[:, 0] < most][:EDGES]):
        block, elements = owned.block(cta), int(counts[cta])
        choose(cta, Reason("sample.ragged", block=block, elements=elements, most=most))
    if all(counts[cta] < most for cta in chosen):
        whole = int(np.argmax(counts == most))
        choose(whole, _cta(owned, whole, "whole"))
    left = [cta for cta in range(owned.ctas) if cta not in chosen]
    rng = np.random.default_rng(seed)
    some = isinstance(needed, set) and needed
    drawn = [] if some else list(map(int, rng.permutation(left)[:TRIED]))
    for cta in sorted(drawn, key=needs.more)[:AT_RANDOM]:
        if needs.fits(cta):
            choose(cta, _cta(owned, cta, "random"))
    return chosen


def _whole_clusters(owned: Ownership, ctas: Iterable[int], cluster: int) -> set[int]:
    """``ctas`` with the others of their clusters, which lie along x."""
    width = owned.grid[0]
    firsts = {cta - cta % width % cluster for cta in ctas}
    return {first + at for first in firsts for at in range(min(cluster, width - first % width))}


def _with_clusters(owned: Ownership, asked: Sequence[Block], cluster: int) -> tuple[Block, ...]:
    """The blocks ``asked`` for, there or not, and the others of their clusters."""
    if cluster == 1 or owned.unknown:
        return tuple(asked)
    there = {owned.number(block) for block in asked if owned.has(block)}
    beyond = (block for block in asked if not owned.has(block))
    return (*_blocks(owned, _whole_clusters(owned, there, cluster)), *beyond)


def _some(owned: Ownership, count: int, listed: tuple[Value, ...], cluster: int) -> Reason:
    """So many of all CTAs are run: those that are ``listed``."""
    said = Reason("sample.some", count=count, total=owned.ctas, listed=listed)
    return Reason("sample.clusters", said=said, cluster=cluster) if cluster > 1 else said


def _said_asked(blocks: Sequence[Block]) -> Reason:
    return Reason("sample.asked", blocks=tuple(map(str, blocks)))


def _said_of(kernels: Sequence[tuple[str, Reason]]) -> Reason:
    """Which CTAs of each kernel are run."""
    each = [Reason("sample.of_kernel", kernel=name, said=said) for name, said in kernels]
    return Reason("sample.kernels", kernels=tuple(each))


def _known_of(kernels: Sequence[tuple[str, Reason]]) -> Reason:
    """What is known of races between CTAs of each kernel."""
    each = [Reason("ownership.of_kernel", kernel=name, said=said) for name, said in kernels]
    return Reason("ownership.kernels", kernels=tuple(each))


def _blocks(owned: Ownership, ctas: Iterable[int]) -> tuple[Block, ...]:
    return tuple(owned.block(cta) for cta in sorted(ctas))


def _cta(owned: Ownership, cta: int, kind: str) -> Reason:
    return Reason("sample.cta", block=owned.block(cta), kind=kind)


def _between(owned: Ownership) -> Reason:
    if owned.disjoint:
        return Reason("ownership.disjoint", count=owned.ctas)
    return Reason("ownership.only_run", why=owned.unknown or owned.meeting)


def _asked(asked: Any, count: int) -> dict[int, tuple[Block, ...]]:
    """The blocks that are asked for, by the number of their kernel: the last where none is said."""
    by_kernel = asked if isinstance(asked, Mapping) else {count - 1: asked}
    for number in by_kernel:
        if number not in range(count):
            raise WorkloadError("sample.kernel", count=count, number=number)
    return {
        number: tuple(dict.fromkeys(_block(one) for one in blocks))
        for number, blocks in by_kernel.items()
    }


def _block(block: Sequence[int]) -> Block:
    try:
        x, y, z = map(int, block)
    except (TypeError, ValueError) as err:
        raise WorkloadError("sample.block", value=str(block)) from err
    return x, y, z


def parsed(text: str) -> str | list[Block] | dict[int, list[Block]]:
    """The blocks of a command line: ``auto``, ``all``, or ``x[,y[,z]]`` with ``:`` between them.

    Those of several kernels have ``/`` between them: ``0:3,1/5``.
    """
    if text in (AUTO, ALL):
        return text
    kernels = [_listed(part, text) if part else [] for part in text.split("/")]
    if not any(kernels):
        raise WorkloadError("sample.option", value=text)
    return kernels[0] if len(kernels) == 1 else dict(enumerate(kernels))


def _listed(part: str, text: str) -> list[Block]:
    try:
        found = [[int(number) for number in one.split(",")] for one in part.split(":")]
    except ValueError:
        found = [[]]
    if not all(1 <= len(one) <= 3 and min(one) >= 0 for one in found):
        raise WorkloadError("sample.option", value=text)
    return [_block([*one, 0, 0][:3]) for one in found]
