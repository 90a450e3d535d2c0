"""Which CTAs of a large grid are run: the first and the last, those at edges, some at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .errors import WorkloadError
from .ownership import Block, Ownership

ALL: Final = "all"
AUTO: Final = "auto"

ONLY: Final = "only those run"
"""What is known between CTAs where indices do not say."""

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
    said: str
    between: str = ""


def sample(asked: Any, owned: Ownership, seed: int, cluster: int = 1) -> Sample:
    """The CTAs to run: ``"auto"``, ``"all"`` or blockIdx (x, y, z) of some.

    ``cluster``: CTAs that run together; a sample has whole clusters. WorkloadError: a block that is
    none.
    """
    if asked == ALL:
        return Sample(None, "all CTAs")
    if asked is None or asked == AUTO:
        return _automatic(owned, seed, cluster)
    blocks = tuple(dict.fromkeys(_block(one) for one in asked))
    return Sample(blocks, f"CTAs {_listed(blocks)}", _between(owned))


def _automatic(owned: Ownership, seed: int, cluster: int) -> Sample:
    if not owned.disjoint:
        return Sample(None, f"all CTAs: {owned.unknown or owned.meeting}")
    if owned.ctas <= FEW * cluster:
        return Sample(None, "all CTAs")
    counts = owned.counts()
    most = int(counts.max())
    chosen: dict[int, str] = {0: "first"}
    chosen.setdefault(owned.ctas - 1, "last")
    kinds, edges = np.unique(owned.kinds(), axis=0, return_index=True)
    for cta in map(int, edges[kinds[:, 0] < most][:EDGES]):
        chosen.setdefault(cta, f"ragged, {int(counts[cta])} of {most} elements")
    whole = int(np.argmax(counts == most))
    if all(counts[cta] < most for cta in chosen):
        chosen[whole] = "whole"
    left = [cta for cta in range(owned.ctas) if cta not in chosen]
    rng = np.random.default_rng(seed)
    for cta in sorted(rng.choice(left, min(AT_RANDOM, len(left)), replace=False)):
        chosen[int(cta)] = "random"
    blocks = tuple(owned.block(cta) for cta in sorted(chosen))
    said = ", ".join(f"{owned.block(cta)} {why}" for cta, why in sorted(chosen.items()))
    whole_clusters = f", with their clusters of {cluster}" if cluster > 1 else ""
    return Sample(
        blocks, f"{len(blocks)} of {owned.ctas} CTAs: {said}{whole_clusters}", _between(owned)
    )


def _between(owned: Ownership) -> str:
    if owned.disjoint:
        return f"no two of {owned.ctas} meet in an element, by their indices"
    return f"{ONLY} ({owned.unknown or owned.meeting})"


def _block(block: Sequence[int]) -> Block:
    try:
        x, y, z = map(int, block)
    except (TypeError, ValueError) as err:
        raise WorkloadError(f"expected a block to be x, y, z, not {block!r}") from err
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
        raise WorkloadError(f"expected --blocks to be auto, all or X[,Y[,Z]][:...], not {text!r}")
    return [_block([*one, 0, 0][:3]) for one in found]


def _listed(blocks: Iterable[Block]) -> str:
    return ", ".join(map(str, blocks))
