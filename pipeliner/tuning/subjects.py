"""What is tuned, and the points that a search has to choose from."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..diagnostics import Why, is_code
from ..errors import PipelinerError, WorkloadError
from ..kernel.building import target_for
from ..kernel.refined import recognised
from ..machine import machine_for
from ..plan.request import Request, asked
from ..records.candidate import NOTHING_ASKED, Candidate, default_candidate, is_workload
from ..records.functions import AnyWorkload, FunctionWorkload, Knobs, function_workload
from ..records.settings import (
    KnobValues,
    all_settings,
    check_names,
    is_function_of_knobs,
    knobbed,
    knobs_of,
    listed,
    name_of,
    scheduled_function,
)
from ..schedules.workloads import Spec
from ..space.neighbours import crossed, neighbours
from ..space.ranking import Ranking, choose
from ..values.facts import KernelInfo
from .space import FAR, Features, Point, features_of, outcome_of, point_of, space

VARIED: Final = 4
"""Settings of a function's knobs, the best predicted, of which the choices of the plan vary too."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A setting of a function's knobs that is not tried: it has no schedule, or no plan."""

    knobs: Knobs
    why: Why


class TuningSubject(ABC):
    """A workload, and the candidates that there are of it. ``settings``: of its knobs."""

    workload: AnyWorkload
    settings: int = 1

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The settings that are not tried; of what has no plan those that were ranked."""
        return ()

    @abstractmethod
    def first(self) -> Candidate:
        """What is tried first; ready at once."""

    @abstractmethod
    def points(self) -> list[Point]:
        """Every candidate, what is tried first among them; WorkloadError: there is none."""

    @abstractmethod
    def predicted_us(self, candidate: Candidate) -> float:
        """The time predicted of a candidate, 0 where none is; raises what its plan raises."""

    def ranked(self) -> list[Point]:
        """Every candidate that is predicted to be another kernel, the fastest first."""
        return sorted(self.points(), key=_by_prediction)

    def given(self, candidate: Candidate) -> AnyWorkload:
        """The workload as a compiler is given it, with the schedule of ``candidate``."""
        return self.workload


class WorkloadSubject(TuningSubject):
    """One of our workloads: its tiles, and every choice of the plan."""

    def __init__(self, spec: Spec, target: Any) -> None:
        spec.shapes()  # WorkloadError where an extent is open: nothing could be run
        self.workload: AnyWorkload = spec
        self._spec, self._target, self._machine = spec, target, machine_for(target)

    def first(self) -> Candidate:
        return default_candidate(self._spec, self._target)

    def predicted_us(self, candidate: Candidate) -> float:
        return point_of(self._spec, self._machine, candidate).predicted_us

    def points(self) -> list[Point]:
        first = self.first()
        others = [one for one in self.ranked() if one.candidate != first]
        return [point_of(self._spec, self._machine, first), *others]

    def ranked(self) -> list[Point]:
        return space(self._spec, self._machine)


class FunctionSubject(TuningSubject):
    """Schedules of one function by the knobs that made them, and every choice of the plan.

    ``requests``: what is asked of the pipeliner; None: whatever is not ruled out. ``unmade``: why
    a setting has no schedule.
    """

    def __init__(
        self,
        workload: FunctionWorkload,
        made: Mapping[Knobs, Any],
        target: Any,
        requests: Sequence[Request] | None,
        unmade: Mapping[Knobs, Why],
    ) -> None:
        self.workload: AnyWorkload = workload
        self._function, self._made, self._requests = workload, dict(made), requests
        self._target, self._machine = target, machine_for(target)
        self._ranks = _ranks(list(made))
        self._left_out = dict(unmade)
        self.settings = len(made) + len(unmade)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(knobs, why) for knobs, why in self._left_out.items())

    def first(self) -> Candidate:
        return Candidate(next(iter(self._made)), (self._requests or [NOTHING_ASKED])[0])

    def given(self, candidate: Candidate) -> AnyWorkload:
        assert isinstance(candidate.tile, Knobs)
        return self._function.with_schedule(self.function_of(candidate.tile))

    def function_of(self, knobs: Knobs) -> Any:
        """The PrimFunc of a setting; WorkloadError: there is no such setting (any more)."""
        if knobs not in self._made:
            raise WorkloadError(
                "tune.no_such_setting", function=self._function.name, setting=knobs.told
            )
        return self._made[knobs]

    def predicted_us(self, candidate: Candidate) -> float:
        assert isinstance(candidate.tile, Knobs)
        function = self.function_of(candidate.tile)
        info = recognised(function, self._target, self._machine, NOTHING_ASKED)
        plan = choose(info, self._machine, candidate.request, accelerated=self._wide)
        return plan.predicted_us

    def points(self) -> list[Point]:
        found: dict[Any, Point] = {}
        failed: PipelinerError | None = None
        infos: dict[Knobs, KernelInfo] = {}
        for knobs, function in self._made.items():
            try:
                infos[knobs] = recognised(function, self._target, self._machine, NOTHING_ASKED)
                self._enter(found, knobs, infos[knobs], self._requests or [NOTHING_ASKED])
            except PipelinerError as err:
                failed = err
                self._left_out[knobs] = err.reason
        if not found:
            assert failed is not None
            raise failed
        best = sorted(found.values(), key=_by_prediction)
        if self._requests is None:
            for point in best[:VARIED]:
                setting = point.candidate.tile
                assert isinstance(setting, Knobs)
                info = infos[setting]
                ranking = Ranking(info, self._machine, NOTHING_ASKED, accelerated=self._wide)
                self._enter(found, setting, info, requests_of(ranking))
        return sorted(found.values(), key=_by_prediction)

    @property
    def _wide(self) -> bool:
        """Whether the code may use what only sm_90a has."""
        return str(target_for(self._target, NOTHING_ASKED).arch).endswith("a")

    def _enter(
        self,
        found: dict[Any, Point],
        knobs: Knobs,
        info: KernelInfo,
        requests: Sequence[Request] | Iterator[Request],
    ) -> None:
        """Add the points of a setting whose plans differ; raises where there is no plan at all."""
        failed: PipelinerError | None = None
        planned = False
        for request in requests:
            try:
                plan = choose(info, self._machine, request, accelerated=self._wide)
            except PipelinerError as err:
                failed = err
                continue
            planned = True
            lie = (*self._ranks[knobs], *features_of(plan))
            point = Point(Candidate(knobs, request), plan.predicted_us, lie)
            found.setdefault((knobs, outcome_of(plan)), point)
        if not planned and failed is not None:
            raise failed


def subject_of(
    workload: Any,
    target: Any,
    space: KnobValues | None = None,
    given: Mapping[str, Any] | None = None,
) -> TuningSubject:
    """What is to be tuned, whatever it is: see ``tune``. ``given``: what is no knob.

    WorkloadError: it cannot be; or ``space`` has no values, or those of a knob that there is not.
    """
    if is_workload(workload):
        if space is not None:
            raise WorkloadError("tune.space_of_workload", workload=workload.name)
        return WorkloadSubject(workload, target)
    workload, space = knobbed(workload, space)
    values = {name: listed(name, some) for name, some in (space or {}).items()}
    if not is_function_of_knobs(workload):
        check_names(name_of(workload), values, ())
        function = scheduled_function(name_of(workload), workload)
        made = {Knobs(): function}
        return FunctionSubject(function_workload(function), made, target, _requests(values), {})
    knobs = knobs_of(workload, values, given or {})
    requests = _requests({name: some for name, some in values.items() if name not in knobs})
    made, unmade = all_settings(workload, knobs, dict(given or {}))
    first = function_workload(next(iter(made.values())), tuple(knobs))
    return FunctionSubject(first, made, target, requests, unmade)


def _requests(values: KnobValues) -> list[Request] | None:
    """Every combination of the options' values; None: none is given."""
    if not values:
        return None
    try:
        return [asked(dict(zip(values, some))) for some in itertools.product(*values.values())]
    except PipelinerError as err:
        raise WorkloadError(err.reason) from err


def requests_of(ranking: Ranking) -> Iterator[Request]:
    """What leads to each candidate of a ranked list and its neighbours; none of other numerics."""
    yield NOTHING_ASKED
    for one in ranking.everything():
        if not one.is_possible or one.scalar or is_code(one.why, "mapping.exact"):
            continue
        asked = one.pinned.within(NOTHING_ASKED)
        yield asked
        if asked.depth == "auto":  # or nothing is in flight
            yield from (replace(asked, **made) for made in crossed(neighbours(ranking, one), 1))


def _by_prediction(point: Point) -> tuple[bool, float]:
    """Fastest first, and last what nothing is predicted of."""
    return not point.predicted_us, point.predicted_us


def _ranks(settings: Sequence[Knobs]) -> dict[Knobs, Features]:
    """Where each setting lies: the logarithm of a number, or the place of another value."""
    columns = list(zip(*(one.values for one in settings)))
    seen = [list(dict.fromkeys(value for _, value in column)) for column in columns]
    return {
        one: tuple(_rank(value, known) for (_, value), known in zip(one.values, seen))
        for one in settings
    }


def _rank(value: Any, known: Sequence[Any]) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return math.log2(value)
    return FAR * known.index(value)
