"""Load the operands of mma.sync from shared memory into registers.

    A_frag_k0 = A_shared[warp tile, 0:16]   =>   ldmatrix.x4 for each instruction tile

ldmatrix moves 8 x 8 matrices of 16-bit elements, transposed or not, and elements of other sizes
untransposed. A tile of the latter that is not K-major is loaded in words: a 32-bit element is a
register; of 8-bit elements four words give the four K of each register.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ..ir.nodes import Buffer, Expr, Stmt, i32, seq, substitute, unrolled
from ..ir.patterns import MatmulOperand
from .mma_layout import Warp

LDMATRIX: Final = "ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
ROUND_TF32: Final = "cvt.rna.tf32.f32"


def load_a(warp: Warp, frag: Buffer, step: int, part: int) -> Stmt:
    """Return the load of A's registers of every instruction tile, at K step ``step``."""
    side = warp.matmul.a

    def row(i: Expr, half: Expr, g: Expr) -> Expr:
        return warp.row0 + warp.rows.of_tile(i, half, g)

    base = part * warp.ti * 4
    lane = warp.lane
    if warp.has_ldmatrix(side):
        eight = tirx.floormod(tirx.floordiv(lane, 8), 2)
        upper = tirx.floordiv(lane, 16)

        def tile(i: Expr) -> Stmt:
            # matrices in register order: rows 0-7, rows 8-15, then both at the upper half of K
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


def load_b(warp: Warp, frag: Buffer, step: int, part: int) -> Stmt:
    """Return the load of B's registers of every instruction tile, at K step ``step``."""
    side = warp.matmul.b
    base = part * warp.tj * 2
    lane = warp.lane

    def column(j: Expr, c: Expr) -> Expr:
        return warp.col0 + warp.columns.of_tile(j, c)

    if warp.has_ldmatrix(side):
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


def _half(warp: Warp, step: int, upper: Expr) -> Expr:
    """Return the first K of the 16-byte half that a lane addresses."""
    return step * warp.k + upper * (16 // warp.element)


def _ldmatrix(
    warp: Warp, side: MatmulOperand, frag: Buffer, at: Expr, count: int, outer: Expr, k: Expr
) -> Stmt:
    name = LDMATRIX.format(count=count, trans="" if side.k_major else ".trans")
    registers = [tirx.BufferLoad(frag, [at + x]) for x in range(count)]
    return tirx.Evaluate(T.ptx[name](*registers, T.address_of(_element(warp, side, outer, k))))


def _load_words(
    warp: Warp,
    side: MatmulOperand,
    frag: Buffer,
    base: int,
    words: Sequence[tuple[int, Expr, int]],
    step: int,
) -> Stmt:
    """Return loads of 32-bit elements that are not K-major: one for each register."""
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
    warp: Warp,
    side: MatmulOperand,
    frag: Buffer,
    groups: Sequence[tuple[Expr, int, Sequence[int]]],
    step: int,
) -> Stmt:
    """Return loads of 8-bit elements that are not K-major: four at four K, transposed.

    A register needs four K of one row; a word of the tile has one K of four rows. So four words are
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


def _word(warp: Warp, side: MatmulOperand, outer: Expr, k: Expr, count: int) -> Expr:
    """Return ``count`` neighbouring bytes as the low bytes of a uint32."""
    element = _element(warp, side, outer, k)
    if count == 1:
        return tirx.Cast("uint32", tirx.reinterpret("uint8", element))
    *outer, last = element.indices
    lanes = tirx.BufferLoad(element.source, [*outer, tirx.Ramp(last, 1, count)])
    word = tirx.reinterpret(f"uint{8 * count}", lanes)
    return word if count == 4 else tirx.Cast("uint32", word)


def _gather(words: Sequence[Expr], byte: int) -> Expr:
    """Return byte ``byte`` of each word in one word, the first word's lowest."""
    result = None
    for place, word in enumerate(words):
        moved = word if byte == 0 else tirx.shift_right(word, tirx.const(8 * byte, "uint32"))
        part = tirx.bitwise_and(moved, tirx.const(255, "uint32"))
        if place:
            part = tirx.shift_left(part, tirx.const(8 * place, "uint32"))
        result = part if result is None else tirx.bitwise_or(result, part)
    return result


def _round(warp: Warp, frag: Buffer, base: int, count: int) -> Stmt | None:
    """Return the rounding of fp32 to tf32, to nearest, or None for other types.

    The tensor core would drop the low 13 bits, which biases sums.
    """
    if warp.a_type != "tf32":
        return None

    def one(x: Expr) -> Stmt:
        register = tirx.BufferLoad(frag, [base + x])
        return tirx.Evaluate(T.ptx[ROUND_TF32](register, tirx.reinterpret("float32", register)))

    return unrolled("x", count, one)


def _element(warp: Warp, side: MatmulOperand, outer: Expr, k: Expr) -> Any:
    """Return the load of one element of an operand's tile, where its layout puts it."""
    matmul, analyzer = warp.matmul, warp.threads.analyzer
    dims = matmul.m if side is matmul.a else matmul.n
    values = {**matmul.split(dims, outer), **matmul.split(matmul.k, k)}
    indices = [analyzer.simplify(substitute(index, values)) for index in side.indices]
    layout = warp.layouts[side.buffer]
    stored = layout.buffer_for(side.buffer)
    return tirx.BufferLoad(stored, layout.place(side.buffer, indices, analyzer))
