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

from ..base.clocks import Clocks

Array = np.ndarray[Any, Any]
Label = Callable[[int], Any]
"""A name of an event that does not depend on when it was: statement, and loops relative to now."""

_SHIFT: Final = 32
"""Bits of an event in a key of an agent and an event."""


class Snapshot:
    """Collects the state of one cluster; ``label`` names events."""

    def __init__(self, clocks: Clocks, label: Label) -> None:
        self._clocks = clocks
        self._parts: list[bytes] = []
        self._agents: list[Array] = []
        self._events: list[Array] = []
        self._acquired: list[Array] = []
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
        many = np.asarray(events, np.int64)
        if isinstance(agents, int):
            by = np.full(many.shape, agents)
        else:
            by, many = np.broadcast_arrays(np.asarray(agents, np.int64), many)
        self._parts.append(f"judged {many.size} ".encode())
        self._agents.append(by.reshape(-1))
        self._events.append(many.reshape(-1))

    def is_live(self, agents: Any, events: Any) -> Array:
        """Which events some clock does not cover."""
        live: Array = np.asarray(events > self.floor[agents])
        return live

    def acquired(self, clock: Array) -> None:
        """Add a clock that threads may acquire later."""
        self._acquired.append(self._clocks.whole(clock))

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
        agents, events = (np.concatenate(nobody + some) for some in (self._agents, self._events))
        keys = np.where(events > self.floor[agents], (agents << _SHIFT) + events, 0)
        first = first_of_runs(keys)
        known, ranks = np.unique(np.append(keys[first], 0), return_inverse=True)
        self.plain(first, ranks.astype(np.int32))
        owners = known >> _SHIFT
        self.plain(owners)
        columns = np.unique(owners[1:])
        begins = np.searchsorted(owners, columns).astype(np.int32)
        threads = self._clocks.planes(columns)
        different = first_of_runs(threads.reshape(len(threads), -1))
        self.plain(different, len(self._acquired))
        bases = columns << _SHIFT
        for clocks in (threads[different], *self._stacked(columns)):
            covered = np.searchsorted(known, bases + np.maximum(clocks, 0), side="right")
            self.plain(covered.astype(np.int32) - begins)
        return hashlib.blake2b(b"".join(self._parts), digest_size=16).digest()

    def _stacked(self, columns: Array) -> list[Array]:
        """The clocks that may be acquired, as one array."""
        return [np.stack([clock[:, columns] for clock in self._acquired])] if self._acquired else []


def first_of_runs(rows: Array) -> Array:
    """The first row of each run of equal ones."""
    changes = rows[1:] != rows[:-1]
    if changes.ndim > 1:
        changes = changes.any(axis=1)
    starts: Array = np.concatenate(
        [np.zeros(min(1, len(rows)), np.int64), np.flatnonzero(changes) + 1]
    )
    return starts
