"""One execution of a kernel by the emulator in which a proof decides the trip counts.

The cluster is the emulator's own: its units judge every access. A loop of an open family asks for
each iteration whether there is one; the first thread group to ask is answered by ``Way.decide``,
the others follow. Where that is asked, the state of the whole machine can be told by a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ...emulator import Hazard
from ...emulator.base.requests import Program
from ...emulator.engine.machine import Cluster, Cta, HazardLog
from ...emulator.engine.scheduler import FIRST, Scheduler
from ...emulator.engine.thread_group import ThreadGroup
from ...emulator.memory.global_memory import Region
from ...emulator.memory.grid import Block, Grid, GridBarrier
from ...emulator.memory.snapshot import Snapshot
from ...emulator.memory.spaces import GlobalView
from ...emulator.translate.compiler import CompiledKernel
from ..reading.loops import Family
from .launched import Launched

_LONG_AGO: Final = 40
"""Iterations after which it is one who wrote something: rings are shorter."""

_CONTROL: Final = ("cond_", "extent_", "low_", "mask_")
"""Beginnings of names in generated code that say who goes which way, and how often."""


class Abandoned(Exception):
    """A run was left: it has nothing more to show."""


@dataclass
class Instance:
    """One run through the loops of a family: how many iterations there are, so far or in all.

    As long as it is not ``closed``, there are ``family.horizon`` more than one less than ``count``
    at least. Then what compares the number of those to go decides alike in all that were begun.
    """

    family: Family
    count: int = 0
    closed: bool = False
    begun: dict[Entrant, int] = field(default_factory=dict)  # by whom, iterations they have begun
    reached: dict[Entrant, int] = field(default_factory=dict)  # the variable, at the head of these


Entrant = tuple[int, int]
"""A thread group by its number, and a loop of a family."""

Head = tuple[int, tuple[int, ...]]
"""A family by its number, and the iterations of the open loops around."""


class Execution:
    """One cluster, about to run; ``decide`` is asked at the head of open loops.

    ``go_on`` is called where a loop begins; Abandoned by either ends the run.
    """

    def __init__(
        self,
        subject: Launched,
        decide: Callable[[Execution, Head, int], bool],
        go_on: Callable[[], None],
    ) -> None:
        self.subject = subject
        self.instances: dict[Head, Instance] = {}
        self.hazards = HazardLog()
        self._decide, self._go_on = decide, go_on
        self._families = {
            number: (at, family)
            for at, family in enumerate(subject.families)
            for number in family.numbers
        }
        self._groups: dict[int, ThreadGroup] = {}
        self._entrants: list[set[Entrant]] = [set() for _ in subject.families]
        self._cluster = self._made()

    def _made(self) -> Cluster:
        subject = self.subject
        kernel, launch = subject.kernel, subject.launch
        args = [
            GlobalView(name.removesuffix("_ptr"), a) if isinstance(a, Region) else a
            for name, a in zip(kernel.params, launch.args, strict=True)
        ]
        grid = Grid()
        grid.barrier = GridBarrier(
            len(subject.blocks) * subject.threads, cooperative=launch.cooperative
        )
        rng = np.random.default_rng(0)
        cluster = Cluster(
            size=len(subject.blocks),
            threads=subject.threads,
            proxies=kernel.proxies,
            timing="early",
            rng=rng,
            grid=grid,
            blocks=[block for _, block in subject.blocks],
            timed=len(subject.blocks) > 1,
        )
        cluster.matrix_units.computes = False
        cluster.moves_data = False
        programs: list[tuple[Cta, Any, Program]] = []
        for place, block in subject.blocks:
            cta = Cta(
                cluster,
                kernel=kernel.name,
                block=block,
                place=place,
                window_bytes=kernel.arena + subject.dynamic,
                granule=kernel.granule,
                sites=kernel.sites,
                hazards=self.hazards,
                dependent=launch.dependent,
                buffer_at=lambda offset: _buffer_at(kernel, offset),
            )
            cta.shadow.strict = subject.is_short
            size = subject.together
            for first in range(0, subject.threads, size):
                count = min(size, subject.threads - first)
                group = _Group(cta, subject.dims, first, count, self, len(programs))
                self._groups[len(programs)] = group
                self._may_come(len(programs), first, count)
                program = subject.entry(group, args, block, subject.dynamic, 0)
                programs.append((cta, group.tids, program))
        self._scheduler = Scheduler(cluster, FIRST, rng, programs)
        return cluster

    def _may_come(self, group: int, first: int, count: int) -> None:
        """Note to which loops the threads of a group may come."""
        for number, (at, _) in self._families.items():
            threads = self.subject.entering.get(number)
            if threads is None or threads[first : first + count].any():
                self._entrants[at].add((group, number))

    def run(self) -> None:
        """Run to the end, or until nothing can move, or until ``decide`` raises Abandoned."""
        with np.errstate(all="ignore"):
            if self._scheduler.run():
                self._cluster.finish()
                self._check_predecessor()
            else:
                self._scheduler.report_deadlock()

    def _check_predecessor(self) -> None:
        """Report that nobody waits for the kernel before, which this one may overtake."""
        if self.subject.launch.dependent and not self._cluster.grid.waited:
            detail = Reason("hazard.preceding_unwaited")
            last = len(self._cluster.log) - 1
            self._cluster.ctas[-1].add_hazard("never-waited", last, detail=detail)

    @property
    def found(self) -> tuple[Hazard, ...]:
        """The hazards so far."""
        return tuple(self.hazards.found.values())

    @property
    def unordered(self) -> set[str]:
        """Barriers whose phases are no generations: an arrival may fall into either of two."""
        named = {f"barrier {number}" for number in self._scheduler.unordered}
        return self._cluster.mbarriers.unordered | named

    @property
    def log(self) -> Sequence[tuple[int, ...]]:
        """The statements executed so far, in order, with their loops."""
        return self._cluster.log

    @property
    def events(self) -> int:
        """How many there are."""
        return len(self._cluster.log)

    def observe(self, note: Callable[[str, np.ndarray[Any, Any]], None]) -> None:
        """Let ``note`` know each op that writes shared memory, and which bytes of the arena."""
        kernel = self.subject.kernel

        def told(granules: np.ndarray[Any, Any], event: int) -> None:
            origin = kernel.sites[self._cluster.log[event][0]].origin
            if origin is not None and origin.op:
                note(str(origin.op), granules.reshape(-1) * kernel.granule - kernel.arena)

        for cta in self._cluster.ctas:
            cta.shadow.told = told

    def arrivals(self) -> dict[int, int]:
        """How many arrivals each mbarrier waits for, by its byte in the arena of the first CTA."""
        arena = self.subject.kernel.arena
        counts = self._cluster.mbarriers.counts(self._cluster.ctas[0])
        return {offset - arena: count for offset, count in counts.items()}

    # Loops

    def trips(
        self, by: Entrant, low: int, high: int, step: int, around: tuple[int, ...]
    ) -> Iterator[int | None] | range:
        """Iterations of a loop: its own, or as decided."""
        self._go_on()
        if by[1] not in self._families:
            return range(low, high, step)
        return self._decided(by, around, low, step)

    def _decided(
        self, by: Entrant, around: tuple[int, ...], low: int, step: int
    ) -> Iterator[int | None]:
        place, family = self._families[by[1]]
        key, more = (place, around), family.more.get(by[1], 0)
        instance = self.instances.setdefault(key, Instance(family))
        at = 0
        if family.fixed is not None:
            instance.count, instance.closed = family.fixed, True
        while True:
            instance.begun[by], instance.reached[by] = at, low + at * step
            while at == instance.count + more and not instance.closed:
                if instance.count + family.horizon <= family.least or not family.may_end(
                    instance.count
                ):
                    instance.count += 1
                elif not self._scheduler.is_quiet:
                    yield None
                else:
                    self._scheduler.is_quiet = False
                    if self._decide(self, key, instance.count):
                        instance.count += 1
                    else:
                        instance.count += family.horizon - 1
                        instance.closed = True
            if at >= instance.count + more:
                return
            yield low + at * step
            at += 1

    def trip_count(self, number: int, own: int, around: tuple[int, ...]) -> int:
        """The trip count of a loop, ``own`` by its code; of an open one as few as may be."""
        if number not in self._families:
            return own
        place, family = self._families[number]
        instance = self.instances[place, around]
        ahead = 0 if instance.closed else family.horizon - 1
        return max(family.least, instance.count + ahead) + family.more.get(number, 0)

    # State

    def digest(self, key: Head, iteration: int) -> bytes:
        """What of the state decides about everything that follows."""
        into = Snapshot(self._cluster.clocks, self._label, self._place)
        family = self.subject.families[key[0]]
        into.plain(key[0], self._outside(family, key[1]), family.phase(iteration))
        self._scheduler.snapshot(into)
        self._cluster.snapshot(into)
        for number, group in self._groups.items():
            into.plain(number)
            group.snapshot(into, self.subject.deciding.buffers)
        self._instances(into)
        self._locals(into)
        return into.digest()

    def _instances(self, into: Snapshot) -> None:
        """Add how many iterations those behind have before them, in loops begun by others.

        What is like a count is enough where all who come have begun: where they stand says how many
        iterations each has before it. Who is still to begin has all of them.
        """
        for (at, around), instance in sorted(self.instances.items(), key=lambda one: one[0]):
            coming = self._coming(at, around)
            if around and not coming and not self._is_inside(around):
                continue
            into.plain(at, self._outside(instance.family, around))
            into.plain(instance.closed, instance.family.phase(instance.count))
            if not coming <= set(instance.begun) and instance.count:
                into.plain("of", instance.count)
            if instance.family.horizon > 1:
                left = {by: instance.count - begun for by, begun in instance.begun.items()}
                into.plain("left", sorted(left.items()))

    def _is_inside(self, around: tuple[int, ...]) -> bool:
        """Whether some thread is in these iterations of loops, the outermost first."""
        entries = (entry for _, entry in self._positions())
        return any(not entry or tuple(entry[1 : 1 + len(around)]) == around for entry in entries)

    def _positions(self) -> Iterator[tuple[int, Sequence[int]]]:
        """The thread group of each task, and its last event, or that of those it is a part of."""
        for _, task in self._scheduler.standing:
            yield task.number, self._cluster.log[max(part.at for part in task.line)]

    def _coming(self, at: int, around: tuple[int, ...]) -> set[Entrant]:
        """Who may still come to the loops of a family in iterations ``around`` of those outside."""
        return {
            (group, number)
            for own, entry in self._positions()
            for group, number in self._entrants[at]
            if group == own
            and not self._is_past((group, number), around)
            and self._may_reach(entry, number, around)
        }

    def _is_past(self, by: Entrant, around: tuple[int, ...]) -> bool:
        """Whether a thread group has come to the head of a later iteration of a loop outside."""
        group, loop = by
        for at, outer in enumerate(self.subject.inside[loop][: len(around)]):
            place, _ = self._families.get(outer, (-1, None))
            instance = self.instances.get((place, around[:at]))
            if instance and instance.reached.get((group, outer), around[at]) > around[at]:
                return True
        return False

    def _may_reach(self, entry: Sequence[int], loop: int, around: tuple[int, ...]) -> bool:
        """Whether a loop in iterations ``around`` comes behind an event, in order of the text."""
        number = self.subject.kernel.sites[entry[0]].number if entry else None
        inside = self.subject.inside.get(number, ()) if number is not None else ()
        outside = self.subject.inside[loop]
        if number is None or len(inside) != len(entry) - 1 or len(outside) != len(around):
            return True
        for other, mine, iteration, now in zip(outside, inside, around, entry[1:], strict=False):
            if other != mine:
                break
            if iteration != now:
                return iteration > now
        return number <= loop

    def _locals(self, into: Snapshot) -> None:
        """Add the named values that were read from registers which decide, and those of control.

        These are conditions, bounds of loops and which threads are active: registers that they
        come of may have changed since.
        """
        stems = tuple(f"{_clean(name)}_" for name in sorted(self.subject.deciding.named))
        stems += _CONTROL if self.subject.deciding.buffers else ()
        for _, standing in self._scheduler.standing if stems else ():
            for task in standing.line:
                frame = getattr(task.program, "gi_frame", None)
                for name, value in sorted(frame.f_locals.items()) if frame is not None else ():
                    if name.startswith(stems) and not callable(value):
                        into.plain(name, value)

    def _label(self, event: int) -> Any:
        """A statement and its loops: iterations of open ones counted back from the latest."""
        return self._named(event, _LONG_AGO)

    def _place(self, event: int) -> Any:
        """The same of where a task stands, which matters however far behind it is."""
        return self._named(event, None)

    def _named(self, event: int, most: int | None) -> Any:
        entry = self._cluster.log[event]
        if not entry:
            return ()
        number = self.subject.kernel.sites[entry[0]].number
        inside = self.subject.inside.get(number, ()) if number is not None else ()
        return (entry[0], *self._relatives(inside, entry[1:], most))

    def _outside(self, family: Family, values: Sequence[int]) -> tuple[Any, ...]:
        """Iterations of the loops around a family."""
        return self._relatives(self.subject.inside.get(min(family.numbers), ()), values, None)

    def _relatives(
        self, loops: Sequence[int], values: Sequence[int], most: int | None
    ) -> tuple[Any, ...]:
        """Iterations of nested loops: of open ones, how far back each is, and what it is like."""
        if len(loops) != len(values):
            return tuple(values)
        return tuple(
            self._relative(number, tuple(values[:at]), values[at], most)
            for at, number in enumerate(loops)
        )

    def _relative(self, number: int, outer: tuple[int, ...], value: int, most: int | None) -> Any:
        if number not in self._families:
            return value
        at, family = self._families[number]
        instance = self.instances.get((at, outer))
        if instance is None:
            return value
        behind = instance.count - value
        return (behind, family.phase(value)) if most is None or behind < most else most


class _Group(ThreadGroup):
    """A thread group whose open loops a machine decides."""

    shares = True

    def __init__(
        self, cta: Cta, dims: Block, first: int, count: int, machine: Execution, place: int
    ) -> None:
        super().__init__(cta, dims, first, count)
        self._machine, self._place = machine, place

    def trips(self, number: int, low: int, high: int, step: int, around: tuple[int, ...]) -> Any:
        return self._machine.trips((self._place, number), low, high, step, around)

    def trip_count(self, number: int, own: int, around: tuple[int, ...]) -> int:
        """The trip count of the loop that is statement ``number``, ``own`` by its code."""
        return self._machine.trip_count(number, own, around)


def _clean(stem: str) -> str:
    return "".join(ch if ch.isalnum() else "_" for ch in stem)


def _buffer_at(kernel: CompiledKernel, offset: int) -> str:
    """Name of the allocation that holds a byte of the shared window."""
    for memory in kernel.shared:
        end = None if memory.nbytes is None else memory.base + memory.nbytes
        if offset >= memory.base and (end is None or offset < end):
            return memory.name
    return "shared"
