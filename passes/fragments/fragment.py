"""Define an accumulator tile in registers: which thread holds which element, in which register.

    acc[128, 128] in scope local   =>   reg[64] of each of 256 threads, and the tile's indices of
                                        each register: coordinates(position, v) = (row, column)

The tile buffer of a tile function becomes registers of each thread. Instructions say where the
elements lie, and ``derived`` where those of a tile lie that no instruction touches, such as the
maximum of each row; ``nests`` rewrites nests over the tile by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx

from ...machine import WARP
from ..ir.nodes import Buffer, Expr, Stmt, Var, i32, substitute
from ..ir.patterns import is_zero
from .quads import LANES

ElementIndex = Sequence[Expr]
"""Values of the element loops of a fragment."""


@dataclass(frozen=True)
class Quad:
    """A lane quad: four lanes that exchange runs of two columns for runs of eight.

    ``lane``: which of the four a thread is. ``loops``: extents of the loops over its runs of eight;
    the last of them counts four of the fragment's, which may have up to three more behind them.
    ``coordinates``: the tile buffer's indices of element ``v`` of such a run.
    """

    lane: Expr
    loops: tuple[int, ...]
    coordinates: Callable[[ElementIndex, Expr], Sequence[Expr]]


@dataclass(frozen=True)
class RowShare:
    """How the threads of a CTA share out the rows of a tile.

    ``loops``: the outermost loops of a fragment choose the row. ``lanes``: neighbouring lanes that
    have elements of one row. ``whole``: they have all of it. ``first``: whether this thread is the
    first of those that have elements of its row, ``lane``: which one it is of its neighbours.
    """

    loops: int
    lanes: int
    whole: bool
    first: Expr
    lane: Expr


@dataclass(frozen=True)
class ColumnShare:
    """How the threads of a CTA share out the columns of a tile.

    ``loops``: so many of the outermost loops of a fragment choose no column. ``steps``: the lanes
    that have elements of one column are these apart; ``leads``: whether a thread is the first of
    those. ``warps``: so many have elements of one, ``warp``: which of those a thread is in.
    """

    loops: int
    steps: tuple[int, ...]
    leads: Expr
    warps: int
    warp: Expr

    @property
    def first(self) -> Expr:
        """Whether a thread is the first of all that have elements of its columns."""
        if self.warps == 1:
            return self.leads
        return tirx.And(self.leads, tirx.EQ(self.warp, i32(0)))


@dataclass(frozen=True)
class Partial:
    """What threads have of an element that each has a part of: what combines two parts.

    ``identity`` changes none. ``repeats``: nor does a part that is combined again.
    """

    combine: Callable[[Expr, Expr], Expr]
    identity: Expr
    repeats: bool


@dataclass(frozen=True)
class Fragment:
    """Says which thread holds which element of one tile in which register.

    ``loops``: extents of the loops over the elements of one thread; inside them lie ``run``
    elements of neighbouring columns. ``coordinates``: the tile buffer's indices of element ``v`` of
    a run. ``register``: its place in ``registers``. ``packed``: two 16-bit elements share one
    uint32, as half accumulators of mma.sync do. ``view``: the element type if that of the registers
    differs (int32 in uint32). ``quad``: the wider runs that lanes have after an exchange.
    ``corner``: first row and column of a warpgroup's piece of the tile, for wgmma. ``swap_ab``: A
    and B change places, so the tile's rows are the columns of a run. ``paired``: of each 16 rows of
    a warp a lane has two neighbouring ones, not two that differ by 8. ``rows``: how rows are
    shared out; None where lanes do not share them. ``holder``: of the threads that have the same
    element, which one stores it elsewhere; None where each element has one thread. ``lanes``: how
    many neighbouring lanes have an element, ``lane``: which one a thread is. ``by_lane``: each has
    a partial sum of it. ``columns``: how columns are shared out; None where they are not.
    ``of_columns``: of a tile with one element for each column of another, how that one's are;
    ``part``: what each thread has of an element then, None for all of it.
    """

    tile: Buffer
    registers: Buffer
    loops: tuple[int, ...]
    run: int
    coordinates: Callable[[ElementIndex, Expr], Sequence[Expr]]
    register: Callable[[ElementIndex, Expr], Expr]
    packed: bool = False
    quad: Quad | None = None
    corner: tuple[Expr, Expr] | None = None
    swap_ab: bool = False
    paired: bool = False
    rows: RowShare | None = None
    holder: Expr | None = None
    lanes: int = 1
    lane: Expr | None = None
    by_lane: bool = False
    columns: ColumnShare | None = None
    of_columns: ColumnShare | None = None
    part: Partial | None = None

    @property
    def dtype(self) -> str:
        """Type of an element."""
        return str(self.tile.dtype)

    def is_like(self, other: Fragment) -> bool:
        """Whether every thread holds the same elements in the same registers in both."""
        position, v = self._element()
        mine, others = (list(one.coordinates(position, v)) for one in (self, other))
        return self.has_registers_of(other) and bool(tvm_ffi.structural_equal(mine, others))

    def has_registers_of(self, other: Fragment) -> bool:
        """Whether every element ``v`` of a run is in the same register in both."""
        if (self.loops, self.run, self.packed) != (other.loops, other.run, other.packed):
            return False
        if str(self.registers.dtype) != str(other.registers.dtype):
            return False
        position, v = self._element()
        return bool(
            tvm_ffi.structural_equal(self.register(position, v), other.register(position, v))
        )

    def is_of_rows(self, other: Fragment) -> bool:
        """Whether a thread has one element of it for each row that it has elements of in other."""
        rows = other.rows
        if rows is None or self.of_columns is not None:
            return False
        return self.run == 1 and self.loops == other.loops[: rows.loops]

    def is_of_columns(self, other: Fragment) -> bool:
        """Whether a thread has one element of it for each column that it has of other."""
        columns = other.columns
        if columns is None or self.of_columns is None:
            return False
        return (self.run, self.loops) == (other.run, other.loops[columns.loops :])

    def place_beside(self, position: ElementIndex, v: Expr) -> tuple[ElementIndex, Expr]:
        """Return which element is beside element ``v`` of a tile spread alike, or of rows of it."""
        if len(position) == len(self.loops):
            return position, v
        if self.of_columns is not None:
            return list(position)[self.of_columns.loops :], v
        return list(position)[: len(self.loops)], i32(0)

    def read_beside(self, position: ElementIndex, v: Expr) -> Expr:
        """Return the value there."""
        return self.read(*self.place_beside(position, v))

    def _element(self) -> tuple[list[Var], Var]:
        """Return variables for the loops over elements, and for the element of a run."""
        return [Var(f"e{n}", "int32") for n in range(len(self.loops))], Var("v", "int32")

    def read(self, position: ElementIndex, v: Expr) -> Expr:
        """Return the value of one element."""
        index = self.register(position, v)
        if self.packed:
            word = tirx.BufferLoad(self.registers, [tirx.floordiv(index, 2)])
            half = tirx.shift_right(word, tirx.Cast("uint32", tirx.floormod(index, 2) * 16))
            return tirx.reinterpret(self.dtype, tirx.Cast("uint16", half))
        value = tirx.BufferLoad(self.registers, [index])
        if str(self.registers.dtype) != self.dtype:
            return tirx.reinterpret(self.dtype, value)
        return value

    def word(self, position: ElementIndex, v: int) -> Expr:
        """Return the packed register that has elements ``v`` and ``v + 1``."""
        index = tirx.floordiv(self.register(position, i32(v)), 2)
        return tirx.BufferLoad(self.registers, [index])

    def write(self, position: ElementIndex, v: int, values: Sequence[Expr]) -> Stmt:
        """Return the store of ``values`` from element ``v`` on: one, or a packed register's two."""
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


def shared_by_quads(lane: Expr, column: Expr, across: int) -> RowShare:
    """Return that the four lanes of a quad have elements of each row of their warp.

    ``column``: the first one of this warp's, of which ``across`` have others. ``lane``: of a thread
    in its quad.
    """
    first = tirx.EQ(lane, i32(0))
    if across > 1:
        first = tirx.And(first, tirx.EQ(column, i32(0)))
    return RowShare(2, LANES, across == 1, first, lane)


def shared_by_warps(lane: Expr, warp: Expr, down: int) -> ColumnShare:
    """Return that all quads of ``down`` warps have elements of each of their columns.

    ``lane``: of a thread in its warp. ``warp``: which of those a thread is in.
    """
    steps = tuple(LANES << n for n in range((WARP // LANES).bit_length() - 1))
    return ColumnShare(2, steps, lane < LANES, down, warp)


def row_of_warp(half: Expr | int, eighth: Expr, *, paired: bool) -> Expr:
    """Return which of a warp's 16 rows the lane quad ``eighth`` holds in ``half``.

    ``paired``: as for ``Fragment``.
    """
    return eighth * 2 + half if paired else eighth + half * 8


def unrolled_over(position: Mapping[Var, int], body: Stmt) -> Stmt:
    """Return ``body`` in unrolled loops over the variables of ``position``, outer first."""
    for var, extent in reversed(list(position.items())):
        if extent == 1:
            body = substitute(body, {var: i32(0)})
        else:
            body = tirx.For(var, i32(0), i32(extent), tirx.ForKind.UNROLLED, body)
    return body
