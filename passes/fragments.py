"""Accumulator tiles in registers: which thread holds which element, and how it is read and written.

The tile buffer of a tile function (``acc[128, 128]`` in scope local) becomes registers of each
thread. Instructions say where the elements lie; nests over the tile are rewritten by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx

from .ir import Buffer, Expr, Stmt, Var, i32
from .layouts import ColumnBlocks, Swizzle
from .patterns import is_zero

Position = Sequence[Expr]
"""Values of the element loops of a fragment."""


@dataclass(frozen=True)
class Quad:
    """Four lanes whose runs of two columns, of four positions, exchanged are runs of eight.

    ``lane``: which of the four a thread is. ``loops``: extents of the loops over its runs of eight;
    their last counts four of the fragment's. ``coordinates``: the tile buffer's indices of element
    ``v`` of such a run.
    """

    lane: Expr
    loops: tuple[int, ...]
    coordinates: Callable[[Position, Expr], Sequence[Expr]]


@dataclass(frozen=True)
class Fragment:
    """Which thread holds which element of one tile in which register.

    ``loops``: extents of the loops over the elements of one thread; inside them lie ``run``
    elements of neighbouring columns. ``coordinates``: the tile buffer's indices of element ``v`` of
    a run. ``register``: its place in ``registers``. ``packed``: two 16-bit elements share one
    uint32, as mma.sync wants half accumulators. ``view``: the element type when the registers'
    differs (int32 in uint32). ``quad``: the wider runs that lanes have once they exchange.
    ``corner``: first row and column of a warpgroup's part of the tile, where warpgroups hold it;
    ``swap_ab``: the tile's rows are what a run's columns are, so that the two change places.
    ``paired``: of each 16 rows of a warp, the two of a lane are neighbours, not 8 apart.
    """

    tile: Buffer
    registers: Buffer
    loops: tuple[int, ...]
    run: int
    coordinates: Callable[[Position, Expr], Sequence[Expr]]
    register: Callable[[Position, Expr], Expr]
    packed: bool = False
    quad: Quad | None = None
    corner: tuple[Expr, Expr] | None = None
    swap_ab: bool = False
    paired: bool = False

    @property
    def dtype(self) -> str:
        """Type of an element."""
        return str(self.tile.dtype)

    def is_like(self, other: Fragment) -> bool:
        """Whether every thread holds the same elements in the same registers in both."""
        if (self.loops, self.run, self.packed) != (other.loops, other.run, other.packed):
            return False
        if str(self.registers.dtype) != str(other.registers.dtype):
            return False
        position = [Var(f"e{n}", "int32") for n in range(len(self.loops))]
        v = Var("v", "int32")
        mine, others = (
            [*one.coordinates(position, v), one.register(position, v)] for one in (self, other)
        )
        return bool(tvm_ffi.structural_equal(mine, others))

    def read(self, position: Position, v: Expr) -> Expr:
        """The value of one element."""
        index = self.register(position, v)
        if self.packed:
            word = tirx.BufferLoad(self.registers, [tirx.floordiv(index, 2)])
            half = tirx.shift_right(word, tirx.Cast("uint32", tirx.floormod(index, 2) * 16))
            return tirx.reinterpret(self.dtype, tirx.Cast("uint16", half))
        value = tirx.BufferLoad(self.registers, [index])
        if str(self.registers.dtype) != self.dtype:
            return tirx.reinterpret(self.dtype, value)
        return value

    def write(self, position: Position, v: int, values: Sequence[Expr]) -> Stmt:
        """Store ``values`` into the elements from ``v``: one, or the two of a packed register."""
        index = self.register(position, i32(v))
        if self.packed:
            low, high = (tirx.Cast("uint32", tirx.reinterpret("uint16", value)) for value in values)
            word = tirx.bitwise_or(low, tirx.shift_left(high, tirx.const(16, "uint32")))
            if all(is_zero(value) for value in values):
                word = tirx.const(0, "uint32")
            return tirx.BufferStore(self.registers, word, [tirx.floordiv(index, 2)])
        (value,) = values
        if str(self.registers.dtype) != self.dtype:
            zero = is_zero(value)
            kind = str(self.registers.dtype)
            value = tirx.const(0, kind) if zero else tirx.reinterpret(kind, value)
        return tirx.BufferStore(self.registers, value, [index])


@dataclass(frozen=True)
class Mapped:
    """What a mapped matmul gives its function.

    ``layouts``: of the operands' shared tiles. ``ops``: the op statements that replace the matmul.
    ``buffers``: register buffers of one iteration, to be allocated beside the operands.
    """

    fragment: Fragment
    layouts: Mapping[Buffer, Swizzle | ColumnBlocks]
    ops: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]


def row_of_warp(half: Expr | int, eighth: Expr, *, paired: bool) -> Expr:
    """Which of the 16 rows of a warp its four lanes number ``eighth`` hold in ``half``.

    ``paired``: as for ``Fragment``.
    """
    return eighth * 2 + half if paired else eighth + half * 8


def power_of_two(count: int, most: int) -> int:
    """The largest power of two up to ``most`` (itself one) that divides ``count``."""
    while count % most:
        most //= 2
    return most


def back_and_forth(inner: Expr, outer: Expr, count: int) -> Expr:
    """``inner`` of ``count`` where ``outer`` is even, counted down where it is odd."""
    return inner + tirx.floormod(outer, 2) * (count - 1 - inner * 2)
