"""What each constant of the model is worth, by a log: regret and error without it.

A constant is left out by its neutral value, or replaced by the best of some multiples of its value.
Which is best is asked of the other workloads: those of one name, in whatever type, are a group, and
a group is judged by what all groups outside its fold choose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from ..choice.depth import DepthChoice, choose_depth
from ..choice.depth_produced import choose_produced_depth
from ..choice.mapped import LoopWork, map_kernel
from ..cost.constants import constants
from ..cost.descriptor import Work
from ..cost.predict import predict
from ..errors import WorkloadError
from ..mechanisms.table import have_producer
from ..schedules.closed_form import kernel_info
from .cases import Case, by_family, own_depth
from .neutral import NEUTRAL
from .regret import parts, scores, spearman
from .rules import OURS

FOLDS: Final = 5
"""Parts of the groups: what is fitted to four of them is judged by the fifth."""

FACTORS: Final = (0.5, 0.75, 1.5, 2.0)
"""Multiples of a constant's value that are tried beside it."""

Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """The model on one workload; ratios to the best measured time, and the mean error of times."""

    first: float
    top: float
    correlation: float
    error: float

    @property
    def loss(self) -> float:
        """What a fit makes small: regret of the first choice and the error of times, as shares."""
        return self.first - 1 + self.error


@dataclass(frozen=True, slots=True)
class Means:
    """The same of many workloads, and the worst first choice."""

    first: float
    worst: float
    top: float
    correlation: float
    error: float


@dataclass(frozen=True, slots=True)
class Ablated:
    """One constant: its value, the neutral one, and the model with either and fitted anew.

    ``workloads``: on which leaving it out changes anything. ``refitted``: each workload by the
    value that the other folds choose; None where that was not asked for, or nothing changes.
    """

    name: str
    kind: str
    value: float
    neutral: float
    workloads: int
    without: Means
    refitted: Means | None


class Ablation:
    """The model on a log, with constants as they are and as they might be."""

    def __init__(self, found: Mapping[Group, list[Case]]) -> None:
        """``found``: the cases of each workload."""
        self._families = {group: list(by_family(cases).values()) for group, cases in found.items()}
        self._found = {
            group: [case for one in families for case in one]  # in the order of what is made again
            for group, families in self._families.items()
        }
        part = parts(found)
        self.out_of_sample: Final = [group for group in found if part[group] != "fitted"]
        """Workloads that no constant was fitted to; all where the log has no others."""
        self.base: Final = {group: judged(cases) for group, cases in self._found.items()}
        """The model as it is."""
        self._taken = {id(one[0]): _taken(one[0].loop) for one in self._of_all()}
        self._before = {id(case): _loop_us(case, case.loop.work) for case in self._cases()}

    def _of_all(self) -> Iterator[list[Case]]:
        for families in self._families.values():
            yield from families

    def _cases(self) -> Iterator[Case]:
        for cases in self._found.values():
            yield from cases

    def means(self, found: Mapping[Group, Judged]) -> Means:
        """Of the workloads that nothing was fitted to."""
        return means([found[group] for group in self.out_of_sample or found])

    def of(self, name: str, *, refit: bool = False) -> Ablated:
        """What the constant ``name`` is worth."""
        record = next(one for one in constants() if one.name == name)
        without = self._with(name, NEUTRAL[name], list(self._found))
        touched = [group for group, one in without.items() if one != self.base[group]]
        refitted = self._refitted(name, record.value, touched) if refit and touched else None
        return Ablated(
            name,
            record.source.kind,
            record.value,
            NEUTRAL[name],
            len(touched),
            self.means(without),
            refitted,
        )

    def _refitted(self, name: str, value: float, touched: Sequence[Group]) -> Means:
        """Each workload by the value that suits the groups outside its fold best."""
        tried = {
            factor: {**self.base, **self._with(name, type(value)(value * factor), touched)}
            for factor in FACTORS
        }
        tried[1.0] = self.base
        found: dict[Group, Judged] = {}
        for fold in folds(self._found):
            others = [group for group in self._found if group not in fold]
            best = min(tried, key=lambda factor: sum(tried[factor][one].loss for one in others))
            found |= {group: tried[best][group] for group in fold}
        return self.means(found)

    def _with(self, name: str, value: float, groups: Sequence[Group]) -> dict[Group, Judged]:
        with constant_as(name, value):
            return {
                group: judged(
                    [case for one in self._families[group] for case in self._predicted_again(one)]
                )
                for group in groups
            }

    def _predicted_again(self, family: Sequence[Case]) -> list[Case]:
        """Cases that differ in depth alone, their loop predicted anew; what else they take stays.

        Which depth is the library's own is asked of it only where the loop's alone would change.
        """
        one = family[0]
        info = kernel_info(one.spec, one.tile)
        mapped: list[tuple[Work, LoopWork]] = []  # depths have one descriptor, or two
        found: list[Case] = []
        for case in family:
            loop = next((now for then, now in mapped if then == case.loop.work), None)
            if loop is None:
                loop = map_kernel(info, case.machine, case.candidate.request).loops[0]
                mapped.append((case.loop.work, loop))
            more = _loop_us(case, loop.work) - self._before[id(case)]
            plan = replace(case.plan, predicted_us=case.plan.predicted_us + more)
            found.append(replace(case, plan=plan))
        if _taken(mapped[0][1]) == self._taken[id(one)]:
            return found
        depth = own_depth(one.family, one.spec, one.machine)
        return [replace(case, own_depth=depth) for case in found]


def judged(found: Sequence[Case]) -> Judged:
    """The model on the candidates of one workload."""
    ours = scores(found, OURS)
    assert ours.first is not None
    assert ours.top is not None
    predicted, us = [case.plan.predicted_us for case in found], [case.us for case in found]
    error = sum(abs(one / two - 1) for one, two in zip(predicted, us, strict=True)) / len(found)
    return Judged(ours.first, ours.top, spearman(predicted, us), error)


def means(found: Sequence[Judged]) -> Means:
    """Of several workloads."""
    count = len(found)
    return Means(
        sum(one.first for one in found) / count,
        max(one.first for one in found),
        sum(one.top for one in found) / count,
        sum(one.correlation for one in found) / count,
        sum(one.error for one in found) / count,
    )


def folds(groups: Mapping[Group, object]) -> list[set[Group]]:
    """The workloads in ``FOLDS`` parts, those of one name together."""
    names = sorted({label for label, _ in groups})
    return [
        {group for group in groups if group[0] in names[at::FOLDS]}
        for at in range(min(FOLDS, len(names)))
    ]


def selected(names: Sequence[str]) -> list[str]:
    """The constants that can be left out and whose names have one of ``names`` in them; or all."""
    for part in names:
        if not any(part.lower() in name.lower() for name in NEUTRAL):
            raise WorkloadError("constant.unknown", part=part)
    return [
        name
        for name in sorted(NEUTRAL)
        if not names or any(part.lower() in name.lower() for part in names)
    ]


@contextmanager
def constant_as(name: str, value: float) -> Iterator[None]:
    """The model with another ``value`` of the constant ``name``, wherever it is imported."""
    modules = [
        module
        for key, module in list(sys.modules.items())
        if key.startswith(f"{__package__.partition('.')[0]}.") and name in vars(module)
    ]
    known = [vars(module)[name] for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, before in zip(modules, known, strict=True):
            setattr(module, name, before)


def _taken(loop: LoopWork) -> int:
    """The depth that its loop alone would be given."""
    produced = have_producer(loop.copies) and loop.work.wgmma.cycles > 0
    found = choose_produced_depth(loop.loop, loop.depths) if produced else choose_depth(loop.depths)
    return found.depth if isinstance(found, DepthChoice) else 0


def _loop_us(case: Case, work: Work) -> float:
    """Microseconds of its loop, as ``work`` describes it."""
    found = predict(work, case.machine, case.depth)
    assert found is not None
    return found.us
