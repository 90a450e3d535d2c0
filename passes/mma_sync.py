"""Tile matmuls on tensor cores: ldmatrix, mma.sync, and where every element lives.

A CTA tile is cut into warp tiles, a warp tile into instruction tiles of 16 x 8 x ``k``. One step of
``k`` is three ops, each with its own registers:

    mma.k0.a    A_frag_k0 = shared A          ldmatrix, or words where ldmatrix cannot transpose
    mma.k0.b    B_frag_k0 = shared B
    mma.k0      acc += A_frag_k0 * B_frag_k0

Register and lane numbers are those of the PTX ISA, "Matrix Fragments for mma.m16n8k*": with
``g = lane // 4`` and ``q = lane % 4``, A holds rows ``g`` and ``g + 8``, B holds column ``g``, both
at 4 bytes of K from ``4 q`` bytes, and the accumulator holds columns ``2 q`` and ``2 q + 1`` of rows
``g`` and ``g + 8``. Which row or column of the *tile* an instruction's row or column stands for is
ours to choose; the choice below lets a thread own neighbouring columns of the result.

Does not handle: warp tiles that the instruction does not divide (LoweringError).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ..errors import LoweringError
from ..plan import MatmulPlan
from .fragments import Fragment, Mapped, power_of_two
from .ir import (
    Buffer,
    Expr,
    Stmt,
    buffer,
    dtype_bytes,
    i32,
    op_stmt,
    seq,
    substitute,
    unrolled,
)
from .layouts import ROW_MAJOR, Swizzle, by_row, by_run, by_word
from .patterns import Matmul, Operand
from .spread import Threads

LDMATRIX: Final = "ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
MMA: Final = "mma.sync.aligned.m16n8k{k}.row.col.{acc}.{a}.{b}.{acc}"
ROUND_TF32: Final = "cvt.rna.tf32.f32"

_TYPES: Final = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "s8": "int8",
    "u8": "uint8",
}
_PTX: Final = {"int8": "s8", "uint8": "u8"}
_PATTERN: Final = re.compile(r"mma\.m16n8k(\d+)\.(\w+)\.(\w+)")


@dataclass(frozen=True)
class _Columns:
    """Which columns of a warp tile the instruction tiles stand for.

    ``run``: neighbouring columns that a thread owns of every ``run * 4``. Column ``c`` of
    instruction tile ``j``, with ``tiles = run // 2`` of them side by side in a group:

    - pairs: ``c // 2 * run + j % tiles * 2 + c % 2``: a thread's pairs lie side by side.
    - strided: ``c * tiles + j % tiles``: each lane's words of an N-major 8-bit tile do.
    """

    run: int
    strided: bool = False

    @property
    def tiles(self) -> int:
        """Instruction tiles in a group of ``run * 4`` columns."""
        return self.run // 2

    def of_tile(self, j: Expr, column: Expr) -> Expr:
        """The column of the warp tile that column ``column`` of instruction tile ``j`` is."""
        group = tirx.floordiv(j, self.tiles) * (self.run * 4)
        within = tirx.floormod(j, self.tiles)
        if self.strided:
            return group + column * self.tiles + within
        pair, odd = tirx.floordiv(column, 2), tirx.floormod(column, 2)
        return group + pair * self.run + within * 2 + odd

    def of_thread(self, group: Expr, lane: Expr, v: Expr) -> Expr:
        """The column of the warp tile that is element ``v`` of a thread's run."""
        return group * (self.run * 4) + tirx.floormod(lane, 4) * self.run + v

    def element(self, j: int, pair: int) -> int:
        """Which element of the runs of one row holds accumulator column ``2 q + pair`` of tile ``j``."""
        group, within = divmod(j, self.tiles)
        place = pair * self.tiles + within if self.strided else within * 2 + pair
        return group * self.run + place


@dataclass(frozen=True)
class _Rows:
    """Which rows of a warp tile the instruction tiles stand for: as they come, or ``tiles`` a lane."""

    tiles: int = 0

    def of_tile(self, i: Expr, half: Expr, g: Expr) -> Expr:
        """The row of the warp tile that row ``g + 8 * half`` of instruction tile ``i`` is."""
        if not self.tiles:
            return i * 16 + half * 8 + g
        group, within = tirx.floordiv(i, self.tiles), tirx.floormod(i, self.tiles)
        return group * (16 * self.tiles) + g * (2 * self.tiles) + within * 2 + half


class _Warp:
    """One matmul's geometry: what the loaders and the instruction need to agree on."""

    def __init__(
        self, matmul: Matmul, plan: MatmulPlan, threads: Threads, plain: frozenset[Buffer]
    ) -> None:
        found = _PATTERN.fullmatch(plan.instruction)
        if found is None:
            raise LoweringError(
                f"cannot map op '{plan.op}': expected an instruction such as mma.m16n8k16.f16.f32, "
                f"not '{plan.instruction}'"
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
        self.row0 = tirx.floormod(warp, plan.warps[0]) * rows
        self.col0 = tirx.floordiv(warp, plan.warps[0]) * columns
        self.rows, self.columns = _Rows(), _Columns(2)
        self._choose_columns(matmul.b.buffer in plain)
        if self.element == 1 and not matmul.a.k_major:
            self.rows = _Rows(power_of_two(self.ti, 4))
        self.layouts = {
            side.buffer: ROW_MAJOR if side.buffer in plain else self._layout(side)
            for side in (matmul.a, matmul.b)
        }

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
                raise LoweringError(
                    f"cannot map op '{plan.op}' to {plan.instruction}: {name} of the tile is {extent}, "
                    f"the plan covers {covered} in parts of {part}, expected multiples of {unit}"
                )
        wanted = _TYPES.get(self.a_type)
        for side in (matmul.a, matmul.b):
            if str(side.buffer.dtype) not in (
                wanted,
                *(_PTX if self.a_type in ("s8", "u8") else ()),
            ):
                raise LoweringError(
                    f"cannot map op '{plan.op}' to {plan.instruction}: '{side.buffer.name}' holds "
                    f"{side.buffer.dtype}"
                )

    def _choose_columns(self, plain: bool) -> None:
        """The longest runs of neighbouring columns a thread can own without bank conflicts."""
        b = self.matmul.b
        if not b.k_major:
            if self.element == 1:
                self.columns = _Columns(2 * power_of_two(self.tj, 4), strided=True)
            return
        for run in (8, 4):
            fits = plain or by_run(_row_bytes(b), run) is not None
            if fits and self.tj % (run // 2) == 0:
                self.columns = _Columns(run)
                return

    def _layout(self, side: Operand) -> Swizzle:
        """A layout in which a warp's reads of the operand hit the banks evenly."""
        row = _row_bytes(side)
        if side is self.matmul.b and side.k_major and self.columns.run > 2:
            return by_run(row, self.columns.run) or ROW_MAJOR
        if side.k_major or self.element == 2:
            return by_row(row)
        if self.element == 4:
            return by_word(row, rows=1, words=8)
        words = self.columns.tiles * 2 if side is self.matmul.b else self.rows.tiles * 4
        return by_word(row, rows=4, words=words)

    def fragment(self) -> Fragment:
        """The accumulator: runs of columns, for two rows of each instruction tile."""
        matmul, columns = self.matmul, self.columns
        per_row = self.tj * 2
        total = self.ti * 2 * per_row
        name = f"{matmul.acc.name}_frag"
        packed = self.acc_type == "f16"
        kind = {"f16": "uint32", "f32": "float32", "s32": "uint32"}[self.acc_type]
        registers = buffer([total // 2 if packed else total], kind, name, "local")
        g = tirx.floordiv(self.lane, 4)

        def coordinates(position: Sequence[Expr], v: Expr) -> list[Expr]:
            i, half, group = position
            row = self.row0 + self.rows.of_tile(i, half, g)
            column = self.col0 + columns.of_thread(group, self.lane, v)
            values = {**matmul.split(matmul.m, row), **matmul.split(matmul.n, column)}
            return [substitute(index, values) for index in matmul.acc_indices]

        def register(position: Sequence[Expr], v: Expr) -> Expr:
            i, half, group = position
            return (i * 2 + half) * per_row + group * columns.run + v

        loops = (self.ti, 2, per_row // columns.run)
        return Fragment(matmul.acc, registers, loops, columns.run, coordinates, register, packed)

    def accumulators(self, registers: Buffer, i: Expr, j: int) -> list[Expr]:
        """The registers that the instruction on tile ``(i, j)`` reads and writes."""
        per_row = self.tj * 2
        places = [
            (i * 2 + half) * per_row + self.columns.element(j, pair)
            for half in (0, 1)
            for pair in (0, 1)
        ]
        if self.acc_type == "f16":
            places = [tirx.floordiv(place, 2) for place in places[::2]]
        return [tirx.BufferLoad(registers, [self.threads.analyzer.simplify(p)]) for p in places]


def map_mma(
    matmul: Matmul, plan: MatmulPlan, threads: Threads, plain: frozenset[Buffer] = frozenset()
) -> Mapped:
    """The op statements, layouts and accumulator fragment of ``matmul`` on mma.sync.

    ``plain``: tiles that the plan keeps row-major.
    """
    warp = _Warp(matmul, plan, threads, plain)
    fragment = warp.fragment()
    inner = plan.k_step // warp.k
    ops: list[Stmt] = []
    buffers: list[Buffer] = []
    for step in range(plan.steps):
        name = f"{plan.op}.k{step}"
        a = buffer([inner * warp.ti * 4], "uint32", f"{matmul.a.buffer.name}_frag_k{step}", "local")
        b = buffer([inner * warp.tj * 2], "uint32", f"{matmul.b.buffer.name}_frag_k{step}", "local")
        first = step * inner
        load_a = [_load_a(warp, a, first + x, x) for x in range(inner)]
        load_b = [_load_b(warp, b, first + x, x) for x in range(inner)]
        math = [_multiply(warp, fragment.registers, a, b, x) for x in range(inner)]
        ops += [
            op_stmt(f"{name}.a", seq(*load_a)),
            op_stmt(f"{name}.b", seq(*load_b)),
            op_stmt(name, seq(*math)),
        ]
        buffers += [a, b]
    return Mapped(fragment, warp.layouts, tuple(ops), tuple(buffers))


def _multiply(warp: _Warp, acc: Buffer, a: Buffer, b: Buffer, step: int) -> Stmt:
    a_type, b_type = (
        (_PTX[str(side.buffer.dtype)] if warp.element == 1 else warp.a_type)
        for side in (warp.matmul.a, warp.matmul.b)
    )
    name = MMA.format(k=warp.k, acc=warp.acc_type, a=a_type, b=b_type)

    def one(i: Expr, j: int) -> Stmt:
        out = warp.accumulators(acc, i, j)
        left = [tirx.BufferLoad(a, [(i + step * warp.ti) * 4 + x]) for x in range(4)]
        right = [tirx.BufferLoad(b, [i32((j + step * warp.tj) * 2 + x)]) for x in range(2)]
        return tirx.Evaluate(T.ptx[name](*out, *left, *right, *out))

    # columns outer, rows back and forth: neighbours share B, and at each turn A
    return seq(
        *[
            one(i32(i), j)
            for j in range(warp.tj)
            for i in (reversed(range(warp.ti)) if j % 2 else range(warp.ti))
        ]
    )


def _load_a(warp: _Warp, frag: Buffer, step: int, part: int) -> Stmt:
    """A's registers of every instruction tile, for the ``step``-th instruction depth of the tile."""
    side = warp.matmul.a

    def row(i: Expr, half: Expr, g: Expr) -> Expr:
        return warp.row0 + warp.rows.of_tile(i, half, g)

    base = part * warp.ti * 4
    lane = warp.lane
    if _has_ldmatrix(warp, side):
        eight = tirx.floormod(tirx.floordiv(lane, 8), 2)
        upper = tirx.floordiv(lane, 16)

        def tile(i: Expr) -> Stmt:
            # matrices in register order: rows 0-7, rows 8-15, then both again at the upper half of K
            if side.k_major:
                at = (row(i, eight, tirx.floormod(lane, 8)), _half(warp, step, upper))
            else:
                at = (row(i, eight, i32(0)), step * warp.k + upper * 8 + tirx.floormod(lane, 8))
            return _ldmatrix(warp, side, frag, base + i * 4, 4, at[0], at[1])

        load = unrolled("i", warp.ti, tile)
        return seq(load, _round(warp, frag, base, warp.ti * 4))
    if warp.element == 4:
        return _load_words(
            warp,
            side,
            frag,
            base,
            [
                (i * 4 + upper * 2 + half, row(i32(i), i32(half), tirx.floordiv(lane, 4)), upper)
                for i in range(warp.ti)
                for upper in (0, 1)
                for half in (0, 1)
            ],
            step,
        )
    tiles = warp.rows.tiles
    groups = [
        (
            row(i32(group * tiles), i32(0), tirx.floordiv(lane, 4)) + word * 4,
            upper,
            [
                base + (group * tiles + (word * 4 + byte) // 2) * 4 + upper * 2 + byte % 2
                for byte in range(min(4, 2 * tiles))
            ],
        )
        for group in range(warp.ti // tiles)
        for word in range(max(1, tiles // 2))
        for upper in (0, 1)
    ]
    return _load_bytes(warp, side, frag, groups, step)


def _load_b(warp: _Warp, frag: Buffer, step: int, part: int) -> Stmt:
    """B's registers of every instruction tile, for the ``step``-th instruction depth of the tile."""
    side = warp.matmul.b
    base = part * warp.tj * 2
    lane = warp.lane

    def column(j: Expr, c: Expr) -> Expr:
        return warp.col0 + warp.columns.of_tile(j, c)

    if _has_ldmatrix(warp, side):
        upper = tirx.floormod(tirx.floordiv(lane, 8), 2)
        next_tile = tirx.floordiv(lane, 16)

        def tiles(j: Expr, count: int) -> Stmt:
            # matrices in register order: lower and upper half of K of tile j, then of tile j + 1
            which = j + next_tile if count == 4 else j
            if side.k_major:
                at = (column(which, tirx.floormod(lane, 8)), _half(warp, step, upper))
            else:
                at = (column(which, i32(0)), step * warp.k + upper * 8 + tirx.floormod(lane, 8))
            return _ldmatrix(warp, side, frag, base + j * 2, count, at[0], at[1])

        pairs = warp.tj // 2
        load = unrolled("j", pairs, lambda j: tiles(j * 2, 4)) if pairs else None
        last = tiles(i32(warp.tj - 1), 2) if warp.tj % 2 else None
        return seq(load, last, _round(warp, frag, base, warp.tj * 2))
    if warp.element == 4:
        return _load_words(
            warp,
            side,
            frag,
            base,
            [
                (j * 2 + upper, column(i32(j), tirx.floordiv(lane, 4)), upper)
                for j in range(warp.tj)
                for upper in (0, 1)
            ],
            step,
        )
    tiles_of = warp.columns.tiles
    groups = [
        (
            column(i32(group * tiles_of), tirx.floordiv(lane, 4)),
            upper,
            [base + (group * tiles_of + byte) * 2 + upper for byte in range(tiles_of)],
        )
        for group in range(warp.tj // tiles_of)
        for upper in (0, 1)
    ]
    return _load_bytes(warp, side, frag, groups, step)


def _half(warp: _Warp, step: int, upper: Expr) -> Expr:
    """The first K of the 16-byte half that a lane addresses."""
    return step * warp.k + upper * (16 // warp.element)


def _ldmatrix(
    warp: _Warp, side: Operand, frag: Buffer, at: Expr, count: int, outer: Expr, k: Expr
) -> Stmt:
    name = LDMATRIX.format(count=count, trans="" if side.k_major else ".trans")
    registers = [tirx.BufferLoad(frag, [at + x]) for x in range(count)]
    return tirx.Evaluate(T.ptx[name](*registers, T.address_of(_element(warp, side, outer, k))))


def _load_words(
    warp: _Warp,
    side: Operand,
    frag: Buffer,
    base: int,
    words: Sequence[tuple[int, Expr, int]],
    step: int,
) -> Stmt:
    """32-bit elements of a tile that is not K-major: one load for each register."""
    q = tirx.floormod(warp.lane, 4)
    stores = [
        tirx.BufferStore(
            frag,
            tirx.reinterpret("uint32", _element(warp, side, outer, step * warp.k + upper * 4 + q)),
            [base + register],
        )
        for register, outer, upper in words
    ]
    return seq(*stores, _round(warp, frag, base, len(words)))


def _load_bytes(
    warp: _Warp,
    side: Operand,
    frag: Buffer,
    groups: Sequence[tuple[Expr, int, Sequence[int]]],
    step: int,
) -> Stmt:
    """8-bit elements of a tile that is not K-major: four neighbours at four K, transposed.

    A register wants four K of one row; a word of the tile has one K of four rows. So four words are
    loaded and their bytes exchanged in registers.
    """
    q = tirx.floormod(warp.lane, 4)
    stores: list[Stmt] = []
    for outer, upper, registers in groups:
        count = len(registers)
        rows = [step * warp.k + upper * 16 + q * 4 + x for x in range(4)]
        words = [_word(warp, side, outer, k, count) for k in rows]
        for byte, register in enumerate(registers):
            stores.append(tirx.BufferStore(frag, _gather(words, byte), [i32(register)]))
    return seq(*stores)


def _word(warp: _Warp, side: Operand, outer: Expr, k: Expr, count: int) -> Expr:
    """``count`` neighbouring bytes as the low bytes of a uint32."""
    element = _element(warp, side, outer, k)
    if count == 1:
        return tirx.Cast("uint32", tirx.reinterpret("uint8", element))
    *lead, last = element.indices
    lanes = tirx.BufferLoad(element.source, [*lead, tirx.Ramp(last, 1, count)])
    word = tirx.reinterpret(f"uint{8 * count}", lanes)
    return word if count == 4 else tirx.Cast("uint32", word)


def _gather(words: Sequence[Expr], byte: int) -> Expr:
    """Byte ``byte`` of each word, the first word's lowest."""
    result = None
    for place, word in enumerate(words):
        moved = word if byte == 0 else tirx.shift_right(word, tirx.const(8 * byte, "uint32"))
        part = tirx.bitwise_and(moved, tirx.const(255, "uint32"))
        if place:
            part = tirx.shift_left(part, tirx.const(8 * place, "uint32"))
        result = part if result is None else tirx.bitwise_or(result, part)
    return result


def _round(warp: _Warp, frag: Buffer, base: int, count: int) -> Stmt | None:
    """fp32 to tf32, to nearest: the tensor core would cut the low 13 bits off, which biases sums."""
    if warp.a_type != "tf32":
        return None

    def one(x: Expr) -> Stmt:
        register = tirx.BufferLoad(frag, [base + x])
        return tirx.Evaluate(T.ptx[ROUND_TF32](register, tirx.reinterpret("float32", register)))

    return unrolled("x", count, one)


def _element(warp: _Warp, side: Operand, outer: Expr, k: Expr) -> Any:
    """The load of one element of an operand's tile, where its layout puts it."""
    matmul, analyzer = warp.matmul, warp.threads.analyzer
    dims = matmul.m if side is matmul.a else matmul.n
    values = {**matmul.split(dims, outer), **matmul.split(matmul.k, k)}
    indices = [analyzer.simplify(substitute(index, values)) for index in side.indices]
    return tirx.BufferLoad(
        side.buffer, warp.layouts[side.buffer].place(side.buffer, indices, analyzer)
    )


def _has_ldmatrix(warp: _Warp, side: Operand) -> bool:
    """Ldmatrix moves 16-bit elements either way, any other width only as it lies."""
    return side.k_major or warp.element == 2


def _row_bytes(side: Operand) -> int:
    return int(side.buffer.shape[-1]) * dtype_bytes(side.buffer.dtype)
