"""Say which thread and register of a warp holds which element of a tile matmul on mma.sync.

    lane 5 (g = 1, q = 1) of m16n8k16 in float16, tile at (0, 0):
    accumulator registers 0, 1  =>  row 1, columns 2, 3;   registers 2, 3  =>  row 9, columns 2, 3

Register and lane numbers are those of the PTX ISA, "Matrix Fragments for mma.m16n8k*". With ``g =
lane // 4`` and ``q = lane % 4``, A has rows ``g`` and ``g + 8``, B has column ``g``, both at 4
bytes of K from ``4 q`` bytes on, and the accumulator has columns ``2 q`` and ``2 q + 1`` of rows
``g`` and ``g + 8``. Which row or column of the *tile* a row or column of the instruction stands for
is a free choice. The choice here gives a thread neighbouring columns of the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ...plan import MatmulPlan
from ...values.elements import operands_of
from ..copy.layouts import (
    ROW_MAJOR,
    ColumnBlocks,
    Swizzle,
    by_rotation,
    by_row,
    by_run,
    by_word,
)
from ..fragments import quads
from ..fragments.fragment import Fragment, Quad, shared_by_quads, shared_by_warps
from ..ir.nodes import Buffer, Expr, buffer, dtype_bytes, substitute
from ..ir.patterns import Matmul, MatmulOperand
from ..threads.spread import Threads
from .computed_operand import computed_operand
from .mapped_matmul import power_of_two

_DTYPES: Final = {one.operand: one.name for one in operands_of("mma")}
_BYTES: Final = tuple(one.name for one in operands_of("mma") if one.nbytes == 1)
"""Types of bytes, of which one instruction takes two: signed and unsigned."""

_PATTERN: Final = re.compile(r"mma\.m16n8k(\d+)\.(\w+)\.(\w+)")


@dataclass(frozen=True)
class Columns:
    """Says which columns of a warp tile the columns of instruction tiles stand for.

    ``run``: neighbouring columns that a thread owns of every ``run * 4``. Column ``c`` of
    instruction tile ``j``, with ``tiles = run // 2`` of them side by side in a group, is:

    - pairs: ``c // 2 * run + j % tiles * 2 + c % 2``: a thread's pairs lie side by side.
    - strided: ``c * tiles + j % tiles``: each lane's words of an N-major 8-bit tile do.
    """

    run: int
    strided: bool = False

    @property
    def tiles(self) -> int:
        """The instruction tiles in a group of ``run * 4`` columns."""
        return self.run // 2

    def of_tile(self, j: Expr, column: Expr) -> Expr:
        """Return the warp tile's column for column ``column`` of instruction tile ``j``."""
        group = tirx.floordiv(j, self.tiles) * (self.run * 4)
        within = tirx.floormod(j, self.tiles)
        if self.strided:
            return group + column * self.tiles + within
        pair, odd = tirx.floordiv(column, 2), tirx.floormod(column, 2)
        return group + pair * self.run + within * 2 + odd

    def of_thread(self, group: Expr, lane: Expr, v: Expr) -> Expr:
        """Return the warp tile's column for element ``v`` of a thread's run."""
        return group * (self.run * 4) + tirx.floormod(lane, 4) * self.run + v

    def element(self, j: Expr, pair: int) -> Expr:
        """Return where in a row's runs accumulator column ``2 q + pair`` of tile ``j`` lies."""
        group, within = tirx.floordiv(j, self.tiles), tirx.floormod(j, self.tiles)
        place = pair * self.tiles + within if self.strided else within * 2 + pair
        return group * self.run + place


@dataclass(frozen=True)
class Rows:
    """Says which rows of a warp tile instruction tiles stand for: one, or ``tiles`` a lane."""

    tiles: int = 0

    def of_tile(self, i: Expr, half: Expr, g: Expr) -> Expr:
        """Return the warp tile's row for row ``g + 8 * half`` of instruction tile ``i``."""
        if not self.tiles:
            return i * 16 + half * 8 + g
        group, within = tirx.floordiv(i, self.tiles), tirx.floormod(i, self.tiles)
        return group * (16 * self.tiles) + g * (2 * self.tiles) + within * 2 + half


class Warp:
    """The geometry of one matmul, which loaders and instruction share."""

    def __init__(
        self,
        matmul: Matmul,
        plan: MatmulPlan,
        threads: Threads,
        plain: frozenset[Buffer],
        rotated: frozenset[Buffer],
        boxed: Mapping[Buffer, ColumnBlocks],
        *,
        pairs: bool = False,
    ) -> None:
        found = _PATTERN.fullmatch(plan.instruction)
        if found is None:
            raise LoweringError(
                "matmul.instruction",
                matmul=plan.op,
                example="mma.m16n8k16.f16.f32",
                instruction=plan.instruction,
            )
        self.k = int(found[1])
        self.a_type, self.acc_type = found[2], found[3]
        self.matmul, self.plan, self.threads = matmul, plan, threads
        self.element = dtype_bytes(matmul.a.buffer.dtype)
        self._check()
        rows, columns = plan.warp_tile
        self.ti, self.tj = rows // 16, columns // 8
        lane = tirx.floormod(threads.var, 32)
        warp = tirx.floordiv(threads.var, 32)
        self.lane = lane
        self.warp_down = tirx.floormod(warp, plan.warps[0])
        self.row0 = self.warp_down * rows
        self.col0 = tirx.floordiv(warp, plan.warps[0]) * columns
        self.rows, self.columns = Rows(), Columns(2)
        if not pairs:
            self._choose_columns(matmul.b.buffer in plain, matmul.b.buffer in boxed)
        if self.element == 1 and not matmul.a.k_major:
            self.rows = Rows(power_of_two(self.ti, 4))
        self.layouts: dict[Buffer, Swizzle | ColumnBlocks] = {
            side.buffer: ROW_MAJOR if side.buffer in plain else self._layout(side)
            for side in self.loaded
        }
        for side in self.loaded:
            if side.buffer in rotated:
                self.layouts[side.buffer] = by_rotation(self._layout(side), _row_bytes(side))
            if side.buffer in boxed:
                self.layouts[side.buffer] = boxed[side.buffer]

    @property
    def loaded(self) -> tuple[MatmulOperand, ...]:
        """The operands that are loaded from shared memory: both, but for what is computed."""
        if self.plan.operand == "computed":
            return (self.matmul.b,)
        return (self.matmul.a, self.matmul.b)

    def computed_operand(self) -> Fragment:
        """Return the fragment of operand A, which is computed in registers."""

        def row(i: Expr, half: Expr) -> Expr:
            return self.row0 + self.rows.of_tile(i, half, tirx.floordiv(self.lane, 4))

        steps = self.plan.k_step // self.k * self.plan.steps
        return computed_operand(self.matmul, self.ti, steps, self.threads, row)

    def _check(self) -> None:
        plan, matmul = self.plan, self.matmul
        sizes = (
            (
                "M",
                matmul.extent(matmul.m),
                plan.warps[0] * plan.warp_tile[0],
                plan.warp_tile[0],
                16,
            ),
            ("N", matmul.extent(matmul.n), plan.warps[1] * plan.warp_tile[1], plan.warp_tile[1], 8),
            ("K", matmul.extent(matmul.k), plan.k_step * plan.steps, plan.k_step, self.k),
        )
        for name, extent, covered, part, unit in sizes:
            if extent != covered or part % unit:
                raise _refused(
                    plan,
                    Reason(
                        "matmul.multiples",
                        dimension=name,
                        extent=extent,
                        covered=covered,
                        part=part,
                        unit=unit,
                    ),
                )
        wanted = _DTYPES.get(self.a_type)
        for side in (matmul.a, matmul.b):
            if str(side.buffer.dtype) not in (
                wanted,
                *(_BYTES if wanted in _BYTES else ()),
            ):
                name, dtype = str(side.buffer.name), str(side.buffer.dtype)
                raise _refused(plan, Reason("matmul.dtype", buffer=name, dtype=dtype))

    def _choose_columns(self, plain: bool, boxed: bool) -> None:
        """Choose the longest runs of columns that a thread can own without bank conflicts.

        The swizzle of a box keeps eight neighbouring rows apart, which are pairs of columns.
        """
        b = self.matmul.b
        if boxed:
            return
        if not b.k_major:
            if self.element == 1:
                self.columns = Columns(2 * power_of_two(self.tj, 4), strided=True)
            return
        for run in (8, 4):
            fits = plain or by_run(_row_bytes(b), run) is not None
            if fits and self.tj % (run // 2) == 0:
                self.columns = Columns(run)
                return

    def _layout(self, side: MatmulOperand) -> Swizzle:
        """Return a layout in which a warp's reads of the operand use the banks evenly."""
        row = _row_bytes(side)
        if side is self.matmul.b and side.k_major and self.columns.run > 2:
            return by_run(row, self.columns.run) or ROW_MAJOR
        if side.k_major or self.element == 2:
            return by_row(row)
        if self.element == 4:
            return by_word(row, rows=1, words=8)
        words = self.columns.tiles * 2 if side is self.matmul.b else self.rows.tiles * 4
        return by_word(row, rows=4, words=words)

    def has_ldmatrix(self, side: MatmulOperand) -> bool:
        """Whether ldmatrix can load the operand."""
        return side.k_major or self.element == 2

    def fragment(self) -> Fragment:
        """Return the accumulator's fragment: runs of columns, for two rows of each tile."""
        matmul, columns = self.matmul, self.columns
        per_row = self.tj * 2
        total = self.ti * 2 * per_row
        name = f"{matmul.acc.name}_frag"
        packed = self.acc_type == "f16"
        kind = {"f16": "uint32", "f32": "float32", "s32": "uint32"}[self.acc_type]
        q = tirx.floormod(self.lane, quads.LANES)
        registers = buffer([total // 2 if packed else total], kind, name, "local")

        def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
            i, half, group = position
            return self._indices(i, half, columns.of_thread(group, self.lane, v))

        def register(position: Sequence[Expr], v: Expr) -> Expr:
            i, half, group = position
            return (i * 2 + half) * per_row + group * columns.run + v

        loops = (self.ti, 2, per_row // columns.run)
        return Fragment(
            matmul.acc,
            registers,
            loops,
            columns.run,
            coordinates,
            register,
            packed,
            self._quad(),
            rows=shared_by_quads(q, self.col0, self.plan.warps[1]),
            columns=shared_by_warps(self.lane, self.warp_down, self.plan.warps[0]),
        )

    def _quad(self) -> Quad | None:
        """Return the runs of a lane quad if a lane alone has two columns of a tile, or None."""
        if self.columns.run != 2 or self.tj < quads.LANES:
            return None
        q = tirx.floormod(self.lane, quads.LANES)

        def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
            i, half, four = position
            return self._indices(i, half, (four * quads.LANES + q) * quads.RUN + v)

        return Quad(q, (self.ti, 2, self.tj // quads.LANES), coordinates)

    def _indices(self, i: Expr, half: Expr, column: Expr) -> list[Expr]:
        """Return the accumulator's indices of a warp tile's column in a row of this lane."""
        matmul = self.matmul
        row = self.row0 + self.rows.of_tile(i, half, tirx.floordiv(self.lane, 4))
        values = {**matmul.split(matmul.m, row), **matmul.split(matmul.n, self.col0 + column)}
        return [substitute(index, values) for index in matmul.acc_indices]

    def accumulators(self, i: Expr, j: Expr) -> list[Expr]:
        """Return the registers that the instruction on tile ``(i, j)`` reads and writes."""
        places = [
            (i * 2 + half) * (self.tj * 2) + self.columns.element(j, pair)
            for half in (0, 1)
            for pair in (0, 1)
        ]
        if self.acc_type == "f16":
            return [tirx.floordiv(place, 2) for place in places[::2]]
        return places


def _refused(plan: MatmulPlan, why: Reason) -> LoweringError:
    return LoweringError("matmul.unmapped", matmul=plan.op, instruction=plan.instruction, why=why)


def _row_bytes(side: MatmulOperand) -> int:
    return int(side.buffer.shape[-1]) * dtype_bytes(side.buffer.dtype)
