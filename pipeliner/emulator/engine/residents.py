"""CTAs of a launch that run at the same time, where one waits for another.

Clusters are run one after the other, as a GPU starts them. One that can only go on when threads of
another have written what it polls, or have come to the barrier of the grid, stays resident, and the
next is started, as many as fit a GPU by their threads, shared memory and registers (of which the
compiler decides: they are estimated). What waits for a CTA that finds no place waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...cost.occupancy import occupancy
from ...diagnostics import Reason
from ...errors import TargetError
from ...machine import machine_for
from .machine import Cluster
from .registers import registers_of
from .scheduler import Scheduler

_PASSES: Final = 256
"""Times that all who wait go on, and none ends, after which they are said to wait for ever."""


@dataclass(eq=False)
class Resident:
    """A cluster that has been started; ``seen``: the memory of the grid when it last ran."""

    cluster: Cluster
    scheduler: Scheduler
    seen: int = -1

    def run(self) -> bool:
        """Run as far as possible; whether it has ended."""
        self.seen = self.cluster.grid.changes
        ended = self.scheduler.run()
        if ended:
            self.cluster.finish()
        return ended


@dataclass(frozen=True)
class Room:
    """How many CTAs of a kernel a GPU holds and why; None where nothing is known."""

    ctas: int | None
    why: Reason | None = None


def room_for(target: Any, func: Any, threads: int, smem: int) -> Room:
    """How many CTAs of a device function, of so many threads and bytes of shared memory, fit."""
    try:
        machine = machine_for(target)
    except TargetError:
        return Room(None)
    registers = registers_of(func, machine, threads)
    each, limiter = occupancy(machine, threads, registers, smem)
    most = max(each, 1) * machine.sms
    why = Reason(
        "hazard.room",
        machine=machine.name,
        most=most,
        limiter=limiter,
        threads=threads,
        registers=registers,
        nbytes=smem,
    )
    return Room(most, why)


def run_together(
    started: Iterable[Resident], find_room: Callable[[], Room], others: Reason | None
) -> Iterator[Cluster]:
    """Run clusters; yields each when it has ended, or can go on no more, which is reported.

    ``find_room``: asked where some wait. ``others``: what is to be said of CTAs that are not run.
    """
    waiting: list[Resident] = []
    room: Room | None = None
    for resident in started:
        if resident.run():
            yield resident.cluster
        elif resident.scheduler.awaits_others:
            waiting.append(resident)
        else:
            resident.scheduler.report_deadlock()
            yield resident.cluster
        yield from _go_on(waiting)
        if waiting and room is None:
            room = find_room()
        ctas = sum(len(r.cluster.ctas) for r in waiting)
        if room is not None and room.ctas is not None and ctas > room.ctas:
            others = Reason("hazard.not_resident", why=room.why)
            break
    for resident in waiting:
        resident.scheduler.report_deadlock(others)
        yield resident.cluster


def _go_on(waiting: list[Resident]) -> Iterator[Cluster]:
    """Run those that may have seen a change, until none does; yields each that has ended."""
    passes = 0
    while passes < _PASSES:
        passes += 1
        moving = [r for r in waiting if r.seen != r.cluster.grid.changes]
        if not moving:
            return
        for resident in moving:
            if resident.run():
                waiting.remove(resident)
                passes = 0
                yield resident.cluster
