"""What may be claimed of the trip counts of a kernel, and which walks show that it is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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

    Loops that grow with values which are left open are left open, too.
    """
    for claim in _claims(whole):
        if all(claim.has(family) for family in whole.families if family.grows):
            yield claim


def _claims(whole: Launched) -> Iterator[Counts]:
    names = {family.name for family in whole.families}
    inner = [family for family in whole.families if names & set(family.around)]
    outer = [family for family in whole.families if family not in inner]
    if len(inner) == 1:
        for around in _outer(outer):
            yield from _of_inner(around, inner[0])
    for around in _outer(outer) if outer and not any(one.varies for one in inner) else ():
        own = [counts(family, family.text) for family in inner]
        yield Counts((*map(counts, around), *own), (tuple(around),))
    own = [counts(family, family.text) for family in whole.families]
    yield Counts(tuple(own), ((),))


def _outer(outer: list[Family]) -> Iterator[list[Family]]:
    """Loops with every trip count that is claimed of them: those as launched are among these."""
    for least in (0, 1):
        found = [replace(family, least=max(least, family.near)) for family in outer]
        if all(family.least <= family.fewest for family in found):
            yield found


def _of_inner(around: list[Family], inner: Family) -> Iterator[Counts]:
    """What may be claimed of a loop in others: as many iterations each time, or any number."""
    outer, near = [counts(family) for family in around], inner.near
    if inner.varies:
        least = max(near, min(1, inner.fewest))
        walked = (*around, replace(inner, least=least))
        if least <= inner.fewest:
            yield Counts((*outer, counts(walked[-1])), (walked,))
    elif inner.fewest and inner.grows:
        least = max(near, inner.far)
        if least <= inner.fewest:
            walked = (*around, replace(inner, least=least))
            yield Counts((*outer, counts(walked[-1])), (walked,))
    elif inner.fewest >= max(near, 1):
        least = max(near, 1)
        walks = [(*around, replace(inner, least=max(near, LAPS)))]
        walks += [(*around, replace(inner, fixed=n)) for n in range(least, max(near, LAPS))]
        yield Counts((*outer, counts(replace(inner, least=least))), tuple(walks))


def counts(family: Family, only: str = "") -> LoopCounts:
    """The trip counts of a family, with the most that some of its loops make beyond the others."""
    more = max(family.more.values(), default=0)
    name = f"{family.name} (+ {more})" if more else family.name
    return LoopCounts(name, family.least, only, by_end=family.by_end and not only)
