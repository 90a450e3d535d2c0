"""What of a cluster's state decides whether later accesses are ordered, as one digest.

Two clusters with the same digest object to the same later accesses. The state holds events, which
are numbers of executions, and these are only ever compared: an access at event e of agent u is
ordered before a thread iff e is at most what the thread's clock has for u. So the digest has, of
each clock entry, how many *judged* events of its agent (those of accesses and waits on record) it
covers, and of each judged event its rank among those of its agent. Events that every clock covers
are equal to none.

Each unit writes itself into a snapshot, field by field, in ``snapshot`` methods; what has no
influence on judgement (bytes, counters of statistics) it leaves out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..base.clocks import Clock, Clocks

Array = np.ndarray[Any, Any]
Label = Callable[[int], Any]
"""A name of an event that does not depend on when it was: statement, and loops relative to now."""

_SHIFT: Final = 32
"""Bits of an event in a key of an agent and an event."""


class Snapshot:
    """Collects the state of one cluster; ``label`` names events, ``place`` where a task stands."""

    def __init__(self, clocks: Clocks, label: Label, place: Label | None = None) -> None:
        self._clocks = clocks
        self.place = place or label
        self._parts: list[bytes] = []
        self._agents: list[Array] = []
        self._events: list[Array] = []
        self._places: list[Array] = []  # of these among all that were added, runs of which are one
        self._judged = 0
        self._acquired: list[Clock] = []
        self._labels: dict[int, Any] = {}
        self._label = label
        self.floor = clocks.covered()

    def plain(self, *values: Any) -> None:
        """Add values as they are."""
        for value in values:
            if isinstance(value, np.ndarray):
                self._parts.append(f"{value.shape} {value.dtype.char} ".encode())
                self._parts.append(value.tobytes())
            else:
                self._parts.append(f"{value!r} ".encode())

    def judge(self, agents: Any, events: Any) -> None:
        """Add events of accesses, which are compared with what clocks have for their agents."""
        many = np.asarray(events)
        if isinstance(agents, int):
            many = many.reshape(-1)
            starts = first_of_runs(many)
            by = np.full(len(starts), agents, np.int64)
        else:
            who, many = np.broadcast_arrays(agents, many)
            who, many = who.reshape(-1), many.reshape(-1)
            starts = first_of_runs(many, who)
            by = who[starts].astype(np.int64)
        self._agents.append(by)
        self._events.append(many[starts].astype(np.int64))
        self._places.append(starts + self._judged)
        self._judged += many.size

    def is_live(self, agents: Any, events: Any) -> Array:
        """Which events some clock does not cover."""
        live: Array = np.asarray(events > self.floor[agents])
        return live

    def acquired(self, clock: Clock) -> None:
        """Add a clock that threads may acquire later."""
        self._acquired.append(clock)

    def statements(self, events: Array) -> Array:
        """Return the labels of ``events`` as small numbers, which are added to the digest."""
        found, where = np.unique(events, return_inverse=True)
        names = [self.name(int(event)) for event in found]
        order = sorted(set(map(repr, names)))
        self.plain(order)
        places = {text: at for at, text in enumerate(order)}
        numbers = np.array([places[repr(name)] for name in names], np.int32)
        labels: Array = numbers[where.reshape(np.shape(events))] if len(found) else events
        return labels

    def name(self, event: int) -> Any:
        """Return the label of one event."""
        if event not in self._labels:
            self._labels[event] = self._label(event)
        return self._labels[event]

    def digest(self) -> bytes:
        """Return the digest of what was added, and of the clocks of all threads."""
        nobody = [np.zeros(0, np.int64)]
        agents, events, places = (
            np.concatenate(nobody + some) for some in (self._agents, self._events, self._places)
        )
        keys = np.where(events > self.floor[agents], (agents << _SHIFT) + events, 0)
        first = first_of_runs(keys)
        known, ranks = np.unique(np.append(keys[first], 0), return_inverse=True)
        self.plain(self._judged, places[first], ranks.astype(np.int32))
        owners = known >> _SHIFT
        self.plain(owners)
        self._plain_clocks(known[1:], owners[1:])
        return hashlib.blake2b(b"".join(self._parts), digest_size=16).digest()

    def _plain_clocks(self, known: Array, owners: Array) -> None:
        """Add how many of the judged events of each agent every clock covers.

        Agents of one class with the same events are covered alike, and threads of one class cover
        alike: each is asked once. Which agents and which threads are alike is added, not classes.
        """
        self.plain(len(self._acquired))
        if not len(known):
            return
        agents, begins = np.unique(owners, return_index=True)
        events = known - (owners << _SHIFT)
        ends = [*begins[1:].tolist(), len(known)]
        alike: dict[tuple[int, bytes], int] = {}
        groups = [
            alike.setdefault((column, events[begin:end].tobytes()), len(alike))
            for column, begin, end in zip(
                self._clocks.at[agents].tolist(), begins.tolist(), ends, strict=True
            )
        ]
        some = first_of_each(np.array(groups, np.int64))
        which, threads = self._clocks.views(agents[some])
        bases, starts = agents[some] << _SHIFT, begins[some]
        clocks = [threads.reshape(-1, len(some)), self._clocks.of_themselves(agents[some])]
        clocks += [clock.whole()[:, self._clocks.at[agents[some]]] for clock in self._acquired]
        after = np.maximum(np.concatenate(clocks), 0) + bases
        covered = np.searchsorted(known, after, side="right").astype(np.int32) - starts
        numbers, table = distinct(np.ascontiguousarray(covered.T, np.int32))
        self.plain(numbers[np.array(groups, np.int64)])
        live = threads.shape[1] * len(threads)
        rows = table[:, :live].reshape(len(table), len(threads), -1).swapaxes(0, 1)
        unlike, rows = distinct(np.ascontiguousarray(rows[which]).reshape(len(which), -1))
        self.plain(unlike, rows, table[:, live:])


def first_of_runs(rows: Array, *others: Array) -> Array:
    """The first row of each run of equal ones, equal in the ``others`` too."""
    changes = rows[1:] != rows[:-1]
    for other in others:
        changes |= other[1:] != other[:-1]
    if changes.ndim > 1:
        changes = changes.any(axis=1)
    starts: Array = np.concatenate(
        [np.zeros(min(1, len(rows)), np.int64), np.flatnonzero(changes) + 1]
    )
    return starts


def first_of_each(numbers: Array) -> Array:
    """Where each of some numbers stands first, by number."""
    firsts: Array = np.unique(numbers, return_index=True)[1]
    return firsts


def distinct(rows: Array) -> tuple[Array, Array]:
    """The number of each row among those that are different, and these, as they come."""
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    where = np.array(found, np.int32)
    return where, rows[first_of_each(where)]
