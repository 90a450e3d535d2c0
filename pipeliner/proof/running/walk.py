"""Walk through all states that a kernel can be in at the heads of its open loops.

At each head there are two ways on: one more iteration, or none. Which follow from which is the same
whenever the state is the same, so every state needs both ways taken once. Where no way is left that
was not taken, every execution, of however many iterations, is a path of steps that were all judged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from ...emulator import Hazard
from ...errors import EmulatorError
from .branching import Branch, begin
from .execution import Abandoned, Execution, Head
from .launched import Launched
from .refuted import Refuted, refutation

State = bytes
END: Final = b""
"""The end of the kernel."""

_COPIES: Final = 32
"""Copies of the process, each of the one before, at most."""


@dataclass
class Walked:
    """What a walk has found, also in a copy of the process.

    ``steps``: for a state and a way (one more iteration?), the state that follows. ``runs``:
    executions. ``longest``: most decisions of one. ``unordered``: mbarriers whose phases are no
    generations.
    """

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

    def add(self, step: tuple[State, bool], state: State) -> None:
        """Note where a step leads; EmulatorError: elsewhere than it did before."""
        if self.steps.setdefault(step, state) != state:
            raise EmulatorError("proof.not_determined")

    def take(self, other: Walked) -> None:
        """Take in what another walk through the same states has found."""
        for step, state in other.steps.items():
            self.add(step, state)
        self.runs += other.runs
        self.longest = max(self.longest, other.longest)
        self.unordered |= other.unordered
        self.out_of_time |= other.out_of_time
        self.refuted = self.refuted or other.refuted


@dataclass
class Walk:
    """Walks one kernel, in so many ``seconds`` at most, and notes what it has ``found``.

    ``judged``: which hazards count. ``left``: in a copy of the process, ways that the others take.
    ``moving``: families of which one more iteration led elsewhere than to where it was taken.
    ``shortest``: every way out of a loop is taken before one more iteration, so that what refutes
    is as short as can be.
    """

    subject: Launched
    judged: Callable[[Hazard], bool]
    seconds: float
    found: Walked = field(default_factory=Walked)
    root: State | None = None
    left: set[tuple[State, bool]] = field(default_factory=set)
    moving: set[int] = field(default_factory=set)
    shortest: bool = False

    def explore(self) -> Walked:
        """Take every way of every state that can be reached, or find a hazard."""
        end, found = time.perf_counter() + self.seconds, self.found
        while found.is_complete and (self.root is None or self.untaken(self.root)):
            self._run(end)
            if self.root is None:
                break  # no open loop was reached: there is one execution
        if found.refuted is not None and not self.shortest and self._is_nested():
            left = max(0.0, end - time.perf_counter())
            again = Walk(self.subject, self.judged, left, shortest=True).explore()
            return again if again.refuted is not None else found
        return found

    def _is_nested(self) -> bool:
        """Whether an open loop is in another one."""
        return any(family.around for family in self.subject.families)

    def _run(self, end: float) -> None:
        """Execute the kernel once, on ways that were not taken as far as there are."""
        path = _Path(self, end)
        machine = Execution(self.subject, path.decide, path.go_on)
        try:
            machine.run()
            path.arrive(END)
        except Abandoned:
            pass
        except BaseException:
            if path.branch is not None:
                path.branch.answer(None)  # the way is taken again, in no copy
            raise
        found = self.found
        found.runs += 1
        found.unordered |= machine.unordered
        found.longest = max(found.longest, path.length)
        found.refuted = found.refuted or refutation(machine, self.judged)
        if path.branch is not None:
            path.branch.answer(path.found())

    def is_open(self, state: State, way: bool) -> bool:
        """Whether a way was not taken, and is left to nobody else."""
        return (state, way) not in self.found.steps and (state, way) not in self.left

    def untaken(self, state: State) -> list[bool]:
        """Return the ways to the nearest one that was not taken, that one last; if there is one."""
        left: deque[tuple[State, list[bool]]] = deque([(state, [])])
        seen = {state}
        while left:
            here, ways = left.popleft()
            if here == END:
                continue
            for way in (True, False):
                if self.is_open(here, way):
                    return [*ways, way]
                following = self.found.steps.get((here, way), END)
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
        self._head: Head | None = None  # of the last way
        self._unchecked = 0  # known steps that are still to be checked, as the run came otherwise
        self.branch: Branch | None = None  # in a copy of the process
        self._copies = 0  # of the process, one of the other, to which this one belongs
        self._known = 0  # steps that were known when it began

    def decide(self, machine: Execution, key: Head, iteration: int) -> bool:
        """Return whether there is one more iteration."""
        walk = self._walk
        state = self._arrived(machine, key, iteration)
        self._compare(state, key)
        self.go_on()
        if any(map(walk.judged, machine.found)):
            raise Abandoned
        self.length += 1
        if walk.is_open(state, True) and walk.is_open(state, False) and self._copies < _COPIES:
            self._planned.clear()
            self._planned.append(self._comes_back(key) or not self._is_copy(state))
        if not self._planned:
            self._planned.extend(walk.untaken(state))
        if not self._planned:
            raise Abandoned
        self._last, self._head = (state, self._planned.popleft()), key
        return self._last[1]

    def _comes_back(self, key: Head) -> bool:
        """Whether one more iteration is likely to lead to where it is taken: of a loop in others.

        From there this run can go on the other way, and no copy is needed. If it leads elsewhere,
        that way is left to another run.
        """
        walk = self._walk
        return not walk.shortest and bool(key[1]) and key[0] not in walk.moving

    def _compare(self, state: State, key: Head) -> None:
        """Note where one more iteration led."""
        if self._head == key and self._last not in (None, (state, True)):
            self._walk.moving.add(key[0])

    def _is_copy(self, state: State) -> bool:
        """Let a copy of this process go on without one more iteration; whether this is the copy.

        In this process what it has found is known then. Where it finds nothing, that way is left.
        """
        walk = self._walk
        branch = begin(self._end)
        if branch is None:
            self._copies = _COPIES
            return False
        if branch.is_own:
            self.branch = branch
            self._copies += 1
            self._known = len(walk.found.steps)
            walk.left.add((state, True))
            walk.found.runs = 0
            return True
        found: Walked | None = branch.result()
        if found is not None:
            self._take(found)
        return False

    def found(self) -> Walked:
        """What this copy of the process has found, beyond what it knew."""
        found = self._walk.found
        return replace(found, steps=dict(islice(found.steps.items(), self._known, None)))

    def _take(self, found: Walked) -> None:
        """Take in what a copy has found."""
        self._walk.found.take(found)
        if not self._walk.found.is_complete:
            raise Abandoned

    def go_on(self) -> None:
        """End the run where the time is spent."""
        if time.perf_counter() > self._end:
            self._walk.found.out_of_time = True
            raise Abandoned

    def _arrived(self, machine: Execution, key: Head, iteration: int) -> State:
        """The state at a head: as known, as long as the run repeats another one.

        Behind each way that is new a step that is known is checked: the run came there otherwise.
        """
        walk = self._walk
        known = walk.root if self._last is None else walk.found.steps.get(self._last)
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
        self._walk.found.add(self._last, state)
