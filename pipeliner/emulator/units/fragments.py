"""Register fragments of warp-level matrix instructions, as index tables.

Every table follows the figures of PTX ISA 9.7.14 (mma fragments, ldmatrix).  With
``group = lane // 4`` and ``t = lane % 4``, one 32-bit register holds ``e = 4 / element bytes``
consecutive elements of a row of A, of a column of B, two consecutive columns of an accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from ...errors import EmulatorError
from ..base.dtypes import PTX_TYPES, numpy_dtype

Array = np.ndarray[Any, Any]
WARP: Final = 32

MATRIX_ROWS: Final = 8
MATRIX_ROW: Final = 16
MOST_MATRICES: Final = 4
"""Rows of a matrix of ldmatrix, bytes of a row, and how many an instruction has at most."""

_LANE: Final = np.arange(WARP)
_GROUP: Final = _LANE // 4
_T: Final = _LANE % 4
"""Place of each lane in its warp, and the PTX ISA's groupID and threadID_in_group."""

_K_BYTES: Final = (16, 32)
"""Bytes of a row of A that the tables below describe, whatever its type."""

_TRUNCATED: Final = "tf32"
_HALF_BYTES: Final = 2
"""Only as tf32 do tensor cores multiply what is wider than a half."""

_HALF_BITS: Final = 8 * _HALF_BYTES

_ARITHMETIC: Final[dict[str, Callable[..., Array]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}
"""Of 16-bit floats in float64, which holds their products."""


@dataclass(frozen=True)
class Mma:
    """One m16n8 instruction: element positions of every register of every lane.

    ``a`` indexes the flattened (lane, register, element) data of a warp by (m, k), ``b`` by (k, n);
    ``d`` gives the flattened (m, n) position of each (lane, value).
    """

    k: int
    a_type: np.dtype[Any]
    b_type: np.dtype[Any]
    d_type: np.dtype[Any]
    a: Array
    b: Array
    d: Array
    tf32: bool

    @property
    def integer(self) -> bool:
        return self.d_type.kind == "i"

    @property
    def d_positions(self) -> int:
        """Elements of D."""
        return len(self.a) * len(self.b[0])


@cache
def mma_spec(shape: str, a_type: str, b_type: str, d_type: str) -> Mma:
    """Tables of ``mma.sync.aligned.<shape>.row.col``; EmulatorError for a shape not modelled."""
    k = int(shape.rpartition("k")[2])
    a_dtype, b_dtype, d_dtype = (_numpy_type(one) for one in (a_type, b_type, d_type))
    truncated = a_type == _TRUNCATED
    multiplied = truncated or a_dtype.itemsize <= _HALF_BYTES
    if not shape.startswith("m16n8k") or not multiplied or k * a_dtype.itemsize not in _K_BYTES:
        raise EmulatorError("ptx.mma", shape=shape, a_type=a_type, b_type=b_type)
    e = 4 // a_dtype.itemsize
    step = 4 * e  # columns of A covered by one register across t = 0..3
    halves = k // step
    a = np.zeros((16, k), np.int64)
    b = np.zeros((k, 8), np.int64)
    a_regs, b_regs = 2 * halves, halves
    for lane in range(WARP):
        group, t = lane // 4, lane % 4
        for half in range(halves):
            for i in range(e):
                col = half * step + t * e + i
                for low in range(2):
                    reg = half * 2 + low
                    a[group + 8 * low, col] = (lane * a_regs + reg) * e + i
                b[col, group] = (lane * b_regs + half) * e + i
    return Mma(
        k,
        a_dtype,
        b_dtype,
        d_dtype,
        a,
        b,
        accumulator_positions(),
        truncated,
    )


def _numpy_type(name: str) -> np.dtype[Any]:
    """Numpy's type of what PTX, or an intrinsic of TVM, calls ``name``."""
    return numpy_dtype(PTX_TYPES.get(name, name))


def accumulator_positions() -> Array:
    """Return (32, 4): flattened (row, col) in 16x8 of values c0..c3 of each lane."""
    row: Array = _GROUP[:, None] + np.array([0, 0, 8, 8])
    col: Array = (2 * _T)[:, None] + np.array([0, 1, 0, 1])
    return row * 8 + col


def round_to_tf32(value: Array) -> Array:
    """Return float32 with the 13 low mantissa bits cut, as a tensor core reads a register."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    cut: Array = bits.view(np.float32)
    return cut


def nearest_tf32(value: Array) -> Array:
    """Return values rounded to nearest, ties away from zero (cvt.rna.tf32.f32)."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = np.where(np.isfinite(value), bits + np.uint32(0x1000), bits)
    near: Array = (rounded & np.uint32(0xFFFFE000)).astype(np.uint32).view(np.float32)
    return near


def multiply(spec: Mma, a: Array, b: Array, c: Array, *, saturate: bool) -> Array:
    """Return D = A B + C for every warp.

    ``a``, ``b``: (warps, 32, registers) uint32; ``c``: (warps, 32, 4) of the accumulator type.
    Products and the sum are exact to float64 (or int64) and rounded once.
    """
    warps = a.shape[0]
    wide = np.int64 if spec.integer else np.float64
    ma = np.ascontiguousarray(a).view(spec.a_type).reshape(warps, -1)[:, spec.a]
    mb = np.ascontiguousarray(b).view(spec.b_type).reshape(warps, -1)[:, spec.b]
    if spec.tf32:
        ma, mb = round_to_tf32(ma), round_to_tf32(mb)
    product = np.matmul(ma.astype(wide), mb.astype(wide))
    total = product.reshape(warps, 128)[:, spec.d] + c.astype(wide)
    return round_once(total, spec.d_type, saturate=saturate)


def round_once(total: Array, dtype: np.dtype[Any], *, saturate: bool) -> Array:
    """Exact sums (float64 or int64) as accumulators; integers wrap unless they saturate."""
    if saturate and dtype.kind == "i":
        total = np.clip(total, -(2**31), 2**31 - 1)
    out: Array = total.astype(dtype)
    return out


def narrowed_pair(low: Array, high: Array, dtype: np.dtype[Any]) -> Array:
    """``cvt.rn.f16x2.f32`` and kin: both rounded to nearest even, in a word."""
    with np.errstate(over="ignore"):
        words = [x.astype(dtype).view(np.uint16).astype(np.uint32) for x in (low, high)]
    return words[0] | words[1] << np.uint32(16)


def permuted_bytes(low: Array, high: Array, chosen: Array) -> Array:
    """``prmt.b32``: each digit of ``chosen`` takes one of the eight bytes of two words.

    A digit of 8 and more takes the sign of that byte instead, eight times (PTX ISA, prmt).
    """
    out = np.zeros(low.shape, np.uint32)
    for byte in range(4):
        digit = chosen >> np.uint32(4 * byte)
        shift = (digit & np.uint32(3)) * np.uint32(8)
        taken = np.where(digit & np.uint32(4), high, low) >> shift & np.uint32(0xFF)
        sign = np.where(taken & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        taken = np.where(digit & np.uint32(8), sign, taken)
        out |= taken << np.uint32(8 * byte)
    return out


def ldmatrix_words(rows: Array, count: int, *, transposed: bool) -> Array:
    """Registers that ``ldmatrix .x<count>`` gives each lane.

    ``rows``: (warps, 32, 16) uint8, the 16-byte row at the address each lane supplied; lanes
    8 i .. 8 i + 7 address the rows of matrix i.  Returns (count, warps, 32) uint32.
    """
    halves = rows.reshape(len(rows), -1).view(np.uint16)
    taken = np.ascontiguousarray(halves[:, _halves_taken(count, transposed)])
    return taken.view(np.uint32)[..., 0].swapaxes(0, 1)


@cache
def _halves_taken(count: int, transposed: bool) -> Array:
    """Return (count, 32, 2): where the halves of each register are among those of all rows."""
    matrix, half = np.arange(count)[:, None, None] * MATRIX_ROWS, np.arange(2)
    row, column = _GROUP[:, None], 2 * _T[:, None] + half
    if transposed:
        row, column = column, row
    return (matrix + row) * (MATRIX_ROW // 2) + column


def stmatrix_rows(registers: Array, *, transposed: bool) -> Array:
    """Rows that ``stmatrix .x<count>`` stores: the inverse of ``ldmatrix_words``.

    ``registers``: (warps, 32, count) uint32.  Returns (warps, 32, 16) uint8, the row at the address
    each lane supplied; zeros beyond lane 8 count.
    """
    warps, _, count = registers.shape
    halves = np.ascontiguousarray(registers.transpose(0, 2, 1)).view(np.uint16)
    tiles = halves.reshape(warps, count, 8, 8)
    if transposed:
        tiles = tiles.swapaxes(-1, -2)
    out = np.zeros((warps, WARP, 8), np.uint16)
    out[:, : 8 * count] = tiles.reshape(warps, 8 * count, 8)
    rows: Array = out.view(np.uint8)
    return rows


def mma_store_positions() -> tuple[Array, Array]:
    """Rows and columns (32, 8) in 16x16 of TVM's ldmatrix_32x8 layout (``mma_store_legacy``)."""
    local = np.arange(8)
    row = 8 * (local % 4 // 2)[None, :] + _GROUP[:, None]
    col = 8 * (local // 4)[None, :] + (2 * _T)[:, None] + (local % 2)[None, :]
    return row, col


def logic_of_three(table: int, a: Array, b: Array, c: Array) -> Array:
    """``lop3.b32``: of each three bits, that of ``a`` first, the one that ``table`` has there."""
    found = np.zeros_like(a)
    for at in range(8):
        if table >> at & 1:
            found |= (a if at & 4 else ~a) & (b if at & 2 else ~b) & (c if at & 1 else ~c)
    return found


def computed_pair(name: str, dtype: np.dtype[Any], *words: Array) -> Array:
    """``add``, ``sub``, ``mul`` or ``fma`` ``.rn.f16x2`` and kin: on both halves of words.

    Each result is rounded once, to nearest even.
    """
    halves = []
    for shift in (0, _HALF_BITS):
        own = [(word >> np.uint32(shift)).astype(np.uint16).view(dtype) for word in words]
        first, second, *rest = (half.astype(np.float64) for half in own)
        with np.errstate(all="ignore"):
            halves.append(_ARITHMETIC[name](first, second, *rest))
    low, high = (_rounded_to_odd(half) for half in halves)
    return narrowed_pair(low, high, dtype)


def _rounded_to_odd(value: Array) -> Array:
    """``value`` in float32, the last bit set if bits were lost: rounding it again is then right."""
    with np.errstate(all="ignore"):
        near = value.astype(np.float32)
        short = np.where(abs(near) > abs(value), np.nextafter(near, np.float32(0)), near)
    lost = (short != value) & np.isfinite(short)
    odd: Array = (short.view(np.uint32) | lost.astype(np.uint32)).view(np.float32)
    return odd
