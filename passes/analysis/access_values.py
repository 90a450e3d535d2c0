"""The values that barriers are placed from: an access to shared memory, and an ordering event.

``accesses`` finds them in a statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["read", "write", "atomic", "update"]
OrderingEvent = Literal["barrier", "wait", "wait_all", "group", "mma_wait"]
"""A barrier; a wait for some copies, or for all; a commit of a wgmma group, or a wait for some."""


@dataclass(frozen=True)
class Region:
    """A region of rows in a flat buffer: elements ``offset + row * stride + column``.

    ``offset`` may differ between the lanes of the warp.
    """

    offset: Any
    rows: int
    columns: int
    stride: int

    @property
    def extent(self) -> int:
        """The number of elements from the first of the region to its last, both included."""
        return (self.rows - 1) * self.stride + self.columns


@dataclass(frozen=True, eq=False)
class Access:
    """One access to a shared buffer.

    ``mode``: ``update`` is an opaque access, which may read and write. ``index``: one expression
    for each dimension; None stands for any value. ``own``: each thread touches only the elements
    that its index names (false for what a warp does together, and for opaque accesses). ``issue``:
    an asynchronous access (the write of a copy, the read of a wgmma) starts here and lasts until a
    later wait. ``width``: how many neighbours along the last dimension it touches, from the index
    on. ``region``: what a warp touches together, if that is known.
    """

    buffer: Any
    mode: Mode
    index: tuple[Any, ...]
    own: bool = True
    issue: bool = False
    width: int = 1
    region: Region | None = None
