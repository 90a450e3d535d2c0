"""Map tile matmuls to the FMA pipe: each thread owns a small tile of the result.

``pipeliner/instructions/simt.py`` chooses the tiles of warps and threads.

    mma         acc += A_shared * B_shared
 => mma.k0.a    A_frag_k0[tm] = shared A[.., k0]      mma.k0.b likewise
    mma.k0      acc[tm, tn] += A_frag_k0 * B_frag_k0  tm * tn multiply-adds for each K

A warp is ``lm x ln`` lanes. If an operand is contiguous along rows (or columns) of the result, a
thread's share is cut into pieces of up to 16 bytes, and one lane after the other takes a piece:
each piece is one LDS.128, and lanes of one phase read neighbouring chunks or the same one. An
operand that is contiguous along K is read four K at once instead, by lanes that alternate on rows.

Does not handle: warp tiles that 32 thread tiles do not fill (LoweringError).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.ops import k_steps
from ...plan import MatmulPlan
from ..copy.layouts import CHUNK_BYTES, ROW_MAJOR, Swizzle, by_group, by_padding, by_row
from ..fragments.fragment import Fragment
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    Var,
    buffer,
    dtype_bytes,
    i32,
    op_stmt,
    seq,
    substitute,
    unrolled,
    vectorized,
)
from ..ir.patterns import Matmul, MatmulOperand
from ..threads.spread import Threads
from .mapped_matmul import Mapped, back_and_forth, power_of_two


@dataclass(frozen=True)
class _Side:
    """How one operand's rows (of A) or columns (of B) are distributed over the lanes of a warp.

    Element ``e`` of a thread is ``e // piece * (lanes * piece) + lane * piece + e % piece``.
    ``vector``: elements read at once, along K if ``along_k``, else along the piece.
    """

    operand: MatmulOperand
    dims: tuple[Var, ...]
    count: int
    lanes: int
    lane: Expr
    origin: Expr
    piece: int
    along_k: bool
    vector: int

    def position(self, e: Expr) -> Expr:
        """Return the row or column of the tile for element ``e`` of the thread."""
        if self.piece == 1:
            return self.origin + e * self.lanes + self.lane
        group, within = tirx.floordiv(e, self.piece), tirx.floormod(e, self.piece)
        return self.origin + group * (self.lanes * self.piece) + self.lane * self.piece + within


class _Thread:
    """The geometry of one matmul."""

    def __init__(
        self,
        matmul: Matmul,
        plan: MatmulPlan,
        threads: Threads,
        plain: frozenset[Buffer],
        padded: frozenset[Buffer],
    ) -> None:
        self.matmul, self.plan, self.threads = matmul, plan, threads
        self.padded = padded
        (rows, columns), (tm, tn) = plan.warp_tile, plan.thread_tile
        lm, ln = rows // tm, columns // tn
        self._check(lm * ln)
        lane, warp = tirx.floormod(threads.var, 32), tirx.floordiv(threads.var, 32)
        row0 = tirx.floordiv(warp, plan.warps[1]) * rows
        col0 = tirx.floormod(warp, plan.warps[1]) * columns
        self.layouts: dict[Buffer, Swizzle] = {}
        i, j = _lanes(lane, ln)
        self.a = self._side(matmul.a, matmul.m, tm, lm, i, row0, matmul.a.buffer in plain)
        self.b = self._side(matmul.b, matmul.n, tn, ln, j, col0, matmul.b.buffer in plain)

    def _check(self, lanes: int) -> None:
        plan, matmul = self.plan, self.matmul
        sizes = (
            ("M", matmul.extent(matmul.m), plan.warps[0] * plan.warp_tile[0]),
            ("N", matmul.extent(matmul.n), plan.warps[1] * plan.warp_tile[1]),
            ("K", matmul.extent(matmul.k), plan.k_step * plan.steps),
        )
        for name, extent, covered in sizes:
            if extent != covered:
                why = Reason("matmul.covered", dimension=name, extent=extent, covered=covered)
                raise LoweringError("matmul.unmapped", matmul=plan.op, instruction="simt", why=why)
        if lanes != 32:
            tiles = {"warp_tile": plan.warp_tile, "thread_tile": plan.thread_tile}
            why = Reason("matmul.lanes", lanes=lanes, **tiles)
            raise LoweringError("matmul.unmapped", matmul=plan.op, instruction="simt", why=why)

    def _side(
        self,
        operand: MatmulOperand,
        dims: tuple[Var, ...],
        count: int,
        lanes: int,
        lane: Expr,
        origin: Expr,
        plain: bool,
    ) -> _Side:
        element = dtype_bytes(operand.buffer.dtype)
        row_bytes = int(operand.buffer.shape[-1]) * element
        per_chunk = max(1, CHUNK_BYTES // element)
        piece = power_of_two(count, min(4, per_chunk))
        if not operand.k_major:
            # any layout that keeps chunks whole serves: lanes read neighbouring chunks of one row
            longer = by_padding(operand.buffer) if operand.buffer in self.padded else None
            self.layouts[operand.buffer] = ROW_MAJOR if plain else longer or by_row(row_bytes)
            return _Side(operand, dims, count, lanes, lane, origin, piece, False, piece)
        vector = power_of_two(self.plan.k_step, min(4, per_chunk))
        grouped = by_group(row_bytes, piece)
        if plain or grouped is None:
            self.layouts[operand.buffer] = ROW_MAJOR if plain else by_row(row_bytes)
            piece = 1
        else:
            self.layouts[operand.buffer] = grouped
        return _Side(operand, dims, count, lanes, lane, origin, piece, True, vector)

    def fragment(self) -> Fragment:
        """Return the accumulator's fragment: ``tm`` rows of pieces of columns."""
        matmul, a, b = self.matmul, self.a, self.b
        name = f"{matmul.acc.name}_frag"
        registers = buffer([a.count * b.count], str(matmul.acc.dtype), name, "local")

        def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
            i, group = position
            values = {
                **matmul.split(matmul.m, a.position(i)),
                **matmul.split(matmul.n, b.position(group * b.piece + v)),
            }
            return [substitute(index, values) for index in matmul.acc_indices]

        def register(position: Sequence[Expr], v: Expr) -> Expr:
            i, group = position
            return i * b.count + group * b.piece + v

        loops = (a.count, b.count // b.piece)
        return Fragment(matmul.acc, registers, loops, b.piece, coordinates, register)

    def load(self, side: _Side, frag: Buffer, step: int) -> Stmt:
        """Return the load of the registers of one K step, in the widest reads."""
        first = step * self.plan.k_step

        def along_k(e: Expr, k: int) -> Stmt:
            def one(v: Expr) -> Stmt:
                value = self._element(side, side.position(e), first + k + v)
                return tirx.BufferStore(frag, value, [self._place(side, e, k + v)])

            return vectorized("v", side.vector, one)

        def along_piece(piece: Expr, k: int) -> Stmt:
            def one(v: Expr) -> Stmt:
                e = piece * side.piece + v
                value = self._element(side, side.position(e), i32(first + k))
                return tirx.BufferStore(frag, value, [self._place(side, e, k)])

            return vectorized("v", side.piece, one)

        if side.along_k:
            steps = range(0, self.plan.k_step, side.vector)
            return unrolled("i", side.count, lambda e: seq(*[along_k(e, k) for k in steps]))
        pieces = side.count // side.piece
        return seq(
            *[
                unrolled("i", pieces, functools.partial(along_piece, k=k))
                for k in range(self.plan.k_step)
            ]
        )

    def _place(self, side: _Side, e: Expr, k: Expr) -> Expr:
        """Return the register of element ``e`` at the ``k``-th K of a step, in read order."""
        return e * self.plan.k_step + k if side.along_k else k * side.count + e

    def _element(self, side: _Side, position: Expr, k: Expr) -> Expr:
        analyzer, operand = self.threads.analyzer, side.operand
        values = {
            **self.matmul.split(side.dims, position),
            **self.matmul.split(self.matmul.k, k),
        }
        indices = [analyzer.simplify(substitute(index, values)) for index in operand.indices]
        layout = self.layouts[operand.buffer]
        where = layout.place(operand.buffer, indices, analyzer)
        return tirx.BufferLoad(layout.buffer_for(operand.buffer), where)

    def multiply(self, acc: Buffer, a: Buffer, b: Buffer) -> Stmt:
        """Return one step of multiply-adds, each sharing an operand with the one before.

        They go in blocks (i, j) (i + 1, j) (i + 1, j + 1) (i, j + 1), rows back and forth. The
        register file delivers an FMA's three operands in one cycle only if the operand collector
        still has one of them.
        """
        tm, tn, kind = self.a.count, self.b.count, str(self.matmul.acc.dtype)

        def one(i: Expr, j: Expr, k: int) -> Stmt:
            left = tirx.BufferLoad(a, [self._place(self.a, i, k)])
            right = tirx.BufferLoad(b, [self._place(self.b, j, k)])
            at = [i * tn + j]
            product = _cast(left, kind) * _cast(right, kind)
            return tirx.BufferStore(acc, tirx.BufferLoad(acc, at) + product, at)

        def block(i: Expr, j: Expr, k: int) -> Stmt:
            row = back_and_forth(i, j, tm // 2) * 2
            cells = ((row, j * 2), (row + 1, j * 2), (row + 1, j * 2 + 1), (row, j * 2 + 1))
            return seq(*[one(*cell, k) for cell in cells])

        def step(k: int) -> Stmt:
            if tm % 2 or tn % 2:
                return unrolled("j", tn, lambda j: unrolled("i", tm, lambda i: one(i, j, k)))
            return unrolled(
                "j", tn // 2, lambda j: unrolled("i", tm // 2, lambda i: block(i, j, k))
            )

        return seq(*[step(k) for k in range(self.plan.k_step)])


def map_simt(
    matmul: Matmul,
    plan: MatmulPlan,
    threads: Threads,
    plain: frozenset[Buffer] = frozenset(),
    padded: frozenset[Buffer] = frozenset(),
) -> Mapped:
    """Return the op statements, layouts and accumulator fragment of ``matmul`` on the FMA pipe.

    ``plain``: tiles that the plan keeps row-major. ``padded``: those whose rows it pads.
    """
    thread = _Thread(matmul, plan, threads, plain, padded)
    fragment = thread.fragment()
    ops: list[Stmt] = []
    buffers: list[Buffer] = []
    for step, named in enumerate(k_steps(plan)):
        a, b = (
            buffer(
                [side.count * plan.k_step],
                str(side.operand.buffer.dtype),
                f"{side.operand.buffer.name}_frag_k{step}",
                "local",
            )
            for side in (thread.a, thread.b)
        )
        loads = (named.a, thread.a, a), (named.b, thread.b, b)
        ops += [op_stmt(op, thread.load(side, of, step)) for op, side, of in loads if op]
        ops.append(op_stmt(named.multiply, thread.multiply(fragment.registers, a, b)))
        buffers += [a, b]
    return Mapped(fragment, thread.layouts, tuple(ops), tuple(buffers))


def _lanes(lane: Expr, columns: int) -> tuple[Expr, Expr]:
    """Return row and column of a lane in its warp, which is ``columns`` lanes wide."""
    return tirx.floordiv(lane, columns), tirx.floormod(lane, columns)


def _cast(value: Expr, kind: str) -> Expr:
    return value if str(value.ty) == kind else tirx.Cast(kind, value)
