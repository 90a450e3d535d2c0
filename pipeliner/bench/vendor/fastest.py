"""The fastest of many ways to compute the same, found by timing each of them at the first call."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...diagnostics import Why
from ...errors import PipelinerError, ToolError
from ...measuring import FLUSH_BYTES, Runner, timed
from ...measuring.contenders import ChoosingRunner
from ...measuring.graphs import captured, kernel_names
from ...values.failure import why

NEAR: Final = 1.25
"""Times of the fastest within which a way is timed again."""

SAMPLES: Final = 9
"""Of each that is timed again."""

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
    and another may be the fastest there. What refuses to run is left out. The first call raises
    ToolError where none runs.
    """

    def __init__(self, ways: Sequence[NamedCall], hot: bool) -> None:
        self._ways, self._hot = ways, hot
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
        running = [way for way in self._ways if _runs(way, arguments, failures)]
        if not running:
            raise ToolError("peer.no_algorithm", tried=len(self._ways), why=failures[0])
        torch.cuda.synchronize()
        calls = [functools.partial(way.run, *arguments) for way in running]
        flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        cold = fastest(calls, lambda some: timed(torch, some, flush.zero_))
        self._cold_way = running[cold]
        self._said = f"{named(torch, self._cold_way, calls[cold])}, of {len(running)}"
        if self._hot:
            graphs = [captured(torch, call, CALLS).replay for call in calls]
            hot = fastest(graphs, lambda some: timed(torch, some))
            self._hot_way = running[hot]
            if hot != cold:
                self._said += f"; hot {named(torch, self._hot_way, calls[hot])}"


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


def _runs(way: NamedCall, arguments: tuple[Any, ...], failures: list[Why]) -> bool:
    try:
        way.run(*arguments)
    except (PipelinerError, RuntimeError) as err:  # of torch: no engine that is asked for so
        failures.append(why(err))
        return False
    return True
