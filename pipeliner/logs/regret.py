"""How good choices are, by a log: the time of what is chosen over that of the best measured.

Times are compared only where they were taken in the same rounds: the fresh ones of the fastest
candidates among themselves, else those of all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np

from ..records.log import group_of
from ..schedules.suites import OTHER, suite
from .cases import Case, by_family
from .rules import Rule

TOP: Final = 8
"""Candidates whose best counts as what a short measurement would find."""

SEED: Final = 6
"""Of the split of workloads into two halves, one of which nothing in this log is ever fitted to.

Constants that are older than the log were measured by other runs, of some of the same shapes."""

LogSplit = Literal["fitted", "held_out", "other"]

PARTS: Final[Mapping[LogSplit, str]] = {
    "fitted": "half to fit to",
    "held_out": "half never fitted to",
    "other": "other workloads, measured last",
}
"""Of a log: the halves of the suites, and workloads that the model had not seen when it was made.

What it said of the others as first recorded, before anything of it was changed by them: depth
alone 1.009 (1.151), first choice 1.037 (1.143), best of 8 1.000, Spearman 0.944 (0.789)."""

DRAWN: Final = frozenset(
    {("sq2048", "float32")}
    | {
        (name, "float16")
        for name in (
            *("sq1024", "sq2048", "sq4096", "sq8192", "llama_up", "llama_down", "bert_fc1"),
            *("bert_fc2", "rn50_fc", "decode16", "decode128", "rn50_stem", "rn50_3x3_56"),
            *("rn50_3x3_28", "rn50_3x3_14", "rn50_3x3_7", "rn50_3x3_s2", "rn50_1x1_56"),
        )
    }
)
"""Workloads among which the shipped log's halves were drawn; what was added later is not fitted to,
or the draw would change and let in what had been kept out."""


@dataclass(frozen=True, slots=True)
class Scores:
    """How a rule does on one workload, as ratios to the best measured time.

    ``depths``: one for each tile and way that was measured at several depths. ``first``: of what it
    takes first among everything; ``top``: of the best of its first ``TOP``; ``correlation``:
    Spearman's, of what it predicts with what was measured. The last three are None where the rule
    ranks nothing.
    """

    workload: str
    dtype: str
    depths: tuple[float, ...]
    first: float | None = None
    top: float | None = None
    correlation: float | None = None

    @property
    def label(self) -> str:
        """The workload and its type."""
        return f"{self.workload} {self.dtype}"


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Scores of several workloads: geometric means and the worst; of correlations also the mean."""

    workloads: int
    depth: float
    worst_depth: float
    first: float | None
    worst_first: float | None
    top: float | None
    worst_top: float | None
    correlation: float | None
    worst_correlation: float | None


class Raced(Protocol):
    """What was timed in the rounds of all, ``us``, and in those of the fastest, or 0: ``again``."""

    @property
    def us(self) -> float: ...

    @property
    def again(self) -> float: ...


def regret(chosen: Raced, others: Iterable[Raced]) -> float:
    """Time of ``chosen`` over that of the fastest of ``others``, which it is one of."""
    if chosen.again:
        return chosen.again / min(one.again for one in others if one.again)
    return chosen.us / min(one.us for one in others)


def scores(found: Sequence[Case], rule: Rule) -> Scores:
    """How ``rule`` does on the candidates of one workload."""
    label, dtype = group_of(found[0].spec)
    applied = [case for case in found if rule.applies(case)]
    depths = tuple(
        _mean([regret(case, family) for case in _taken(rule, family)])
        for family in by_family(applied).values()
        if len(family) > 1
    )
    if rule.cost is None or not applied:
        return Scores(label, dtype, depths)
    costs = _costs(applied, rule)
    ranked = sorted(costs, key=costs.__getitem__)
    best = min(ranked[:TOP], key=lambda at: applied[at].best_us)
    return Scores(
        label,
        dtype,
        depths,
        first=_mean([regret(case, found) for case in _settled(rule, applied[ranked[0]], applied)]),
        top=regret(applied[best], found),
        correlation=spearman(list(costs.values()), [applied[at].us for at in costs]),
    )


def _settled(rule: Rule, best: Case, applied: Sequence[Case]) -> list[Case]:
    """``best`` with the depths that the rule takes: of equals not always the one ranked first."""
    family = by_family(applied)[best.family]
    return _taken(rule, family) if len(family) > 1 else [best]


def _costs(found: Sequence[Case], rule: Rule) -> dict[int, float]:
    """What ``rule`` ranks by, of each case by its number; one depth a family where it is blind."""
    assert rule.cost is not None
    if rule.ranks_depths:
        return {at: rule.cost(case) for at, case in enumerate(found)}
    taken = [case for family in by_family(found).values() for case in _taken(rule, family)]
    return {at: rule.cost(case) for at, case in enumerate(found) if case in taken}


def _taken(rule: Rule, family: Sequence[Case]) -> list[Case]:
    depths = rule.depths(family)
    return [case for case in family if case.depth in depths]


def summary(found: Sequence[Scores]) -> ScoreSummary:
    """Scores of several workloads in one."""
    depths = [ratio for one in found for ratio in one.depths]
    firsts, tops, correlations = (
        [value for one in found if (value := getattr(one, name)) is not None]
        for name in ("first", "top", "correlation")
    )
    return ScoreSummary(
        workloads=len(found),
        depth=_mean(depths),
        worst_depth=max(depths, default=1.0),
        first=_mean(firsts) if firsts else None,
        worst_first=max(firsts, default=None),
        top=_mean(tops) if tops else None,
        worst_top=max(tops, default=None),
        correlation=sum(correlations) / len(correlations) if correlations else None,
        worst_correlation=min(correlations, default=None),
    )


def parts(groups: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], LogSplit]:
    """Which part of a log each workload is of; who may be fitted to is drawn by ``SEED``."""
    ordered = sorted(groups)
    drawn = [group for group in ordered if group in DRAWN] or ordered
    fitted = set(random.Random(SEED).sample(drawn, len(drawn) // 2))
    others = suite(OTHER)
    return {
        group: "fitted" if group in fitted else "other" if group[0] in others else "held_out"
        for group in ordered
    }


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Correlation of ranks, those of equals being their mean; 0 where all of one are equal."""
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    spread = math.sqrt((a @ a) * (b @ b))
    return float(a @ b) / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
