"""Run an experiment: compile what is missing, measure it, record it; again, it goes on."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..bench.libraries import cudnn, triton
from ..bench.peers import cublas
from ..bench.problems import LIBRARY_SLACK
from ..bench.results import CUBLAS, CUDNN, TRITON
from ..diagnostics import Why
from ..errors import PipelinerError, WorkloadError
from ..kernel.building import pipeline_with, target_for
from ..kernel.compiled import plan_of
from ..machine import machine_for
from ..measuring import (
    BuiltCandidate,
    Compiler,
    Compiles,
    Measurement,
    Measurer,
    Runner,
    Say,
    cores,
    workers_for,
)
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
from ..schedules import GemmTile
from ..tuning import on_gpus, records_path
from .file import Experiment, LabelledWorkload, Variant

SOURCE: Final = "experiment"

_LIBRARIES: Final[dict[str, Callable[[Any], Runner]]] = {
    CUBLAS: cublas,
    CUDNN: cudnn,
    TRITON: triton,
}


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
        if isinstance(step.candidate.tile, GemmTile):
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
        run = _Run(experiment, records, machine, say)
        missing = [step for step in steps if run.lacks(step, retry)]
        count = workers_for(cores()) if jobs is None else jobs
        compiling = compiler or Compiler(given, min(count, max(1, len(missing))))
        try:
            interrupted = run.measure_all(missing, compiling, measuring)
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


@dataclass(frozen=True)
class PeerBuilt(BuiltCandidate):
    """A library's kernel of ``spec``; ``name`` says which library's."""

    slack: float = LIBRARY_SLACK

    def load(self) -> tuple[Runner, str]:
        """As a contender's ``make``; what the library does not have, it refuses here."""
        return _LIBRARIES[self.name](self.spec), ""


class _Run:
    """The records of one experiment, and what its workloads are measured beside."""

    def __init__(self, experiment: Experiment, records: Records, machine: str, say: Say) -> None:
        self.done = self.failed = 0
        self._title, self._records, self._say = experiment.title, records, say
        self._machine, self._versions = machine, versions_key()
        found = records.find(machine=machine, versions=self._versions, plans=False)
        ours = [record for record in found if record.experiment == self._title]
        self._known = {_mark(r.workload, r.label, r.contender, r.candidate): r for r in ours}
        self._references: dict[str, tuple[Candidate, float]] = {}
        for record in ours:
            if record.contender == OURS and not record.failure:
                candidate = Candidate.from_json(record.candidate)
                self._references.setdefault(record.workload, (candidate, record.us))

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

    def measure_all(self, steps: list[Step], compiler: Compiles, measurer: Measurer) -> bool:
        """Compile ahead and measure one after the other; whether it was interrupted."""
        pool = ThreadPoolExecutor(compiler.jobs)
        started = time.monotonic()
        try:
            compiler.start()
            ahead = list(self._submitted(steps, pool, compiler))
            beside: dict[str, tuple[BuiltCandidate, float]] = {}
            for at, (step, reference, built) in enumerate(ahead, 1):
                key = workload_key(step.spec)
                if reference is not None:
                    made: BuiltCandidate = reference.result()
                    if not made.failure:
                        beside[key] = (made, self._references[key][1])
                record = self._measured(step, built, measurer, beside.get(key))
                if isinstance(built, Future) and not record.failure:
                    beside.setdefault(key, (built.result(), record.us))
                result = record.failure or f"{record.us:.1f} us"
                left = (time.monotonic() - started) / at * (len(steps) - at)
                self._say(f"[{at}/{len(steps)}] {step.title}: {result}; {left:.0f} s left")
        except KeyboardInterrupt:
            return True
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            compiler.end()
            measurer.end()
            pool.shutdown()
        return False

    def _submitted(
        self, steps: list[Step], pool: ThreadPoolExecutor, compiler: Compiles
    ) -> Iterator[
        tuple[Step, Future[BuiltCandidate] | None, Future[BuiltCandidate] | BuiltCandidate]
    ]:
        """Each step with what is compiled for it.

        With the first of a workload comes what its steps ran beside in an earlier run.
        """
        seen: set[str] = set()
        for step in steps:
            key = workload_key(step.spec)
            reference = None
            if key in self._references and key not in seen:
                reference = pool.submit(compiler.compile, step.spec, self._references[key][0])
            seen.add(key)
            if step.candidate is not None:
                yield step, reference, pool.submit(compiler.compile, step.spec, step.candidate)
            elif step.failure:
                yield step, reference, BuiltCandidate(step.spec, failure=step.failure)
            else:
                yield step, reference, PeerBuilt(step.spec, name=step.contender)

    def _measured(
        self,
        step: Step,
        making: Future[BuiltCandidate] | BuiltCandidate,
        measurer: Measurer,
        beside: tuple[BuiltCandidate, float] | None,
    ) -> Record:
        """Measure one step and record it."""
        built = making.result() if isinstance(making, Future) else making
        found = Measurement(failure=built.failure)
        if not built.failure:
            found = measurer.measure(built, None if beside is None else beside[0])
        us = 0.0
        if found.samples and found.beside and beside is not None:
            us = beside[1] * statistics.median(found.samples) / statistics.median(found.beside)
        record = Record(
            workload_key(step.spec),
            self._machine,
            self._versions,
            "" if step.candidate is None else step.candidate.to_json(),
            contender=step.contender,
            samples=found.samples,
            beside=found.beside,
            us=us,
            failure=found.failure,
            predicted_us=built.predicted_us,
            source=SOURCE,
            experiment=self._title,
            label=step.variant.name,
            resources=built.resources,
            conditions=found.conditions,
            plan=built.plan,
        )
        self._records.add(record)
        self._known[_mark_of(step)] = record
        self.done += 1
        self.failed += bool(record.failure)
        return record


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
