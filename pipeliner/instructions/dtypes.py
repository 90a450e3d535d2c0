"""Bytes of the element types that kernels compute with, and of what memory moves at once."""

from __future__ import annotations

from typing import Final

from ..machine.constant import constant, documented
from ..values.elements import ELEMENT_TYPES, element

ELEMENT_BYTES: Final = constant(
    "ELEMENT_BYTES",
    {one.name: one.nbytes for one in ELEMENT_TYPES if one.nbytes != 4},
    "bytes",
    "size of an element; 4 for a type that is not listed",
    formula="tile_bytes = elements * ELEMENT_BYTES",
    source=documented("CUDA C++ Programming Guide, built-in types"),
    date="2026-11-21",
)

LINE_BYTES: Final = constant(
    "LINE_BYTES",
    128,
    "bytes",
    "line of L1 and L2",
    formula="lines = tile_bytes / min(LINE_BYTES, row_bytes) * lines_of_row",
    source=documented("NVIDIA Nsight Compute, memory tables"),
    date="2026-11-21",
)

BOX_ROWS: Final = constant(
    "BOX_ROWS",
    4,
    "rows",
    "rows of the narrowest swizzle, 32 bytes, in the 128 bytes that a box begins at in shared "
    "memory; which row of a swizzle's eight that is, is by its address",
    formula="rows of a part of a tile % BOX_ROWS = 0",
    source=documented("PTX ISA, cp.async.bulk.tensor, tensor swizzle modes"),
    date="2026-11-30",
)

SECTOR_BYTES: Final = constant(
    "SECTOR_BYTES",
    32,
    "bytes",
    "the least that L2 delivers",
    formula="a copy goes through L1 where row starts are no multiple of SECTOR_BYTES",
    source=documented("NVIDIA Nsight Compute, memory tables"),
    date="2026-11-21",
)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of ``dtype``."""
    return element(dtype).nbytes
