"""An execution that is wrong: its trip counts, the statements, and the same again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ...diagnostics import Reason
from ...emulator import Hazard
from ..reading.loops import Family
from .drawn import Moment, moments
from .execution import Abandoned, Execution, Head
from .launched import Launched


@dataclass(frozen=True)
class Trip:
    """How many iterations one run through a loop made, of the ``family``-th of the kernel."""

    family: int
    loop: str
    around: tuple[int, ...]
    count: int
    closed: bool

    def is_of(self, family: Family) -> bool:
        """Whether a loop of a family may make so many iterations."""
        enough = self.count >= family.least or not self.closed
        return self.loop == family.name and enough and family.fixed in (None, self.count)

    @property
    def said(self) -> Reason:
        """In words."""
        if not self.around:
            return Reason("proof.trip", loop=self.loop, count=self.count)
        around = ", ".join(map(str, self.around))
        return Reason("proof.trip_at", loop=self.loop, count=self.count, around=around)


@dataclass(frozen=True)
class Refuted:
    """An execution that is wrong: its trip counts and what is wrong with it.

    ``order``: what its ops did in which order, as far as that led to the hazard.
    """

    trips: tuple[Trip, ...]
    hazard: Hazard
    order: tuple[Moment, ...] = ()

    @property
    def said(self) -> Reason:
        """In words: trip counts and the two statements."""
        trips = tuple(trip.said for trip in self.trips)
        return Reason("proof.run", trips=trips, hazard=str(self.hazard))


def refutation(machine: Execution, judged: Callable[[Hazard], bool]) -> Refuted | None:
    """Return what is wrong with an execution, with the trip counts that it made."""
    wrong = [hazard for hazard in machine.found if judged(hazard)]
    trips = tuple(
        Trip(
            key[0],
            one.family.name,
            key[1],
            one.count if one.closed else one.count + one.family.horizon - 1,
            one.closed,
        )
        for key, one in machine.instances.items()
    )
    if not wrong:
        return None
    return Refuted(trips, wrong[0], moments(machine.log, machine.subject.kernel.sites, wrong[0]))


def repeated(
    subject: Launched, refuted: Refuted, judged: Callable[[Hazard], bool], end: float
) -> Refuted | None:
    """Return what is wrong with an execution of the same trip counts; None: nothing, or no time."""
    counts = {(trip.family, trip.around): trip.count for trip in refuted.trips}

    def decide(machine: Execution, key: Head, iteration: int) -> bool:
        return iteration + subject.families[key[0]].horizon - 1 < counts.get(key, 0)

    def go_on() -> None:
        if time.perf_counter() > end:
            raise Abandoned

    machine = Execution(subject, decide, go_on)
    with suppress(Abandoned):
        machine.run()
    return refutation(machine, judged)
