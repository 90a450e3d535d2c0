"""Run an experiment: compile what is missing, measure it, record it; again, it goes on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..bench.problems import LIBRARY_SLACK, library
from ..diagnostics import Why
from ..errors import PipelinerError, WorkloadError
from ..kernel.building import pipeline_with, target_for
from ..kernel.compiled import plan_of
from ..machine import machine_for
from ..measuring import BuiltCandidate, Compiler, Compiles, MadeAtItsTurn, Measurer, Say
from ..measuring.lab import Lab, Pace
from ..measuring.trials import KernelTrial, Trials
from ..records import OURS, Record, Records
from ..records.candidate import (
    NOTHING_ASKED,
    Candidate,
    default_candidate,
    machine_key,
    versions_key,
    workload_key,
)
from ..records.functions import AnyWorkload, FunctionWorkload
from ..schedules import AttentionTile, GemmTile, RowTile
from ..tuning import on_gpus, records_path
from .file import Experiment, LabelledWorkload, Variant

SOURCE: Final = "experiment"


@dataclass(frozen=True, slots=True)
class Step:
    """One variant of one workload on one GPU. ``candidate``: None where a peer computes it.

    ``failure``: why it cannot be made.
    """

    workload: LabelledWorkload
    variant: Variant
    spec: AnyWorkload
    candidate: Candidate | None = None
    failure: Why = ""

    @property
    def contender(self) -> str:
        """Whose kernel it is."""
        return self.variant.peer or OURS

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.workload.label}, {self.variant.name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Of ``steps``, some were recorded ``before``, some ran now (``done``), and of these some failed.
    ``results``: each step that is recorded now, with its newest record.
    """

    path: Path
    steps: int
    before: int
    done: int
    failed: int
    seconds: float
    interrupted: bool = False
    results: tuple[tuple[Step, Record], ...] = ()


def steps_of(experiment: Experiment, target: Any) -> list[Step]:
    """Every step of an experiment on the GPU of ``target``, in order; needs no GPU."""
    choose = functools.cache(default_candidate)  # a depth is no matter to the tile
    return [
        _step(workload, variant, target, choose)
        for workload in experiment.workloads
        for variant in experiment.of(workload)
    ]


def predicted_us(step: Step, target: Any) -> float:
    """What the model says that a step takes; 0: nothing, as of what it cannot make."""
    if step.candidate is None:
        return 0.0
    try:
        if isinstance(step.spec, FunctionWorkload):
            made = pipeline_with(step.spec.function(), target, step.candidate.request)
            return plan_of(made).predicted_us
        if isinstance(step.candidate.tile, (GemmTile, AttentionTile, RowTile)):
            return step.candidate.plan(step.spec, machine_for(target)).predicted_us
    except PipelinerError:
        pass
    return 0.0


def run_experiment(
    experiment: Experiment,
    target: Any = None,
    *,
    db: str | Path | None = None,
    jobs: int | None = None,
    retry: bool = False,
    say: Say = lambda text: None,
    measurer: Measurer | None = None,
    compiler: Compiles | None = None,
) -> Outcome:
    """Measure every step of ``experiment`` that the records ``db`` do not hold yet.

    Options and errors are those of ``pipeliner.tune``. Steps of one workload run beside the first
    of them that ran. What fails is recorded as such, and tried again only on ``retry``.
    WorkloadError: the experiment is for other GPUs.
    """
    started = time.monotonic()
    given = target_for(target, NOTHING_ASKED)
    machine = machine_key(given)
    if experiment.machines and machine not in experiment.machines:
        raise WorkloadError(
            "experiment.machine",
            title=experiment.title,
            machine=machine,
            machines=experiment.machines,
        )
    path = records_path(db)
    measuring = measurer or on_gpus(given)[0]
    measuring.start()
    steps = steps_of(experiment, given)
    with Records(path) as records:
        compiling = compiler or Compiler(given, jobs, kernels=len(steps))
        run = _Run(experiment, records, machine, compiling, say)
        missing = [step for step in steps if run.lacks(step, retry)]
        try:
            if missing:
                compiling.start()
            interrupted = run.measure_all(missing, measuring)
        finally:
            compiling.close()
            measuring.close()
    took = time.monotonic() - started
    return Outcome(
        path,
        len(steps),
        len(steps) - len(missing),
        run.done,
        run.failed,
        took,
        interrupted,
        run.results(steps),
    )


class _Run(Trials):
    """The steps of one experiment that are missing, and the records of all."""

    def __init__(
        self, experiment: Experiment, records: Records, machine: str, compiler: Compiles, say: Say
    ) -> None:
        super().__init__(records, machine, compiler, source=SOURCE, experiment=experiment.title)
        self._say = say
        found = records.find(machine=machine, versions=versions_key(), plans=False)
        ours = [record for record in found if record.experiment == experiment.title]
        self._known = {_mark(r.workload, r.label, r.contender, r.candidate): r for r in ours}
        self._ran: dict[str, Record] = {}
        for record in ours:
            if record.contender == OURS and not record.failure:
                self._ran.setdefault(record.workload, record)
        self._steps: dict[KernelTrial, Step] = {}

    def lacks(self, step: Step, retry: bool) -> bool:
        """Whether the records do not hold this step, as it is in the file now.

        ``retry``: or hold that it failed.
        """
        known = self._known.get(_mark_of(step))
        return known is None or (retry and bool(known.failure))

    def results(self, steps: list[Step]) -> tuple[tuple[Step, Record], ...]:
        """The record of each of ``steps`` that has one."""
        found = ((step, self._known.get(_mark_of(step))) for step in steps)
        return tuple((step, record) for step, record in found if record is not None)

    def measure_all(self, steps: list[Step], measurer: Measurer) -> bool:
        """Measure one after the other; whether it was interrupted."""
        self._started = time.monotonic()
        self._steps = {self._of_step(step): step for step in steps}
        specs = {workload_key(step.spec): step.spec for step in steps}
        again = [
            self.trial(spec, Candidate.from_json(ran.candidate), reference=True, us=ran.us)
            for key, spec in specs.items()
            if (ran := self._ran.get(key)) is not None
        ]
        self.batches = iter([*again, *self._steps])  # beside those of an earlier run
        return Lab(self, self._compiler, [measurer], ordered=True).run()

    def kept(self, trial: KernelTrial, record: Record) -> None:
        """Say how far it is."""
        step = self._steps[trial]
        self._known[_mark_of(step)] = record
        pace = Pace(time.monotonic() - self._started, self.done, len(self._steps))
        result = record.failure or f"{record.us:.1f} us"
        self._say(f"[{pace.done}/{pace.of}] {step.title}: {result}; {pace.left:.0f} s left")

    def _of_step(self, step: Step) -> KernelTrial:
        told: dict[str, Any] = {"contender": step.contender, "label": step.variant.name}
        if step.candidate is not None:
            return self.trial(step.spec, step.candidate, **told)
        if step.failure:
            return KernelTrial(makes=[BuiltCandidate(step.spec, failure=step.failure)], **told)
        made = functools.partial(library, step.contender, step.spec)
        peer = MadeAtItsTurn(step.spec, name=step.contender, slack=LIBRARY_SLACK, make=made)
        return KernelTrial(makes=[peer], **told)


def _step(
    workload: LabelledWorkload,
    variant: Variant,
    target: Any,
    choose: Callable[..., Candidate],
) -> Step:
    try:
        spec = variant.spec(workload)
        if variant.peer:
            return Step(workload, variant, spec)
        if variant.tile is not None:
            return Step(workload, variant, spec, Candidate(variant.tile, variant.request))
        asked = variant.request
        kind = type(asked)(instruction=asked.instruction, accumulate=asked.accumulate)
        tile = choose(spec, target, kind).tile
        return Step(workload, variant, spec, Candidate(tile, variant.request))
    except PipelinerError as err:
        return Step(workload, variant, workload.spec, failure=err.reason)


def _mark_of(step: Step) -> tuple[str, ...]:
    candidate = "" if step.candidate is None else step.candidate.to_json()
    return _mark(workload_key(step.spec), step.variant.name, step.contender, candidate)


def _mark(workload: str, label: str, contender: str, candidate: str) -> tuple[str, ...]:
    return (workload, label, contender, candidate)
