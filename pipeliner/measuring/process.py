"""Measure on a GPU of this machine, in a process of its own, which may crash or hang.

The parent asks, the child answers; a question that is not answered in time ends the child.

| question              | answer                                                              |
|-----------------------|---------------------------------------------------------------------|
| ``Open(spec)``        | None, when operands and the truth are on the GPU                    |
| ``Open(spec, True)``  | the same, beside the workloads before                               |
| ``Try(built)``        | why it is not timed, or "": it ran once and was right               |
| ``Survey(which, ..)`` | a Measurement of each of those that were tried, by their order      |
| ``Trial(built, ..)``  | a Measurement of a kernel beside another, whose process stays ready |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..errors import ToolError
from ..records.functions import AnyWorkload
from ..values.failure import why
from ..workers import Worker
from .compiling import BuiltCandidate
from .conditions import check_gpu, gpu_conditions
from .gpu_bench import GpuBench, KernelBench, ReadyKernel
from .measurer import Measurement, Measurer
from .rounds import Rounds

HOPELESS: Final = 1.1
"""Median time over the incumbent's from which a candidate is given up."""

MOST_SECONDS: Final = 2.0
"""For the rounds of one trial, once the fewest are done."""

BESIDE: Final = Rounds(seconds=MOST_SECONDS, hopeless=HOPELESS)
"""Of a candidate and the incumbent."""

FIRST_SECONDS: Final = 180.0
"""For the first trial of a workload: PyTorch is loaded and the exact result worked out."""

SECONDS: Final = 30.0
"""For any other trial; what takes longer hangs."""


@dataclass(frozen=True, slots=True)
class Open:
    """Work on ``spec`` from now on, ``beside`` what was tried, or with that forgotten."""

    spec: AnyWorkload
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Try:
    """Load a kernel of the workload at hand, run it on a poisoned output and check it."""

    built: BuiltCandidate


@dataclass(frozen=True, slots=True)
class Survey:
    """Time those of the tried that ``which`` numbers, all interleaved, and check them again."""

    which: tuple[int, ...]
    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Trial:
    """Check and time ``built``, interleaved with ``incumbent``, of the same workload."""

    built: BuiltCandidate
    incumbent: BuiltCandidate | None = None
    rounds: Rounds = BESIDE


class ProcessMeasurer(Measurer):
    """Measures kernels in a process that ``make`` answers in."""

    def __init__(
        self, make: Callable[[], Any], environment: Mapping[str, str], rounds: Rounds
    ) -> None:
        self._worker = Worker(make, environment)
        self._rounds = rounds
        self._ready_for: AnyWorkload | None = None

    def start(self) -> None:
        self._worker.start()

    def ask(self, question: Open | Try | Survey | Trial, seconds: float) -> Any:
        """The answer to ``question``, waited for at most so long.

        ToolError: there is none; the process is gone, and what it had tried with it. An error of
        the driver may have spoilt it for every kernel after.
        """
        try:
            return self._worker.call(question, seconds=seconds)
        except ToolError:
            self._worker.close()
            self._ready_for = None
            raise

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        limit = self.limit(first=self._ready_for != built.spec)
        try:
            found: Measurement = self.ask(Trial(built, incumbent, self._rounds), limit)
        except ToolError as err:
            return Measurement(failure=Reason("measure.failed", why=err.reason))
        self._ready_for = built.spec
        return found

    def limit(self, first: bool) -> float:
        """Seconds of one trial; ``first``: of its workload."""
        return FIRST_SECONDS if first else SECONDS

    def end(self) -> None:
        self._worker.end()

    def close(self) -> None:
        self._worker.close()


class GpuMeasurer(ProcessMeasurer):
    """Measures kernels on GPU ``device`` (None: the first that is visible).

    ``make``: what answers in the process instead. As a context, the process ends with it.
    """

    def __init__(
        self,
        device: int | None = None,
        make: Callable[[], Any] | None = None,
        rounds: Rounds = BESIDE,
    ) -> None:
        named = {} if device is None else {"CUDA_VISIBLE_DEVICES": str(device)}
        super().__init__(make or Answers, named, rounds)

    def __enter__(self) -> GpuMeasurer:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process; TargetError without a GPU, ToolError without PyTorch."""
        check_gpu()
        super().start()


class Answers:
    """In the worker: the workload at hand, what was tried of it, and the incumbent, loaded."""

    def __init__(
        self,
        make: Callable[[AnyWorkload], KernelBench] = GpuBench,
        conditions: Callable[[], Mapping[str, str]] = gpu_conditions,
    ) -> None:
        self._make, self._conditions = make, conditions()
        self._bench: KernelBench | None = None
        self._tried: list[ReadyKernel] = []
        self._incumbent: ReadyKernel | None = None

    def __call__(self, question: Open | Try | Survey | Trial) -> Any:
        """What the module's table says."""
        if isinstance(question, Open):
            return self._open(question.spec, question.beside)
        if isinstance(question, Try):
            return self._try(question.built)
        if isinstance(question, Survey):
            entries = [self._tried[at] for at in question.which]
            return self._measured(entries, question.rounds)
        return self._beside(question)

    def _open(self, spec: AnyWorkload, beside: bool = False) -> None:
        self._bench = self._incumbent = None  # for its memory
        if not beside:
            self._tried = []
        self._bench = self._make(spec)

    def _try(self, built: BuiltCandidate) -> Why:
        try:
            entry = self._at_hand.ready(built)
        except Exception as err:
            self._at_hand.wait()  # raises where more than this kernel is lost
            return why(err)
        if not entry.is_right:
            return Reason("measure.wrong", error=entry.worst)
        self._tried.append(entry)
        return ""

    def _beside(self, trial: Trial) -> Measurement:
        if not self._is_open(trial.built.spec):
            self._open(trial.built.spec)
        entry = self._at_hand.ready(trial.built)
        if not entry.is_right:
            return self._found(entry, "measure.wrong")
        if trial.incumbent is None:
            return self._measured([entry], trial.rounds)[0]
        if self._incumbent is None or self._incumbent.built != trial.incumbent:
            self._incumbent = self._at_hand.ready(trial.incumbent)
        found, other = self._measured([entry, self._incumbent], trial.rounds)
        return found.interleaved_with(other)

    def _measured(self, entries: list[ReadyKernel], rounds: Rounds) -> list[Measurement]:
        """The times of ``entries``, but of one that is wrong afterwards: a race may show late."""
        self._at_hand.race(entries, rounds)
        if rounds.hot:
            self._at_hand.race_hot(entries, rounds.hot)
        for entry in entries:
            self._at_hand.check(entry)
        return list(map(self._found, entries))

    def _found(self, entry: ReadyKernel, wrong: str = "measure.wrong_later") -> Measurement:
        conditions = {**self._conditions, **self._at_hand.conditions}
        if not entry.is_right:
            return Measurement(failure=Reason(wrong, error=entry.worst), conditions=conditions)
        return Measurement(
            tuple(entry.times),
            conditions=conditions,
            error=entry.worst,
            detail=entry.detail,
            hot=tuple(entry.hot),
            not_hot=entry.not_hot,
        )

    def _is_open(self, spec: AnyWorkload) -> bool:
        at_hand = self._bench is not None and self._bench.spec == spec
        return at_hand and time.monotonic() < self._at_hand.ends

    @property
    def _at_hand(self) -> KernelBench:
        assert self._bench is not None
        return self._bench


class Here(Answers):
    """Answers in this process, where an interrupt leaves what was timed."""

    def ask(self, question: Open | Try | Survey | Trial, seconds: float) -> Any:
        """The answer, however long it takes; raises what goes wrong."""
        return self(question)

    def timed(self) -> list[Measurement]:
        """What the tried have so far, before they are checked again."""
        return list(map(self._found, self._tried))

    def end(self) -> None:
        """Nothing: it is this thread that would have to be ended."""
