"""Global memory: the allocations behind the arguments of a call, and regions of them.

Buffers are views of memory. Two arguments that share bytes, or one that is given twice, are two
regions of one ``GlobalMemory``, which is written in place as on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from .global_shadow import GlobalShadow

Array = np.ndarray[Any, Any]

_numbers = count()

_ADDRESS_BITS: Final = 44
"""Bits of an address within one memory; those above are the memory's number."""

_MOST: Final = 2 ** (62 - _ADDRESS_BITS)
"""Numbers of memories, after which they are used again."""

ALIGNMENT: Final = 256
"""Bytes to which a GPU aligns an allocation: no address is known any better."""


@dataclass(eq=False)
class GlobalMemory:
    """One allocation: its bytes, the first at ``shift`` from an aligned address.

    ``number`` tells its addresses from those of others; ``shadow`` judges the accesses of the
    present launch: None where none can conflict, because the kernel only reads it.
    """

    bytes: Array
    shift: int = 0
    number: int = field(default_factory=lambda: next(_numbers) % _MOST)
    shadow: GlobalShadow | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Region:
    """What a pointer is given for: bytes ``start`` to ``end`` of a memory, by the buffer's name."""

    name: str
    memory: GlobalMemory
    start: int
    end: int

    @property
    def bytes(self) -> Array:
        """Its bytes, which are those of the memory."""
        part: Array = self.memory.bytes[self.start : self.end]
        return part

    @property
    def address(self) -> int:
        """The address of its first byte, as host code computes with it."""
        return (self.memory.number + 1 << _ADDRESS_BITS) + self.memory.shift + self.start

    @property
    def shift(self) -> int:
        """Its address, from an aligned one on."""
        return self.address % ALIGNMENT
