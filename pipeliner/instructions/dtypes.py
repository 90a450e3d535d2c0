"""Bytes of the element types that kernels compute with, and of what memory moves at once."""

from __future__ import annotations

from typing import Final

from ..machine.constant import constant, documented

ELEMENT_BYTES: Final = constant(
    "ELEMENT_BYTES",
    {
        "int8": 1,
        "uint8": 1,
        "bool": 1,
        "float8_e4m3fn": 1,
        "float8_e5m2": 1,
        "float16": 2,
        "bfloat16": 2,
        "int16": 2,
        "uint16": 2,
        "float64": 8,
        "int64": 8,
        "uint64": 8,
    },
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
    return ELEMENT_BYTES.get(dtype, 4)
