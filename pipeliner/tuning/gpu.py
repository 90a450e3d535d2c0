"""Measure on a GPU of this machine, in a process of its own.

A candidate is checked against float64 before and after it is timed, and is interleaved with the
incumbent, the L2 cache overwritten before each run (see ``pipeliner.bench``): what drifts, drifts
for both. One that is clearly slower is given up early. A kernel that hangs or crashes takes the
process with it, and costs its trial.
"""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import dataclass
from typing import Final

from ..bench.conditions import check_gpu, current_conditions, require_gpu
from ..bench.problems import Contender, Inputs, Problem
from ..bench.timing import WARM_UP, ReadyContender, checked, flush_buffer, ready, run_round
from ..bench.truth import Truth, random_inputs, truth
from ..diagnostics import Reason
from ..errors import ToolError
from ..schedules.workloads import Spec
from ..targets import gpu_arch
from ..workers import Worker
from .compiling import BuiltCandidate
from .measuring import Measurement, Measurer

ROUNDS: Final = 30
FEWEST: Final = 5
"""Rounds before a candidate may be given up."""

HOPELESS: Final = 1.1
"""Median time over the incumbent's from which a candidate is given up."""

MOST_SECONDS: Final = 2.0
"""For the rounds of one trial, once the fewest are done."""

FIRST_SECONDS: Final = 180.0
"""For the first trial of a workload: PyTorch is loaded and the exact result worked out."""

SECONDS: Final = 30.0
"""For any other trial; what takes longer hangs."""


class GpuMeasurer(Measurer):
    """Measures kernels on GPU ``device`` (None: the first that is visible)."""

    def __init__(self, device: int | None = None, rounds: int = ROUNDS) -> None:
        named = {} if device is None else {"CUDA_VISIBLE_DEVICES": str(device)}
        self._worker = Worker(functools.partial(_Bench, rounds), named)
        self._ready_for: Spec | None = None

    def start(self) -> None:
        """Start the process; TargetError without a GPU, ToolError without PyTorch."""
        check_gpu()
        self._worker.start()

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        limit = SECONDS if self._ready_for == built.spec else FIRST_SECONDS
        try:
            found: Measurement = self._worker.call(built, incumbent, seconds=limit)
        except ToolError as err:
            # An error of the driver may have spoilt the process for every kernel after it.
            self._worker.close()
            self._ready_for = None
            return Measurement(failure=Reason("measure.failed", why=err.reason))
        self._ready_for = built.spec
        return found

    def end(self) -> None:
        self._worker.end()

    def close(self) -> None:
        self._worker.close()


@dataclass(frozen=True, slots=True)
class _Case:
    """A workload with its operands and its exact result."""

    problem: Problem
    inputs: Inputs
    right: Truth


class _Bench:
    """In the worker: the workload at hand, and the incumbent, loaded."""

    def __init__(self, rounds: int) -> None:
        self._torch = require_gpu()
        self._rounds = rounds
        self._case: _Case | None = None
        self._incumbent: tuple[BuiltCandidate, ReadyContender] | None = None
        self._flush = flush_buffer(self._torch)
        now = current_conditions()
        self._conditions = {"gpu": now.gpu, "arch": str(gpu_arch()), **now.versions, **now.settings}

    def __call__(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        case = self._switch_to(built.spec)
        entry = self._entry(built, case)
        if not entry.worst <= built.slack:
            return self._wrong(Reason("measure.wrong", error=entry.worst))
        entries = [entry]
        if incumbent is not None:
            entries.append(self._known(incumbent, case))
        self._race(entries)
        worst = checked(self._torch, entry, case.right)
        if not worst <= built.slack:
            return self._wrong(Reason("measure.wrong_later", error=worst))
        beside = entries[1].times if incumbent is not None else []
        return Measurement(tuple(entry.times), tuple(beside), conditions=self._conditions)

    def _switch_to(self, spec: Spec) -> _Case:
        """The case of ``spec``; that of another is let go first, for its memory."""
        if self._case is not None and self._case.problem.spec == spec:
            return self._case
        self._case = self._incumbent = None
        inputs = random_inputs(self._torch, spec)
        self._case = _Case(Problem(spec, ()), inputs, truth(self._torch, spec, inputs))
        return self._case

    def _race(self, entries: list[ReadyContender]) -> None:
        for entry in entries:
            entry.times.clear()
        started = time.monotonic()
        for number in range(-WARM_UP, self._rounds):
            run_round(self._torch, entries, number, self._flush)
            late = time.monotonic() - started > MOST_SECONDS
            if number + 1 >= FEWEST and (late or _is_hopeless(entries)):
                return

    def _known(self, incumbent: BuiltCandidate, case: _Case) -> ReadyContender:
        if self._incumbent is None or self._incumbent[0] != incumbent:
            self._incumbent = (incumbent, self._entry(incumbent, case))
        return self._incumbent[1]

    def _entry(self, built: BuiltCandidate, case: _Case) -> ReadyContender:
        contender = Contender(built.name, built.load, built.spec.out)
        return ready(self._torch, case.problem, contender, case.inputs, case.right)

    def _wrong(self, failure: Reason) -> Measurement:
        return Measurement(failure=failure, conditions=self._conditions)


def _is_hopeless(entries: list[ReadyContender]) -> bool:
    ours, *others = (statistics.median(entry.times) for entry in entries)
    return any(ours > HOPELESS * other for other in others)
