"""How far measured times lie from predicted ones, by what bounds the kernel, out of sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..cost.interval import COVERED, RESIDUALS, TimeBound, bound_of
from ..cost.predict import predict
from .cases import Case


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured kernel: its workload's name, what bounds it, and |measured / predicted - 1|.

    ``first``: it is what the model takes of its workload.
    """

    workload: str
    bound: TimeBound
    error: float
    first: bool = False


@dataclass(frozen=True, slots=True)
class ResidualSummary:
    """The residual of a kind of kernel, and how many lie within that of the other workloads.

    ``covered``: the share of all kernels; ``covered_firsts``: of those that the model takes.
    """

    bound: TimeBound
    kernels: int
    workloads: int
    shipped: float
    residual: float
    covered: float
    firsts: int
    covered_firsts: float


def residuals(timed: Mapping[tuple[str, str], Sequence[Case]]) -> list[Residual]:
    """Of the cases of a log."""
    found = []
    for (name, _), cases in timed.items():
        least = min(case.plan.predicted_us for case in cases)
        for case in cases:
            us = case.plan.predicted_us
            loop = predict(case.loop.work, case.machine, case.depth)
            assert loop is not None
            bound = bound_of(us, [loop])
            found.append(Residual(name, bound, abs(case.us / us - 1), us == least))
    return found


def summaries(found: Sequence[Residual]) -> list[ResidualSummary]:
    """Each kind of kernel; a workload is judged by those of other names."""
    return [_summary(bound, [one for one in found if one.bound == bound]) for bound in RESIDUALS]


def _summary(bound: TimeBound, found: Sequence[Residual]) -> ResidualSummary:
    names = {one.workload for one in found}
    without = {name: quantile(one for one in found if one.workload != name) for name in names}
    within = [one.error <= without[one.workload] for one in found]
    firsts = [inside for one, inside in zip(found, within, strict=True) if one.first]
    return ResidualSummary(
        bound,
        len(found),
        len(names),
        RESIDUALS[bound],
        quantile(found),
        _share(within),
        len(firsts),
        _share(firsts),
    )


def quantile(found: Iterable[Residual]) -> float:
    """The residual that ``COVERED`` of the kernels do not exceed; 0 where there are none."""
    errors = [one.error for one in found]
    return float(np.quantile(errors, COVERED)) if errors else 0.0


def _share(within: Sequence[bool]) -> float:
    return sum(within) / len(within) if within else 0.0
