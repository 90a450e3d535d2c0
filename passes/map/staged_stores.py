"""Store accumulators to global memory through shared memory, in boxes (TMA) or by rows.

    for each box of 64 columns, the last of which may have fewer:
        leader:   wait until the box that was in this slot has been read
        barrier of the warpgroup
        stmatrix  C_staged[slot]           # swizzled as the tensor map says
        fence.proxy.async                  # shows the writes to TMA
        barrier of the warpgroup
        leader:   cp.async.bulk.tensor C[box], C_staged[slot];  commit_group

Each warpgroup does this for itself, while the other warpgroups continue. The writes are in flight
under the arithmetic of the next tile. TMA leaves out what is outside the tensor, so no element has
a guard. It may also add a box to what is in memory (cp.reduce.async.bulk.tensor), each element
atomically.

If A and B are swapped, the tile's rows are in the columns of the instruction. stmatrix transposes
them, and the 64 rows of one instruction are neighbours in a row of the box. For 4-byte elements,
which stmatrix does not support, they are in two boxes and lanes store them themselves.

Where rows of the result begin anywhere, the threads of the warpgroup write what is in the box
instead (``coalesced``), neighbours of a row each (``written_rows.py``):

        barrier of the warpgroup           # where the slot was read before
        stmatrix  C_staged[slot]
        barrier of the warpgroup
        C[row, column] = C_staged[slot]    # the i-th of 128 neighbours, or vectors, by thread i

Sources: PTX ISA, stmatrix, cp.async.bulk.tensor, cp.reduce.async.bulk.tensor,
cp.async.bulk.wait_group, async proxy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.wgmma_shapes import ROWS, WARPGROUP, covering_span
from ...mechanisms.stores import filled_together, is_by_tma
from ...plan import CONSUMER, StorePlan
from ...values.op import Op
from ...values.origin import Origin, Place
from ..copy.layouts import ATOM_BYTES, CHUNK_BYTES, by_row
from ..copy.tensor_maps import TensorMap, tiled_map
from ..copy.tma import coordinate
from ..fragments import quads
from ..fragments.combined import Combined
from ..fragments.fragment import Fragment, row_of_warp
from ..fragments.nests import fill_pair
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    Var,
    block,
    buffer,
    const_int,
    dtype_bytes,
    i32,
    seq,
    substitute,
    unrolled,
    vectorized,
    with_origin,
)
from ..recognise.tile_stores import Box
from ..threads.spread import Threads
from .written_rows import WrittenRows

STORE: Final = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
ADD: Final = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group"
STMATRIX: Final = "stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"

_FIRST_BARRIER: Final = 1
"""Number of the first warpgroup's barrier; 0 is the CTA's."""

_TILE_BARRIER: Final = 8
"""Number of the barrier of those who share a tile: behind those of eight warpgroups."""

_SQUARE: Final = 16
"""Rows and columns of an accumulator that a warp stores to a box at once."""

_MATRIX: Final = 8
"""Rows and columns of one matrix."""

_MATRICES: Final = 4
"""Matrices of a square; those of its first 8 columns in the accumulator come first."""

_STMATRIX_BYTES: Final = 2
"""Bytes of an element (PTX ISA, stmatrix: .b16)."""


def all_written(plan: StorePlan, thread: Any) -> Stmt:
    """Return the wait that keeps shared memory until everything in it has been read."""
    return tirx.IfThenElse(_leads(thread), _told(plan, "wait", _wait(0)), None)


@dataclass(frozen=True)
class Staged:
    """A nest that stores an accumulator's tile, staged through ``stage``.

    ``tiles``: the nest and the accumulators that it reads. ``box``: what it writes, or adds if the
    plan says so. ``threads``: those of all warpgroups.
    """

    tiles: Combined
    box: Box
    plan: StorePlan
    threads: Threads
    stage: Buffer
    tensor: TensorMap | None
    last: TensorMap | None

    @staticmethod
    def of(tiles: Combined, box: Box, plan: StorePlan, threads: Threads) -> Staged:
        """Return the nest of ``tiles`` with its own shared memory and tensor map."""
        target = tiles.nest.store.buffer
        rows, columns = plan.box
        size = dtype_bytes(target.dtype)
        span = covering_span(columns * size)
        groups = threads.groups * threads.count // WARPGROUP
        shape = [groups * plan.slots, rows, span // size]
        name = f"{target.name}_staged"
        stage = buffer(shape, str(target.dtype), name, "shared", ATOM_BYTES)
        if tiles.fragment.corner is None:
            raise LoweringError("store.tma", store=plan.op, why=Reason("store.no_holder"))
        if not is_by_tma(plan):
            if box.is_other(target):
                why = Reason("store.joined", buffer=str(target.name))
                raise LoweringError("store.coalesced", store=plan.op, why=why)
            return Staged(tiles, box, plan, threads, stage, None, None)
        extents = [1] * len(box.view.shape)
        extents[box.down], extents[-1] = rows, columns
        tensor = tiled_map(target, box.view.shape, extents, span)
        made = Staged(tiles, box, plan, threads, stage, tensor, None)
        rest = made._columns % columns
        if not rest:
            return made
        extents[-1] = rest
        return replace(made, last=tiled_map(target, box.view.shape, extents, span))

    @property
    def maps(self) -> list[TensorMap]:
        """The tensor maps of its boxes, the one of a narrower last box behind the others'."""
        return [one for one in (self.tensor, self.last) if one is not None]

    @property
    def fragment(self) -> Fragment:
        """Where the elements are before they are stored."""
        return self.tiles.fragment

    def stmt(self, *, repeats: bool) -> Stmt:
        """Return what every thread runs; ``repeats``: for one tile after the other."""
        rounds, rest = divmod(self._columns, self.plan.box[1] * self._together)
        fresh = 0 if repeats else min(self._rounds, rounds)
        # Where all have slots of their own they are one group: none is waited for before the end.
        alike = self.tensor is not None and 1 < rounds + bool(rest) <= self._rounds
        ends = repeats or not alike
        steps: list[Stmt | None] = []
        if fresh:
            steps.append(unrolled("b", fresh, lambda b: self._store(b, ends=ends)))
        if rounds > fresh:
            late = unrolled(
                "b", rounds - fresh, lambda b: seq(self._free(), self._store(b + fresh))
            )
            steps.append(late)
        if rest:
            free = self._free() if repeats or rounds >= self._rounds else None
            steps.append(seq(free, self._store(i32(rounds), rest, ends=ends)))
        if not ends:
            end = _told(self.plan, "store", _end_of_group())
            steps.append(tirx.IfThenElse(_leads(self.threads.var), end, None))
        return seq(*steps)

    @property
    def _columns(self) -> int:
        """The columns of a warpgroup's part of the result."""
        loops = self.fragment.loops
        return loops[0] * ROWS if self.fragment.swap_ab else loops[-1] * quads.RUN

    @property
    def _together(self) -> int:
        """The number of boxes that are filled, and written, in one round."""
        return filled_together(self.fragment.swap_ab, str(self.stage.dtype))

    @property
    def _rounds(self) -> int:
        """The number of rounds whose boxes shared memory has room for."""
        return self.plan.slots // self._together

    def _free(self) -> Stmt:
        """Return the wait until the warpgroup may write to the slots that were used longest ago."""
        if self.tensor is None:
            return self._meet()
        wait = _told(self.plan, "wait", _wait(self._rounds - 1))
        return seq(tirx.IfThenElse(_leads(self.threads.var), wait, None), self._meet())

    def _meet(self) -> Stmt:
        """Return the barrier of the warpgroup."""
        return _told(self.plan, "barrier", warpgroup_barrier(self.threads.var))

    def _store(self, b: Expr, columns: int = 0, *, ends: bool = True) -> Stmt:
        """Return round ``b`` of the warpgroup's columns; ``columns``: of a narrower last box.

        ``ends``: a group of boxes, for which one waits together.
        """
        thread, plan, together = self.threads.var, self.plan, self._together
        slot = tirx.floordiv(thread, WARPGROUP) * plan.slots
        slot = slot + tirx.floormod(b, self._rounds) * together
        if self.tensor is None:
            return seq(
                self._fill(b, slot, columns or plan.box[1]),
                self._meet(),
                _told(plan, "store", self._copied(b, slot, columns or plan.box[1])),
            )
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        tensor = self.last if columns else None
        written = _told(plan, "store", self._write(b, slot, tensor, ends=ends))
        return seq(
            self._fill(b, slot, columns or plan.box[1]),
            _told(plan, "fence", fence),
            self._meet(),
            tirx.IfThenElse(_leads(thread), written, None),
        )

    def _fill(self, b: Expr, slot: Expr, columns: int) -> Stmt:
        """Return the stores of a round's boxes to shared memory, in squares of each warp."""
        rows, whole = self.plan.box
        if self.fragment.swap_ab:
            return self._squares(slot, b, i32(0), rows)
        first = b * (whole // _SQUARE)
        return unrolled("r", rows // ROWS, lambda r: self._squares(slot, r, first, columns))

    def _squares(self, slot: Expr, r: Expr, first: Expr, extent: int) -> Stmt:
        """Return the stores of ``extent`` columns of the accumulator, half a square at the end."""
        whole, rest = divmod(extent, _SQUARE)
        half = self._square(slot, r, first, i32(whole), _MATRICES // 2) if rest else None
        if not whole:
            return seq(half)
        return seq(unrolled("c", whole, lambda c: self._square(slot, r, first, c)), half)

    @property
    def _is_each(self) -> bool:
        """Whether one element of a pair may be outside the tensor: of two rows, or an odd one."""
        return self.fragment.swap_ab or self.tensor is None

    def _square(self, slot: Expr, r: Expr, first: Expr, c: Expr, matrices: int = _MATRICES) -> Stmt:
        """Return the store of square ``first + c`` of the warp's 16 rows of block ``r``.

        ``c`` counts in the box. ``matrices``: 2 of half a square.
        """
        thread, analyzer = self.threads.var, self.threads.analyzer
        pairs = buffer([quads.RUN], str(self.stage.dtype), "pairs", "local")
        steps: list[Stmt] = []
        for t in range(matrices):  # two halves of 8 rows, two tiles of 8 columns
            position = [r, i32(t % 2), (first + c) * 2 + t // 2]
            steps.append(
                fill_pair(self.tiles, position, pairs, t, analyzer, guard_each=self._is_each)
            )
        warp = tirx.floormod(tirx.floordiv(thread, 32), 4) * _SQUARE
        if self.fragment.swap_ab:
            corner = c * _SQUARE, warp
        else:
            corner = r * ROWS + warp, c * _SQUARE
        if dtype_bytes(self.stage.dtype) == _STMATRIX_BYTES:
            steps += self._matrices(slot, corner, pairs, matrices)
        else:
            steps += self._words(slot, corner, pairs, matrices)
        return block("square", seq(*steps), [pairs])

    def _matrices(
        self, slot: Expr, corner: tuple[Expr, Expr], pairs: Buffer, count: int
    ) -> list[Stmt]:
        """Return the store of a square of 16-bit elements: eight lanes address each matrix."""
        lane = tirx.floormod(self.threads.var, count * _MATRIX)
        words = [Var(f"word{t}", "uint32") for t in range(count)]
        steps: list[Stmt] = []
        for t, word in enumerate(words):
            pair = tirx.BufferLoad(pairs, [tirx.Ramp(t * quads.PAIR, 1, quads.PAIR)])
            steps.append(tirx.Bind(word, tirx.reinterpret("uint32", pair)))
        if self.fragment.swap_ab:
            within = tirx.floormod(lane, _MATRIX)
            down = tirx.floordiv(lane, _SQUARE) * _MATRIX + within
            across = tirx.floormod(tirx.floordiv(lane, _MATRIX), 2) * _MATRIX
        else:
            half = tirx.floormod(tirx.floordiv(lane, _MATRIX), 2)
            down = row_of_warp(half, tirx.floormod(lane, _MATRIX), paired=self.fragment.paired)
            across = tirx.floordiv(lane, _SQUARE) * _MATRIX
        at = self._place(slot, corner[0] + down, corner[1] + across)
        trans = ".trans" if self.fragment.swap_ab else ""
        name = STMATRIX.format(count=count, trans=trans)
        there = T.address_of(tirx.BufferLoad(self.stage, at))
        steps.append(_told(self.plan, "store", tirx.Evaluate(T.ptx[name](there, *words))))
        return steps

    def _words(
        self, slot: Expr, corner: tuple[Expr, Expr], pairs: Buffer, count: int
    ) -> list[Stmt]:
        """Return the store of a square of wider elements, each lane its pairs.

        Source: PTX ISA, wgmma, layout of D.
        """
        lane = tirx.floormod(self.threads.var, 32)
        steps: list[Stmt] = []
        for t in range(count):
            eighth = tirx.floordiv(lane, quads.LANES)
            down = row_of_warp(t % 2, eighth, paired=self.fragment.paired)
            across = tirx.floormod(lane, quads.LANES) * quads.PAIR + t // 2 * _MATRIX

            def store(v: Expr, t: int = t, down: Expr = down, across: Expr = across) -> Stmt:
                value = tirx.BufferLoad(pairs, [v + t * quads.PAIR])
                row, column = (across + v, down) if self.fragment.swap_ab else (down, across)
                at = self._place(slot, corner[0] + row, corner[1] + column)
                if not self.fragment.swap_ab:
                    at[-1] = at[-1] + v
                return tirx.BufferStore(self.stage, value, at)

            loop = unrolled if self.fragment.swap_ab else vectorized
            steps.append(_told(self.plan, "store", loop("v", quads.PAIR, store)))
        return steps

    def _place(self, slot: Expr, row: Expr, column: Expr) -> list[Expr]:
        """Return the place of ``column`` of ``row`` in the boxes of a round from ``slot`` on."""
        analyzer, columns = self.threads.analyzer, const_int(self.stage.shape[-1])
        assert columns is not None
        size = dtype_bytes(self.stage.dtype)
        if self._together > 1:
            slot = slot + tirx.floordiv(column, columns)
            column = tirx.floormod(column, columns)
        row = analyzer.simplify(row)
        place = by_row(columns * size).column(row, column, CHUNK_BYTES // size, analyzer)
        return [slot, row, place]

    def _copied(self, b: Expr, slot: Expr, columns: int) -> Stmt:
        """Return the stores of a round's box to global memory, neighbours by neighbours."""
        return WrittenRows(
            self.stage,
            self.tiles.nest.store.buffer,
            self.plan.box[0],
            columns,
            self.threads,
            lambda row, column: self._place(slot, row, column),
            lambda row, column: self._indices(row, b * self.plan.box[1] + column),
        ).stmt()

    def _indices(self, row: Expr, column: Expr) -> list[Expr]:
        """Return where ``column`` of ``row`` of a warpgroup's part of the tile is stored."""
        assert self.fragment.corner is not None
        first = self.fragment.corner[:: -1 if self.fragment.swap_ab else 1]
        values: dict[Any, Expr] = {var: i32(0) for var in self.tiles.nest.vars}
        values[self.box.row], values[self.box.column] = first[0] + row, first[1] + column
        simplified = self.threads.analyzer.simplify
        return [simplified(substitute(index, values)) for index in self.box.view.indices]

    def _write(self, b: Expr, slot: Expr, tensor: TensorMap | None, *, ends: bool) -> Stmt:
        """Return the copy of a round's boxes to global memory, which one thread issues.

        ``tensor``: the map of the boxes, where not that of whole ones. ``ends``: a group.
        """
        writes: list[Stmt] = []
        for n in range(self._together):
            corner = self._indices(i32(0), (b * self._together + n) * self.plan.box[1])
            source = T.address_of(tirx.BufferLoad(self.stage, [slot + n, i32(0), i32(0)]))
            store = T.ptx[(ADD if self.plan.partial_sums else STORE).format(rank=len(corner))]
            coordinates = [coordinate(index) for index in reversed(corner)]
            used = tensor or self.tensor
            assert used is not None
            call = store(T.address_of(used.var), *coordinates, source)
            writes.append(tirx.Evaluate(call))
        return seq(*writes, _end_of_group() if ends else None)


def _leads(thread: Any) -> Expr:
    return tirx.EQ(tirx.floormod(thread, WARPGROUP), i32(0))


def _end_of_group() -> Stmt:
    return tirx.Evaluate(T.ptx["cp.async.bulk.commit_group"]())


def _wait(in_flight: int) -> Stmt:
    return tirx.Evaluate(T.ptx["cp.async.bulk.wait_group.read"](in_flight))


def warpgroup_barrier(thread: Var) -> Stmt:
    """Return the barrier of the warpgroup of ``thread``."""
    number = tirx.floordiv(thread, WARPGROUP) + _FIRST_BARRIER
    return tirx.Evaluate(T.ptx.bar.sync(tirx.Cast("uint32", number), T.uint32(WARPGROUP)))


def shared_tile_barrier(threads: Threads) -> Stmt:
    """Return the barrier of all threads that share a tile, which several warpgroups may be."""
    number: Expr = tirx.const(_TILE_BARRIER, "uint32")
    if threads.groups > 1:
        number = tirx.Cast("uint32", tirx.floordiv(threads.var, threads.count) + _TILE_BARRIER)
    return tirx.Evaluate(T.ptx.bar.sync(number, T.uint32(threads.count)))


def _told(plan: StorePlan, kind: Literal["store", "wait", "barrier", "fence"], stmt: Stmt) -> Stmt:
    """Return ``stmt`` with its origin."""
    op = Op.parse(plan.op)
    if kind != "store":
        op = op.wait() if kind == "wait" else op.adding(kind)
    places = (Place(f"{plan.dst}_staged"),)
    return with_origin(Origin(op=op, kind=kind, block=plan.op, role=CONSUMER, places=places), stmt)
