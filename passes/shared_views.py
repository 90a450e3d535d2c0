"""Views of shared memory, as barriers see them: which memory, and which elements of it if known.

A view whose elements are as large as its memory's is the memory at other indices. Any other view
keeps its own indices, by which accesses through it are told apart; accesses through two such views,
or through one and the memory itself, may touch the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import sym

from .accesses import Access
from .ir import Buffer
from .memory import memories, rooted


class SharedViews:
    """The views in one kernel. ``ranges``: knows the bounds of all variables when asked."""

    def __init__(self, kernel: Any, ranges: sym.Analyzer) -> None:
        self._named = memories(kernel)
        self._ranges = ranges
        self._same: dict[Any, Buffer] = {}

    def root(self, buf: Buffer) -> Buffer:
        """The memory that ``buf`` is or views."""
        return self._named.place(buf).root

    def resolved(self, access: Access) -> Access:
        """``access`` by its memory where that can be said, else by one view of all alike."""
        buf = access.buffer
        if buf not in self._named.places:
            return access
        place = self._named.place(buf)
        if access.width == 1 and access.tile is None and None not in access.index:
            index = rooted(self._named, buf, access.index, self._ranges)
            if index is not None:
                return replace(access, buffer=place.root, index=tuple(index))
        key = place.root, tvm_ffi.StructuralKey(place.start), tvm_ffi.StructuralKey(buf.ty)
        return replace(access, buffer=self._same.setdefault(key, buf))
