"""Kernels of one workload where they run: loaded, checked against its truth, timed interleaved."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..diagnostics import Why
from ..errors import ToolError
from ..records.functions import AnyWorkload
from ..values.failure import why
from .compiling import BuiltCandidate
from .conditions import require_gpu
from .contenders import ChoosingRunner, Runner
from .graphs import CALLS, captured
from .operands import BenchOperands, operands_of
from .rounds import WRITTEN, Rounds, flushing, race, timed


@dataclass(slots=True)
class ReadyKernel:
    """A kernel that is ready: loaded, and run once. ``worst``: how wrong it was then.

    ``operands``: what it is checked by. ``hot``: times of a call where calls follow each other;
    ``not_hot``: why there are none.
    """

    built: BuiltCandidate
    run: Runner
    arguments: tuple[Any, ...]
    detail: str
    operands: BenchOperands
    worst: float = 0.0
    times: list[float] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)
    not_hot: Why = ""

    @property
    def is_right(self) -> bool:
        """Whether it was right when it was last checked."""
        return self.worst <= self.built.slack


class KernelBench(ABC):
    """A GPU with the ``operands`` of ``spec``. ``conditions``: what a measurement is to say of it.

    ``ends``: by the monotonic clock, from when on kernels are to be loaded on another.
    """

    ends = math.inf

    def __init__(
        self, spec: AnyWorkload, operands: BenchOperands, conditions: Mapping[str, str]
    ) -> None:
        self.spec, self.conditions, self._operands = spec, conditions, operands

    @abstractmethod
    def load(self, built: BuiltCandidate) -> tuple[Runner, str]:
        """The kernel as a call, and in a few words what it is."""

    @abstractmethod
    def time(self, entries: Sequence[ReadyKernel], *, primed: bool = False) -> list[float]:
        """Microseconds of one run of each, in order, the L2 cache overwritten before.

        ``primed``: as of ``Rounds``.
        """

    def wait(self) -> None:
        """Wait until the GPU is idle; raises what went wrong on it."""
        return

    def ready(self, built: BuiltCandidate) -> ReadyKernel:
        """The kernel, loaded and checked; raises what it raises."""
        run, detail = self.load(built)
        arguments = self._operands.arguments(built)
        entry = ReadyKernel(built, run, arguments, detail, self._operands)
        self.check(entry)
        if isinstance(run, ChoosingRunner):
            entry.detail = run.chosen
        return entry

    def check(self, entry: ReadyKernel) -> None:
        """Run it on a poisoned output: ``worst`` is its largest error, NaN where it left one."""
        entry.operands.reset(entry.arguments)
        self.wait()  # the first run loads code, which is to find the GPU idle
        made = entry.run(*entry.arguments)
        self.wait()
        entry.worst = entry.operands.error(entry.arguments, made)

    def race(self, entries: Sequence[ReadyKernel], rounds: Rounds) -> None:
        """Time them interleaved, each from nothing; an interrupt leaves what was measured."""
        for entry in entries:
            entry.times.clear()
            entry.hot.clear()

        def run_round(order: Sequence[int]) -> list[float]:
            return self.time([entries[at] for at in order], primed=rounds.primed)

        race(run_round, [entry.times for entry in entries], rounds)

    def race_hot(self, entries: Sequence[ReadyKernel], rounds: int) -> None:
        """Time calls back to back, as one CUDA graph, interleaved; ToolError: not possible here."""
        raise ToolError("measure.no_graphs")


class GpuBench(KernelBench):
    """The GPU of this process.

    ``flush``: as of ``flushing``. TargetError without a GPU, ToolError without PyTorch; whatever
    PyTorch raises.
    """

    def __init__(self, spec: AnyWorkload, flush: str = WRITTEN) -> None:
        self._torch = require_gpu()
        super().__init__(spec, operands_of(self._torch, spec), {})
        self._flush = flushing(self._torch, flush)

    def load(self, built: BuiltCandidate) -> tuple[Runner, str]:
        return built.load()

    def time(self, entries: Sequence[ReadyKernel], *, primed: bool = False) -> list[float]:
        calls = [functools.partial(one.run, *one.arguments) for one in entries]
        return timed(self._torch, calls, self._flush, primed=primed)

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def race_hot(self, entries: Sequence[ReadyKernel], rounds: int) -> None:
        able, graphs = list[ReadyKernel](), list[Any]()
        for entry in entries:
            run = entry.run.back_to_back if isinstance(entry.run, ChoosingRunner) else entry.run
            try:
                graphs.append(captured(self._torch, functools.partial(run, *entry.arguments)))
            except Exception as err:  # what a library does in a capture is its own
                self.wait()
                entry.not_hot = why(err)
                continue
            able.append(entry)

        def run_round(order: Sequence[int]) -> list[float]:
            replays = [graphs[at].replay for at in order]
            return [us / CALLS for us in timed(self._torch, replays)]

        race(run_round, [entry.hot for entry in able], Rounds(rounds))
