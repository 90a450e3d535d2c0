"""CTAs of a launch that run at the same time, where one waits for another.

Clusters are run one after the other, as a GPU starts them. One that can only go on when threads of
another have written what it polls, or have come to the barrier of the grid, stays resident, and the
next is started, as many as fit a GPU by their threads and shared memory (registers, which the
compiler decides, may let it have fewer). What waits for a CTA that finds no place waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..diagnostics import Reason
from ..errors import TargetError
from ..machine import machine_for
from .machine import Cluster
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


def room_for(target: Any, threads: int, smem: int) -> Room:
    """Return how many CTAs of so many threads and bytes of shared memory a GPU holds."""
    try:
        machine = machine_for(target)
    except TargetError:
        return Room(None)
    by_smem = machine.smem_per_sm // max(1, smem + machine.smem_reserved)
    each = min(machine.max_threads_per_sm // threads, machine.max_ctas_per_sm, by_smem)
    return Room(
        max(each, 1) * machine.sms,
        Reason(
            "hazard.room",
            machine=machine.name,
            most=max(each, 1) * machine.sms,
            threads=threads,
            nbytes=smem,
        ),
    )


def run_together(
    started: Iterable[Resident], room: Room, others: Reason | None
) -> Iterator[Cluster]:
    """Run clusters; yields each when it has ended, or can go on no more, which is reported.

    ``others``: what is to be said of CTAs that are not run.
    """
    waiting: list[Resident] = []
    for resident in started:
        if resident.run():
            yield resident.cluster
        elif resident.scheduler.awaits_others:
            waiting.append(resident)
        else:
            resident.scheduler.report_deadlock()
            yield resident.cluster
        yield from _go_on(waiting)
        if room.ctas is not None and sum(len(r.cluster.ctas) for r in waiting) > room.ctas:
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
