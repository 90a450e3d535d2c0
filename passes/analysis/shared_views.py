"""Resolve views of shared memory for barriers: which memory, and which elements if known.

    V = decl_buffer((64,), data=S.data), V[i]   =>   S[i]        elements of one size
    V = decl_buffer((16,), "int64", data=S.data), V[i]   =>   V[i], somewhere in S

A view whose elements are as large as its memory's is the memory at other indices. Any other view
keeps its own indices, by which its accesses are compared. Accesses through two such views, or
through one and the memory itself, may touch the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import sym

from ..ir.nodes import Buffer
from .access_values import Access
from .memory import memories, rooted


class SharedViews:
    """The views in one kernel. ``ranges``: knows the bounds of all variables when asked."""

    def __init__(self, kernel: Any, ranges: sym.Analyzer) -> None:
        self._named = memories(kernel)
        self._ranges = ranges
        self._same: dict[Any, Buffer] = {}

    def root(self, buf: Buffer) -> Buffer:
        """Return the memory that ``buf`` is or views."""
        return self._named.place(buf).root

    def resolved(self, access: Access) -> Access:
        """Return ``access`` by its memory if possible, else by one of all equal views."""
        buf = access.buffer
        if buf not in self._named.places:
            return access
        place = self._named.place(buf)
        if access.width == 1 and access.region is None and None not in access.index:
            index = rooted(self._named, buf, access.index, self._ranges)
            if index is not None:
                return replace(access, buffer=place.root, index=tuple(index))
        key = place.root, tvm_ffi.StructuralKey(place.start), tvm_ffi.StructuralKey(buf.ty)
        return replace(access, buffer=self._same.setdefault(key, buf))
