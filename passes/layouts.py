"""Layouts of shared tiles: where element (row, column) of a tile really lies.

A warp reads a tile in patterns that hit few banks when rows lie one after the other, so 16-byte
chunks of a row change places: chunk ``c`` of row ``r`` is stored at ``c ^ f(r)``. A chunk stays
whole, so 16-byte copies and ldmatrix rows stay legal, and no byte is lost to padding.

Rows that are read and written one after the other, as those of a SIMT tile are along K, are padded
by a chunk instead: every address is then a base and a constant, where exclusive or needs arithmetic
for each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ..errors import InternalError
from .indexing import strides
from .ir import Buffer, Expr, buffer, const_int, dtype_bytes, i32

CHUNK_BYTES: Final = 16
LINE_CHUNKS: Final = 8
"""Chunks in one pass over all 32 banks of 4 bytes."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """``f(r)``: the sum of ``r // divisor % modulus * scale`` over ``terms``; none: row-major.

    ``padded``: the buffer with longer rows that takes the tile's place. ``rotated``: chunks of a
    row, of which those of odd rows are first rotated by one: ``c`` to ``(c + 1) % rotated``.
    """

    terms: tuple[tuple[int, int, int], ...] = ()
    padded: Buffer | None = None
    rotated: int = 0

    @property
    def moves(self) -> bool:
        """Whether any element lies elsewhere than in the tile as declared."""
        return bool(self.terms) or bool(self.rotated) or self.padded is not None

    def buffer_for(self, buf: Buffer) -> Buffer:
        """The buffer that holds the tile of ``buf``."""
        return buf if self.padded is None else self.padded

    def key(self, row: Expr, analyzer: Any) -> Expr | None:
        """``f(row)``, or None where it is 0."""
        total = None
        for divisor, modulus, scale in self.terms:
            term = analyzer.simplify(tirx.floormod(tirx.floordiv(row, divisor), modulus)) * scale
            total = term if total is None else total + term
        if total is None:
            return None
        total = analyzer.simplify(total)
        return None if const_int(total) == 0 else total

    def column(self, row: Expr, column: Expr, chunk: int, analyzer: Any) -> Expr:
        """Where ``column`` of ``row`` is stored; ``chunk``: elements in 16 bytes."""
        key = self.key(row, analyzer)
        if key is None and not self.rotated:
            return column
        which = analyzer.simplify(tirx.floordiv(column, chunk))
        within = analyzer.simplify(tirx.floormod(column, chunk))
        if self.rotated:
            odd = analyzer.simplify(tirx.floormod(row, 2))
            which = analyzer.simplify(tirx.floormod(which + odd, self.rotated))
        return (which if key is None else tirx.bitwise_xor(which, key)) * chunk + within

    def place(self, buf: Buffer, indices: Sequence[Expr], analyzer: Any) -> list[Expr]:
        """The indices at which element ``indices`` of a tile in ``buf`` is stored."""
        if not self.terms and not self.rotated:
            return list(indices)
        row: Expr = i32(0)
        for index, stride in zip(indices[:-1], strides(buf)[:-1]):
            row = row + index * tirx.floordiv(stride, buf.shape[-1])
        chunk = CHUNK_BYTES // dtype_bytes(buf.dtype)
        column = self.column(analyzer.simplify(row), indices[-1], chunk, analyzer)
        return [*list(indices)[:-1], column]


ROW_MAJOR: Final = Swizzle()

ATOM_BYTES: Final = 1024
"""Eight rows of 128 bytes: what a swizzle of the tensor memory accelerator starts at."""


@dataclass(frozen=True, slots=True)
class ColumnBlocks:
    """A tile cut into ``count`` column blocks, each as wide as its swizzle.

    A column block has ``rows`` rows of ``span`` bytes. It is swizzled by row: boxes of the
    tensor memory accelerator fill it and wgmma reads it. ``stored``: the buffer
    ``[column_block, row, column]`` that takes the tile's place. ``columns``: elements in a row of a
    column block.
    """

    stored: Buffer
    span: int
    count: int
    rows: int
    columns: int

    @staticmethod
    def of(tile: Buffer, span: int) -> ColumnBlocks:
        """The column blocks of ``tile``, whose rows are multiples of ``span`` bytes."""
        *outer, row = (const_int(extent) or 0 for extent in tile.shape)
        columns = span // dtype_bytes(tile.dtype)
        count, rows = row // columns, math.prod(outer)
        shape = [count, rows, columns]
        stored = buffer(shape, str(tile.dtype), str(tile.name), str(tile.scope()), ATOM_BYTES)
        return ColumnBlocks(stored, span, count, rows, columns)

    @property
    def moves(self) -> bool:
        """Whether any element lies elsewhere than in the tile as declared."""
        return True

    def buffer_for(self, buf: Buffer) -> Buffer:
        """The buffer that holds the tile."""
        return self.stored

    def place(self, buf: Buffer, indices: Sequence[Expr], analyzer: Any) -> list[Expr]:
        """The indices at which element ``indices`` of the tile ``buf`` is stored."""
        row: Expr = i32(0)
        for index, stride in zip(indices[:-1], strides(buf)[:-1]):
            row = row + index * tirx.floordiv(stride, buf.shape[-1])
        row = analyzer.simplify(row)
        column_block = analyzer.simplify(tirx.floordiv(indices[-1], self.columns))
        within = analyzer.simplify(tirx.floormod(indices[-1], self.columns))
        chunk = CHUNK_BYTES // dtype_bytes(buf.dtype)
        return [column_block, row, by_row(self.span).column(row, within, chunk, analyzer)]


def by_padding(buf: Buffer) -> Swizzle | None:
    """Eight rows at one chunk hit eight different chunks of a line: rows of an odd number of them.

    None where rows are no whole chunks, or an odd number already.
    """
    element = dtype_bytes(buf.dtype)
    row = (const_int(buf.shape[-1]) or 0) * element
    if row % (2 * CHUNK_BYTES) or len(buf.strides) or not row:
        return None
    shape = [*list(buf.shape)[:-1], (row + CHUNK_BYTES) // element]
    align = int(buf.data_alignment)
    return Swizzle(padded=buffer(shape, str(buf.dtype), str(buf.name), str(buf.scope()), align))


def free_chunks(row_bytes: int) -> int:
    """How many chunks of a row may change places: the largest power of two, at most a line."""
    chunks = row_bytes // CHUNK_BYTES
    if row_bytes % CHUNK_BYTES or not chunks:
        return 1
    return min(LINE_CHUNKS, chunks & -chunks)


def by_row(row_bytes: int) -> Swizzle:
    """Eight neighbouring rows hit eight different chunks of a line, whatever their length.

    A row of 8 chunks or a multiple of 8 fills lines: ``f(r) = r % 8``. Of shorter rows, ``L`` share
    a line, so ``f`` moves on every ``L`` rows. This is what ldmatrix needs, and float4 reads of one
    column by neighbouring lanes.
    """
    free = free_chunks(row_bytes)
    return Swizzle() if free == 1 else Swizzle(((LINE_CHUNKS // free, free, 1),))


def by_run(row_bytes: int, run: int) -> Swizzle | None:
    """As ``by_row`` for the rows ``p * run + q``, ``p`` in 0..3 and ``q`` in 0..1.

    Those are what ldmatrix reads when a thread is to own ``run`` neighbouring columns of the
    result. None when rows are too short to tell the eight apart.
    """
    free = free_chunks(row_bytes)
    if free == LINE_CHUNKS:
        return Swizzle(((1, 2, 1), (run, 4, 2)))
    if free == LINE_CHUNKS // 2:
        return Swizzle(((run, 4, 1),))
    return None


def by_rotation(swizzle: Swizzle, row_bytes: int) -> Swizzle:
    """``swizzle`` of rows of whole lines, its lowest bit added where it was exclusive or.

    Odd rows then keep chunks ``2 i + 1`` and ``2 i + 2`` side by side, aligned as the two are, and
    even ones still ``2 i`` and ``2 i + 1``: the halves of one sector each, where rows of the source
    begin in the middle of every other sector. Eight rows still hit eight different chunks.
    """
    (divisor, modulus, scale), *others = swizzle.terms
    if (divisor, scale) != (1, 1) or free_chunks(row_bytes) != LINE_CHUNKS:
        raise InternalError(f"cannot turn rows of {row_bytes} bytes with terms {swizzle.terms}")
    rest = ((2, modulus // 2, 2),) if modulus > 2 else ()
    return Swizzle((*rest, *others), rotated=row_bytes // CHUNK_BYTES)


def by_group(row_bytes: int, rows: int) -> Swizzle | None:
    """As ``by_row`` for eight rows ``rows`` apart; None when rows are shorter than a line."""
    return Swizzle(((rows, LINE_CHUNKS, 1),)) if free_chunks(row_bytes) == LINE_CHUNKS else None


def by_word(row_bytes: int, rows: int, words: int) -> Swizzle:
    """For four groups of ``rows`` rows, read at ``words`` neighbouring 4-byte words of each."""
    free = free_chunks(row_bytes)
    scale = max(1, words // 4)
    return Swizzle(((rows, min(4, free // scale), scale),)) if free > scale else Swizzle()
