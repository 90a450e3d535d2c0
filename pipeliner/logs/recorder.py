"""Measure the candidates of workloads: compiled side by side, run one at a time, logged at once.

While one workload is timed, the next is compiled. Every kernel is checked against float64 first; a
kernel that hangs or crashes costs its process and is logged. Candidates of a workload are
interleaved, so that clocks and temperature drift for all alike; then the fastest are again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..diagnostics import Why
from ..errors import ToolError, WorkloadError
from ..machine import Machine, machine_for
from ..measuring import Compiles, Conditions, Measurement, Rounds, Say
from ..measuring.lab import Batch, Lab, Study
from ..measuring.surveys import AskedTimer, surveyed, tried
from ..records import Record
from ..records.candidate import Candidate, describe, workload_key
from ..records.log import AGAIN, SOURCE, add_to, read_any
from ..records.names import name_of
from ..schedules.workloads import Spec
from .cases import noise
from .grid import LIMIT, grid

AHEAD: Final = 2
"""Workloads that are compiled while another is timed."""

ALL: Final = Rounds(48, fewest=3, warm_up=1, seconds=1.5, shuffled=True, primed=True)
"""Of all candidates of a workload."""

FRESHEST: Final = 16
"""Candidates of a workload that are timed again, beside the first one that it was asked for."""

FRESH: Final = Rounds(45, fewest=3, warm_up=1, seconds=1.5, shuffled=True, primed=True)

ATTEMPTS: Final = 2
"""At a workload: where what measures gives no answer, all of it is tried once more."""

CLOSING_SECONDS: Final = 6.0
"""Kept for the rounds of a workload whose candidates are not all compiled when time is up."""


@dataclass(frozen=True, slots=True)
class Job:
    """A workload by its name in a suite, and what of it is to be measured."""

    label: str
    spec: Spec
    machine: Machine
    candidates: tuple[Candidate, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class _Grid(Batch):
    """The candidates of a workload."""

    job: Job


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
    jobs: Iterable[Job],
    compiler: Compiles,
    timer: AskedTimer,
    log: Path,
    seconds: float,
    say: Say,
    conditions: Conditions | None = None,
) -> bool:
    """Measure ``jobs`` for at most about so long; whether all of it was done.

    A job is asked for when there is room to compile it, and may be made then.
    The log has each workload as soon as it is timed. KeyboardInterrupt: the one under way is lost.
    """
    closes = time.monotonic() + seconds - CLOSING_SECONDS
    study = _Recording(jobs, compiler, log, say, describe_conditions(conditions))
    lab = Lab(
        study,
        compiler,
        [timer],
        most=1 + AHEAD,
        ordered=True,
        deadline=None if math.isinf(seconds) else closes,
        closing=True,
    )
    if lab.run():
        raise KeyboardInterrupt
    return study.ended and study.done == study.asked


class _Recording(Study[_Grid, AskedTimer]):
    """Workloads one after the other, all candidates of each interleaved.

    ``asked``, ``done``: candidates. ``ended``: whether every job was asked for.
    """

    def __init__(
        self, jobs: Iterable[Job], compiler: Compiles, log: Path, say: Say, lines: Sequence[str]
    ) -> None:
        self.done = self.asked = 0
        self.ended = False
        self._log, self._say, self._lines = log, say, lines
        self.batches = self._batches(jobs, compiler)

    def _batches(self, jobs: Iterable[Job], compiler: Compiles) -> Iterator[_Grid]:
        for job in jobs:
            self.asked += len(job.candidates)
            makes = [partial(compiler.compile, job.spec, one) for one in job.candidates]
            yield _Grid(makes=makes, job=job)
        self.ended = True

    def measure(self, batch: _Grid, measurer: AskedTimer) -> list[Record]:
        """What became of each candidate that is compiled, all interleaved, the fastest twice.

        What could not be timed for no fault of its own is left.
        """
        failed: dict[int, Why] = {}
        times: list[tuple[int, Measurement, str]] = []
        for _ in range(ATTEMPTS):
            failed.clear()  # each attempt tries all of them
            try:
                times = _timed(tried(measurer, batch.job.spec, batch.built, failed), measurer)
                break
            except ToolError as err:
                self._say(f"{batch.job.label}: {err}")
        lost = [(at, Measurement(failure=failure), "") for at, failure in failed.items()]
        return [_record(batch, *one) for one in (*times, *lost)]

    def keep(self, batch: _Grid, found: list[Record]) -> None:
        """Add the records to the log, under the conditions where they are the first."""
        add_to(self._log, found, batch.job.machine, self._lines)
        self._lines = ()
        self._say(_outcome(batch.job, found))
        self.done += sum(one.label != AGAIN for one in found)


def _timed(right: Sequence[int], timer: AskedTimer) -> list[tuple[int, Measurement, str]]:
    """All interleaved, and then the fastest again, interleaved anew; by number, with the label."""
    if not right:
        return []
    found = surveyed(timer, range(len(right)), ALL)
    timed = [at for at, one in enumerate(found) if not one.failure]
    fastest = sorted(timed, key=lambda at: found[at].us)[:FRESHEST]
    if timed and timed[0] not in fastest:  # what was asked for first may be what is judged
        fastest.append(timed[0])
    fresh = surveyed(timer, fastest, FRESH) if fastest else []
    again = [(right[at], one, AGAIN) for at, one in zip(fastest, fresh) if not one.failure]
    return [*((number, one, "") for number, one in zip(right, found)), *again]


def _record(batch: _Grid, at: int, found: Measurement, label: str) -> Record:
    built = batch.built[at]
    assert built is not None
    return found.record(built, batch.job.machine.key, source=SOURCE, label=label)


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
    name = _told(Candidate.from_json(best.candidate), job)
    rate = job.spec.flops() / best.us * 1e-6
    return (
        f"{title}: {len(timed)} of {len(job.candidates)} timed, {len(first) - len(timed)} failed; "
        f"{best.us:.1f} us, {rate:.0f} TFLOP/s by {name}; "
        f"the same again within {noise(records):.1%}"
    )


def _told(candidate: Candidate, job: Job) -> str:
    """Its name in a log, or what it asks for where the rest is left to the library."""
    try:
        return name_of(candidate, job.spec, job.machine)
    except WorkloadError:
        return ", ".join(describe(candidate))
