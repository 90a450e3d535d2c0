"""Which CTAs of a large grid are run: the first and the last, those at edges, some at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .diagnostics import Reason, Why
from .errors import WorkloadError
from .ownership import Block, Ownership

ALL: Final = "all"
AUTO: Final = "auto"

ALL_CTAS: Final = Reason("sample.all")
"""What a sample of all CTAs says."""

FEW: Final = 8
"""CTAs of a grid that are all run."""

AT_RANDOM: Final = 2
"""CTAs beside the first, the last and those at edges."""

EDGES: Final = 3
"""Kinds of CTAs that write fewer elements than a whole tile: right, bottom and corner."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The CTAs to run.

    ``blocks``: None for all. ``said``: which they are. ``between``: what is known of races with
    CTAs that are not run; '' where every CTA is run.
    """

    blocks: tuple[Block, ...] | None
    said: Reason
    between: Why = ""


def sample(asked: Any, owned: Ownership, seed: int, cluster: int = 1) -> Sample:
    """The CTAs to run: ``"auto"``, ``"all"`` or blockIdx (x, y, z) of some.

    ``cluster``: CTAs that run together; a sample has whole clusters. WorkloadError: a block that is
    none.
    """
    if asked == ALL:
        return Sample(None, ALL_CTAS)
    if asked is None or asked == AUTO:
        return _automatic(owned, seed, cluster)
    blocks = tuple(dict.fromkeys(_block(one) for one in asked))
    said = Reason("sample.asked", blocks=tuple(map(str, blocks)))
    return Sample(blocks, said, _between(owned))


def _automatic(owned: Ownership, seed: int, cluster: int) -> Sample:
    if not owned.disjoint:
        return Sample(None, Reason("sample.all_because", why=owned.unknown or owned.meeting))
    if owned.ctas <= FEW * cluster:
        return Sample(None, ALL_CTAS)
    counts = owned.counts()
    most = int(counts.max())
    chosen = {0: _cta(owned, 0, "first")}
    chosen.setdefault(owned.ctas - 1, _cta(owned, owned.ctas - 1, "last"))
    kinds, edges = np.unique(owned.kinds(), axis=0, return_index=True)
    for cta in map(int, edges[kinds[:, 0] < most][:EDGES]):
        chosen.setdefault(
            cta,
            Reason("sample.ragged", block=owned.block(cta), elements=int(counts[cta]), most=most),
        )
    whole = int(np.argmax(counts == most))
    if all(counts[cta] < most for cta in chosen):
        chosen[whole] = _cta(owned, whole, "whole")
    left = [cta for cta in range(owned.ctas) if cta not in chosen]
    rng = np.random.default_rng(seed)
    for cta in sorted(rng.choice(left, min(AT_RANDOM, len(left)), replace=False)):
        chosen[int(cta)] = _cta(owned, int(cta), "random")
    blocks = tuple(owned.block(cta) for cta in sorted(chosen))
    listed = tuple(chosen[cta] for cta in sorted(chosen))
    said = Reason("sample.some", count=len(blocks), total=owned.ctas, listed=listed)
    if cluster > 1:
        said = Reason("sample.clusters", said=said, cluster=cluster)
    return Sample(blocks, said, _between(owned))


def _cta(owned: Ownership, cta: int, kind: str) -> Reason:
    return Reason("sample.cta", block=owned.block(cta), kind=kind)


def _between(owned: Ownership) -> Reason:
    if owned.disjoint:
        return Reason("ownership.disjoint", count=owned.ctas)
    return Reason("ownership.only_run", why=owned.unknown or owned.meeting)


def _block(block: Sequence[int]) -> Block:
    try:
        x, y, z = map(int, block)
    except (TypeError, ValueError) as err:
        raise WorkloadError("sample.block", value=str(block)) from err
    return x, y, z


def parsed(text: str) -> str | list[Block]:
    """The blocks of a command line: ``auto``, ``all``, or ``x[,y[,z]]`` with ``:`` between them."""
    if text in (AUTO, ALL):
        return text
    try:
        found = [[int(part) for part in one.split(",")] for one in text.split(":")]
    except ValueError:
        found = [[]]
    if not all(1 <= len(one) <= 3 and min(one) >= 0 for one in found):
        raise WorkloadError("sample.option", value=text)
    return [_block([*one, 0, 0][:3]) for one in found]
