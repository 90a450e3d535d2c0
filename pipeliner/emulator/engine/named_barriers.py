"""Which arrivals at barriers of a CTA can be counted in one generation alone, in whatever order.

Hardware counts arrivals at a barrier until there are enough, whoever makes them. Here they are
counted in one order of many:

    warps 0, 1: barrier 1, for 64 threads        warps 2, 3: barrier 1, for 64 threads

In this order warps 0 and 1 meet; in another, 0 and 2 do. So who arrives has to know that the
generation before has completed: it waited there, or knows of one who did (Weft's condition).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.clocks import Clocks
from ..memory.snapshot import Snapshot

Array = np.ndarray[Any, Any]


class NamedBarriers:
    """The last generation of each barrier, by rank of the CTA and number: who waited, until when.

    ``unordered``: the numbers of barriers of which some arrival may be counted in two generations.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._last: dict[tuple[int, int], tuple[Array, int]] = {}
        self.unordered: set[int] = set()

    def arrive(self, key: tuple[int, int], tids: Array) -> None:
        """Note whether each of ``tids`` knows that the generation before has completed."""
        if key not in self._last or key[1] in self.unordered:
            return
        waited, event = self._last[key]
        others = np.setdiff1d(tids, waited)
        if len(others):
            known = self._clocks.known(others[:, None], waited[None]) >= event
            if not known.any(axis=1).all():
                self.unordered.add(key[1])

    def complete(self, key: tuple[int, int], waited: Array, event: int) -> None:
        """Note that a generation has completed at ``event``, for which ``waited`` have waited."""
        self._last[key] = np.sort(waited), event

    def snapshot(self, into: Snapshot) -> None:
        """Add who waited last, and which threads know of that."""
        for key, (waited, event) in sorted(self._last.items()):
            into.plain(*key, waited)
            into.judge(waited, event)
