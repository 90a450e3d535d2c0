"""Accumulators to global memory by way of shared memory, as boxes that a tensor map describes.

Each warpgroup for itself, while the other warpgroups go on:

    for each box of 64 columns:
        leader:   wait until the box that was in this slot has been read
        barrier of the warpgroup
        stmatrix  C_staged[slot]           # swizzled as the tensor map says
        fence.proxy.async                  # what is written is for the accelerator to read
        barrier of the warpgroup
        leader:   cp.async.bulk.tensor C[box], C_staged[slot];  commit_group

The writes run on under the arithmetic of the next tile. What lies outside of the tensor is left out
by the accelerator, so no element has a guard.

Sources: PTX ISA, stmatrix, cp.async.bulk.tensor, cp.async.bulk.wait_group, async proxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from ..cost.wgmma import ROWS, WARPGROUP
from ..errors import LoweringError
from ..origin import Origin, Place
from ..plan import CONSUMER, StorePlan
from . import quads
from .fragment_nests import fill_pair, touched
from .fragments import Fragment
from .ir import (
    Buffer,
    Expr,
    Stmt,
    Var,
    block,
    buffer,
    dtype_bytes,
    i32,
    seq,
    substitute,
    unrolled,
    with_origin,
)
from .layouts import ATOM_BYTES, CHUNK_BYTES, by_row
from .patterns import Nest
from .spread import Threads
from .tensor_maps import TensorMap, tiled_map
from .tile_stores import Box

STORE: Final = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
STMATRIX: Final = "stmatrix.sync.aligned.m8n8.x4.shared.b16"

_FIRST_BARRIER: Final = 1
"""Number of the first warpgroup's barrier; 0 is the CTA's."""

_SQUARE: Final = 16
"""Rows and columns that the four matrices of one stmatrix cover."""


def all_written(plan: StorePlan, thread: Any) -> Stmt:
    """The wait that keeps shared memory until everything in it has been read."""
    return tirx.IfThenElse(_leads(thread), _told(plan, "wait", _wait(0)), None)


@dataclass(frozen=True)
class Staged:
    """A nest that stores an accumulator's tile, on its way through ``stage``.

    ``box``: what the nest writes. ``threads``: those of all warpgroups.
    """

    nest: Nest
    box: Box
    fragment: Fragment
    plan: StorePlan
    threads: Threads
    stage: Buffer
    tensor: TensorMap

    @staticmethod
    def of(nest: Nest, box: Box, fragment: Fragment, plan: StorePlan, threads: Threads) -> Staged:
        """``nest`` with shared memory of its own and a tensor map."""
        target = nest.store.buffer
        rows, columns = plan.box
        groups = threads.teams * threads.count // WARPGROUP
        shape = [groups * plan.slots, rows, columns]
        name = f"{target.name}_staged"
        stage = buffer(shape, str(target.dtype), name, "shared", ATOM_BYTES)
        extents = [1] * len(box.view.shape)
        extents[box.down], extents[-1] = rows, columns
        span = columns * dtype_bytes(target.dtype)
        tensor = tiled_map(target, box.view.shape, extents, span)
        if fragment.corner is None:
            raise LoweringError(f"cannot store '{plan.op}' by tma: no warpgroup holds its tile")
        return Staged(nest, box, fragment, plan, threads, stage, tensor)

    def stmt(self, *, repeats: bool) -> Stmt:
        """What every thread of the warpgroups does; ``repeats``: for one tile after the other."""
        boxes = self.fragment.loops[-1] * quads.RUN // self.plan.box[1]
        fresh = 0 if repeats else self.plan.slots
        first = unrolled("b", fresh, self._store) if fresh else None
        if boxes == fresh:
            return seq(first)
        return seq(
            first,
            unrolled("b", boxes - fresh, lambda b: seq(self._free(), self._store(b + fresh))),
        )

    def _free(self) -> Stmt:
        """All threads of the warpgroup may write to the slot that was used longest ago."""
        wait = _told(self.plan, "wait", _wait(self.plan.slots - 1))
        return seq(tirx.IfThenElse(_leads(self.threads.var), wait, None), self._meet())

    def _meet(self) -> Stmt:
        """The threads of the warpgroup wait for each other."""
        number = tirx.floordiv(self.threads.var, WARPGROUP) + _FIRST_BARRIER
        sync = T.ptx.bar.sync(tirx.Cast("uint32", number), T.uint32(WARPGROUP))
        return _told(self.plan, "barrier", tirx.Evaluate(sync))

    def _store(self, b: Expr) -> Stmt:
        """Box ``b`` of the warpgroup's columns."""
        thread, plan = self.threads.var, self.plan
        slot = tirx.floordiv(thread, WARPGROUP) * plan.slots + tirx.floormod(b, plan.slots)
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        written = _told(plan, "store", self._write(b, slot))
        return seq(
            self._fill(b, slot),
            _told(plan, "fence", fence),
            self._meet(),
            tirx.IfThenElse(_leads(thread), written, None),
        )

    def _fill(self, b: Expr, slot: Expr) -> Stmt:
        """The box in shared memory, 16 rows and columns of a warp at a time."""
        rows, columns = self.plan.box
        return unrolled(
            "r",
            rows // ROWS,
            lambda r: unrolled("c", columns // _SQUARE, lambda c: self._square(b, slot, r, c)),
        )

    def _square(self, b: Expr, slot: Expr, r: Expr, c: Expr) -> Stmt:
        thread, analyzer = self.threads.var, self.threads.analyzer
        columns = self.plan.box[1]
        pairs = buffer([quads.RUN], str(self.stage.dtype), "pairs", "local")
        access = touched(self.nest, self.fragment)
        steps: list[Stmt] = []
        first = b * (columns // quads.RUN) + c * 2
        for t in range(quads.LANES):  # two halves of 8 rows, two tiles of 8 columns
            position = [r, i32(t % 2), first + t // 2]
            steps.append(fill_pair(self.nest, self.fragment, access, position, pairs, t, analyzer))
        words = [Var(f"word{t}", "uint32") for t in range(quads.LANES)]
        for t, word in enumerate(words):
            pair = tirx.BufferLoad(pairs, [tirx.Ramp(t * quads.PAIR, 1, quads.PAIR)])
            steps.append(tirx.Bind(word, tirx.reinterpret("uint32", pair)))
        lane = tirx.floormod(thread, 32)
        warp = tirx.floormod(tirx.floordiv(thread, 32), 4)
        row = r * ROWS + warp * _SQUARE + tirx.floormod(lane, _SQUARE)
        chunk = CHUNK_BYTES // dtype_bytes(self.stage.dtype)
        column = c * _SQUARE + tirx.floordiv(lane, _SQUARE) * chunk
        span = columns * dtype_bytes(self.stage.dtype)
        place = by_row(span).column(analyzer.simplify(row), column, chunk, analyzer)
        there = T.address_of(tirx.BufferLoad(self.stage, [slot, row, place]))
        steps.append(_told(self.plan, "store", tirx.Evaluate(T.ptx[STMATRIX](there, *words))))
        return block("square", seq(*steps), [pairs])

    def _write(self, b: Expr, slot: Expr) -> Stmt:
        """The box from shared to global memory, as one thread asks for it."""
        assert self.fragment.corner is not None
        row, column = self.fragment.corner
        values: dict[Any, Expr] = {var: i32(0) for var in self.nest.vars}
        values[self.box.row] = row
        values[self.box.column] = column + b * self.plan.box[1]
        corner = [
            self.threads.analyzer.simplify(substitute(index, values))
            for index in self.box.view.indices
        ]
        source = T.address_of(tirx.BufferLoad(self.stage, [slot, i32(0), i32(0)]))
        store = T.ptx[STORE.format(rank=len(corner))]
        return seq(
            tirx.Evaluate(store(T.address_of(self.tensor.var), *reversed(corner), source)),
            tirx.Evaluate(T.ptx["cp.async.bulk.commit_group"]()),
        )


def _leads(thread: Any) -> Expr:
    return tirx.EQ(tirx.floormod(thread, WARPGROUP), i32(0))


def _wait(in_flight: int) -> Stmt:
    return tirx.Evaluate(T.ptx["cp.async.bulk.wait_group.read"](in_flight))


def _told(plan: StorePlan, kind: str, stmt: Stmt) -> Stmt:
    """``stmt`` with where it comes from."""
    name = plan.op if kind == "store" else f"{plan.op}.{kind}"
    places = (Place(f"{plan.dst}_staged"),)
    return with_origin(
        Origin(op=name, kind=kind, block=plan.op, role=CONSUMER, places=places), stmt
    )
