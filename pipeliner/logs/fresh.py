"""The model judged by workloads that a seed draws anew, so that nothing can be fitted to them.

Of each workload the best predicted points of the tuner's space are measured, and others drawn at
random from all of it; where it is asked for, what NVIDIA's heuristics choose, too. A seed names a
list: the same one goes on where it stopped.
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
from ..tuning.space import point_of, space
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
    """A candidate that was measured: in the rounds of all, in those of the fastest, 0: in none.

    ``predicted_us``: by the model as it is today.
    """

    candidate: Candidate
    us: float
    again: float
    predicted_us: float

    @property
    def best_us(self) -> float:
        """The fresh time where there is one."""
        return self.again or self.us


@dataclass(frozen=True, slots=True)
class FreshScores:
    """The model on one workload: ratios to the best measured, and how far its times are off.

    ``first``: of the best predicted; ``top``: of the best of the first ``TOP``. ``error``: the mean
    of |predicted / measured - 1|. ``bias``: the mean of predicted / measured - 1. ``their_first``,
    ``their_top``: of another's choices; None where it has none.
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
    """The best predicted points of ``spec``, and some that ``name`` draws; or none at all."""
    try:
        points = [point.candidate for point in space(spec, machine)]
    except PipelinerError:
        return []
    rest = points[PREDICTED:]
    return points[:PREDICTED] + random.Random(name).sample(rest, min(DRAWN, len(rest)))


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
            Timed(one, record.us, again, us)
            for record, again in measured.get(workload_key(spec), [])
            for one in [Candidate.from_json(record.candidate)]
            if (us := _predicted(one, spec, machine))
        ]
        if timed:
            chosen = theirs(spec)[:TOP] if theirs else ()
            found.append(fresh_scores(spec.name, spec.types.dtype, timed, chosen))
    if not found:
        raise WorkloadError("command.log_without_time", log=f"--fresh {seed}")
    return found


def _predicted(one: Candidate, spec: Spec, machine: Machine) -> float:
    """By the model as it is; 0: it plans no such kernel any more."""
    try:
        return point_of(spec, machine, one).predicted_us
    except PipelinerError:
        return 0.0


def fresh_scores(
    workload: str, dtype: str, found: Sequence[Timed], theirs: Sequence[Candidate] = ()
) -> FreshScores:
    """The model on the candidates of one workload; ``theirs``: another's choices, best first."""
    ranked = sorted(found, key=lambda one: one.predicted_us)
    predicted, us = [one.predicted_us for one in found], [one.us for one in found]
    off = [one / two - 1 for one, two in zip(predicted, us, strict=True)]
    first, top = _regrets(ranked, found)
    by_candidate: Mapping[Candidate, Timed] = {one.candidate: one for one in found}
    other = [by_candidate[one] for one in theirs if one in by_candidate]
    their_first, their_top = _regrets(other, found) if other else (None, None)
    return FreshScores(
        workload,
        dtype,
        len(found),
        min(one.best_us for one in found),
        first,
        top,
        spearman(predicted, us),
        sum(map(abs, off)) / len(off),
        sum(off) / len(off),
        their_first,
        their_top,
    )


def _regrets(ranked: Sequence[Timed], found: Sequence[Timed]) -> tuple[float, float]:
    """Of the first of ``ranked``, and of the best of its first ``TOP``."""
    best = min(ranked[:TOP], key=lambda one: one.best_us)
    return regret(ranked[0], found), regret(best, found)
