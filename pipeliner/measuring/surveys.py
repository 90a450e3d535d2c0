"""Check kernels one after the other, then time those that are right together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from ..diagnostics import Why
from ..errors import ToolError
from ..records.functions import AnyWorkload
from .compiling import BuiltCandidate
from .lab import Ends
from .measurer import Measurement
from .process import Open, Survey, Try
from .rounds import Rounds

WAIT_SECONDS: Final = 60.0
"""For the first answer, which comes after libraries are loaded and a large problem is summed."""

TRY_SECONDS: Final = 20.0
"""For one run of a kernel with its check."""


class AskedTimer(Ends, Protocol):
    """Who measures by question and answer: ``GpuMeasurer``, ``Here``, or what a test puts there."""

    def ask(self, question: Open | Try | Survey, seconds: float) -> Any:
        """As ``GpuMeasurer.ask``."""


def tried(
    timer: AskedTimer,
    spec: AnyWorkload,
    kernels: Sequence[BuiltCandidate | None],
    failed: dict[int, Why],
    *,
    beside: bool = False,
) -> list[int]:
    """The numbers of those that ran and were right, in the order in which ``timer`` has them.

    ``failed``: takes why others are not. ``beside``: ``timer`` keeps what it has of workloads
    before, ahead of these. Where a kernel ends the timer's process, its successor learns all
    others. ToolError, or whatever ``timer`` raises: nothing can be measured; so it is, ``beside``
    others, once a process has ended.
    """
    right: dict[int, BuiltCandidate] = {}
    timer.ask(Open(spec, beside), WAIT_SECONDS)
    for at, kernel in enumerate(kernels):
        if kernel is None or kernel.failure:
            failed.update({} if kernel is None else {at: kernel.failure})
            continue
        try:
            wrong: Why = timer.ask(Try(kernel), TRY_SECONDS)
        except ToolError as err:
            if beside:
                raise
            failed[at] = err.reason
            timer.ask(Open(spec), WAIT_SECONDS)
            for other in right.values():
                timer.ask(Try(other), TRY_SECONDS)
            continue
        if wrong:
            failed[at] = wrong
        else:
            right[at] = kernel
    return list(right)


def surveyed(timer: AskedTimer, which: Sequence[int], rounds: Rounds) -> list[Measurement]:
    """The times of those of the tried, by number, all interleaved."""
    found: list[Measurement] = timer.ask(Survey(tuple(which), rounds), WAIT_SECONDS)
    return found
