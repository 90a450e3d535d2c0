"""Bars of a drawing: what is too narrow to be told from its neighbours is drawn with them.

|0|0|0|0|1|1|1|1|   =>   |  0  |  1  |      each of 2 pixels, of one iteration, without a gap
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .program import Slot
from .trace import Event


@dataclass(frozen=True, slots=True)
class EventBar:
    """Events of one iteration that are drawn as one, in their order."""

    events: tuple[Event, ...]

    @property
    def first(self) -> Event:
        """The event that it begins with, whose iteration is that of all."""
        return self.events[0]

    @property
    def busy(self) -> int:
        """The cycle when the pipe is free again."""
        return max(event.busy for event in self.events)

    @property
    def end(self) -> int:
        """The cycle when the last result is there."""
        return max(event.end for event in self.events)

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the ops."""
        return tuple(event.op for event in self.events)

    @property
    def slots(self) -> list[Slot]:
        """What is read and written."""
        return [slot for event in self.events for slot in (*event.reads, *event.writes)]

    @property
    def note(self) -> str:
        """What it says on hovering."""
        one = self.first
        name = f"{one.op}" if len(self.events) == 1 else f"{one.op} to {self.events[-1].op}"
        return (
            f"{name}, iteration {one.iteration}, stage {one.stage}, {one.part}: {one.pipe} "
            f"from {one.start} to {self.busy}, result at {self.end}"
        )


def bars_of(events: Iterable[Event], narrow: float) -> list[EventBar]:
    """``events`` as bars; those of less than ``narrow`` cycles join their neighbours."""
    bars: list[EventBar] = []
    for event in sorted(events, key=lambda one: one.start):
        if bars and _joins(bars[-1].events[-1], event, narrow):
            bars[-1] = EventBar((*bars[-1].events, event))
        else:
            bars.append(EventBar((event,)))
    return bars


def _joins(before: Event, event: Event, narrow: float) -> bool:
    alike = ("iteration", "repeats", "stage", "part")
    return (
        all(getattr(before, name) == getattr(event, name) for name in alike)
        and max(one.busy - one.start for one in (before, event)) < narrow
        and event.start - before.busy < narrow
    )
