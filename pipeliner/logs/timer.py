"""A process of its own that runs kernels, so that one which hangs or crashes ends nothing else.

The parent asks, the child answers; a question that is not answered in time ends the child.

| question             | answer                                                                |
|----------------------|-----------------------------------------------------------------------|
| ``Open(spec)``       | None, when operands and the truth are on the GPU                      |
| ``Try(library)``     | an error in one line, or "": it ran once and was right                |
| ``Rounds(...)``       | median and spread of each of those that were tried, by their order    |
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..bench.conditions import require_gpu
from ..bench.problems import Contender, Problem
from ..bench.timing import ReadyContender, flush_buffer, ready, run_round
from ..bench.truth import random_inputs, truth
from ..diagnostics import Reason
from ..errors import ToolError
from ..schedules.workloads import Spec
from ..values.failure import reason
from ..workers import Worker
from .building import Library

WAIT_SECONDS: Final = 60.0
"""For the first answer, which comes after libraries are loaded and a large problem is summed."""

TRY_SECONDS: Final = 20.0
"""For one run of a kernel with its check."""

FRESHEST: Final = 16
"""Candidates of a workload that are timed again."""

FRESH_ROUNDS: Final = 45

MOST_ROUNDS: Final = 48
"""Interleaved, of all candidates of a workload."""

LEAST_ROUNDS: Final = 3

ROUNDS_US: Final = 1.5e6
"""What such rounds may take together."""

_FLUSH_US: Final = 300
"""What it takes to overwrite the L2 cache before a run."""


@dataclass(frozen=True, slots=True)
class Open:
    """Work on ``spec`` from now on."""

    spec: Spec


@dataclass(frozen=True, slots=True)
class Try:
    """Load a library, run it on a poisoned output and check it."""

    library: Library


@dataclass(frozen=True, slots=True)
class Rounds:
    """Time those of the tried that ``which`` numbers: at most ``most`` rounds, interleaved."""

    which: tuple[int, ...]
    most: int = MOST_ROUNDS


class Timer:
    """The parent's side: a worker, and another one after whatever it could not answer.

    ``make``: what answers in it. As a context, the process ends with it.
    """

    def __init__(self, make: Callable[[], Any] | None = None) -> None:
        self._worker = Worker(make or Bench)

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *unused: object) -> None:
        self._worker.close()

    def ask(self, question: Open | Try | Rounds, seconds: float) -> Any:
        """The answer to ``question``, waited for at most so long.

        ToolError: there is none; the process is gone, and what it had tried with it. An error of
        the driver spoils a process for all that comes after.
        """
        try:
            return self._worker.call(question, seconds=seconds)
        except ToolError:
            self._worker.close()
            raise


class Bench:
    """The child's side: one workload's operands, truth and the kernels that were right."""

    def __init__(self) -> None:
        self._torch = require_gpu()
        self._entries: list[ReadyContender] = []

    def __call__(self, question: Open | Try | Rounds) -> Any:
        """What the module's table says."""
        if isinstance(question, Open):
            return self._open(question.spec)
        if isinstance(question, Try):
            return self._try(question.library)
        return self._interleaved(question.which, question.most)

    def _open(self, spec: Spec) -> None:
        self._entries = []
        self._inputs = random_inputs(self._torch, spec)
        self._right = truth(self._torch, spec, self._inputs)
        self._flush = flush_buffer(self._torch)
        self._spec = spec
        self._torch.cuda.synchronize()

    def _try(self, library: Library) -> str:
        try:
            contender = Contender(library.name, library.load, self._spec.out)
            problem = Problem(self._spec, (contender,))
            entry = ready(self._torch, problem, contender, self._inputs, self._right)
        except Exception as err:
            self._torch.cuda.synchronize()  # raises where more than this kernel is lost
            return reason(err)
        if not entry.worst <= 1.0:
            return str(Reason("measure.wrong", error=entry.worst))
        self._entries.append(entry)
        return ""

    def _interleaved(self, which: Sequence[int], most: int) -> list[tuple[float, float]]:
        entries = [self._entries[at] for at in which]
        for entry in entries:
            entry.times.clear()
        run_round(self._torch, entries, 0, self._flush)
        once = sum(entry.times.pop() + _FLUSH_US for entry in entries)
        rounds = max(LEAST_ROUNDS, min(most, int(ROUNDS_US / once)))
        for number in range(rounds):
            # In an order of its own: a long kernel's clock depends on the one before it.
            order = random.Random(number).sample(entries, len(entries))
            run_round(self._torch, order, number, self._flush)
        return [_summary(entry.times) for entry in entries]


def _summary(times: Sequence[float]) -> tuple[float, float]:
    low, middle, high = statistics.quantiles(times, n=4)
    return middle, (high - low) / middle
