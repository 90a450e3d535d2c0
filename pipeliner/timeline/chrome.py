"""A timeline as a Chrome trace: JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

The Trace Event Format has no cycles: one cycle is written as a nanosecond. Each run is a process;
in it a thread for each pipe (what occupies it; the latency behind it is among the arguments), one
for what holds up the issue, one for the parts, and one for each slot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from . import rows
from .model import LoopRun, Runs
from .program import is_shared
from .slots import Span
from .trace import Event

CYCLES_PER_TICK: Final = 1000
"""The format counts in microseconds."""


def chrome(timeline: Runs) -> str:
    """The trace as the text of a JSON file."""
    events: list[dict[str, Any]] = []
    for process, run in enumerate(timeline.runs, 1):
        events += _named(process, 0, "process", f"{process}. {rows.headline(run)}")
        for thread, (name, slices) in enumerate(_tracks(run), 1):
            events += _named(process, thread, "thread", name)
            events += [{"pid": process, "tid": thread, "ph": "X", **found} for found in slices]
    about = {
        "title": rows.title(timeline),
        "time": rows.disclaimer(timeline) + "; one cycle is shown as 1 ns",
        "verdict": rows.verdict(timeline),
    }
    trace = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(trace, indent=1)


def _tracks(run: LoopRun) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    yield "part", (_slice(part, "part", *span) for part, span in run.trace.parts.items())
    for pipe in dict.fromkeys(op.pipe for op in sorted(run.loop.ops, key=lambda op: op.stage)):
        if pipe != "sync":
            yield f"pipe {pipe}", (_op(e) for e in run.trace.events if e.pipe == pipe)
    yield rows.STALLED, (_stalls(event) for event in rows.stalls(run))
    for slot, spans in run.slots.items():
        scope = "slot" if is_shared(run.loop.ring(slot.ring)) else "registers"
        yield f"{scope} {slot}", (_state(span) for span in spans if span.iteration is not None)


def _named(process: int, thread: int, what: str, name: str) -> list[dict[str, Any]]:
    """The name of a process or thread, and its place: in the order in which they are numbered."""
    place = {"pid": process, "tid": thread, "ph": "M"}
    order = thread if what == "thread" else process
    return [
        {**place, "name": f"{what}_name", "args": {"name": name}},
        {**place, "name": f"{what}_sort_index", "args": {"sort_index": order}},
    ]


def _slice(name: str, category: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ts": start / CYCLES_PER_TICK,
        "dur": (end - start) / CYCLES_PER_TICK,
        "args": args,
    }


def _op(event: Event) -> dict[str, Any]:
    past = " (past the end)" if event.repeats else ""
    return _slice(
        f"{event.op} {event.iteration}{past}",
        event.kind,
        event.start,
        event.busy,
        iteration=event.iteration,
        stage=event.stage,
        part=event.part,
        result=event.end,
        reads=[str(slot) for slot in event.reads],
        writes=[str(slot) for slot in event.writes],
    )


def _stalls(event: Event) -> dict[str, Any]:
    return _slice(
        f"{event.cause} {event.culprit}".strip(),
        "stalled",
        event.resume - event.stall,
        event.resume,
        op=event.op,
        iteration=event.iteration,
        part=event.part,
    )


def _state(span: Span) -> dict[str, Any]:
    return _slice(
        f"{span.state} {span.iteration}", span.state, span.start, span.end, iteration=span.iteration
    )
