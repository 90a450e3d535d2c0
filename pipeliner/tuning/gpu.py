"""Measure on a GPU of this machine, in a process of its own.

A candidate is checked against float64 before and after it is timed, and takes turns with the
incumbent, the L2 cache overwritten before each run (see ``pipeliner.bench``): what drifts, drifts
for both. One that is clearly slower is given up early. A kernel that hangs or crashes takes the
process with it, and costs its trial.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Final

from ..bench.conditions import current_conditions, require_gpu
from ..bench.problems import Contender, Problem
from ..bench.timing import WARM_UP, Entry, checked, flush_buffer, ready, take_turn
from ..bench.truth import random_inputs, truth
from ..errors import ToolError
from ..schedules.workloads import Spec
from ..targets import gpu_arch
from ..workers import Worker
from .compiling import Built
from .measuring import Measurement, Measurer

ROUNDS: Final = 30
FEWEST: Final = 5
"""Rounds before a candidate may be given up."""

HOPELESS: Final = 1.1
"""Median time over the incumbent's from which a candidate is given up."""

MOST_SECONDS: Final = 2.0
"""For the rounds of one trial, once the fewest are done."""

FIRST_SECONDS: Final = 180.0
"""For the first trial: PyTorch is loaded and the exact result worked out."""

SECONDS: Final = 30.0
"""For any other trial; what takes longer hangs."""


class GpuMeasurer(Measurer):
    """Measures kernels of ``spec`` on GPU ``device`` (None: the first that is visible)."""

    def __init__(self, spec: Spec, device: int | None = None, rounds: int = ROUNDS) -> None:
        named = {} if device is None else {"CUDA_VISIBLE_DEVICES": str(device)}
        self._worker = Worker(functools.partial(_Bench, spec, rounds), named)
        self._is_ready = False

    def start(self) -> None:
        """Start the process; TargetError without a GPU, ToolError without PyTorch."""
        require_gpu()
        self._worker.start()

    def measure(self, built: Built, incumbent: Built | None) -> Measurement:
        limit = SECONDS if self._is_ready else FIRST_SECONDS
        try:
            found: Measurement = self._worker.call(built, incumbent, seconds=limit)
        except ToolError as err:
            # An error of the driver may have spoilt the process for every kernel after it.
            self._worker.close()
            self._is_ready = False
            return Measurement(failure=f"cannot measure: {err}")
        self._is_ready = True
        return found

    def end(self) -> None:
        self._worker.end()

    def close(self) -> None:
        self._worker.close()


class _Bench:
    """In the worker: operands and exact result of a workload, and the incumbent."""

    def __init__(self, spec: Spec, rounds: int) -> None:
        self._torch = require_gpu()
        self._problem = Problem(spec, ())
        self._rounds = rounds
        self._inputs = random_inputs(self._torch, spec)
        self._right = truth(self._torch, spec, self._inputs)
        self._flush = flush_buffer(self._torch)
        self._incumbent: tuple[str, Entry] | None = None
        now = current_conditions()
        self._conditions = {"gpu": now.gpu, "arch": str(gpu_arch()), **now.versions, **now.settings}

    def __call__(self, built: Built, incumbent: Built | None) -> Measurement:
        entry = self._entry(built)
        if not entry.worst <= 1.0:
            return self._wrong(entry.worst, "wrong")
        entries = [entry]
        if incumbent is not None:
            entries.append(self._known(incumbent))
        self._race(entries)
        worst = checked(self._torch, entry, self._right)
        if not worst <= 1.0:
            return self._wrong(worst, "wrong after timing")
        beside = entries[1].times if incumbent is not None else []
        return Measurement(tuple(entry.times), tuple(beside), conditions=self._conditions)

    def _race(self, entries: list[Entry]) -> None:
        for entry in entries:
            entry.times.clear()
        started = time.monotonic()
        for turn in range(-WARM_UP, self._rounds):
            take_turn(self._torch, entries, turn, self._flush)
            late = time.monotonic() - started > MOST_SECONDS
            if turn + 1 >= FEWEST and (late or _is_hopeless(entries)):
                return

    def _known(self, incumbent: Built) -> Entry:
        if self._incumbent is None or self._incumbent[0] != incumbent.path:
            self._incumbent = (incumbent.path, self._entry(incumbent))
        return self._incumbent[1]

    def _entry(self, built: Built) -> Entry:
        contender = Contender(built.name, built.load, self._problem.spec.out)
        return ready(self._torch, self._problem, contender, self._inputs, self._right)

    def _wrong(self, worst: float, what: str) -> Measurement:
        failure = f"{what}: largest error {worst:.3g} of what rounding allows"
        return Measurement(failure=failure, conditions=self._conditions)


def _is_hopeless(entries: list[Entry]) -> bool:
    ours, *others = (statistics.median(entry.times) for entry in entries)
    return any(ours > HOPELESS * other for other in others)
