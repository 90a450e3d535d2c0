"""Both runs of a loop, pipelined and not, as one value that can be drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine import Machine
from ..plan import KernelPlan, LoopPlan
from .program import Slot
from .slots import Span, slot_spans
from .trace import Steady, Trace, steady, trace

EXACT: Final = 256
"""Iterations up to which a whole loop is traced; the rest of a longer one runs at its pace."""

MOST: Final = 1000
"""Iterations that a drawing may have."""

MORE_THAN_DEPTH: Final = 4
"""Iterations drawn, beyond the slots of the deepest ring, where none are asked for."""


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
class Timeline:
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


def timeline_of(
    plan: KernelPlan,
    plain: KernelPlan,
    machine: Machine,
    *,
    loop: str | None = None,
    iterations: int | None = None,
) -> Timeline:
    """The timeline of a loop of ``plan``, over that of ``plain``, the same with one slot a ring.

    ``loop``: by default the first that is pipelined. ``iterations``: how many to draw. PlanError:
    there is no such loop, or it has fewer iterations.
    """
    fast = pipelined_loop(plan, loop)
    slow = pipelined_loop(plain, fast.name)
    if slow.stages > 1:
        raise PlanError("timeline.never_serial", loop=fast.name, stages=slow.stages)
    count = _iterations(fast, iterations)
    runs = (("pipelined", plan, fast), ("un-pipelined", plain, slow))
    first, second = (_run(*run, count, machine) for run in runs)
    return Timeline(plan.kernel, plan.machine, fast.name, fast.trip, count, first, second)


def pipelined_loop(plan: KernelPlan, name: str | None) -> LoopPlan:
    """The loop called ``name``, or the first pipelined one; PlanError: it is not pipelined."""
    if name is not None:
        loop = plan.loop(name)
        if not loop.pipelined:
            why = loop.reasons or Reason("timeline.no_reason")
            raise PlanError("timeline.not_pipelined", loop=name, why=why)
        return loop
    found = next((loop for loop in plan.loops if loop.pipelined), None)
    if found is None:
        loops = [Reason("timeline.loop", loop=one.name, why=one.reasons) for one in plan.loops]
        why = (*loops, *plan.reasons) or Reason("timeline.loopless")
        raise PlanError("timeline.no_loop", kernel=plan.kernel, why=why)
    return found


def _iterations(loop: LoopPlan, asked: int | None) -> int:
    trip = int(loop.trip) if loop.trip.isdigit() else None
    if asked is None:
        deepest = max((ring.depth for ring in loop.rings), default=1)
        count = max(deepest, loop.stages) + MORE_THAN_DEPTH
        return count if trip is None else max(1, min(count, trip))
    if not 1 <= asked <= MOST:
        raise PlanError("timeline.iterations", most=MOST, value=asked)
    if trip is not None and asked > trip:
        raise PlanError("timeline.trip", value=asked, loop=loop.name, trip=trip)
    return asked


def _run(title: str, plan: KernelPlan, loop: LoopPlan, count: int, machine: Machine) -> LoopRun:
    barriers = plan.sync.barriers > 0
    pace = steady(loop, machine, barriers=barriers)
    whole = None
    if loop.trip.isdigit():
        exact = min(int(loop.trip), EXACT)
        traced = trace(loop, exact, machine, barriers=barriers).cycles
        whole = round(traced + (int(loop.trip) - exact) * pace.cycles)
    alone = sum(other.pipelined for other in plan.loops) == 1
    return LoopRun(
        title,
        trace(loop, count, machine, barriers=barriers),
        pace,
        whole,
        plan.sync.barriers_in_steady / loop.unroll if alone else None,
    )


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
