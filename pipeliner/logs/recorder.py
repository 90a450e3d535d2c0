"""Measure the candidates of workloads: compiled side by side, run one at a time, logged at once.

While one workload is timed, the next is compiled. Every kernel is checked against float64 first; a
kernel that hangs or crashes costs its process and is logged. Candidates of a workload are
interleaved, so that clocks and temperature drift for all alike; then the fastest are again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from ..errors import ToolError
from ..machine import Machine, machine_for
from ..measuring import BuiltCandidate, Conditions, Measurement, Open, Rounds, Say, Survey, Try
from ..records import Record
from ..records.candidate import Candidate, versions_key, workload_key
from ..records.log import AGAIN, SOURCE, add_to, read_any, with_loop
from ..records.names import name_of
from ..schedules.workloads import Spec
from .cases import noise
from .grid import LIMIT, grid

AHEAD: Final = 2
"""Workloads that are compiled while another is timed."""

WAIT_SECONDS: Final = 60.0
"""For the first answer, which comes after libraries are loaded and a large problem is summed."""

TRY_SECONDS: Final = 20.0
"""For one run of a kernel with its check."""

ALL: Final = Rounds(48, fewest=3, warm_up=1, seconds=1.5, shuffled=True)
"""Of all candidates of a workload."""

FRESHEST: Final = 16
"""Candidates of a workload that are timed again."""

FRESH: Final = Rounds(45, fewest=3, warm_up=1, seconds=1.5, shuffled=True)

CLOSING_SECONDS: Final = 6.0
"""Kept for the rounds of a workload whose candidates are not all compiled when time is up."""


class KernelBuilder(Protocol):
    """What compiles kernels: ``Builders``, or what a test has in its place."""

    def submit(self, spec: Spec, candidates: Sequence[Candidate]) -> range:
        """As ``Builders.submit``."""

    def next(self, seconds: float) -> tuple[int, BuiltCandidate] | None:
        """As ``Builders.next``."""


class KernelTimer(Protocol):
    """What times kernels: a ``GpuMeasurer``, or what a test has in its place."""

    def ask(self, question: Open | Try | Survey, seconds: float) -> Any:
        """As ``GpuMeasurer.ask``."""


@dataclass(frozen=True, slots=True)
class Job:
    """A workload by its name in a suite, and what of it is to be measured."""

    label: str
    spec: Spec
    machine: Machine
    candidates: tuple[Candidate, ...]

    def record(self, one: Candidate, **found: Any) -> Record:
        """What became of ``one``."""
        key, name = workload_key(self.spec), one.to_json()
        return Record(key, self.machine.key, versions_key(), name, source=SOURCE, **found)


@dataclass
class _Tried:
    """Candidates that ran and were right, in the order of the timer's; the others' records."""

    right: list[tuple[Candidate, BuiltCandidate]] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)


def jobs_for(specs: Mapping[str, Spec], target: Any, log: Path, limit: int = LIMIT) -> list[Job]:
    """What is to be measured of each workload: its grid, but for what the log has."""
    machine = machine_for(target)
    found = read_any(log, machine) if log.exists() else []
    known = {(record.workload, record.candidate) for record in found}
    jobs = []
    for label, spec in specs.items():
        key = workload_key(spec)
        asked = grid(spec, machine, limit)
        left = tuple(one for one in asked if (key, one.to_json()) not in known)
        jobs.append(Job(label, spec, machine, left))
    return [job for job in jobs if job.candidates]


def record(
    jobs: Sequence[Job],
    builders: KernelBuilder,
    timer: KernelTimer,
    log: Path,
    seconds: float,
    say: Say,
    conditions: Conditions | None = None,
) -> bool:
    """Measure ``jobs`` for at most about so long; whether all of it was done.

    The log has each workload as soon as it is timed. What is interrupted is timed no more.
    """
    end = time.monotonic() + seconds - CLOSING_SECONDS
    lines = describe_conditions(conditions)
    done = 0
    for job, libraries in _compiled(jobs, builders, end):
        records = measure(job, libraries, timer, say)
        add_to(log, records, job.machine, lines)
        lines = ()
        say(_outcome(job, records))
        done += sum(one.label != AGAIN for one in records)
        if time.monotonic() > end:
            break
    return done == sum(len(job.candidates) for job in jobs)


def measure(
    job: Job, libraries: Iterator[tuple[Candidate, BuiltCandidate]], timer: KernelTimer, say: Say
) -> list[Record]:
    """What became of each candidate whose library came; those that could not be timed are left."""
    tried = _Tried()
    try:
        timer.ask(Open(job.spec), WAIT_SECONDS)
        for one, library in libraries:
            if library.failure:
                tried.failed.append(job.record(one, failure=library.failure))
            else:
                _try(job, one, library, tried, timer)
        return [*_timed(job, tried.right, timer), *tried.failed]
    except ToolError as err:
        say(f"{job.label}: {err}")
        return tried.failed


def _try(
    job: Job, one: Candidate, library: BuiltCandidate, tried: _Tried, timer: KernelTimer
) -> None:
    """Run ``one`` once; where that ends the timer's process, its successor learns all others."""
    try:
        wrong = timer.ask(Try(library), TRY_SECONDS)
    except ToolError as err:
        tried.failed.append(job.record(one, failure=err.reason))
        timer.ask(Open(job.spec), WAIT_SECONDS)
        for _, other in tried.right:
            timer.ask(Try(other), TRY_SECONDS)
        return
    if wrong:
        tried.failed.append(job.record(one, failure=wrong))
    else:
        tried.right.append((one, library))


def _timed(
    job: Job, right: Sequence[tuple[Candidate, BuiltCandidate]], timer: KernelTimer
) -> list[Record]:
    """All interleaved, and then the fastest again, interleaved anew."""
    if not right:
        return []
    found: list[Measurement] = timer.ask(Survey(tuple(range(len(right))), ALL), WAIT_SECONDS)
    timed = [at for at, one in enumerate(found) if not one.failure]
    fastest = tuple(sorted(timed, key=lambda at: found[at].us)[:FRESHEST])
    fresh = timer.ask(Survey(fastest, FRESH), WAIT_SECONDS) if fastest else []
    again = [(at, one) for at, one in zip(fastest, fresh) if not one.failure]
    return [
        *(_record(job, *right[at], one) for at, one in enumerate(found)),
        *(_record(job, *right[at], one, label=AGAIN) for at, one in again),
    ]


def _record(
    job: Job, one: Candidate, built: BuiltCandidate, found: Measurement, label: str = ""
) -> Record:
    return job.record(
        one,
        samples=found.samples,
        failure=found.failure,
        label=label,
        predicted_us=built.predicted_us,
        resources=with_loop(built.resources, built.loop),
        conditions=found.conditions,
        plan=built.plan,
    )


def _compiled(
    jobs: Sequence[Job], builders: KernelBuilder, end: float
) -> Iterator[tuple[Job, Iterator[tuple[Candidate, BuiltCandidate]]]]:
    """Each job with its candidates as they are compiled, until ``end``; later ones are begun."""
    lines: list[range] = []
    ready: dict[int, BuiltCandidate] = {}
    for at, job in enumerate(jobs):
        for later in jobs[len(lines) : at + 1 + AHEAD]:
            lines.append(builders.submit(later.spec, later.candidates))
        yield job, _libraries(job, lines[at], builders, ready, end)


def _libraries(
    job: Job, numbers: range, builders: KernelBuilder, ready: dict[int, BuiltCandidate], end: float
) -> Iterator[tuple[Candidate, BuiltCandidate]]:
    """The libraries of ``numbers`` as they come; ``ready``: what has come for later ones."""
    left = set(numbers)
    while left:
        for number in sorted(left & ready.keys()):
            left.remove(number)
            yield job.candidates[number - numbers.start], ready.pop(number)
        if not left:
            return
        found = builders.next(max(0.0, end - time.monotonic()))
        if found is None:
            return
        ready[found[0]] = found[1]


def describe_conditions(found: Conditions | None) -> tuple[str, ...]:
    """Under what the times were taken, a line each."""
    if found is None:
        return ()
    known = {**found.versions, **found.settings}
    return (found.gpu, ", ".join(f"{name} {value}" for name, value in known.items()))


def _outcome(job: Job, records: Sequence[Record]) -> str:
    """One line for whoever waits."""
    first = [one for one in records if one.label != AGAIN]
    title, timed = f"{job.label} {job.spec.dtype}", [one for one in first if not one.failure]
    if not timed:
        return f"{title}: nothing timed, {len(first)} failed"
    fresh = [one for one in records if one.label == AGAIN]
    best = min(fresh or timed, key=lambda one: one.us)
    name = name_of(Candidate.from_json(best.candidate), job.spec, job.machine)
    rate = job.spec.flops() / best.us * 1e-6
    return (
        f"{title}: {len(timed)} of {len(job.candidates)} timed, {len(first) - len(timed)} failed; "
        f"{best.us:.1f} us, {rate:.0f} TFLOP/s by {name}; "
        f"the same again within {noise(records):.1%}"
    )
