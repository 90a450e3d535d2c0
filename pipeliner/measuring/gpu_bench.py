"""Kernels of one workload where they run: loaded, checked against its truth, timed interleaved."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..records.functions import AnyWorkload
from .compiling import BuiltCandidate
from .conditions import require_gpu
from .contenders import Runner
from .operands import BenchOperands, operands_of
from .rounds import FLUSH_BYTES, Rounds, race, timed


@dataclass(slots=True)
class ReadyKernel:
    """A kernel that is ready: loaded, and run once. ``worst``: how wrong it was then."""

    built: BuiltCandidate
    run: Runner
    arguments: tuple[Any, ...]
    detail: str
    worst: float = 0.0
    times: list[float] = field(default_factory=list)

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
    def time(self, entries: Sequence[ReadyKernel]) -> list[float]:
        """Microseconds of one run of each, in order, the L2 cache overwritten before."""

    def wait(self) -> None:
        """Wait until the GPU is idle; raises what went wrong on it."""
        return

    def ready(self, built: BuiltCandidate) -> ReadyKernel:
        """The kernel, loaded and checked; raises what it raises."""
        run, detail = self.load(built)
        entry = ReadyKernel(built, run, self._operands.arguments(built), detail)
        self.check(entry)
        return entry

    def check(self, entry: ReadyKernel) -> None:
        """Run it on a poisoned output: ``worst`` is its largest error, NaN where it left one."""
        self._operands.reset(entry.arguments)
        made = entry.run(*entry.arguments)
        self.wait()
        entry.worst = self._operands.error(entry.arguments, made)

    def race(self, entries: Sequence[ReadyKernel], rounds: Rounds) -> None:
        """Time them interleaved, each from nothing; an interrupt leaves what was measured."""
        for entry in entries:
            entry.times.clear()

        def run_round(order: Sequence[int]) -> list[float]:
            return self.time([entries[at] for at in order])

        race(run_round, [entry.times for entry in entries], rounds)


class GpuBench(KernelBench):
    """The GPU of this process.

    TargetError without a GPU, ToolError without PyTorch; whatever PyTorch raises.
    """

    def __init__(self, spec: AnyWorkload) -> None:
        self._torch = require_gpu()
        super().__init__(spec, operands_of(self._torch, spec), {})
        self._flush = self._torch.empty(FLUSH_BYTES, dtype=self._torch.int8, device="cuda")

    def load(self, built: BuiltCandidate) -> tuple[Runner, str]:
        return built.load()

    def time(self, entries: Sequence[ReadyKernel]) -> list[float]:
        calls = [functools.partial(one.run, *one.arguments) for one in entries]
        return timed(self._torch, calls, self._flush.zero_)

    def wait(self) -> None:
        self._torch.cuda.synchronize()
