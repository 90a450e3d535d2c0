"""Define layouts of shared tiles: where element (row, column) of a tile is stored.

``pipeliner/mechanisms/layouts.py`` chooses the layout of each tile.

    S[r, c]   =>   S[r, ((c / 8) ^ f(r)) * 8 + c % 8]     chunks of 8 elements of 16 bits

If rows lay one after the other, a warp would read a tile in patterns that hit few banks. So the
16-byte chunks of a row change places: chunk ``c`` of row ``r`` is stored at ``c ^ f(r)``. A chunk
stays whole, so 16-byte copies and ldmatrix rows stay legal, and no byte is lost to padding.

Rows that are read and written one after the other, as those of a SIMT tile along K, are padded by a
chunk instead. Every address is then a base and a constant; an exclusive or would need arithmetic
for each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from ...errors import InternalError
from ..ir.indexing import strides
from ..ir.nodes import Buffer, Expr, buffer, const_int, dtype_bytes, i32

CHUNK_BYTES: Final = 16
LINE_CHUNKS: Final = 8
"""Chunks that cover all 32 banks of 4 bytes once."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A layout by ``f(r)``, the sum of ``r // divisor % modulus * scale`` over ``terms``.

    Without terms it is row-major. ``padded``: the buffer with longer rows that replaces the tile.
    ``rotated``: if not 0, the chunks of a row; odd rows are first rotated by one, ``c`` to ``(c +
    1) % rotated``.
    """

    terms: tuple[tuple[int, int, int], ...] = ()
    padded: Buffer | None = None
    rotated: int = 0

    @property
    def moves(self) -> bool:
        """Whether any element lies elsewhere than in the tile as declared."""
        return bool(self.terms) or bool(self.rotated) or self.padded is not None

    def buffer_for(self, buf: Buffer) -> Buffer:
        """Return the buffer that stores the tile of ``buf``."""
        return buf if self.padded is None else self.padded

    def key(self, row: Expr, analyzer: Any) -> Expr | None:
        """Return ``f(row)``, or None if it is 0."""
        total = None
        for divisor, modulus, scale in self.terms:
            term = analyzer.simplify(tirx.floormod(tirx.floordiv(row, divisor), modulus)) * scale
            total = term if total is None else total + term
        if total is None:
            return None
        total = analyzer.simplify(total)
        return None if const_int(total) == 0 else total

    def column(self, row: Expr, column: Expr, chunk: int, analyzer: Any) -> Expr:
        """Return where ``column`` of ``row`` is stored; ``chunk``: elements in 16 bytes."""
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
        """Return the indices at which element ``indices`` of a tile in ``buf`` is stored."""
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
"""Eight rows of 128 bytes: the alignment of a TMA swizzle."""


@dataclass(frozen=True, slots=True)
class ColumnBlocks:
    """A tile cut into ``count`` column blocks, each as wide as its swizzle.

    A column block has ``rows`` rows of ``span`` bytes. It is swizzled by row: TMA fills it box by
    box and wgmma reads it. ``stored``: the buffer ``[column_block, row, column]`` that replaces the
    tile. ``columns``: elements that a row of a column block has room for. ``last``: those of the
    last one that are the tile's; nothing reads the others, and no box brings them.
    """

    stored: Buffer
    span: int
    count: int
    rows: int
    columns: int
    last: int

    @staticmethod
    def of(tile: Buffer, span: int) -> ColumnBlocks:
        """Return the column blocks of ``tile``, of ``span`` bytes in a row."""
        *outer, row = (const_int(extent) or 0 for extent in tile.shape)
        columns = span // dtype_bytes(tile.dtype)
        count, rows = -(-row // columns), math.prod(outer)
        shape = [count, rows, columns]
        stored = buffer(shape, str(tile.dtype), str(tile.name), str(tile.scope()), ATOM_BYTES)
        return ColumnBlocks(stored, span, count, rows, columns, row - (count - 1) * columns)

    @property
    def widths(self) -> list[int]:
        """Columns of the tile in each block."""
        return [self.columns] * (self.count - 1) + [self.last]

    @property
    def moves(self) -> bool:
        """Whether any element lies elsewhere than in the tile as declared."""
        return True

    def buffer_for(self, buf: Buffer) -> Buffer:
        """Return the buffer that stores the tile."""
        return self.stored

    def place(self, buf: Buffer, indices: Sequence[Expr], analyzer: Any) -> list[Expr]:
        """Return the indices at which element ``indices`` of the tile ``buf`` is stored."""
        row: Expr = i32(0)
        for index, stride in zip(indices[:-1], strides(buf)[:-1]):
            row = row + index * tirx.floordiv(stride, buf.shape[-1])
        row = analyzer.simplify(row)
        column_block = analyzer.simplify(tirx.floordiv(indices[-1], self.columns))
        within = analyzer.simplify(tirx.floormod(indices[-1], self.columns))
        chunk = CHUNK_BYTES // dtype_bytes(buf.dtype)
        return [column_block, row, by_row(self.span).column(row, within, chunk, analyzer)]


def by_padding(buf: Buffer) -> Swizzle | None:
    """Return a layout with rows padded to an odd number of chunks.

    Eight rows at one chunk then hit eight different chunks of a line. None if rows are not whole
    chunks, or already an odd number of them.
    """
    element = dtype_bytes(buf.dtype)
    row = (const_int(buf.shape[-1]) or 0) * element
    if row % (2 * CHUNK_BYTES) or len(buf.strides) or not row:
        return None
    shape = [*list(buf.shape)[:-1], (row + CHUNK_BYTES) // element]
    align = int(buf.data_alignment)
    return Swizzle(padded=buffer(shape, str(buf.dtype), str(buf.name), str(buf.scope()), align))


def free_chunks(row_bytes: int) -> int:
    """Return how many chunks of a row may change places: a power of two, at most a line."""
    chunks = row_bytes // CHUNK_BYTES
    if row_bytes % CHUNK_BYTES or not chunks:
        return 1
    return min(LINE_CHUNKS, chunks & -chunks)


def by_row(row_bytes: int) -> Swizzle:
    """Return a swizzle in which eight neighbouring rows hit eight different chunks of a line.

    A row of 8 chunks or a multiple of 8 fills lines: ``f(r) = r % 8``. Of shorter rows, ``L`` share
    a line, so ``f`` advances every ``L`` rows. ldmatrix needs this, and so do float4 reads of one
    column by neighbouring lanes.
    """
    free = free_chunks(row_bytes)
    return Swizzle() if free == 1 else Swizzle(((LINE_CHUNKS // free, free, 1),))


def by_run(row_bytes: int, run: int) -> Swizzle | None:
    """Return a swizzle as ``by_row`` for the rows ``p * run + q``, ``p`` in 0..3, ``q`` in 0..1.

    ldmatrix reads those if a thread is to own ``run`` neighbouring columns of the result. None if
    rows are too short for eight different chunks.
    """
    free = free_chunks(row_bytes)
    if free == LINE_CHUNKS:
        return Swizzle(((1, 2, 1), (run, 4, 2)))
    if free == LINE_CHUNKS // 2:
        return Swizzle(((run, 4, 1),))
    return None


def by_rotation(swizzle: Swizzle, row_bytes: int) -> Swizzle:
    """Return ``swizzle``, of rows of whole lines, with its lowest bit added instead of xored.

    Odd rows then keep chunks ``2 i + 1`` and ``2 i + 2`` side by side, and even ones ``2 i`` and
    ``2 i + 1``: the halves of one sector each, if rows of the source alternately begin in the
    middle of a sector. Eight rows still hit eight different chunks.
    """
    (divisor, modulus, scale), *others = swizzle.terms
    if (divisor, scale) != (1, 1) or free_chunks(row_bytes) != LINE_CHUNKS:
        raise InternalError(f"cannot turn rows of {row_bytes} bytes with terms {swizzle.terms}")
    rest = ((2, modulus // 2, 2),) if modulus > 2 else ()
    return Swizzle((*rest, *others), rotated=row_bytes // CHUNK_BYTES)


def by_group(row_bytes: int, rows: int) -> Swizzle | None:
    """Return a swizzle as ``by_row`` for every ``rows``-th row; None if rows are too short."""
    return Swizzle(((rows, LINE_CHUNKS, 1),)) if free_chunks(row_bytes) == LINE_CHUNKS else None


def by_word(row_bytes: int, rows: int, words: int) -> Swizzle:
    """Return a swizzle for four groups of ``rows`` rows, each read at ``words`` 4-byte words."""
    free = free_chunks(row_bytes)
    scale = max(1, words // 4)
    return Swizzle(((rows, min(4, free // scale), scale),)) if free > scale else Swizzle()
