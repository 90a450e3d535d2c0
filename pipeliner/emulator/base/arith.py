"""Integer and conversion semantics of CUDA C on Python ints and numpy arrays alike."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from .dtypes import is_float, largest_of_byte

Value = Any
"""A Python int, a numpy scalar or an array."""


def trunc_div(a: Value, b: Value) -> Value:
    """C division: rounds toward zero; by zero gives 0 (undefined in C, never trapped on a GPU)."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        if b == 0:
            return 0
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    q = np.floor_divide(a, b)
    inexact = q * b != a
    return np.where(inexact & ((np.asarray(a) < 0) != (np.asarray(b) < 0)), q + 1, q)


def trunc_mod(a: Value, b: Value) -> Value:
    """C remainder: takes the sign of the dividend."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return a - trunc_div(a, b) * b if b else 0
    return np.fmod(a, b)


def floor_div(a: Value, b: Value) -> Value:
    """Division rounding toward minus infinity; by zero gives 0."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return a // b if b else 0
    return np.floor_divide(a, b)


def floor_mod(a: Value, b: Value) -> Value:
    """Remainder with the sign of the divisor."""
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return a % b if b else 0
    return np.mod(a, b)


def wrap(value: int, bits: int, signed: bool) -> int:
    """Two's complement wrap of a Python int."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<<": lambda a, b: a << np.minimum(np.maximum(b, 0), 31),
}
"""Operators that are checked, by symbol, as 64-bit arithmetic."""


class NotesWraps(Protocol):
    """What of a thread group arithmetic uses."""

    def note_wrap(self, key: str, where: Any, exact: Any) -> None:
        """Note that the arithmetic ``key`` wraps ``where``, and its ``exact`` results."""


def checked(group: NotesWraps, key: str, symbol: str, a: Value, b: Value) -> Value:
    """Return ``a symbol b`` in 32 bits, signed; the group notes under ``key`` where it wraps.

    Nothing is reported yet: a value that no active thread uses does no harm.
    """
    apply = _OPERATIONS[symbol]
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        number = int(apply(int(a), int(b)))
        wrapped = wrap(number, 32, True)
        group.note_wrap(key, number != wrapped, number)
        return wrapped
    exact = np.asarray(apply(np.asarray(a, np.int64), np.asarray(b, np.int64)))
    narrow = exact.astype(np.int32)
    group.note_wrap(key, exact != narrow, exact)
    return narrow


def greatest(value: Value) -> int:
    """The greatest of some integers."""
    return int(np.max(value))


def cast(value: Value, dtype: np.dtype[Any]) -> Value:
    """Conversion of an array or numpy scalar as a CUDA C cast does it.

    Float to integer truncates and saturates, NaN gives 0 (cvt.rzi); float to fp8 saturates to the
    largest finite value (__NV_SATFINITE, what the fp8 constructors do).
    """
    value = np.asarray(value)
    if is_float(value.dtype.name) and dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0)
        inside = np.clip(wide, float(info.min), float(info.max))
        out = np.where(wide >= float(info.max), info.max, inside.astype(dtype))
        return out.astype(dtype)
    if dtype.itemsize == 1 and is_float(dtype.name) and is_float(value.dtype.name):
        limit = largest_of_byte(dtype)
        value = np.clip(value.astype(np.float32), -limit, limit)
    return value.astype(dtype)


def reinterpret(value: Value, source: np.dtype[Any], dtype: np.dtype[Any], lanes: int = 1) -> Value:
    """Bits of ``value`` (of dtype ``source``) as ``dtype``; several lanes are the last axis."""
    array = np.ascontiguousarray(np.asarray(value, source))
    if array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    if lanes == 1 and array.ndim < 2:
        array = array.reshape(*array.shape, 1)
    array = array.view(dtype)
    return array[..., 0] if array.shape[-1] == 1 else array


def where(cond: Value, a: Value, b: Value, dtype: np.dtype[Any]) -> Value:
    """``cond ? a : b`` for a per-thread condition, as an array of ``dtype``."""
    return np.asarray(np.where(cond, a, b), dtype)
