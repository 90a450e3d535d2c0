"""Both runs of a loop, pipelined and not, as one value that can be drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..plan import LoopPlan
from .program import Slot
from .slots import Span, slot_spans
from .trace import Steady, Trace


@dataclass(frozen=True)
class LoopRun:
    """One of the two loops.

    ``whole``: cycles of all its iterations, None where their number is not constant.
    ``barriers``: how many the kernel has in one steady iteration, None where they cannot be told
    from those of its other loops.
    """

    title: str
    trace: Trace
    steady: Steady
    whole: int | None
    barriers: float | None

    @property
    def loop(self) -> LoopPlan:
        """Its plan."""
        return self.trace.loop

    @property
    def cycles(self) -> int:
        """Of the iterations that are drawn."""
        return self.trace.cycles

    @cached_property
    def slots(self) -> dict[Slot, tuple[Span, ...]]:
        """The states of every slot."""
        return slot_spans(self.trace)


@dataclass(frozen=True)
class Runs:
    """A loop of a kernel in model time, pipelined and un-pipelined. ``trip``: as in the plan."""

    kernel: str
    machine: str
    loop: str
    trip: str
    iterations: int
    pipelined: LoopRun
    plain: LoopRun

    @property
    def runs(self) -> tuple[LoopRun, LoopRun]:
        """Both, in the order in which they are drawn."""
        return self.pipelined, self.plain

    @property
    def speedup(self) -> float:
        """Of the whole loop where its trip count is constant, else of one steady iteration."""
        if self.pipelined.whole is None or self.plain.whole is None:
            return self.plain.steady.cycles / self.pipelined.steady.cycles
        return self.plain.whole / self.pipelined.whole

    @property
    def cycles(self) -> int:
        """Of the longer run: how far the drawing goes."""
        return max(run.cycles for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        """All of it as values of JSON."""
        return {
            "kernel": self.kernel,
            "machine": self.machine,
            "time": "model cycles of one CTA alone on an SM",
            "loop": self.loop,
            "trip": self.trip,
            "iterations": self.iterations,
            "speedup": self.speedup,
            **{run.title.replace("-", "_"): _run_dict(run) for run in self.runs},
        }


def _run_dict(run: LoopRun) -> dict[str, Any]:
    return {
        "stages": run.loop.stages,
        "ii": run.loop.ii,
        "cycles": run.cycles,
        "cycles_of_all_iterations": run.whole,
        "steady": {
            "cycles": run.steady.cycles,
            "exposed": run.steady.exposed,
            "busy": dict(run.steady.busy),
            "barriers": run.steady.barriers,
            "holds": [dataclasses.asdict(hold) for hold in run.steady.holds],
        },
        "parts": run.trace.parts,
        "events": [_event_dict(event) for event in run.trace.events],
        "slots": {
            str(slot): [_span_dict(span) for span in spans] for slot, spans in run.slots.items()
        },
    }


def _event_dict(event: Any) -> dict[str, Any]:
    values = dataclasses.asdict(event)
    return {
        **values,
        "reads": [str(slot) for slot in event.reads],
        "writes": [str(slot) for slot in event.writes],
    }


def _span_dict(span: Span) -> dict[str, Any]:
    return {
        "state": span.state,
        "start": span.start,
        "end": span.end,
        "iteration": span.iteration,
    }
