"""One search: what is being compiled, what is measured, what is known."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..errors import ToolError
from ..measuring import BuiltCandidate, Compiles, Measurement, Measurer
from ..records import OURS, Record, Records
from ..records.candidate import (
    Candidate,
    machine_key,
    versions_key,
    workload_key,
)
from .search import Search
from .subjects import TuningSubject

SOURCE: Final = "tune"

AHEAD: Final = 2
"""Half of the trials at most are under way at once: others are chosen by what these tell.

On made-up GPUs, where the model is off by 15 %, 32 trials come as near to the best as with a fourth
under way, 99.8 to 100 %, and on 16 cores twice as many kernels are compiled at once."""

ALIKE: Final = 4
"""First trials that cannot be made or measured, all for one reason: no candidate is at fault, but a
driver, a tool, a server. The search ends, and holds it against none of them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is, after a trial or at its start; times in microseconds and seconds.

    ``done`` of ``trials``, those of the records included. ``trial``: what just happened, in a few
    words. ``best_us`` and ``tflops``: of the fastest so far; the latter where operations
    are counted. ``rate``: trials a second. ``left``:
    seconds until all are done or time is up.
    """

    done: int
    trials: int
    failed: int
    trial: str
    best_us: float | None
    tflops: float | None
    elapsed: float
    rate: float
    left: float | None


@dataclass(slots=True)
class _Trial:
    """A candidate on its way, compiled first and then measured.

    ``known``: it is the fastest of an earlier search, compiled again to measure beside.
    ``against``: what it is measured beside, and the time of that.
    """

    candidate: Candidate
    known: bool = False
    built: BuiltCandidate | None = None
    measurer: Measurer | None = None
    against: tuple[BuiltCandidate, float] | None = None


def at_once(trials: int, jobs: int, measurers: int) -> int:
    """How many of ``trials`` are under way together where ``jobs`` compile."""
    return min(jobs, max(1, trials // AHEAD)) + measurers


class Session:
    """The state of one search. ``done``: trials in the records, ``failed`` of them without a time.

    ``key``: of its records. ``deadline``: when it ends, by the monotonic clock.
    """

    def __init__(
        self,
        subject: TuningSubject,
        target: Any,
        records: Records,
        trials: int,
        deadline: float | None,
        say: Callable[[Progress], None],
    ) -> None:
        self.key = (workload_key(subject.workload), machine_key(target), versions_key())
        self.done = self.failed = 0
        self._subject, self._records, self._trials = subject, records, trials
        self._deadline, self._say = deadline, say
        self._started = time.monotonic()
        self._here = 0
        self._best: Record | None = None
        self._incumbent: tuple[BuiltCandidate, float] | None = None
        self._doubtful: list[Record] | None = []

        self._queue = [subject.first()]
        self._search: Search | None = None
        self._told: list[tuple[Candidate, float | None]] = []
        self._recall()

    def run(self, compiler: Compiles, measurers: Sequence[Measurer]) -> bool:
        """Compile and measure until all is done or time is up; whether it was interrupted.

        ToolError: the first trials failed alike.
        """
        compiles = ThreadPoolExecutor(compiler.jobs)
        measures = ThreadPoolExecutor(len(measurers))
        limit = at_once(self._trials - self.done, compiler.jobs, len(measurers))
        idle, waiting = list(measurers), list[_Trial]()
        running: dict[Future[Any], _Trial] = {}
        parts: tuple[Compiles | Measurer, ...] = (compiler, *measurers)
        self._tell("")
        try:
            if self._best is not None and self.done < self._trials:
                known = _Trial(Candidate.from_json(self._best.candidate), known=True)
                running[compiles.submit(self._compile, compiler, known)] = known
            while True:
                under_way = [*running.values(), *waiting]
                while len(under_way) < limit and (trial := self._next(under_way)) is not None:
                    running[compiles.submit(self._compile, compiler, trial)] = trial
                    under_way.append(trial)
                unready = any(trial.known for trial in running.values())
                while idle and waiting and not unready:
                    trial = waiting.pop(0)
                    running[self._measure(trial, idle.pop(), measures)] = trial
                if not running:
                    return False
                finished, _ = wait(running, self._seconds_left(), FIRST_COMPLETED)
                if not finished:
                    return False
                for future in finished:
                    trial = running.pop(future)
                    if trial.measurer is None:
                        trial.built = future.result()
                        waiting += self._compiled(trial)
                    else:
                        idle.append(trial.measurer)
                        self._measured(trial, future.result())
        except KeyboardInterrupt:
            return True
        finally:
            self._records.add(*self._doubtful or ())
            for pool in (compiles, measures):
                pool.shutdown(wait=False, cancel_futures=True)
            for part in parts:
                part.end()
            compiles.shutdown()
            measures.shutdown()

    def _recall(self) -> None:
        """Take in what the records hold of this workload already."""
        tried: set[str] = set()
        for record in self._records.find(*self.key, plans=False):
            if record.contender != OURS:
                continue
            candidate = Candidate.from_json(record.candidate)
            self._told.append((candidate, None if record.failure else record.us))
            if record.source == SOURCE and record.candidate not in tried:
                self.done += 1
                self.failed += bool(record.failure)
            tried.add(record.candidate)
        self._queue = [first for first in self._queue if first.to_json() not in tried]
        self._best = self._records.best(*self.key)

    def _next(self, under_way: Sequence[_Trial]) -> _Trial | None:
        """The next candidate to try; None: there are enough under way, or no more."""
        new = [trial.candidate for trial in under_way if not trial.known]
        if self.done + len(new) >= self._trials:
            return None
        if self._queue:
            return _Trial(self._queue.pop(0))
        chosen = self._ranked().next(1, new)
        return _Trial(chosen[0].candidate) if chosen else None

    def _ranked(self) -> Search:
        """The search, made when it is first asked: the model's choice compiles meanwhile."""
        if self._search is None:
            self._search = Search(self._subject.points())
        for candidate, us in self._told:
            self._search.tell(candidate, us)
        self._told.clear()
        return self._search

    def _compile(self, compiler: Compiles, trial: _Trial) -> BuiltCandidate:
        return compiler.compile(self._subject.given(trial.candidate), trial.candidate)

    def _compiled(self, trial: _Trial) -> list[_Trial]:
        """What is to be measured now that ``trial`` is compiled, or has failed to."""
        assert trial.built is not None
        if trial.known:
            if self._best is not None and not trial.built.failure and self._incumbent is None:
                self._incumbent = (trial.built, self._best.us)
            return []
        if trial.built.failure:
            self._keep(trial, Measurement(failure=trial.built.failure))
            return []
        return [trial]

    def _measure(
        self, trial: _Trial, measurer: Measurer, measures: ThreadPoolExecutor
    ) -> Future[Any]:
        """Have ``trial`` measured beside the fastest so far."""
        assert trial.built is not None
        trial.measurer, trial.against = measurer, self._incumbent
        beside = None if trial.against is None else trial.against[0]
        return measures.submit(measurer.measure, trial.built, beside)

    def _measured(self, trial: _Trial, found: Measurement) -> None:
        """Keep what was measured, and the kernel if it is the fastest."""
        us = self._keep(trial, found)
        if us is not None and (self._incumbent is None or us < self._incumbent[1]):
            assert trial.built is not None
            self._incumbent = (trial.built, us)

    def _keep(self, trial: _Trial, found: Measurement) -> float | None:
        """Record a trial, on the disk when this returns; its time.

        That is the incumbent's, times what the candidate took of it when both ran interleaved: so
        the times of a search compare although clocks and temperature drift.
        """
        assert trial.built is not None
        us = 0.0
        if found.samples and found.beside and trial.against is not None:
            ratio = statistics.median(found.samples) / statistics.median(found.beside)
            us = trial.against[1] * ratio
        workload, machine, versions = self.key
        record = Record(
            workload,
            machine,
            versions,
            trial.candidate.to_json(),
            samples=found.samples,
            beside=found.beside,
            us=us,
            failure=found.failure,
            predicted_us=trial.built.predicted_us,
            source=SOURCE,
            resources=trial.built.resources,
            conditions=found.conditions,
            plan=trial.built.plan,
        )
        self._record(record)
        self.done += 1
        self._here += 1
        self.failed += bool(record.failure)
        self._told.append((trial.candidate, None if record.failure else record.us))
        if not record.failure and (self._best is None or record.us < self._best.us):
            self._best = record
        self._tell(str(record.failure) or f"{record.us:.1f} us")
        return None if record.failure else record.us

    def _record(self, record: Record) -> None:
        """Put a trial on the disk, but the first that fail alike only when something else happens.

        ToolError: that many did. They are not recorded.
        """
        if self._doubtful is None:
            self._records.add(record)
            return
        self._doubtful.append(record)
        failures = {one.failure for one in self._doubtful}
        if len(failures) > 1 or not _is_doubtful(record.failure):
            self._records.add(*self._doubtful)
            self._doubtful = None
        elif len(self._doubtful) == ALIKE:
            self._doubtful = None
            raise ToolError("tune.alike", trials=ALIKE, failure=record.failure)

    def _tell(self, trial: str) -> None:
        best = None if self._best is None else self._best.us
        flops = self._subject.workload.flops()
        elapsed = time.monotonic() - self._started
        rate = self._here / elapsed if self._here else 0.0
        lefts = [(self._trials - self.done) / rate] if rate else []
        limit = self._seconds_left()
        self._say(
            Progress(
                done=self.done,
                trials=self._trials,
                failed=self.failed,
                trial=trial,
                best_us=best,
                tflops=flops / best * 1e-6 if best and flops else None,
                elapsed=elapsed,
                rate=rate,
                left=min([*lefts, *([] if limit is None else [limit])], default=None),
            )
        )

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())


def _is_doubtful(failure: Why) -> bool:
    """Whether a candidate could not be made or measured, rather than was found wrong."""
    codes = ("measure.not_compiled", "measure.failed")
    return isinstance(failure, Reason) and failure.code in codes
