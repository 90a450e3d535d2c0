"""The model judged by workloads that a seed draws anew, so that nothing can be fitted to them.

Of each workload the best predicted points of the tuner's space are measured, those that ``tune``
would try first, and others drawn at random from all of it; where it is asked for, what NVIDIA's
heuristics choose, too. The best predicted are mostly one kernel in variants, which are mispredicted
alike, so that ``tune`` tries others between. A seed names a list: the same one goes on where it
stopped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..errors import PipelinerError, WorkloadError
from ..machine import Machine
from ..records import Record
from ..records.candidate import Candidate, workload_key
from ..schedules.workloads import Spec
from ..tuning.search import Search
from ..tuning.space import Point, point_of, space
from .cases import by_workload
from .drawn import SHAPES, fresh_specs
from .recorder import Job
from .regret import TOP, regret, spearman

PREDICTED: Final = 32
"""Points of a workload that are measured because they are predicted to be the fastest."""

DRAWN: Final = 16
"""Points that are measured because they were drawn."""

Theirs: TypeAlias = Callable[[Spec], Sequence[Candidate]]
"""What somebody else's heuristics choose for a workload, best first."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A point that was measured: in the rounds of all, in those of the fastest, 0: in none.

    ``point``: as it is to the model of today.
    """

    point: Point
    us: float
    again: float

    @property
    def predicted_us(self) -> float:
        """By the model as it is today."""
        return self.point.predicted_us

    @property
    def best_us(self) -> float:
        """The fresh time where there is one."""
        return self.again or self.us


@dataclass(frozen=True, slots=True)
class FreshScores:
    """The model on one workload: ratios to the best measured, and how far its times are off.

    ``first``: of the best predicted; ``top``: of the best of the first ``TOP`` that ``tune`` would
    try of those measured, nothing being known. ``error``: the mean of |predicted / measured - 1|.
    ``bias``: the mean of predicted / measured - 1. ``their_first``, ``their_top``: of another's
    choices, in its order; None where it has none.
    """

    workload: str
    dtype: str
    measured: int
    us: float
    first: float
    top: float
    correlation: float
    error: float
    bias: float
    their_first: float | None = None
    their_top: float | None = None


def fresh_jobs(
    seed: int,
    machine: Machine,
    count: int = SHAPES,
    known: Iterable[Record] = (),
    theirs: Theirs | None = None,
    pool: Executor | None = None,
) -> Iterator[Job]:
    """What is to be measured of each workload of ``seed``, but for what ``known`` has.

    Each is planned, which takes seconds, when it is asked for, or all of them at once by ``pool``.
    """
    workloads = {record.workload for record in known}
    left = [
        (f"{seed} {at}", spec)
        for at, spec in enumerate(fresh_specs(seed, count))
        if workload_key(spec) not in workloads  # a workload is recorded as a whole
    ]
    names, specs = [name for name, _ in left], [spec for _, spec in left]
    every = (pool.map if pool else map)(_drawn, names, specs, [machine] * len(left))
    for spec, found in zip(specs, every, strict=True):
        if found:
            asked = [*found, *(theirs(spec)[:TOP] if theirs else ())]
            yield Job(spec.name, spec, machine, tuple(dict.fromkeys(asked)))


def _drawn(name: str, spec: Spec, machine: Machine) -> list[Candidate]:
    """The best predicted points of ``spec``, some that ``name`` draws, and what is tried first.

    Or none at all. What is drawn does not depend on what is tried first.
    """
    try:
        points = space(spec, machine)
    except PipelinerError:
        return []
    rest = points[PREDICTED:]
    drawn = random.Random(name).sample(rest, min(DRAWN, len(rest)))
    asked = (*points[:PREDICTED], *drawn, *_tried_first(points))
    return list(dict.fromkeys(point.candidate for point in asked))


def _tried_first(points: Sequence[Point]) -> list[Point]:
    """The first ``TOP`` of ``points`` that ``tune`` would try, no time being known."""
    return Search(points).next(TOP)


def judge(
    seed: int,
    records: Iterable[Record],
    machine: Machine,
    count: int = SHAPES,
    theirs: Theirs | None = None,
) -> list[FreshScores]:
    """How the model does on those workloads of ``seed`` that ``records`` have.

    WorkloadError: they have none.
    """
    measured = by_workload(records)
    found = []
    for spec in fresh_specs(seed, count):
        timed = [
            Timed(point, record.us, again)
            for record, again in measured.get(workload_key(spec), [])
            if (point := _point(Candidate.from_json(record.candidate), spec, machine))
        ]
        if timed:
            chosen = theirs(spec)[:TOP] if theirs else ()
            found.append(fresh_scores(spec.name, spec.types.dtype, timed, chosen))
    if not found:
        raise WorkloadError("command.log_without_time", log=f"--fresh {seed}")
    return found


def _point(one: Candidate, spec: Spec, machine: Machine) -> Point | None:
    """By the model as it is; None: it plans no such kernel any more, or predicts nothing of it."""
    try:
        point = point_of(spec, machine, one)
    except PipelinerError:
        return None
    return point if point.predicted_us else None


def fresh_scores(
    workload: str, dtype: str, found: Sequence[Timed], theirs: Sequence[Candidate] = ()
) -> FreshScores:
    """The model on the candidates of one workload; ``theirs``: another's choices, best first."""
    ranked = sorted(found, key=lambda one: one.predicted_us)
    predicted, us = [one.predicted_us for one in found], [one.us for one in found]
    off = [one / two - 1 for one, two in zip(predicted, us, strict=True)]
    by_candidate: Mapping[Candidate, Timed] = {one.point.candidate: one for one in found}
    tried = [by_candidate[point.candidate] for point in _tried_first([one.point for one in found])]
    other = [by_candidate[one] for one in theirs if one in by_candidate]
    return FreshScores(
        workload,
        dtype,
        len(found),
        min(one.best_us for one in found),
        regret(ranked[0], found),
        _best_of(tried, found),
        spearman(predicted, us),
        sum(map(abs, off)) / len(off),
        sum(off) / len(off),
        regret(other[0], found) if other else None,
        _best_of(other[:TOP], found) if other else None,
    )


def _best_of(chosen: Sequence[Timed], found: Sequence[Timed]) -> float:
    """The regret of the best of ``chosen``."""
    return regret(min(chosen, key=lambda one: one.best_us), found)
