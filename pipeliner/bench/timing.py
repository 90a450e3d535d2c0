"""Check the contenders of problems, time them interleaved, and record them where asked to."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..diagnostics import Why
from ..kernel.compiled import Kernel
from ..measuring import (
    ROUNDS,
    Builder,
    BuiltCandidate,
    GpuBench,
    Here,
    Measurement,
    Recipe,
    Rounds,
    Say,
    device_name,
    require_gpu,
)
from ..measuring.conditions import sm_clock
from ..measuring.lab import Batch, Lab, Study
from ..measuring.surveys import surveyed, tried
from ..records import Record, Records
from ..records.candidate import machine_key
from ..records.record import OURS
from ..schedules import Gemm
from ..values.failure import why
from .peers import cublas
from .problems import LIBRARY_SLACK, Contender, Problem, describe
from .results import CUBLAS, STOCK_PREFIX, Report, Result

SOURCE: Final = "bench"

HOT_ROUNDS: Final = 9
"""Of graphs of calls back to back."""

SECONDS: Final = 600.0
"""To compile one kernel; nvcc takes one to five."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Contest(Batch):
    """The contenders of problems that are timed in the same rounds."""

    problems: Sequence[Problem]

    @staticmethod
    def of(problems: Sequence[Problem], builder: Builder) -> _Contest:
        """Theirs, problem after problem."""
        makes = [
            one.made_by(builder, problem.spec) for problem in problems for one in problem.contenders
        ]
        return _Contest(makes=makes, problems=problems)

    @property
    def by_problem(self) -> Iterator[tuple[Problem, list[BuiltCandidate | None]]]:
        """Each problem with what came of its contenders."""
        built = iter(self.built)
        for problem in self.problems:
            yield problem, list(itertools.islice(built, len(problem.contenders)))


def measure(
    problems: Sequence[Problem],
    report: Report,
    target: Any = None,
    *,
    rounds: int = ROUNDS,
    jobs: int | None = None,
    db: str | Path | None = None,
    hot: bool = False,
    say: Say = print,
) -> None:
    """Check and time the contenders of each problem; results and failures go to ``report``.

    All are compiled before any is timed. Whatever fails is a result in one line, not the end. An
    interrupt keeps what has been measured and sets ``report.interrupted``. ``db``: a file of
    records that takes every sample; ``target``: the GPU that they are of. ``hot``: each is also
    timed back to back. ``report`` says what fills the L2 cache before each run.
    """
    require_gpu()
    recipes = [
        one for problem in problems for one in problem.contenders if isinstance(one.make, Recipe)
    ]
    builder = Builder(jobs, kernels=len(recipes), seconds=SECONDS)
    records = None if db is None else Records(db)
    # Shuffled: what is always behind the same other one is timed at the clock that that one leaves.
    asked = Rounds(rounds, shuffled=True, hot=HOT_ROUNDS if hot else 0)
    bench = functools.partial(GpuBench, flush=report.flush)
    study = _Bench(problems, report, builder, records, target, asked, say)
    try:
        report.interrupted = Lab(study, builder, [Here(bench)], here=say).run()
    finally:
        builder.close()
        if records is not None:
            records.close()


def quick(gemm: Gemm, kernel: Kernel, rounds: int) -> Report:
    """``kernel`` against cuBLAS on ``gemm``."""
    report = Report(device_name(), rounds=rounds)
    ours = Contender(OURS, lambda: (kernel, describe(kernel)), gemm.out)
    peer = Contender(CUBLAS, lambda: (cublas(gemm), ""), gemm.out, slack=LIBRARY_SLACK)
    measure([Problem(gemm, (ours, peer))], report, rounds=rounds, say=lambda text: None)
    return report


class _Bench(Study[_Contest, Here]):
    """Problems one after the other, timed in this process."""

    def __init__(
        self,
        problems: Sequence[Problem],
        report: Report,
        builder: Builder,
        records: Records | None,
        target: Any,
        rounds: Rounds,
        say: Say,
    ) -> None:
        self._count, self._begun = len(problems), 0
        self._report, self._records = report, records
        self._target, self._rounds, self._say = target, rounds, say
        self.batches = (_Contest.of(together, builder) for together in _together(problems))

    def measure(self, batch: _Contest, measurer: Here) -> list[Measurement | None]:
        """What became of each contender; None: an interrupt came before."""
        found: dict[int, Measurement] = {}
        failed: dict[int, Why] = {}
        right: list[int] = []
        try:
            first = 0
            for problem, kernels in batch.by_problem:
                self._begun += 1
                self._say(f"[{self._begun}/{self._count}] {problem.spec.title}")
                wrong: dict[int, Why] = {}
                ran = tried(measurer, problem.spec, kernels, wrong, beside=first > 0)
                right += [first + at for at in ran]
                failed |= {first + at: failure for at, failure in wrong.items()}
                first += len(kernels)
            found = dict(zip(right, surveyed(measurer, range(len(right)), self._rounds)))
            clock = sm_clock()
            if clock is not None:
                self._report.sm_clocks.update((one.name, clock) for one in batch.problems)
        except KeyboardInterrupt:
            self._report.interrupted = True
            found = dict(zip(right, measurer.timed()))
        except Exception as err:
            # Out of memory, or a GPU that a kernel has left unusable: any library may be the one to
            # say so, and what was measured before is worth keeping.
            failed = dict.fromkeys(range(len(batch.built)), why(err)) | failed
        found |= {number: Measurement(failure=failure) for number, failure in failed.items()}
        return [found.get(number) for number in range(len(batch.built))]

    def keep(self, batch: _Contest, found: list[Measurement | None]) -> None:
        """Add the results to the report, and to the records."""
        records = list[Record]()
        each = [(problem, one) for problem in batch.problems for one in problem.contenders]
        for (problem, contender), built, one in zip(each, batch.built, found, strict=True):
            if one is None or built is None or not (one.failure or len(one.samples) > 1):
                continue
            if one.failure:
                self._say(f"  {contender.name}: {one.failure}")
            self._report.results.append(_result(problem, contender, one))
            is_ours = contender.name.startswith(OURS)
            if self._records is not None and (built.candidate or not is_ours):
                records.append(self._record(contender, built, one))
        if self._records is not None:
            self._records.add(*records)
        for problem in batch.problems:
            _say_outcome(problem, self._report, self._say)
        if self._report.interrupted:
            raise KeyboardInterrupt

    def _record(self, contender: Contender, built: BuiltCandidate, one: Measurement) -> Record:
        """What records keep of a contender: ours by its candidate, others by whose they are."""
        ours, suite = built.candidate, self._report.suite
        stock = contender.name.startswith(STOCK_PREFIX)
        return one.record(
            built,
            machine_key(self._target),
            contender=OURS if ours else STOCK_PREFIX if stock else contender.name,
            source=SOURCE,
            experiment=f"{SOURCE} {suite}" if suite else "",
            label=contender.name,
        )


def _together(problems: Sequence[Problem]) -> Iterator[list[Problem]]:
    """Each problem with those ``beside`` it."""
    together: list[Problem] = []
    for problem in problems:
        if together and not problem.beside:
            yield together
            together = []
        together.append(problem)
    if together:
        yield together


def _result(problem: Problem, contender: Contender, one: Measurement) -> Result:
    told = Result(problem.name, contender.name, workload=problem.spec.title)
    if one.failure:
        return replace(told, failure=one.failure)
    low, middle, high = statistics.quantiles(one.samples, n=4)
    return replace(
        told,
        us=middle,
        low_us=low,
        high_us=high,
        rounds=len(one.samples),
        tflops=problem.spec.flops() / middle * 1e-6,
        worst=one.error,
        detail=one.detail,
        hot_us=statistics.median(one.hot) if one.hot else 0.0,
        not_hot=one.not_hot,
    )


def _say_outcome(problem: Problem, report: Report, say: Say) -> None:
    """One line for whoever waits: our rate, and how it compares."""
    ours, peer = report.find(problem.name, OURS), report.library(problem.name)
    if ours is None:
        return
    beside = f", {peer.us / ours.us:.3f} of {peer.contender}" if peer else ""
    say(f"{problem.name}: {ours.tflops:.1f} TFLOP/s{beside}; {ours.detail}")
