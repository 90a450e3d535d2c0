"""Where the sums of wgmma lie: which lane of a warpgroup has which elements, in which registers.

    columns  0..7      8..15                lane = 4 * (row % 8) + column % 8 // 2
    row  0   0 0 1 1 2 2 3 3   0 0 1 1 ..   a run of two columns is two registers in one lane
    row  8   0 0 1 1 2 2 3 3   0 0 1 1 ..   the same lane has two rows, 8 apart, of each 16

Each warp of a warpgroup has 16 rows of each block of 64 (PTX ISA, wgmma fragments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from ...instructions.wgmma_shapes import ROWS
from ..fragments import quads
from ..fragments.fragment import (
    ColumnShare,
    Fragment,
    Quad,
    row_of_warp,
    shared_by_quads,
    shared_by_warps,
)
from ..ir.nodes import Buffer, Expr, substitute
from ..ir.patterns import Matmul
from ..threads.spread import Threads


@dataclass(frozen=True)
class Accumulators:
    """The sums of ``matmul`` in ``registers``: of each warpgroup those of a part of the tile.

    ``corner``: the first row and column of that part. ``blocks``: of 64 rows in it, of ``columns``
    each. ``groups_across``: warpgroups side by side. ``packed``: two sums share a register.
    ``paired``: the two rows of a lane are neighbours.
    """

    matmul: Matmul
    registers: Buffer
    threads: Threads
    corner: tuple[Expr, Expr]
    blocks: int
    columns: int
    groups_across: int
    packed: bool
    swap_ab: bool
    paired: bool

    def fragment(self) -> Fragment:
        """Return the fragment: pairs of columns, for two rows of each block of 64.

        With A and B swapped and rows paired, those are neighbours in the result: pairs of rows, for
        two columns.
        """
        lane = tirx.floormod(self.threads.index, 32)
        q = tirx.floormod(lane, quads.LANES)
        each, tiles = self.columns // 2, self.columns // 8

        across = self.paired and self.swap_ab

        def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
            block, other, tile = position
            half, column = (v, other) if across else (other, v)
            return self._indices(block, half, tile * 8 + q * 2 + column)

        def register(position: Sequence[Expr], v: Expr) -> Expr:
            block, other, tile = position
            half, column = (v, other) if across else (other, v)
            return block * each + tile * 4 + half * 2 + column

        def exchanged(position: Sequence[Expr], v: Expr) -> list[Expr]:
            block, half, four = position
            return self._indices(block, half, (four * quads.LANES + q) * quads.RUN + v)

        quad = None
        if tiles >= quads.LANES and not across:
            quad = Quad(q, (self.blocks, 2, tiles // quads.LANES), exchanged)
        return Fragment(
            tile=self.matmul.acc,
            registers=self.registers,
            loops=(self.blocks, 2, tiles),
            run=2,
            coordinates=coordinates,
            register=register,
            packed=self.packed,
            quad=quad,
            corner=self.corner,
            swap_ab=self.swap_ab,
            paired=self.paired,
            rows=None if self.swap_ab else shared_by_quads(q, self.corner[1], self.groups_across),
            columns=None if self.swap_ab else self._by_warps(lane),
        )

    def _by_warps(self, lane: Expr) -> ColumnShare:
        """Return how warps share columns: those of all warpgroups that are not side by side."""
        down = self.threads.count // (32 * self.groups_across)
        return shared_by_warps(
            lane, tirx.floormod(tirx.floordiv(self.threads.index, 32), down), down
        )

    def row(self, block: Expr, half: Expr) -> Expr:
        """Return the row of the tile that this lane has in a half of a block."""
        thread = self.threads.index
        warp = tirx.floormod(tirx.floordiv(thread, 32), 4)
        lane = tirx.floordiv(tirx.floormod(thread, 32), quads.LANES)
        inside = row_of_warp(half, lane, paired=self.paired)
        return self.corner[0] + block * ROWS + warp * 16 + inside

    def _indices(self, block: Expr, half: Expr, column: Expr) -> list[Expr]:
        """Return the accumulator's indices of a column of the part in a row of this lane."""
        matmul, row = self.matmul, self.row(block, half)
        values = {
            **matmul.split(matmul.m, row),
            **matmul.split(matmul.n, self.corner[1] + column),
        }
        return [substitute(index, values) for index in matmul.acc_indices]
