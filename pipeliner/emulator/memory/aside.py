"""Accesses to global memory that are kept beside the last write and the last read of a granule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_MANY: Final = 16
"""Tables that are joined to one."""

_MIX: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Odd multipliers, of which products spread over 64 bits."""


@dataclass(eq=False)
class Part:
    """Some accesses, a row for each.

    ``reach``: -1 for weak ones. ``equal``: a write of what was there already. ``pending``: a read
    by a copy that has not been waited for.
    """

    codes: Array
    events: Array
    granules: Array
    reach: Array
    writes: Array
    equal: Array
    pending: Array

    def rows(self, which: Array) -> Part:
        """Return some of the rows."""
        return Part(*(getattr(self, each.name)[which] for each in fields(self)))

    def keys(self) -> Array:
        """Return a number for each agent, granule and sort of access: a hash of 64 bits."""
        sort = self.codes.astype(np.uint64) * np.uint64(8)
        sort += (self.writes * 4 + self.reach + 1).astype(np.uint64)
        keys: Array = sort * _MIX[0] + self.granules.astype(np.uint64) * _MIX[1]
        return keys


class Aside:
    """What a later access must be compared with, too, in no order."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(
        self,
        codes: Array,
        events: Array,
        granules: Array,
        reach: Array,
        *,
        writes: bool,
        equal: Array,
        pending: Array,
    ) -> None:
        """Keep accesses; of one agent's to one granule the last."""
        kind = np.full(codes.shape, writes)
        new = Part(codes, events, granules, reach, kind, equal, pending)
        keys = new.keys()
        self._filter(lambda part: ~np.isin(part.keys(), keys))
        self._parts.append(new.rows(np.unique(keys, return_index=True)[1]))
        if len(self._parts) > _MANY:
            joined = (
                np.concatenate([getattr(p, f.name) for p in self._parts]) for f in fields(Part)
            )
            self._parts = [Part(*joined)]

    def touching(self, at: Array) -> Iterator[tuple[Part, Array, Array]]:
        """Kept accesses to granules ``at``, and pairs (of them, of ``at``) that meet."""
        order = np.argsort(at, kind="stable")
        places = at[order]
        for part in self._parts:
            first = np.searchsorted(places, part.granules, "left")
            count = np.searchsorted(places, part.granules, "right") - first
            if not count.any():
                continue
            kept = np.repeat(np.arange(len(count)), count)
            within = np.arange(len(kept)) - np.repeat(np.cumsum(count) - count, count)
            yield part, kept, order[first[kept] + within]

    def drop(self, gone: dict[int, Array]) -> None:
        """Forget rows, by the identity of their part."""
        self._filter(lambda part: ~gone.get(id(part), np.zeros(len(part.codes), np.bool_)))

    def _filter(self, stays: Any) -> None:
        left = []
        for part in self._parts:
            which = stays(part)
            if which.all():
                left.append(part)
            elif which.any():
                left.append(part.rows(which))
        self._parts = left

    def arrived(self, codes: Array, granules: Array, now: int) -> None:
        """Note that pending reads of agents are complete."""
        for part in self._parts:
            done = part.pending & np.isin(part.codes, codes) & np.isin(part.granules, granules)
            part.events[done] = now
            part.pending[done] = False
