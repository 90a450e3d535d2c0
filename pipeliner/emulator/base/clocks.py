"""What each thread of a cluster knows of every other's past: vector clocks whose units are events.

Time is the number of the statement being executed by the cluster (its *event*; the log of events
gives statement and iteration).  ``known(t, u)`` is the last event of agent u that happens before
the present of thread t: an access at event e by u is ordered before it iff ``e <= known(t, u)``.
The order in which the emulator happened to run things plays no part.

Agents are the threads and asynchronous engines: one for every mbarrier (the copies that it counts),
for the matrix unit of every warpgroup and for the bulk stores of a thread.

Plane 0 is what is known. The next is what is followed, on its way to the present of t, by a proxy
fence (PTX ISA 8.8, causality order: accesses through different proxies need one).

Clocks of all threads are as many numbers as threads squared. Threads that did everything together
(``Classes``) know the same, and others know the same of them, so there is a row and a column for a
class. Within a class, ``_state`` has what one knows of another, and ``_own`` what each knows of
itself; in a class of one both are the latter. Where only some of a class do something, it divides:
row and column of the new class are those of the old one, so what is told is exact.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .classes import Classes

Array = np.ndarray[Any, Any]

_SELF: Final = 2**31 - 2
"""What a thread knows of itself: all of its past, but not what is still in flight."""

_NEVER: Final = 0
"""The column of "never written"."""

_ROOM: Final = 16
"""Rows and columns that a clock begins with."""


class Clock:
    """What may be known of each agent: (planes, columns), those of its time."""

    __slots__ = ("_clocks", "values")

    def __init__(self, clocks: Clocks, values: Array) -> None:
        self._clocks = clocks
        self.values = values

    def whole(self) -> Array:
        """Return the values of all columns that there are by now."""
        clocks, width = self._clocks, self.values.shape[1]
        if width < clocks.columns:
            wide = np.zeros((len(self.values), clocks.columns), np.int32)
            wide[:, :width] = self.values
            for column in range(width, clocks.columns):
                source = clocks.sources[column]
                if source >= 0:
                    wide[:, column] = wide[:, source]
            self.values = wide
        return self.values

    def of(self, agents: Any, plane: int = 0) -> Any:
        """What is known of agents; nothing of engines made later."""
        return self.whole()[plane, self._clocks.at[agents]]

    def pass_on(self, engine: int, event: int) -> None:
        """Let who acquires this know all that an engine has done by now."""
        self.whole()[:, self._clocks.at[engine]] = event

    def copy(self) -> Clock:
        """Return one that changes by itself."""
        return Clock(self._clocks, self.values.copy())


class Clocks:
    """Vector clocks of all threads of one cluster; ``proxies`` adds fences and engines.

    ``of_cta``: threads of one CTA, all of them unless given. ``mixed``: with fences of global
    memory, which is touched through both proxies. ``timed``: with what is earlier in time, whether
    or not it can be seen.

    ``at``: by agent, its column. ``sources``: by column, the one that it was divided from, or -1.
    """

    def __init__(
        self,
        threads: int,
        *,
        proxies: bool,
        mixed: bool = False,
        timed: bool = False,
        of_cta: int = 0,
    ) -> None:
        self.threads = threads
        self._of_cta = of_cta or threads
        self.never = threads  # agent of "never written": known to nobody
        self._fences = proxies + mixed
        self._timed = timed
        self._planes = 1 + self._fences + timed
        self._used = threads + 1  # agents
        self._classes = Classes(threads)
        self.at = np.ones(threads + 1, np.int64)
        self.at[self.never] = _NEVER
        self.sources = [-1, -1]
        self._column = np.ones(1, np.int64)  # by class
        self._single = np.array([threads == 1])  # by class
        self._lives = np.ones(1, np.bool_)  # whether its threads may go on
        self._state = np.zeros((_ROOM, self._planes, _ROOM), np.int32)
        self._state[:, :, _NEVER] = -1
        self._own = np.zeros((_ROOM, self._planes), np.int32)
        self._own[:, 0] = _SELF
        self._mirror(0)
        self._floor = np.zeros(_ROOM, np.int32)  # by class: the least that is known of any thread
        self.lowest = 0  # of these

    # Classes

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.sources)

    @property
    def plane(self) -> int:
        """The plane of a clock that says what is fenced in shared memory."""
        return min(1, self._fences)

    @property
    def has_engines(self) -> bool:
        """Whether there are agents besides the threads."""
        return self._used > self.threads + 1

    def _rows(self, tids: Array) -> Array:
        """Return the classes of threads, which are divided if need be."""
        rows = self._classes.known(tids)
        if rows is None:
            for old, new in self._classes.divided(tids):
                self._divide(old, new)
            rows = self._classes.known(tids)
            assert rows is not None
        return rows

    def _divide(self, old: int, new: int) -> None:
        """Add the row and the column of a ``new`` class, which are those of the ``old`` one."""
        source = int(self._column[old])
        column = self._add_column(source)
        if new == len(self._state):
            self._state = np.concatenate([self._state, np.zeros_like(self._state)])
            self._own = np.concatenate([self._own, np.zeros_like(self._own)])
            self._floor = np.concatenate([self._floor, np.zeros_like(self._floor)])
        self._state[:new, :, column] = self._state[:new, :, source]
        self._state[new], self._own[new] = self._state[old], self._own[old]
        self._floor[new] = self._floor[old]
        self._column = np.append(self._column, column)
        self._lives = np.append(self._lives, self._lives[old])
        self._single = np.array([size == 1 for size in self._classes.sizes])
        self.at[: self.threads] = self._column[self._classes.of]
        self._mirror(old)
        self._mirror(new)

    def _mirror(self, row: int) -> None:
        """Let a class of one know of its only thread what that knows of itself."""
        if self._single[row]:
            self._state[row, :, self._column[row]] = self._own[row]

    def _add_column(self, source: int) -> int:
        if self.columns == self._state.shape[2]:
            self._state = np.concatenate([self._state, np.zeros_like(self._state)], axis=2)
        self.sources.append(source)
        return self.columns - 1

    def engine(self) -> int:
        """Return the agent of a new engine."""
        column = self._add_column(-1)
        self.at = np.append(self.at, column)
        self._used += 1
        return self._used - 1

    def end(self, tids: Array) -> None:
        """Note that threads make no more accesses."""
        rows = self._rows(tids)
        self._lives[rows] = False

    # What is known

    def known(self, who: Any, agents: Any, plane: int = 0) -> Any:
        """What threads know of agents, one of each, or of one."""
        rows = self._classes.of[who]
        _, planes, room = self._state.shape
        found = self._state.reshape(-1)[(rows * planes + plane) * room + self.at[agents]]
        own = self._own[rows, plane] if plane else _SELF
        return np.where(np.equal(who, agents), own, found)

    def of_engine(self, who: Array, engine: int) -> Array:
        """What threads know of an engine."""
        found: Array = self._state[:, 0, self.at[engine]][self._classes.of[who]]
        return found

    def earlier(self, who: Array, engine: int) -> Array:
        """Of an mbarrier: the last phase that had completed at some time before now."""
        found: Array = self.known(who, engine, self._planes - 1 if self._timed else 0)
        return found

    def fenced_globally(self, thread: int, agents: Any) -> Any:
        """What a thread knows of agents that is fenced in global memory."""
        return self.known(thread, agents, self._fences)

    def row(self, thread: int, plane: int = 0) -> Array:
        """What a thread knows of every agent."""
        row = self._classes.of[thread]
        found: Array = self._state[row, plane, self.at]
        found[thread] = self._own[row, plane]
        return found

    def of_threads(self, who: Array) -> Array:
        """What each of some threads knows of every one: a row for each."""
        found: Array = self._state[self._classes.of[who], 0][:, self.at[: self.threads]]
        found[np.arange(len(who)), who] = _SELF
        return found

    def floor(self, who: Array) -> Array:
        """The least that each of some threads knows of any other."""
        found: Array = self._floor[self._classes.of[who]]
        return found

    def covered(self) -> Array:
        """By agent, the last event that every thread that may go on knows, fenced if need be."""
        count = self._classes.count
        whole = self._state[:count, : self.plane + 1, : self.columns]
        least: Array = whole[self._lives].min(axis=(0, 1), initial=_SELF)
        return least[self.at]

    # What a digest has of it

    def views(self, agents: Array) -> tuple[Array, Array]:
        """What threads know of ``agents``: by thread, which row, and rows (planes, agents).

        Only of threads that may go on; then once what those of each CTA that may not know together.
        """
        count = self._classes.count
        planes = [*range(self.plane + 1), *([self._planes - 1] if self._timed else [])]
        whole = self._state[:count][:, planes]
        single = np.flatnonzero(self._single)
        whole[single, 0, self._column[single]] = 0  # each knows all of itself: that says nothing
        whole = whole[:, :, self.at[agents]]
        lives = self._lives[self._classes.of]
        which = self._classes.of[lives]
        if lives.all():
            return which, whole
        ended = self._classes.of.reshape(-1, self._of_cta), ~lives.reshape(-1, self._of_cta)
        together = np.stack(
            [whole[rows[some]].max(axis=0, initial=0) for rows, some in zip(*ended, strict=True)]
        )
        rows = np.append(which, count + np.arange(len(together)))
        return rows, np.concatenate([whole, together])

    def of_themselves(self, agents: Array) -> Array:
        """What ``agents`` that are threads know of themselves beyond plane 0, 0 for engines."""
        found = np.zeros((self._planes - 1, len(agents)), np.int32)
        threads = np.flatnonzero(agents < self.threads)
        found[:, threads] = self._own[self._classes.of[agents[threads]], 1:].T
        return found

    # What changes it

    def blank(self) -> Clock:
        """Return a clock that knows of the launch alone."""
        values = np.zeros((self._planes, self.columns), np.int32)
        values[:, _NEVER] = -1
        return Clock(self, values)

    def release(self, tids: Array, event: int) -> Clock:
        """Return what ``tids`` know together at ``event``, for others to acquire."""
        rows = self._rows(tids)
        values: Array = self._state[rows, :, : self.columns].max(axis=0)
        mine = self._column[rows]
        values[:, mine] = np.maximum(values[:, mine], self._own[rows].T)
        values[0, mine] = event
        return Clock(self, values)

    def precede(self, clock: Clock, tids: Array) -> None:
        """Let who acquires ``clock`` come later in time than what ``tids`` do now."""
        if self._timed:
            rows = self._rows(tids)
            earlier = self._state[rows, -1, : self.columns].max(axis=0)
            earlier[self._column[rows]] = np.maximum(
                earlier[self._column[rows]], self._own[rows, -1]
            )
            values = clock.whole()
            np.maximum(values[-1], earlier, out=values[-1])

    def arrive(self, clock: Clock, tids: Array, event: int) -> None:
        """Let who acquires ``clock`` know what ``tids`` did by ``event``."""
        rows = self._rows(tids)
        mine = self._column[rows]
        values = clock.whole()
        values[0, mine] = np.maximum(values[0, mine], event)

    def merged(self, first: Clock, second: Clock) -> Clock:
        """Return a clock that knows what either does."""
        return Clock(self, np.maximum(first.whole(), second.whole()))

    def acquire(self, tids: Array, clock: Clock) -> None:
        """Order the past of ``clock`` before the present of ``tids``."""
        rows = self._rows(tids)
        values = clock.whole()
        known = np.maximum(self._state[rows, :, : self.columns], values)
        self._state[rows, :, : self.columns] = known
        self._own[rows] = np.maximum(self._own[rows], values[:, self._column[rows]].T)
        self._floor[rows] = known[:, 0, self._column].min(axis=1)
        self.lowest = int(self._floor[: self._classes.count].min())

    def learn(self, tids: Array, engine: int, event: int) -> None:
        """Let ``tids`` know what an engine did by ``event``."""
        rows, column = self._rows(tids), self.at[engine]
        self._state[rows, 0, column] = np.maximum(self._state[rows, 0, column], event)

    def mark(self, tids: Array, engine: int) -> None:
        """Let ``tids``, and who synchronises with them, know all that an engine stands for."""
        rows = self._rows(tids)
        self._state[rows, :, self.at[engine]] = 1

    def join(self, tids: Array, now: int) -> None:
        """Complete a barrier among ``tids`` at event ``now``."""
        self.acquire(tids, self.release(tids, now))

    def fence(self, tids: Array, event: int, *, spaces: tuple[str, ...]) -> None:
        """Run a proxy fence: what the threads know by now may be used through any proxy."""
        if not self._fences:
            return
        rows = self._rows(tids)
        known = self._state[rows, 0, : self.columns]
        alone = np.flatnonzero(self._single[rows])
        known[alone, self._column[rows[alone]]] = event
        planes = [self.plane] if "shared" in spaces else []
        if "global" in spaces and self._fences > 1:
            planes.append(self._fences)
        for plane in planes:
            fenced = np.maximum(self._state[rows, plane, : self.columns], known)
            self._state[rows, plane, : self.columns] = fenced
            self._own[rows, plane] = np.maximum(self._own[rows, plane], event)

    def common(self, tids: Array) -> Clock:
        """Return what each of ``tids`` knows: the past of an operation that they make together."""
        rows = self._rows(tids)
        return Clock(self, self._state[rows, :, : self.columns].min(axis=0))
