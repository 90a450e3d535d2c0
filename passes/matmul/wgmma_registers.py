"""Load the first operand of wgmma to registers: which lane loads which element, and when.

    for each step of k:
        A_raw = bytes of the next step    # only if they are converted
        wgmma.wait_group (steps - 1)      # the wgmma that read these registers has completed
        ldmatrix  A_frag[step]            # 16 rows of a warp by 32 bytes of K, in each 64 rows
        wgmma.fence                       # makes them visible to wgmma
        wgmma     acc, A_frag[step], descriptor of B
        wgmma.commit_group

Every step has its own registers, so the wgmmas of all other steps may be in flight while one loads,
and no register is indexed by a run-time value. A register must not be accessed from the wgmma that
reads it to the wait for its group, and a fence stands between any access and the next wgmma that
reads it (PTX ISA, wgmma.mma_async, wgmma.fence). Each warp has 16 of 64 rows, as mma.m16n8k16 has
its A (PTX ISA, register fragments of wgmma).

ldmatrix moves 16-bit elements transposed or not, all others untransposed. If those others are laid
out with K outermost, a lane gets neighbours along M together, so the two rows that a lane has of
its warp's 16 are neighbours (``Fragment.paired``). Of 4-byte elements a lane reads such a pair at
once. Of bytes a transposing ldmatrix loads two such pairs, of neighbouring k, in a word:

    word 0:  m0 k0   m1 k0   m0 k1   m1 k1         A_frag 0:  m0 k0   m0 k1   m0 k2   m0 k3
    word 1:  m0 k2   m1 k2   m0 k3   m1 k3    =>   A_frag 1:  m1 k0   m1 k1   m1 k2   m1 k3

A conversion needs no such permutation: the bytes of each row are already every second one.

For mixed-input GEMMs (weights of 8 bits, activations of 16) lanes load the weights themselves, and
they are dequantised in registers. Such a load, like ldmatrix, is an ordinary read of shared memory,
which the slot's next copy must not overtake. So before a warp releases the slot, its lanes execute
a proxy fence and synchronise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ...instructions.wgmma import LEFT_REGISTERS
from ...instructions.wgmma_shapes import ROWS
from ...plan import MatmulPlan
from ..copy.layouts import CHUNK_BYTES, ColumnBlocks
from ..fragments import quads
from ..ir.nodes import Buffer, Expr, Stmt, buffer, dtype_bytes, i32, seq, substitute
from ..ir.nodes import block as ir_block
from ..ir.patterns import Matmul
from ..threads.spread import Threads
from .mma_operands import LDMATRIX

PERMUTE: Final = "prmt.b32"

_MATRIX: Final = 8
"""Rows of one matrix of ldmatrix."""

_WORDS: Final = 2
"""Words of bytes to be converted in each half of a step."""

_EVEN_BYTES: Final = (0x6420, 0x2064)
"""Selectors of the even row's bytes in two words, by k (PTX ISA, prmt: a digit for each byte).

The odd row's are one byte further. The second selector is for words that were exchanged.
"""


@dataclass(frozen=True)
class Left:
    """The first operand of a warpgroup's tile: ``blocks`` of 64 rows from row ``first`` on.

    It has ``steps`` of ``k`` elements. ``transposed``: rows are transposed in registers. ``frag``:
    what wgmma reads. ``raw``: what is converted to that, of two steps; None if nothing is
    converted.
    """

    matmul: Matmul
    column_blocks: ColumnBlocks
    threads: Threads
    first: Expr
    blocks: int
    steps: int
    k: int
    transposed: bool
    frag: Buffer
    raw: Buffer | None

    @staticmethod
    def of(
        matmul: Matmul,
        column_blocks: ColumnBlocks,
        threads: Threads,
        first: Expr,
        blocks: int,
        plan: MatmulPlan,
    ) -> Left:
        """Return the first operand of ``matmul``, with new registers."""
        name, each = str(matmul.a.buffer.name), blocks * LEFT_REGISTERS
        frag = buffer([plan.steps * each], "uint32", f"{name}_frag", "local")
        raw, count = None, min(2, plan.steps) * blocks
        if str(matmul.a.buffer.dtype) != str(matmul.b.buffer.dtype):
            size, kind = (_WORDS, "uint32") if plan.transposed else (LEFT_REGISTERS, "uint16")
            raw = buffer([count * size], kind, f"{name}_raw", "local")
        steps, k = plan.steps, plan.k_step
        return Left(
            matmul, column_blocks, threads, first, blocks, steps, k, plan.transposed, frag, raw
        )

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The registers, which outlive a step of the loop."""
        return (self.frag,) if self.raw is None else (self.frag, self.raw)

    def registers(self, step: int, block: int) -> list[Expr]:
        """Return the registers that wgmma reads of a block at a step of k."""
        first = self._at(step, block)
        return [tirx.BufferLoad(self.frag, [i32(first + x)]) for x in range(LEFT_REGISTERS)]

    def read_ahead(self, step: int) -> Stmt | None:
        """Return the read of what ``step`` converts, while the step before still converts.

        Nothing in flight reads these registers, so no wait is needed.
        """
        if self.raw is None or step == self.steps:
            return None
        if self.transposed:
            return seq(*[self._read_transposed(step, block) for block in range(self.blocks)])
        lane = tirx.floormod(self.threads.var, 32)
        stmts: list[Stmt] = []
        for block in range(self.blocks):
            own = self._rows(block) + tirx.floordiv(lane, quads.LANES)
            for x in range(LEFT_REGISTERS):
                across = x // 2 * _MATRIX + tirx.floormod(lane, quads.LANES) * quads.PAIR
                element = self._element(own + x % 2 * _MATRIX, step * self.k + across)
                *outer, inner = element.indices
                lanes = [*outer, tirx.Ramp(inner, 1, quads.PAIR)]
                pair = tirx.reinterpret("uint16", tirx.BufferLoad(element.source, lanes))
                at = self._at(step % 2, block) + x
                stmts.append(tirx.BufferStore(self.raw, pair, [i32(at)]))
        return seq(*stmts)

    def _read_transposed(self, step: int, block: int) -> Stmt:
        """Return the reads of both halves of a step, eight k each, of bytes to be converted."""
        lane = tirx.floormod(self.threads.var, _WORDS * _MATRIX)
        source = T.address_of(self._element(self._rows(block), step * self.k + lane))
        name = LDMATRIX.format(count=_WORDS, trans=".trans")
        words = [self._word(step, block, half) for half in range(_WORDS)]
        return tirx.Evaluate(T.ptx[name](*words, source))

    def _word(self, step: int, block: int, half: int) -> Expr:
        """Return two rows at two neighbouring k of half a step."""
        return tirx.BufferLoad(self.raw, [i32((step % 2 * self.blocks + block) * _WORDS + half)])

    def load(self, step: int) -> Stmt:
        """Return the load of every block's registers at ``step``."""
        return seq(*[self.load_block(step, block) for block in range(self.blocks)])

    def load_block(self, step: int, block: int) -> Stmt:
        """Return the load of one block's registers at ``step``."""
        if self.raw is not None:
            return self._convert(step, block)
        if self.transposed:
            one = dtype_bytes(self.matmul.a.buffer.dtype) == 1
            return self._transpose_bytes(step, block) if one else self._transpose_words(step, block)
        side, lane = self.matmul.a, tirx.floormod(self.threads.var, 32)
        own, k = self._rows(block), step * self.k
        half = CHUNK_BYTES // dtype_bytes(side.buffer.dtype)
        if side.k_major:
            row = own + tirx.floormod(lane, 2 * _MATRIX)
            column = k + tirx.floordiv(lane, 2 * _MATRIX) * half
        else:
            row = own + tirx.floormod(tirx.floordiv(lane, _MATRIX), 2) * _MATRIX
            upper = tirx.floordiv(lane, 2 * _MATRIX) * _MATRIX
            column = k + upper + tirx.floormod(lane, _MATRIX)
        name = LDMATRIX.format(count=LEFT_REGISTERS, trans="" if side.k_major else ".trans")
        source = T.address_of(self._element(row, column))
        return tirx.Evaluate(T.ptx[name](*self.registers(step, block), source))

    def _transpose_words(self, step: int, block: int) -> Stmt:
        """Return the loads of pairs of rows at the lane's k, and half a step further.

        Lanes of every second run of eight read the latter first. Then the 16 lanes that are served
        at once use 16 different pairs of banks.
        """
        lane = tirx.floormod(self.threads.var, 32)
        later = tirx.floormod(tirx.floordiv(lane, _MATRIX), 2)
        row = self._rows(block) + tirx.floordiv(lane, quads.LANES) * quads.PAIR
        words, stmts = self._words(), []
        for n in range(2):
            half = tirx.bitwise_xor(later, i32(n))
            column = tirx.floormod(lane, quads.LANES) + half * quads.LANES
            element = self._element(row, step * self.k + column)
            *outer, inner = element.indices
            pair = tirx.BufferLoad(element.source, [*outer, tirx.Ramp(inner, 1, quads.PAIR)])
            at = tirx.Ramp(i32(n * quads.PAIR), 1, quads.PAIR)
            as_words = tirx.reinterpret(f"uint32x{quads.PAIR}", pair)
            stmts.append(tirx.BufferStore(words, as_words, [at]))
        for x in range(LEFT_REGISTERS):
            both = [tirx.BufferLoad(words, [i32(y)]) for y in (x, (x + 2) % LEFT_REGISTERS)]
            chosen = tirx.Select(tirx.EQ(later, i32(0)), *both)
            at = i32(self._at(step, block) + x)
            stmts.append(tirx.BufferStore(self.frag, chosen, [at]))
        return ir_block("transposed", seq(*stmts), [words])

    def _words(self) -> Buffer:
        """Return registers for what is loaded for one block, before it is in order."""
        name = f"{self.matmul.a.buffer.name}_words"
        return buffer([LEFT_REGISTERS], "uint32", name, "local")

    def _transpose_bytes(self, step: int, block: int) -> Stmt:
        """Return the loads of four matrices: two of a lane's four k each, of both halves of a step.

        In lanes of the upper half of each four the two are exchanged. Then the eight rows of a
        matrix are in eight different chunks of a line.
        """
        lane = tirx.floormod(self.threads.var, 32)
        matrix, line = tirx.floordiv(lane, _MATRIX), tirx.floormod(lane, _MATRIX)
        quad = tirx.floordiv(line, quads.PAIR)
        second = tirx.floormod(matrix + tirx.floordiv(quad, 2), 2)
        column = tirx.floordiv(matrix, 2) * CHUNK_BYTES + quad * quads.LANES
        column = column + second * quads.PAIR + tirx.floormod(line, quads.PAIR)
        words = self._words()
        loaded = [tirx.BufferLoad(words, [i32(x)]) for x in range(LEFT_REGISTERS)]
        source = T.address_of(self._element(self._rows(block), step * self.k + column))
        name = LDMATRIX.format(count=LEFT_REGISTERS, trans=".trans")
        stmts: list[Stmt] = [tirx.Evaluate(T.ptx[name](*loaded, source))]
        is_lower = tirx.floormod(lane, quads.LANES) < 2
        for x, register in enumerate(self.registers(step, block)):
            chosen = [tirx.const(s + x % 2 * 0x1111, "uint32") for s in _EVEN_BYTES]
            two = loaded[x // 2 * 2 : x // 2 * 2 + 2]
            permuted = T.ptx[PERMUTE](register, *two, tirx.Select(is_lower, *chosen))
            stmts.append(tirx.Evaluate(permuted))
        return ir_block("transposed", seq(*stmts), [words])

    def _convert(self, step: int, block: int) -> Stmt:
        kind = str(self.matmul.b.buffer.dtype)
        stores = []
        for x in range(LEFT_REGISTERS):
            if self.transposed:
                word = self._word(step, block, x // 2)
                wide = widened_even(tirx.shift_right(word, _word(x % 2 * 8)), kind)
            else:
                pair = tirx.BufferLoad(self.raw, [i32(self._at(step % 2, block) + x)])
                wide = widened(pair, kind)
            stores.append(tirx.BufferStore(self.frag, wide, [i32(self._at(step, block) + x)]))
        return seq(*stores)

    def _at(self, step: int, block: int) -> int:
        return (step * self.blocks + block) * LEFT_REGISTERS

    def _rows(self, block: int) -> Expr:
        """Return the first of the 16 rows of this warp in a block."""
        warp = tirx.floormod(tirx.floordiv(self.threads.var, 32), 4)
        return self.first + block * ROWS + warp * (ROWS // 4)

    def _element(self, row: Expr, column: Expr) -> Any:
        """Return the load of one element."""
        matmul, analyzer = self.matmul, self.threads.analyzer
        side = matmul.a
        values = {**matmul.split(matmul.m, row), **matmul.split(matmul.k, column)}
        indices = [analyzer.simplify(substitute(index, values)) for index in side.indices]
        place = self.column_blocks.place(side.buffer, indices, analyzer)
        return tirx.BufferLoad(self.column_blocks.stored, place)


def widened(pair: Expr, kind: str) -> Expr:
    """Return two signed bytes, given as a uint16, as two floats of type ``kind`` in a word.

    float16 needs no conversion instruction, of which hardware executes few per cycle. With its sign
    bit flipped a byte ``x`` is ``x + 128``. That in the low bits of the float 1024 is the float
    ``1024 + x + 128``, because mantissas of 10 bits count in ones from 1024 on.
    """
    if kind != "float16":
        both = tirx.reinterpret("int8x2", pair)
        return tirx.reinterpret("uint32", tirx.Cast(f"{kind}x2", both))
    low = tirx.Cast("uint32", pair)
    return widened_even(tirx.bitwise_or(low, tirx.shift_left(low, _word(8))), kind)


def widened_even(word: Expr, kind: str) -> Expr:
    """Return the even bytes (0 and 2) of a word as two floats, whatever the others are."""
    if kind != "float16":
        low, high = (
            tirx.Cast(
                "uint32", tirx.reinterpret("uint16", tirx.Cast(kind, tirx.Cast("int8", byte)))
            )
            for byte in (word, tirx.shift_right(word, _word(16)))
        )
        return tirx.bitwise_or(low, tirx.shift_left(high, _word(16)))
    even = tirx.bitwise_and(word, _word(0xFF00FF))
    offset = tirx.reinterpret("float16x2", tirx.bitwise_xor(even, _word(0x64806480)))
    exact = offset - tirx.Broadcast(tirx.const(1024 + 128, "float16"), 2)
    return tirx.reinterpret("uint32", exact)


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")
