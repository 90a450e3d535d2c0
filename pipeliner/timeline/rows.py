"""What the drawings have in common: which rows a run has, and what it says in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .model import LoopRun, Runs
from .program import Slot, is_shared
from .slots import Span
from .trace import Cause, Event

MARKS: Final[dict[Cause, str]] = {
    "copy in flight": "w",
    "load in flight": "l",
    "result not ready": "r",
    "slot in use": "s",
    "barrier": "b",
}
"""A letter for each reason to hold up the issue, but for a busy pipe, which is as it should be."""

STALLED: Final = "stalled"
MOST_HOLDS: Final = 3
LEAST_SHARE: Final = 0.01
"""What holds up the issue is named up to so many times, for at least this share of an iteration."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """Ops that are drawn in one row: what a statement of the source does on one pipe."""

    pipe: str
    name: str
    events: tuple[Event, ...]
    ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot, ``slot_bytes`` large."""

    slot: Slot
    spans: tuple[Span, ...]


def op_rows(run: LoopRun, *, each: bool) -> list[OpRow]:
    """The rows of a run's ops, in program order; ``each``: one for every op."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for op in sorted(run.loop.ops, key=lambda op: (op.stage, op.order)):
        if op.kind not in ("wait", "mma_wait"):
            name = op.name if each else op.name.statement
            groups.setdefault((op.pipe, name, op.kind), []).append(op.name)
    return [
        OpRow(
            pipe,
            names[0] if len(names) == 1 else name,
            tuple(event for event in run.trace.events if event.op in names),
            tuple(names),
        )
        for (pipe, name, _), names in groups.items()
    ]


def slot_rows(timeline: Runs, run: LoopRun, *, each: bool) -> list[SlotRow]:
    """The rows of a run's slots; ``each``: also those of registers that have one slot anyway."""
    rings = timeline.pipelined.loop.rings
    shown = {ring.buffer for ring in rings if each or is_shared(ring) or ring.depth > 1}
    return [SlotRow(slot, spans) for slot, spans in run.slots.items() if slot.ring in shown]


def stalls(run: LoopRun) -> list[Event]:
    """The events before which all threads stood still, though no pipe that they need was busy."""
    return [event for event in run.trace.events if event.stall and event.cause in MARKS]


def title(timeline: Runs) -> str:
    """What is drawn."""
    return (
        f"{timeline.kernel}: loop {timeline.loop}, {timeline.iterations} of "
        f"{timeline.trip} iterations"
    )


def disclaimer(timeline: Runs) -> str:
    """What the time axis is, and is not."""
    return (
        f"model time: the plan's latencies and rates for {timeline.machine}, in cycles of one CTA "
        "alone on its SM; nothing is measured"
    )


def headline(run: LoopRun) -> str:
    """A run in one line."""
    stages = f"{run.loop.stages} stage{'s' * (run.loop.stages > 1)}"
    slots = sorted({ring.depth for ring in run.loop.rings if ring.depth > 1})
    rings = f", {' and '.join(map(str, slots))} slots" if slots else ", 1 slot"
    return f"{run.title}: {stages}{rings}, {number(run.cycles)} cycles drawn"


def verdict(timeline: Runs) -> str:
    """How the two compare."""
    fast, slow = timeline.runs
    if fast.whole is None or slow.whole is None:
        pace = (fast.steady.cycles, slow.steady.cycles)
        what = "a steady iteration"
    else:
        pace, what = (fast.whole, slow.whole), f"all {timeline.trip} iterations"
    return (
        f"{what}: {number(pace[0])} cycles pipelined, {number(pace[1])} un-pipelined: "
        f"{timeline.speedup:.2f} times as fast"
    )


def pace(run: LoopRun) -> str:
    """The steady state in numbers: cycles against the plan's interval, and the busiest pipe."""
    steady = run.steady
    text = f"steady iteration: {number(steady.cycles)} cycles"
    if run.loop.ii and run.loop.stages > 1:
        text += f" (II of the plan: {number(run.loop.ii)})"
    if steady.busy:
        pipe, busy = max(steady.busy.items(), key=lambda item: item[1])
        text += f"; {pipe} busy for {number(busy)} ({busy / steady.cycles:.0%})"
        text += f", exposed {number(steady.exposed)}"
    return text


def holds(run: LoopRun) -> str:
    """What holds up the issue in a steady iteration, the worst first."""
    least = LEAST_SHARE * run.steady.cycles
    named = [hold for hold in run.steady.holds[:MOST_HOLDS] if hold.cycles >= least]
    parts = []
    for hold in named:
        culprit = f" {hold.culprit}" if hold.culprit else ""
        parts.append(f"{hold.cause}{culprit} {number(hold.cycles)}")
    rest = sum(hold.cycles for hold in run.steady.holds[len(named) :])
    if rest:
        parts.append(f"other {number(rest)}")
    return "issue stalled by: " + (", ".join(parts) or "nothing")


def doubts(run: LoopRun) -> str:
    """Where the drawing is known to differ from the kernel; empty where it is not."""
    if run.barriers is None or run.barriers == run.steady.barriers:
        return ""
    return (
        f"barriers of a steady iteration: {number(run.steady.barriers)} drawn, as its slots need; "
        f"the kernel has {number(run.barriers)}"
    )


def number(value: float) -> str:
    """Cycles with thin groups: ``12 345``; a fraction only where there is one."""
    rounded = round(value, 1)
    whole = rounded == int(rounded)
    return f"{int(rounded) if whole else rounded:,}".replace(",", " ")


def shortened(name: str, most: int) -> str:
    """``name`` in at most ``most`` characters; its end, which has the slot or part, stays."""
    if len(name) <= most:
        return name
    tail = (most - 2) // 2
    return f"{name[: most - 2 - tail]}..{name[-tail:]}"


def nice_step(cycles: int, most: int) -> int:
    """The round distance of ticks, 1, 2 or 5 times a power of ten, for at most ``most`` of them."""
    step = 1
    factors: Sequence[int] = (2, 5, 10)
    while True:
        for factor in (1, *factors):
            if step * factor * most >= cycles:
                return step * factor
        step *= 10
