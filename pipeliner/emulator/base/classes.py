"""Threads that have done everything together, as classes, which only ever divide.

What threads of a class know, and what others know of them, is the same: one row and one column of
clocks stand for all. There are as many as a kernel tells threads apart, mostly a few a warpgroup,
where threads are hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class Classes:
    """The classes of so many ``threads``; ``of``: by thread, the number of its class."""

    def __init__(self, threads: int) -> None:
        self.of = np.zeros(threads, np.int64)
        self.sizes = [threads]
        self._found: dict[bytes, Rows] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.sizes)

    def known(self, tids: Rows) -> Rows | None:
        """The classes of ``tids``, where they are known to be whole ones."""
        return self._found.get(tids.tobytes())

    def divided(self, tids: Rows) -> Iterator[tuple[int, int]]:
        """Divide classes until ``tids`` are whole ones; yield each that is divided, and the new."""
        touched, counts = np.unique(self.of[np.unique(tids)], return_counts=True)
        for old, count in zip(touched.tolist(), counts.tolist(), strict=True):
            if count == self.sizes[old]:
                continue
            new = self.count
            self.of[tids[self.of[tids] == old]] = new
            self.sizes[old] -= count
            self.sizes.append(count)
            self._found.clear()
            yield old, new
        self._found[tids.tobytes()] = np.unique(self.of[tids])
