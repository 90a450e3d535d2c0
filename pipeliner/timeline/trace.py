"""A planned loop in model time: when each op issues, runs and is done, and why it stalls.

The model is that of the plan's numbers, for one CTA that has its SM to itself:

- Ops issue in order. One that must wait (for an operand, a slot, its pipe) holds up what follows;
  one that only queues for memory does not.
- A pipe (``lsu``, ``tensor``, ...) works on one op at a time, for its occupancy; the result is
  there after its latency. Memory requests queue at their pipe, those of one op for one iteration.
- A wait holds until what it waits for has landed; a copy that no wait names is made by the threads
  themselves, who hold until it is done. A barrier holds until the accesses before it are through.

It is not a measurement: other CTAs of the SM would fill the gaps, and caches, conflicts and clocks
move every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..machine import Machine
from ..plan import LoopPlan, OpPlan
from ..values.op import Op
from .program import PHASES, Issue, Phase, Slot, awaited, is_shared, program

Cause = Literal[
    "pipe busy", "copy in flight", "load in flight", "result not ready", "slot in use", "barrier"
]
"""What holds up the issue of an op."""

BARRIER: Final = Op("<barrier>")
ARRIVE: Final = Op("<arrive>")
"""Names of the events at a barrier: threads finish their accesses, then meet."""

_QUEUES: Final = frozenset({"lsu", "l2", "tma"})
"""Pipes whose requests queue: the threads that issue them go on."""

_LATE: Final[dict[str, Cause]] = {"copy": "copy in flight", "load": "load in flight"}
"""What a consumer waits for, by the kind of the producer."""

_EDGE_KINDS: Final = frozenset({"RAW", "WAR", "WAW"})

_BARRIER_OP: Final = OpPlan(BARRIER, "wait", BARRIER, "sync", 0, 0)
_ARRIVE_OP: Final = OpPlan(ARRIVE, "wait", BARRIER, "sync", 0, 0)

_MEASURED: Final = 48
"""Iterations over which the pace of the steady state is measured, after as many to settle."""


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of an op, in cycles from the start of the loop.

    ``start``: it has its pipe. ``busy``: the pipe is free again. ``end``: the result is there.
    ``resume``: what follows in the program may issue. It was stalled for the ``stall`` cycles
    before that, because of ``cause`` by ``culprit`` (an op, a pipe or a buffer).
    """

    op: Op
    kind: str
    pipe: str
    iteration: int
    step: int
    stage: int
    part: Phase
    start: int
    busy: int
    end: int
    resume: int
    stall: int = 0
    cause: Cause | None = None
    culprit: str = ""
    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A run of one loop. ``steps``: cycle at which the issue of each step begins, and the end."""

    loop: LoopPlan
    iterations: int
    events: tuple[Event, ...]
    steps: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """From the first issue until the last result is there."""
        return max((event.end for event in self.events), default=0)

    @property
    def parts(self) -> dict[Phase, tuple[int, int]]:
        """The parts that the run has, in cycles.

        One lasts until the first op of the next is reached that is no wait: what the loop waits for
        first is the filling of the pipeline.
        """
        begins: dict[Phase, int] = {}
        for event in self.events:
            if event.kind != "wait":
                begins.setdefault(event.part, event.resume - event.stall)
        found = [part for part in PHASES if part in begins]
        inner = [begins[part] for part in found[1:]]
        return dict(zip(found, zip((0, *inner), (*inner, self.cycles))))


@dataclass(frozen=True, slots=True)
class Hold:
    """Cycles of one steady iteration that go by before the next op can issue, and why."""

    cause: Cause
    culprit: str
    cycles: float


@dataclass(frozen=True, slots=True)
class Steady:
    """The pace of a loop that runs for long.

    ``cycles``: of one iteration. ``holds``: where they go, the largest first; they add up to
    ``cycles``. ``busy``: cycles of one iteration for which each pipe works. ``barriers``: of one
    iteration.
    """

    cycles: float
    holds: tuple[Hold, ...]
    busy: Mapping[str, int]
    barriers: float

    @property
    def exposed(self) -> float:
        """Cycles of one iteration in which the busiest pipe has nothing to do."""
        return self.cycles - max(self.busy.values(), default=0)


def trace(loop: LoopPlan, iterations: int, machine: Machine, *, barriers: bool = True) -> Trace:
    """``loop`` run for ``iterations`` iterations on ``machine``.

    ``barriers``: whether the kernel has any (``KernelPlan.sync``).
    """
    run = _Run(loop, machine)
    for issue in program(loop, iterations, barriers=barriers):
        run.issue(issue)
    return Trace(loop, iterations, tuple(run.events), (*run.steps, run.front))


def steady(loop: LoopPlan, machine: Machine, *, barriers: bool = True) -> Steady:
    """The pace at which ``loop`` settles."""
    first = loop.stages - 1 + _MEASURED
    last = first + _MEASURED
    run = trace(loop, last, machine, barriers=barriers)
    measured = [event for event in run.events if first <= event.step < last]
    stalls: dict[tuple[Cause, str], int] = {}
    for event in measured:
        if event.cause is not None:
            key = (event.cause, event.culprit)
            stalls[key] = stalls.get(key, 0) + event.stall
    found = stalls.items()
    holds = [Hold(cause, culprit, cycles / _MEASURED) for (cause, culprit), cycles in found]
    busy: dict[str, int] = {}
    for op in loop.ops:
        if op.pipe != "sync":
            busy[op.pipe] = busy.get(op.pipe, 0) + op.occupancy
    return Steady(
        cycles=(run.steps[last] - run.steps[first]) / _MEASURED,
        holds=tuple(sorted(holds, key=lambda hold: (-hold.cycles, hold.cause, hold.culprit))),
        busy=busy,
        barriers=sum(event.op == BARRIER for event in measured) / _MEASURED,
    )


@dataclass(frozen=True, slots=True)
class _Arc:
    """Op ``src`` of ``distance`` iterations before: its result, or only that its pipe is free."""

    src: Op
    distance: int
    result: bool
    cause: Cause
    culprit: str


@dataclass(frozen=True, slots=True)
class _Need:
    """Something that an op waits for: when it is met, and what to call it."""

    at: int
    cause: Cause
    culprit: str


class _Run:
    """The clock: issues ops one after the other. ``front``: when the next op may issue."""

    def __init__(self, loop: LoopPlan, machine: Machine) -> None:
        self._machine = machine
        self._awaited = awaited(loop)
        self._asynchronous = {copy for copies in self._awaited.values() for copy in copies}
        self._shared = {ring.buffer for ring in loop.rings if is_shared(ring)}
        self._arcs = _arcs(loop)
        self._done: dict[tuple[Op, int], Event] = {}
        self._newest: dict[Op, Event] = {}
        self._free: dict[str, int] = {}
        self._access: Event | None = None
        self.front = 0
        self.events: list[Event] = []
        self.steps: list[int] = []

    def issue(self, issue: Issue) -> None:
        """Run one op, after the barrier before it."""
        while len(self.steps) <= issue.step:
            self.steps.append(self.front)
        if issue.barrier:
            self._meet(issue)
        if issue.runs and issue.op.kind == "wait":
            self._wait(issue)
        elif issue.runs:
            self._start(issue)

    def _meet(self, issue: Issue) -> None:
        """All threads arrive, which they do when their accesses are through, and meet."""
        place = replace(issue, op=_BARRIER_OP, reads=(), writes=())
        last = self._access
        if last is not None and last.busy > self.front:
            self._stand(replace(place, op=_ARRIVE_OP), last.busy, "pipe busy", last.pipe)
        self._stand(place, self.front + self._machine.barrier_cycles, "barrier", "")

    def _wait(self, issue: Issue) -> None:
        if issue.op.name in self._awaited:
            keys = [(copy, issue.iteration) for copy in self._awaited[issue.op.name]]
            copies = [self._done[key] for key in keys if key in self._done]
        else:  # the one behind the loop, for every copy
            copies = [self._newest[copy] for copy in self._newest if copy in self._asynchronous]
        last = max(copies, key=lambda copy: copy.end, default=None)
        passed = self.front + issue.op.latency
        if last is not None and last.end > passed:
            self._stand(issue, last.end, "copy in flight", last.op)
        else:
            self._stand(issue, passed, "pipe busy", issue.op.pipe)

    def _stand(self, issue: Issue, end: int, cause: Cause, culprit: str) -> None:
        """All threads stand still until ``end``."""
        begin, self.front = self.front, end
        self._record(issue, (begin, end, end), end - begin, cause, culprit)

    def _start(self, issue: Issue) -> None:
        op, begin = issue.op, self.front
        needs = self._needs(issue)
        queued = self._free.get(op.pipe, 0)
        before = self._newest.get(op.name)
        ready = queued if op.pipe not in _QUEUES else 0 if before is None else before.busy
        needs.insert(0, _Need(ready, "pipe busy", op.pipe))
        latest = max(needs, key=lambda need: need.at)
        self.front = max(begin, latest.at)
        start = max(self.front, queued)
        busy, end = start + op.occupancy, start + op.latency
        self._free[op.pipe] = busy
        if op.kind == "copy" and op.name not in self._asynchronous:
            latest, self.front = _Need(end, "copy in flight", op.name), end
        times = (start, busy, end)
        event = self._record(issue, times, self.front - begin, latest.cause, latest.culprit)
        if op.name not in self._asynchronous and self._touches_shared(issue):
            self._access = max(self._access or event, event, key=lambda access: access.busy)

    def _touches_shared(self, issue: Issue) -> bool:
        return any(slot.ring in self._shared for slot in (*issue.reads, *issue.writes))

    def _needs(self, issue: Issue) -> list[_Need]:
        """What the op needs of those before it."""
        found = []
        for arc in self._arcs.get(issue.op.name, ()):
            event = self._done.get((arc.src, issue.iteration - arc.distance))
            if event is not None:
                at = event.end if arc.result else event.busy
                found.append(_Need(at, arc.cause, arc.culprit))
        return found

    def _record(
        self, issue: Issue, times: tuple[int, int, int], stall: int, cause: Cause, culprit: str
    ) -> Event:
        op = issue.op
        event = Event(
            op=op.name,
            kind=op.kind,
            pipe=op.pipe,
            iteration=issue.iteration,
            step=issue.step,
            stage=op.stage,
            part=issue.part,
            start=times[0],
            busy=times[1],
            end=times[2],
            resume=self.front,
            stall=stall,
            cause=cause if stall else None,
            culprit=culprit if stall else "",
            reads=issue.reads,
            writes=issue.writes,
            repeats=issue.repeats,
        )
        self.events.append(event)
        self._done[op.name, issue.iteration] = event
        self._newest[op.name] = event
        return event


def _arcs(loop: LoopPlan) -> dict[Op, list[_Arc]]:
    """By op what must be before it: the plan's edges, and the slots of its rings.

    Only RAW waits for results. An accumulator is passed on element by element: the next op of its
    pipe starts when the one before has issued.
    """
    ops = {op.name: op for op in loop.ops}
    kinds: dict[tuple[Op, Op, str, int], set[str]] = {}
    for edge in loop.edges:
        kinds.setdefault((edge.src, edge.dst, edge.buffer, edge.distance), set()).add(edge.kind)
    arcs: dict[Op, list[_Arc]] = {}
    for (src, dst, buffer, distance), found in kinds.items():
        accumulates = len(found) == len(_EDGE_KINDS) and ops[src].pipe == ops[dst].pipe
        if "RAW" in found and not accumulates:
            arc = _Arc(src, distance, True, _LATE.get(ops[src].kind, "result not ready"), src)
        elif accumulates:
            arc = _Arc(src, distance, False, "pipe busy", ops[src].pipe)
        else:
            arc = _Arc(src, distance, False, "slot in use", buffer)
        arcs.setdefault(dst, []).append(arc)
    for ring in loop.rings:
        for producer in ring.producers:
            for user in dict.fromkeys((*ring.consumers, *ring.producers)):
                arc = _Arc(user, ring.depth, False, "slot in use", ring.buffer)
                arcs.setdefault(producer, []).append(arc)
    return arcs
