"""What records come to: how fast, against whom, where it is slow, and where the model was wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..records import Record
from .rows import Row

FAR_OFF: Final = 1.5
"""A time that is wrong by this factor is counted as far from what was predicted."""


@dataclass(frozen=True, slots=True)
class RatioSpread:
    """Ratios of several workloads: their geometric mean, the least and the largest."""

    count: int
    mean: float
    worst: tuple[Row, float]
    best: tuple[Row, float]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What the model would have taken of the candidates that were tried, and the fastest."""

    row: Row
    taken: Record
    fastest: Record

    @property
    def regret(self) -> float:
        """Times as slow as the fastest."""
        return self.taken.us / self.fastest.us


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """The records of one machine. ``peers``: our speed over theirs. ``choices``: the worst first.

    ``error``: half of the predictions are at most so far from the time, as a share of it;
    ``far_off``: how many are wrong by more than ``FAR_OFF``. ``predictions``: how many there are.
    """

    workloads: int
    kernels: int
    failures: int
    roofline: RatioSpread | None
    peers: dict[str, RatioSpread]
    choices: tuple[ModelChoice, ...]
    regret: RatioSpread | None
    predictions: int
    error: float
    far_off: int


def summary_of(rows: Sequence[Row]) -> RecordsSummary:
    """What the rows of one machine come to."""
    timed = [(row, row.best) for row in rows if row.best is not None]
    names = dict.fromkeys(name for row, _ in timed for name in row.peers)
    peers = {
        name: [(row, row.peers[name].us / best.us) for row, best in timed if name in row.peers]
        for name in names
    }
    choices = sorted(
        (choice for row in rows if (choice := _choice(row)) is not None),
        key=lambda one: -one.regret,
    )
    once = {(row.spec, one.candidate): one for row in rows for one in row.ours}
    ratios = [one.predicted_us / one.us for one in once.values() if one.predicted_us]
    return RecordsSummary(
        workloads=len(timed),
        kernels=sum(row.tried for row in rows),
        failures=sum(len(row.failures) for row in rows),
        roofline=_spread([(row, row.roofline_us / best.us) for row, best in timed]),
        peers={name: found for name, each in peers.items() if (found := _spread(each)) is not None},
        choices=tuple(choices),
        regret=_spread([(one.row, 1 / one.regret) for one in choices]),
        predictions=len(ratios),
        error=statistics.median(abs(ratio - 1) for ratio in ratios) if ratios else 0.0,
        far_off=sum(max(ratio, 1 / ratio) > FAR_OFF for ratio in ratios),
    )


def notable(found: RecordsSummary) -> list[Row]:
    """The rows that stand out, those that a reader asks for first."""
    spreads = [*found.peers.values(), found.roofline, found.regret]
    ends = [end[0] for one in spreads if one is not None for end in (one.worst, one.best)]
    return [*ends, *(one.row for one in found.choices)]


def _choice(row: Row) -> ModelChoice | None:
    """None where it has nothing to choose from."""
    predicted = [record for record in row.ours if record.predicted_us]
    if len({record.candidate for record in predicted}) < 2 or row.best is None:
        return None
    taken = min(predicted, key=lambda one: (one.predicted_us, one.us))
    return ModelChoice(row, taken, row.best)


def _spread(found: Sequence[tuple[Row, float]]) -> RatioSpread | None:
    if not found:
        return None
    mean = math.exp(statistics.fmean(math.log(ratio) for _, ratio in found))
    by_ratio = sorted(found, key=lambda one: one[1])
    return RatioSpread(len(found), mean, by_ratio[0], by_ratio[-1])
