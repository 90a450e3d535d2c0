"""What the CTAs of one launch have in common: their accesses, what was released, their barrier.

A *release* is what a thread made known at the scope of the GPU; ``scoped`` says when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...diagnostics import Reason
from ...errors import EmulatorError
from ..base.clocks import Clock, Clocks

Array = np.ndarray[Any, Any]
Block = tuple[int, int, int]
At = tuple[int, ...]

SCOPES: Final = ("cta", "cluster", "gpu", "sys")
"""Scopes of synchronisation, each within the next."""

_ENGINES: Final = 4096
"""Engines that a cluster may have beside four for each thread."""


@dataclass(eq=False)
class Release:
    """What one thread of a cluster knew when it released it; ``known``: of other clusters."""

    cluster: int
    thread: int
    scope: int
    clock: Clock | None
    known: tuple[Release, ...]

    def covers(self, cluster: int, agent: int, event: int) -> bool:
        """Whether an event of a cluster happens before this release."""
        if cluster == self.cluster and self.clock is not None:
            return bool(self.clock.of(agent) >= event)
        return any(release.covers(cluster, agent, event) for release in self.known)


@dataclass(frozen=True, eq=False)
class Value:
    """What a strong write left at an address: by whom, at which scope, and what it released."""

    cluster: int
    thread: int
    scope: int
    releases: tuple[Release, ...]


class Meeting(Release):
    """What all threads of a grid knew when they met: the clock of each cluster."""

    def __init__(self, clocks: dict[int, Clock]) -> None:
        super().__init__(-1, -1, SCOPES.index("gpu"), None, ())
        self.clocks = clocks

    def covers(self, cluster: int, agent: int, event: int) -> bool:
        """Whether an event of a cluster happens before they met."""
        clock = self.clocks.get(cluster)
        return clock is not None and bool(clock.of(agent) >= event)


class GridBarrier:
    """The phases of the barrier for so many ``threads``: those of the CTAs that are run."""

    def __init__(self, threads: int, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self._threads = threads
        self._arrived = 0
        self._building: dict[int, Clock] = {}
        self._met: list[Meeting] = []

    def arrive(self, cluster: int, clocks: Clocks, tids: Array, event: int) -> int:
        """Let ``tids`` of a cluster arrive and return the phase that they wait for."""
        clock = clocks.release(tids, event)
        known = self._building.get(cluster)
        self._building[cluster] = clock if known is None else clocks.merged(known, clock)
        self._arrived += len(tids)
        phase = len(self._met)
        if self._arrived >= self._threads:
            self._met.append(Meeting(self._building))
            self._building, self._arrived = {}, 0
        return phase

    def met(self, phase: int) -> Meeting | None:
        """What all threads knew at the end of a phase; None: some have not arrived."""
        return self._met[phase] if phase < len(self._met) else None

    def state(self) -> Reason:
        """What it waits for."""
        return Reason("hazard.grid_barrier", arrived=self._arrived, expected=self._threads)


@dataclass(eq=False)
class Grid:
    """One launch: its clusters by number, and where each judged access was made."""

    blocks: list[list[Block]] = field(default_factory=list)
    sites: dict[tuple[int, int], At] = field(default_factory=dict)
    values: dict[tuple[int, int], Value] = field(default_factory=dict)
    agents: int = _ENGINES  # of one cluster, at most
    changes: int = 0  # of memory, that a thread of another cluster may wait for
    barrier: GridBarrier | None = None
    waited: bool = False  # a thread has, for the preceding kernel
    crowds: list[tuple[int, Array]] = field(default_factory=list)  # cluster and threads of each
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def crowd(self, cluster: int, threads: Array) -> int:
        """The agent that stands for some threads of a cluster."""
        key = cluster, threads.tobytes()
        if key not in self._numbers:
            self.crowds.append((cluster, threads))
            self._numbers[key] = -len(self.crowds)
        return self._numbers[key]

    def enter(self, blocks: list[Block], threads: int) -> int:
        """Enter the next cluster, of so many threads, and return its number."""
        self.agents = 4 * threads + _ENGINES
        self.blocks.append(blocks)
        if len(self.blocks) * self.agents >= 2**31:
            raise EmulatorError("emulator.clusters", most=len(self.blocks) - 1)
        return len(self.blocks) - 1
