"""One search: what is tried next, what is known, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..errors import PipelinerError, ToolError
from ..measuring import Compiles, Measurer
from ..measuring.lab import Lab, Pace
from ..measuring.trials import KernelTrial, Trials
from ..records import OURS, Record, Records
from ..records.candidate import Candidate, machine_key, versions_key, workload_key
from ..records.functions import FunctionWorkload
from .search import ENOUGH, GAIN, Search
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


def at_once(trials: int, jobs: int, measurers: int) -> int:
    """How many of ``trials`` are under way together where ``jobs`` compile."""
    return min(jobs, max(1, trials // AHEAD)) + measurers


class Session(Trials):
    """The state of one search. ``done``: trials in the records, ``failed`` of them without a time.

    ``key``: of its records. ``deadline``: when it ends, by the monotonic clock. ``every``: all
    trials are made; else it ends once nothing better is likely to be left, which ``stopped`` says.
    Of a user's function all are made: no log says how far the model is off for such.
    """

    def __init__(
        self,
        subject: TuningSubject,
        target: Any,
        records: Records,
        compiler: Compiles,
        trials: int,
        deadline: float | None,
        say: Callable[[Progress], None],
        *,
        every: bool = False,
    ) -> None:
        machine = machine_key(target)
        super().__init__(records, machine, compiler, source=SOURCE, fastest=True)
        self.key = (workload_key(subject.workload), machine, versions_key())
        self._subject, self._trials = subject, trials
        self._deadline, self._say = deadline, say
        self._started = time.monotonic()
        self.stopped: Reason | None = None
        self._every = every or isinstance(subject.workload, FunctionWorkload)
        self._judged = -1
        self._doubtful: list[Record] | None = []
        self._best: Record | None = None

        self._queue = [subject.first()]
        self._search: Search | None = None
        self._told: list[tuple[Candidate, float | None]] = []
        self._recall()
        self._before = self.done
        self._known: list[Record] = [] if self._best is None else [self._best]

    def run(self, measurers: Sequence[Measurer]) -> bool:
        """Compile and measure until all is done or time is up; whether it was interrupted.

        ToolError: the first trials failed alike.
        """
        most = at_once(self._trials - self.done, self._compiler.jobs, len(measurers))
        self._tell("")
        try:
            loop = Lab(self, self._compiler, measurers, most=most, deadline=self._deadline)
            return loop.run()
        finally:
            self._records.add(*self._doubtful or ())

    def next(self, under_way: Sequence[KernelTrial]) -> KernelTrial | None:
        """The next candidate to try, after the fastest of an earlier search, to measure beside."""
        new = [trial.candidate for trial in under_way if trial.candidate and not trial.reference]
        if self.done + len(new) >= self._trials:
            return None
        if self._known:
            best = self._known.pop()
            return self._begun(Candidate.from_json(best.candidate), reference=True, us=best.us)
        if self._queue:
            return self._begun(self._queue.pop(0))
        if self._is_enough():
            return None
        chosen = self._ranked().next(1, new)
        return self._begun(chosen[0].candidate) if chosen else None

    def _is_enough(self) -> bool:
        """Whether nothing better is likely to be left; asked anew after each trial."""
        search = self._ranked()
        if self._every or self.stopped or self._judged == self.done:
            return self.stopped is not None
        self._judged = self.done
        chance = search.chance()
        if chance < ENOUGH and len(search):
            told = {"trials": self.done, "gain": GAIN, "chance": chance, "enough": ENOUGH}
            self.stopped = Reason("tune.stopped", left=len(search), **told)
        return self.stopped is not None

    def predicted_us(self, candidate: Candidate) -> float:
        """What the search is told of the candidate; 0: nothing is predicted, or it has no plan."""
        try:
            return self._subject.predicted_us(candidate)
        except PipelinerError:
            return 0.0

    def kept(self, trial: KernelTrial, record: Record) -> None:
        """Tell the search what became of a trial, and who waits how far it is."""
        assert trial.candidate is not None
        self._told.append((trial.candidate, None if record.failure else record.us))
        if not record.failure and (self._best is None or record.us < self._best.us):
            self._best = record
        self._tell(str(record.failure) or f"{record.us:.1f} us")

    def add(self, record: Record) -> None:
        """Put a trial on the disk, but the first that fail alike only when something else happens.

        ToolError: that many did. They are not recorded.
        """
        if self._doubtful is None:
            super().add(record)
            return
        self._doubtful.append(record)
        failures = {one.failure for one in self._doubtful}
        if len(failures) > 1 or not _is_doubtful(record.failure):
            self._records.add(*self._doubtful)
            self._doubtful = None
        elif len(self._doubtful) == ALIKE:
            self._doubtful = None
            raise ToolError("tune.alike", trials=ALIKE, failure=record.failure)

    def _begun(self, candidate: Candidate, **told: Any) -> KernelTrial:
        return self.trial(self._subject.given(candidate), candidate, **told)

    def _recall(self) -> None:
        """Take in what the records hold of this workload already."""
        tried: set[str] = set()
        for record in self._records.find(*self.key, plans=False):
            if record.contender != OURS:
                continue
            candidate = Candidate.from_json(record.candidate)
            self._told.append((candidate, None if record.failure else record.us))
            text = candidate.to_json()  # an older record's may lack a field
            if record.source == SOURCE and text not in tried:
                self.done += 1
                self.failed += bool(record.failure)
            tried.add(text)
        self._queue = [first for first in self._queue if first.to_json() not in tried]
        self._best = self._records.best(*self.key)

    def _ranked(self) -> Search:
        """The search, made when it is first asked: the model's choice compiles meanwhile."""
        if self._search is None:
            self._search = Search(self._subject.points())
        for candidate, us in self._told:
            self._search.tell(candidate, us)
        self._told.clear()
        return self._search

    def _tell(self, trial: str) -> None:
        best = None if self._best is None else self._best.us
        flops = self._subject.workload.flops()
        elapsed = time.monotonic() - self._started
        pace = Pace(elapsed, self.done - self._before, self._trials - self._before)
        lefts = [pace.left]
        if self._deadline is not None:
            lefts.append(max(0.0, self._deadline - time.monotonic()))
        self._say(
            Progress(
                done=self.done,
                trials=self._trials,
                failed=self.failed,
                trial=trial,
                best_us=best,
                tflops=flops / best * 1e-6 if best and flops else None,
                elapsed=elapsed,
                rate=pace.rate,
                left=min((one for one in lefts if one is not None), default=None),
            )
        )


def _is_doubtful(failure: Why) -> bool:
    """Whether a candidate could not be made or measured, rather than was found wrong."""
    codes = ("measure.not_compiled", "measure.failed")
    return isinstance(failure, Reason) and failure.code in codes
