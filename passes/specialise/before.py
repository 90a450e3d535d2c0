"""Hand over tiles that are copied before the loops: a full mbarrier, and an empty one by need.

    Q_shared = tile of Q           consumer: wait full_Q, phase 0
    for k in range(n): ..    =>    producer: expect bytes at full_Q; Q_shared = tile of Q, at full_Q

Nothing overwrites a tile that is copied once, so nobody releases it. A copy of the tile loop around
is a channel of that loop: one slot, filled again for each tile. The producer goes on to the next
tile as soon as consumers have released this one's.

    for t in tiles:                 consumer: for t: wait full_Q; for k: ..; release Q_shared
      Q_shared = tile t of Q   =>   producer: for t: wait empty_Q; expect; Q_shared = tile t of Q
      for k in range(n): ..                     for k: ..
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ...mechanisms.roles import BEFORE
from ...plan import CONSUMER, PRODUCER, KernelPlan
from ...values.op import Op
from ...values.origin import Origin, Place
from ..analysis.effects import WRITE, effects
from ..expand.rings import Ring, instantiate
from ..ir.kernels import with_block
from ..ir.nodes import (
    Buffer,
    Expr,
    SBlockRealize,
    Stmt,
    Var,
    collect,
    has,
    i32,
    is_shared,
    op_of,
    seq,
    variables,
    walk,
    with_origin,
)
from ..ir.op_form import op_loops
from ..recognise.by_tile import runs_once
from ..sync.mbarriers import Barriers, Position


@dataclass(frozen=True)
class CopiedBefore:
    """A tile that op ``op`` copies before the loops; ``slot``: how copies refer to its mbarrier.

    ``around``: the variable of the tile loop in each iteration of which it is copied anew, or None.
    ``positions``: of each role in that. ``reader``: the variable of the only loop that reads it,
    where each tile runs that once, or None.
    """

    op: Op
    tile: Buffer
    barriers: Barriers
    slot: Buffer
    around: Var | None = None
    positions: Mapping[str, Position] = field(default_factory=dict)
    reader: Var | None = None

    def wait(self) -> Stmt:
        """Return the consumers' wait for the tile."""
        phase = self.positions[CONSUMER].phase if self.positions else i32(0)
        wait = tirx.Evaluate(T.cuda.mbarrier_wait(_first(self.barriers.full), phase))
        return with_origin(self.origin(self.op.wait(), "wait", CONSUMER), wait)

    def copied(self, stmt: Stmt) -> Stmt:
        """Return the producer's copy, ``stmt``, behind how many bytes it brings."""
        call = T.ptx.mbarrier.arrive.expect_tx.shared.b64
        count = T.uint32(self.barriers.plan.bytes)
        expect = tirx.Evaluate(call(_first(self.barriers.full), count))
        ring = Ring(self.slot, self.barriers.full, 1, 1)
        copy = instantiate(stmt, {}, [], {self.slot: (ring, i32(0))})
        expecting = Op.parse(self.barriers.plan.full).adding("expect")
        return seq(
            self._wait_empty(),
            with_origin(self.origin(expecting, "expect", PRODUCER), expect),
            with_origin(self.origin(self.op, "copy", PRODUCER), copy),
            self.positions[PRODUCER].advance() if self.positions else None,
        )

    def _wait_empty(self) -> Stmt | None:
        """Return the producer's wait until consumers have released the tile before, if any."""
        wait = self.barriers.wait_empty(self.positions[PRODUCER]) if self.positions else None
        if wait is None:
            return None
        waiting = Op.parse(self.barriers.plan.empty).wait()
        return with_origin(self.origin(waiting, "wait", PRODUCER), wait)

    def origin(self, op: Op, kind: str, role: str) -> Origin:
        """Return the origin of what ``role`` does to hand over the tile."""
        return Origin(op=op, kind=kind, role=role, places=(Place(str(self.tile.name)),))


def copied_before(
    body: Stmt, plan: KernelPlan, slots: Mapping[str, Buffer]
) -> tuple[Stmt, dict[Op, CopiedBefore]]:
    """Return ``body`` without the allocation of tiles copied before its loops, and their copies.

    ``slots``: how copies refer to mbarriers, by their names.
    """
    pairs = plan.pairs_before
    if not pairs:
        return body, {}
    found: dict[Op, CopiedBefore] = {}

    def visit(stmt: tirx.AttrStmt) -> None:
        op = op_of(stmt)
        copy = next((copy for copy in plan.copies if copy.op == op and copy.dst in pairs), None)
        if op is None or copy is None:
            return
        (tile,) = (buf for buf in effects(stmt.body).buffers(WRITE) if is_shared(buf))
        pair = pairs[copy.dst]
        made = CopiedBefore(op, tile, Barriers.of(pair), slots[pair.full])
        found[op] = made if pair.loop == BEFORE else _by_tile(made, body, stmt)

    walk(body, tirx.AttrStmt, visit)
    tiles = {one.tile for one in found.values()}

    def without(realize: SBlockRealize) -> SBlockRealize:
        allocated = list(realize.block.alloc_buffers)
        kept = [buf for buf in allocated if buf not in tiles]
        return realize if len(kept) == len(allocated) else with_block(realize, allocs=kept)

    return tvm_ffi.structural_map(body, [(SBlockRealize, without)], order="post"), found


def _by_tile(one: CopiedBefore, body: Stmt, copy: Any) -> CopiedBefore:
    """Return ``one`` as a channel of the loop in ``body`` around its statement ``copy``."""

    def holds(loop: Any) -> bool:
        return has(loop.body, tirx.AttrStmt, copy.same_as)

    tiles = collect(body, tirx.For, holds)[-1]
    readers = [form.node for form in op_loops(body) if one.tile in variables(form.node.body)]
    once = len(readers) == 1 and runs_once(tiles.body, readers[0])
    return replace(
        one,
        around=tiles.loop_var,
        positions={role: Position.of(role, one.barriers.plan) for role in (PRODUCER, CONSUMER)},
        reader=readers[0].loop_var if once else None,
    )


def _first(barriers: Buffer) -> Expr:
    """Return the address of the only one of ``barriers``."""
    return T.address_of(tirx.BufferLoad(barriers, [i32(0), i32(0)]))
