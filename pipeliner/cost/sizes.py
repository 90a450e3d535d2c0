"""Bytes of the element types that kernels compute with."""

from __future__ import annotations

from typing import Final

ELEMENT_BYTES: Final = {
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
}


def element_bytes(dtype: str) -> int:
    """Bytes of one element of ``dtype``."""
    return ELEMENT_BYTES.get(dtype, 4)
