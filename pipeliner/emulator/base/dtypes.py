"""TIR dtypes as numpy dtypes, and the bytes that uninitialised memory holds."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from ...errors import EmulatorError

POISON_BYTE: Final = 0xFF
"""All bits set: NaN in every floating-point format (fp8 included), -1 in signed integers."""

_EXTENDED: Final = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "bool": np.bool_,
}
"""Dtypes that numpy has from ml_dtypes, or by another name."""

_PLAIN: Final = re.compile(r"(u?int(8|16|32|64)|float(16|32|64))")
_LANES: Final = re.compile(r"(?P<base>.+?)(x(?P<lanes>\d+))?")

PTX_TYPES: Final = {
    "f16": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "f32": "float32",
    "fp32": "float32",
    "s8": "int8",
    "u8": "uint8",
    "int8": "int8",
    "uint8": "uint8",
    "s32": "int32",
    "int32": "int32",
    "u32": "uint32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
"""Dtype of each type name of PTX and of the intrinsics of TVM."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Numpy dtype of a scalar TIR dtype; EmulatorError for one that has none (int4, fp4)."""
    if name in _EXTENDED:
        extended: np.dtype[Any] = np.dtype(_EXTENDED[name])
        return extended
    if _PLAIN.fullmatch(name):
        return np.dtype(name)
    raise EmulatorError("emulator.dtype", dtype=name)


def split_lanes(ty: object) -> tuple[str, int]:
    """Return base and lanes of a dtype: ``float16x8`` -> (``float16``, 8)."""
    return _split(str(ty))


@cache
def _split(name: str) -> tuple[str, int]:
    match = _LANES.fullmatch(name)
    assert match is not None
    return match["base"], int(match["lanes"] or 1)


def is_int(name: str) -> bool:
    """Whether values of the dtype are Python ints while uniform (bool excluded)."""
    return name.startswith(("int", "uint"))


def is_float(name: str) -> bool:
    """Whether values of the dtype are numpy scalars while uniform."""
    return name.startswith(("float", "bfloat"))


@cache
def largest_of_byte(dtype: np.dtype[Any]) -> float:
    """The largest finite value of a dtype of one byte."""
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    return float(values[np.isfinite(values)].max())


def poison(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array of poisoned memory."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.full(size, POISON_BYTE, np.uint8).view(dtype).reshape(shape)
