"""The state of every slot of a loop's rings over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from .program import Slot
from .trace import Event, Trace

SlotState = Literal["empty", "filling", "ready", "read"]


@dataclass(frozen=True, slots=True)
class Span:
    """A slot in one state, in cycles. ``iteration``: whose data it holds; None where it is empty.

    ``filling``: from the first producer's start until all has landed. ``ready``: until a consumer
    starts. ``read``: until the last consumer is through.
    """

    slot: Slot
    state: SlotState
    start: int
    end: int
    iteration: int | None = None

    @property
    def cycles(self) -> int:
        """How long it lasts."""
        return self.end - self.start


def slot_spans(trace: Trace) -> dict[Slot, tuple[Span, ...]]:
    """For each slot its states, one after the other without a gap, from 0 to the end."""
    uses: dict[Slot, dict[int, list[Event]]] = {
        Slot(ring.buffer, index): {} for ring in trace.loop.rings for index in range(ring.depth)
    }
    for event in trace.events:
        for slot in {*event.reads, *event.writes}:
            uses[slot].setdefault(event.iteration, []).append(event)
    return {
        slot: tuple(_with_gaps(slot, _filled(slot, found), trace.cycles))
        for slot, found in uses.items()
    }


def _filled(slot: Slot, uses: dict[int, list[Event]]) -> Iterator[Span]:
    for iteration, events in sorted(uses.items()):
        fills = [event for event in events if slot in event.writes]
        if not fills:
            continue
        reads = [event for event in events if slot in event.reads and not event.repeats]
        full = max(event.end for event in fills)
        yield Span(slot, "filling", min(event.start for event in fills), full, iteration)
        if reads:
            first = max(full, min(event.start for event in reads))
            yield Span(slot, "ready", full, first, iteration)
            last = max(first, *(event.busy for event in reads))
            yield Span(slot, "read", first, last, iteration)


def _with_gaps(slot: Slot, spans: Iterable[Span], end: int) -> Iterator[Span]:
    now = 0
    for span in spans:
        if span.start > now:
            yield Span(slot, "empty", now, span.start)
        if span.cycles:
            yield span
        now = max(now, span.end)
    if end > now:
        yield Span(slot, "empty", now, end)
