"""What may be claimed of the trip counts of a kernel, and which walks show that it is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from .proof import LoopCounts
from .reading.loops import LAPS, Family
from .running.launched import Launched
from .running.refuted import Refuted


@dataclass(frozen=True)
class Counts:
    """Trip counts, and the open loops of the walks that show that they are right, all together."""

    loops: tuple[LoopCounts, ...]
    walked: tuple[tuple[Family, ...], ...]

    @property
    def open_loops(self) -> int:
        """How many loops are left open."""
        return len(self.walked[0])

    @property
    def is_open(self) -> bool:
        """Whether no loop makes its own trip counts alone."""
        return not any(loop.only for loop in self.loops)

    def admits(self, refuted: Refuted) -> bool:
        """Whether a wrong execution has trip counts that are claimed."""
        return any(
            all(any(map(trip.is_of, families)) for trip in refuted.trips)
            for families in self.walked
        )

    def has(self, family: Family) -> bool:
        """Whether a loop is left open."""
        return any(family.numbers == one.numbers for one in self.walked[0])


def claims(whole: Launched) -> Iterator[Counts]:
    """What may be claimed of the trip counts of a kernel, the most first.

    Loops that grow with values which are left open are left open, too. A loop that makes one
    iteration by its text is code without a loop, where that is right and any number of them is not.
    """
    for claim in _claims(whole):
        if all(claim.has(family) for family in whole.families if family.grows):
            yield claim


def _claims(whole: Launched) -> Iterator[Counts]:
    families = list(whole.families)
    loops = [family for family in families if family.extent != 1]
    has_single = bool(loops) and len(loops) < len(families)
    if not (has_single and whole.is_other):  # which is tried where that failed
        yield from _of_all(families)
    if has_single:
        yield from _of_all(loops)
    own = [counts(family, family.text) for family in families]
    yield Counts(tuple(own), ((),))


def _of_all(families: list[Family]) -> Iterator[Counts]:
    """What may be claimed of some loops, all or those around others left open."""
    names = {family.name for family in families}
    inner = [family for family in families if names & set(family.around)]
    outer = [family for family in families if family not in inner]
    if len(inner) == 1:
        for around in _outer(outer):
            yield from _of_inner(around, inner[0])
    for around in _outer(outer) if outer and not any(one.varies for one in inner) else ():
        own = [counts(family, family.text) for family in inner]
        yield Counts((*map(counts, around), *own), tuple(_walks(around)))


def _outer(outer: list[Family]) -> Iterator[list[Family]]:
    """Loops with every trip count that is claimed of them: those as launched are among these.

    Where the number of a CTA decides how many these are, those that CTAs like it make.
    """
    tried = [[least] * len(outer) for least in (0, 1)]
    if any(family.most is not None for family in outer):
        tried.append([1 if family.most is None else family.fewest for family in outer])
    for leasts in tried:
        found = [
            replace(family, least=max(least, family.near))
            for family, least in zip(outer, leasts, strict=True)
        ]
        if all(family.least <= family.fewest for family in found):
            yield found


def _of_inner(around: list[Family], inner: Family) -> Iterator[Counts]:
    """What may be claimed of a loop in others: as many iterations each time, or any number."""
    outer, near = [counts(family) for family in around], inner.near
    if inner.varies:
        least = max(near, min(1, inner.fewest))
        whole = replace(inner, least=least)
        if least <= inner.fewest:
            yield Counts((*outer, counts(whole)), tuple(_walks([*around, whole])))
    elif inner.fewest and inner.grows:
        least = max(near, inner.far)
        if least <= inner.fewest:
            whole = replace(inner, least=least)
            yield Counts((*outer, counts(whole)), tuple(_walks([*around, whole])))
    elif inner.fewest >= max(near, 1):
        whole = replace(inner, least=max(near, 1))
        walks = tuple(_walks([*around, whole], {whole.numbers: LAPS}))
        yield Counts((*outer, counts(whole)), walks)


def _walks(
    loops: list[Family], far: Mapping[frozenset[int], int] | None = None
) -> Iterator[tuple[Family, ...]]:
    """The walks that show that loops are right, open from their least trip counts on.

    Those below ``far`` have one each, so that each run through an open loop may be as long as it
    likes; and so have those for which a trip count that is asked for outside decides otherwise.
    """
    choices = []
    for loop in loops:
        start = max(loop.least, loop.since, (far or {}).get(loop.numbers, 0))
        rests = [loop.remainder]
        if loop.count is not None:
            start = max(start, loop.modulus)  # there are fewer states where each has come round
            rests = [(loop.modulus, rest) for rest in range(loop.modulus)]
        opened = [replace(loop, least=start, remainder=rest) for rest in rests]
        choices.append(opened + [replace(loop, fixed=n) for n in range(loop.least, start)])
    yield from product(*choices)


def counts(family: Family, only: str = "") -> LoopCounts:
    """The trip counts of a family, with the most that some of its loops make beyond the others."""
    more = max(family.more.values(), default=0)
    name = f"{family.name} (+ {more})" if more else family.name
    if only and family.fewest == family.most:
        return LoopCounts(name, family.fewest, only, fewest=family.fewest, most=family.most)
    by_end = family.by_end and not only
    return LoopCounts(name, family.least, only, by_end, family.fewest)
