"""Walk through all states that a kernel can be in at the heads of its open loops.

At each head there are two ways on: one more iteration, or none. Which follow from which is the same
whenever the state is the same, so every state needs both ways taken once. Where no way is left that
was not taken, every execution, of however many iterations, is a path of steps that were all judged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..diagnostics import Reason
from ..emulator import Hazard
from ..errors import EmulatorError
from .branching import Attempt, begin
from .execution import Abandoned, Execution, Head, Launched

State = bytes
END: Final = b""
"""The end of the kernel."""


@dataclass(frozen=True)
class Trip:
    """How many iterations one run through a loop made."""

    loop: str
    around: tuple[int, ...]
    count: int
    closed: bool

    @property
    def said(self) -> Reason:
        """In words."""
        if not self.around:
            return Reason("proof.trip", loop=self.loop, count=self.count)
        around = ", ".join(map(str, self.around))
        return Reason("proof.trip_at", loop=self.loop, count=self.count, around=around)


@dataclass(frozen=True)
class Refuted:
    """An execution that is wrong: its trip counts and what is wrong with it."""

    trips: tuple[Trip, ...]
    hazard: Hazard

    @property
    def said(self) -> Reason:
        """In words: trip counts and the two statements."""
        trips = tuple(trip.said for trip in self.trips)
        return Reason("proof.run", trips=trips, hazard=str(self.hazard))


@dataclass
class Walk:
    """What was found of one kernel in so many ``seconds`` at most.

    ``judged``: which hazards count. ``steps``: for a state and a way (one more iteration?), the
    state that follows. ``runs``: executions. ``longest``: most decisions of one.
    ``unordered``: mbarriers whose phases are no generations.
    """

    subject: Launched
    judged: Callable[[Hazard], bool]
    seconds: float
    root: State | None = None
    steps: dict[tuple[State, bool], State] = field(default_factory=dict)
    runs: int = 0
    longest: int = 0
    refuted: Refuted | None = None
    out_of_time: bool = False
    unordered: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether every way of every state was taken, and all were right."""
        return self.refuted is None and not self.out_of_time

    @property
    def states(self) -> int:
        """How many there are."""
        return len({state for state, _ in self.steps})

    def explore(self) -> Walk:
        """Take every way of every state that can be reached, or find a hazard."""
        end = time.perf_counter() + self.seconds
        while self.is_complete and (self.root is None or self.untaken(self.root)):
            self._run(end)
            if self.root is None:
                break  # no open loop was reached: there is one execution
        return self

    def _run(self, end: float) -> None:
        """Execute the kernel once, on ways that were not taken as far as there are."""
        path = _Path(self, end)
        machine = Execution(self.subject, path.decide, path.go_on)
        try:
            machine.run()
            if path.attempt is not None:
                is_wrong = any(map(self.judged, machine.found))
                path.attempt.answer(not (is_wrong or machine.unordered))
            path.arrive(END)
        except Abandoned:
            pass
        finally:
            if path.attempt is not None:
                path.attempt.answer(False)
        self.runs += 1
        self.unordered |= machine.unordered
        self.longest = max(self.longest, path.length)
        wrong = [hazard for hazard in machine.found if self.judged(hazard)]
        if wrong:
            trips = tuple(
                Trip(one.family.name, key[1], one.count, one.closed)
                for key, one in machine.instances.items()
            )
            self.refuted = Refuted(trips, wrong[0])

    def untaken(self, state: State) -> list[bool]:
        """Return the ways to the nearest one that was not taken, that one last; if there is one."""
        left: deque[tuple[State, list[bool]]] = deque([(state, [])])
        seen = {state}
        while left:
            here, ways = left.popleft()
            if here == END:
                continue
            for way in (True, False):
                following = self.steps.get((here, way))
                if following is None:
                    return [*ways, way]
                if following not in seen:
                    seen.add(following)
                    left.append((following, [*ways, way]))
        return []


class _Path:
    """The decisions of one run: along known states to a way that was not taken, and further."""

    def __init__(self, walk: Walk, end: float) -> None:
        self._walk = walk
        self._end = end
        self.length = 0
        self._planned: deque[bool] = deque()
        self._last: tuple[State, bool] | None = None
        self._unchecked = 0  # known steps that are still to be checked, as the run came otherwise
        self.attempt: Attempt | None = None  # of one way alone, in a process of its own

    def decide(self, machine: Execution, key: Head, iteration: int) -> bool:
        """Return whether there is one more iteration."""
        walk = self._walk
        if self.attempt is not None:
            raise Abandoned  # it does not end there
        state = self._arrived(machine, key, iteration)
        self.go_on()
        if any(map(walk.judged, machine.found)):
            raise Abandoned
        self.length += 1
        if not key[1] and (state, False) not in walk.steps and not self._ends_well(state):
            self._planned.clear()
            self._last = state, False
            return False
        if not self._planned:
            self._planned.extend(walk.untaken(state))
        if not self._planned:
            raise Abandoned
        self._last = state, self._planned.popleft()
        return self._last[1]

    def _ends_well(self, state: State) -> bool:
        """Try in another process whether the kernel ends well without one more iteration.

        If so, the step is noted; if not, that way is for this run. In that process it is, too.
        """
        self.attempt = begin(self._end)
        if self.attempt is None or self.attempt.is_own:
            return False
        succeeded, self.attempt = self.attempt.succeeded(), None
        if succeeded:
            self._walk.steps[state, False] = END
        return succeeded

    def go_on(self) -> None:
        """End the run where the time is spent."""
        if time.perf_counter() > self._end:
            self._walk.out_of_time = True
            raise Abandoned

    def _arrived(self, machine: Execution, key: Head, iteration: int) -> State:
        """The state at a head: as known, as long as the run repeats another one.

        Behind each way that is new a step that is known is checked: the run came there otherwise.
        """
        walk = self._walk
        known = walk.root if self._last is None else walk.steps.get(self._last)
        if known is not None:
            self._unchecked -= 1
            if self._unchecked < 0:
                return known
        else:
            self._unchecked = 1
        state = machine.digest(key, iteration)
        self.arrive(state)
        return state

    def arrive(self, state: State) -> None:
        """Note where the last way led; EmulatorError: elsewhere than it did before."""
        if self._last is None:
            if state != END:
                self._walk.root = state
            return
        if self._walk.steps.setdefault(self._last, state) != state:
            raise EmulatorError("proof.not_determined")
