"""The fastest of many ways to compute the same, found by timing each of them at the first call."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...diagnostics import Reason, Why
from ...errors import PipelinerError, ToolError
from ...measuring import WRITTEN, Runner, flushing, timed
from ...measuring.contenders import ChoosingRunner
from ...measuring.graphs import captured, kernel_names
from ...values.failure import why

NEAR: Final = 1.25
"""Times of the fastest within which a way is timed again."""

SAMPLES: Final = 9
"""Of each that is timed again."""

SECONDS: Final = 8.0
"""After which no other way is tried: a library's own search may be one of them."""

DIFFERENCE: Final = 2**-4
"""Of the largest result: by how much those of two ways may differ, which may round partial sums."""

NOTHING: Final = -85
"""In an output of integers, before a way runs."""

CALLS: Final = 5
"""Of each, back to back, in a graph."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """One of the ways: a call on the arguments, and its name."""

    name: str
    run: Runner


class Fastest(ChoosingRunner):
    """Runs the fastest of ``ways``, which are timed on the arguments of the first call.

    Each is timed with the L2 cache overwritten before; where ``hot``, also back to back in a graph,
    and another may be the fastest there. What refuses to run is left out; where a way ``writes``
    its last argument, so is what leaves NaN there or what the ones before did not; and after
    ``SECONDS`` whatever was not tried: ``chosen`` says how many. The first call raises ToolError
    where none runs.
    """

    def __init__(self, ways: Sequence[NamedCall], hot: bool, *, writes: bool = False) -> None:
        self._ways, self._hot, self._writes = ways, hot, writes
        self._cold_way: NamedCall | None = None
        self._hot_way: NamedCall | None = None
        self._said = ""

    def __call__(self, *arguments: Any) -> Any:
        if self._cold_way is None:
            self._choose(arguments)
            assert self._cold_way is not None
        return self._cold_way.run(*arguments)

    @property
    def chosen(self) -> str:
        return self._said

    @property
    def back_to_back(self) -> Runner:
        return self if self._hot_way is None else self._hot_way.run

    def _choose(self, arguments: tuple[Any, ...]) -> None:
        import torch

        failures: list[Why] = []
        running: list[NamedCall] = []
        begun, tried, wrong = time.monotonic(), 0, 0
        right: Any = None
        for way in self._ways:
            if tried and time.monotonic() - begun > SECONDS:
                break
            tried += 1
            if self._writes:
                _poison(arguments[-1])
            if not _runs(torch, way, arguments, failures):
                continue
            made = arguments[-1].double() if self._writes else None
            if made is not None and not _is_near(made, made if right is None else right):
                wrong += 1
                continue
            right = made
            running.append(way)
        if not running:
            why_not = failures[0] if failures else Reason("peer.wrong", wrong=wrong)
            raise ToolError("peer.no_algorithm", tried=tried, why=why_not)
        calls = [functools.partial(way.run, *arguments) for way in running]
        flush = flushing(torch, WRITTEN)
        cold = fastest(calls, lambda some: timed(torch, some, flush))
        self._cold_way = running[cold]
        self._said = f"{named(torch, self._cold_way, calls[cold])}, of {len(running)}"
        if self._hot:
            graphs = [captured(torch, call, CALLS).replay for call in calls]
            hot = fastest(graphs, lambda some: timed(torch, some))
            self._hot_way = running[hot]
            if hot != cold:
                self._said += f"; hot {named(torch, self._hot_way, calls[hot])}"
        if wrong:
            self._said += f"; {wrong} wrong"
        if tried < len(self._ways):
            self._said += f"; cut after {SECONDS:g} s, {len(self._ways) - tried} not tried"


def fastest(
    calls: Sequence[Callable[[], object]],
    time: Callable[[Sequence[Callable[[], object]]], list[float]],
) -> int:
    """The number of the call that takes least: of all a sample, of those ``NEAR`` it more.

    A sample before is dropped: caches, clocks and whatever a library sets up at its first call.
    """
    time(calls)
    once = time(calls)
    near = [at for at, us in enumerate(once) if us <= NEAR * min(once)]
    samples = [time([calls[at] for at in near]) for _ in range(SAMPLES)]
    medians = [statistics.median(of_one) for of_one in zip(*samples)]
    return near[medians.index(min(medians))]


def named(torch: Any, way: NamedCall, call: Callable[[], object]) -> str:
    """The kernels of a way, as far as the driver tells them, and its own name."""
    kernels: tuple[str, ...] = ()
    with contextlib.suppress(ToolError):
        kernels = kernel_names(torch, call)
    return ", ".join(filter(None, (" + ".join(kernels), way.name)))


def _runs(torch: Any, way: NamedCall, arguments: tuple[Any, ...], failures: list[Why]) -> bool:
    """Whether a way runs to its end, which is waited for: its time is its own."""
    try:
        way.run(*arguments)
        torch.cuda.synchronize()
    except (PipelinerError, RuntimeError) as err:  # of torch: no engine that is asked for so
        failures.append(why(err))
        return False
    return True


def _poison(out: Any) -> None:
    out.fill_(float("nan") if out.is_floating_point() else NOTHING)


def _is_near(made: Any, right: Any) -> bool:
    """Whether two results differ by no more than another order of sums makes of them.

    A NaN is near nothing, not even itself.
    """
    return float((made - right).abs().max()) <= DIFFERENCE * float(right.abs().max())
