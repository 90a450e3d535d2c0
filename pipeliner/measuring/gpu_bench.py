"""One workload on the GPU of this process: its operands, its truth, and kernels of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..records.functions import AnyWorkload
from .compiling import BuiltCandidate
from .conditions import require_gpu
from .contenders import Runner
from .operands import operands_of
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


class GpuBench:
    """Operands of ``spec`` on the GPU, what must come of them, and the L2 cache's worth of bytes.

    TargetError without a GPU, ToolError without PyTorch; whatever PyTorch raises.
    """

    def __init__(self, spec: AnyWorkload) -> None:
        self.spec = spec
        self._torch = require_gpu()
        self._operands = operands_of(self._torch, spec)
        self._flush = self._torch.empty(FLUSH_BYTES, dtype=self._torch.int8, device="cuda")

    def ready(self, built: BuiltCandidate) -> ReadyKernel:
        """The kernel, loaded and checked; raises what it raises."""
        run, detail = built.load()
        entry = ReadyKernel(built, run, self._operands.arguments(built), detail)
        self.check(entry)
        return entry

    def check(self, entry: ReadyKernel) -> None:
        """Run it on a poisoned output: ``worst`` is its largest error, NaN where it left one."""
        self._operands.reset(entry.arguments)
        made = entry.run(*entry.arguments)
        self._torch.cuda.synchronize()
        entry.worst = self._operands.error(entry.arguments, made)

    def race(self, entries: Sequence[ReadyKernel], rounds: Rounds) -> None:
        """Time them interleaved, each from nothing; an interrupt leaves what was measured."""
        for entry in entries:
            entry.times.clear()

        def run_round(order: Sequence[int]) -> list[float]:
            some = [entries[at] for at in order]
            calls = [functools.partial(one.run, *one.arguments) for one in some]
            return timed(self._torch, calls, self._flush.zero_)

        race(run_round, [entry.times for entry in entries], rounds)

    def wait(self) -> None:
        """Wait until the GPU is idle; raises what went wrong on it."""
        self._torch.cuda.synchronize()
