"""Hand over tiles that are copied once, before the loops: one mbarrier each, and no slots.

    Q_shared = tile of Q           consumer: wait full_Q, phase 0
    for k in range(n): ..    =>    producer: expect bytes at full_Q; Q_shared = tile of Q, at full_Q

Nothing overwrites such a tile, so nobody releases it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from ...plan import CONSUMER, PRODUCER, KernelPlan
from ...values.op import Op
from ...values.origin import Origin, Place
from ..analysis.effects import WRITE, effects
from ..expand.rings import Ring, instantiate
from ..ir.kernels import with_block
from ..ir.nodes import Buffer, SBlockRealize, Stmt, i32, is_shared, op_of, seq, walk, with_origin
from ..sync.mbarriers import Barriers


@dataclass(frozen=True)
class CopiedBefore:
    """A tile that op ``op`` copies once, and its mbarrier; ``slot``: how copies refer to that."""

    op: Op
    tile: Buffer
    barriers: Barriers
    slot: Buffer

    def wait(self) -> Stmt:
        """Return the consumers' wait for the tile."""
        at = tirx.BufferLoad(self.barriers.full, [i32(0), i32(0)])
        wait = tirx.Evaluate(T.cuda.mbarrier_wait(T.address_of(at), i32(0)))
        return with_origin(self._origin(self.op.wait(), "wait", CONSUMER), wait)

    def copied(self, stmt: Stmt) -> Stmt:
        """Return the producer's copy, ``stmt``, behind how many bytes it brings."""
        at = tirx.BufferLoad(self.barriers.full, [i32(0), i32(0)])
        call = T.ptx.mbarrier.arrive.expect_tx.shared.b64
        count = T.uint32(self.barriers.plan.bytes)
        expect = tirx.Evaluate(call(T.address_of(at), count))
        ring = Ring(self.slot, self.barriers.full, 1, 1)
        copy = instantiate(stmt, {}, [], {self.slot: (ring, i32(0))})
        expecting = Op.parse(self.barriers.plan.full).adding("expect")
        return seq(
            with_origin(self._origin(expecting, "expect", PRODUCER), expect),
            with_origin(self._origin(self.op, "copy", PRODUCER), copy),
        )

    def _origin(self, op: Op, kind: str, role: str) -> Origin:
        return Origin(op=op, kind=kind, role=role, places=(Place(str(self.tile.name)),))


def copied_before(
    body: Stmt, plan: KernelPlan, slots: Mapping[str, Buffer]
) -> tuple[Stmt, dict[Op, CopiedBefore]]:
    """Return ``body`` without the allocation of tiles that are copied once, and their copies.

    ``slots``: how copies refer to mbarriers, by their names.
    """
    pairs = {pair.rings[0]: pair for pair in plan.mbarriers if not pair.loop}
    if not pairs:
        return body, {}
    found: dict[Op, CopiedBefore] = {}

    def visit(stmt: tirx.AttrStmt) -> None:
        op = op_of(stmt)
        copy = next((copy for copy in plan.copies if copy.op == op and copy.dst in pairs), None)
        if op is not None and copy is not None:
            (tile,) = (buf for buf in effects(stmt.body).buffers(WRITE) if is_shared(buf))
            pair = pairs[copy.dst]
            found[op] = CopiedBefore(op, tile, Barriers.of(pair), slots[pair.full])

    walk(body, tirx.AttrStmt, visit)
    tiles = {one.tile for one in found.values()}

    def without(realize: SBlockRealize) -> SBlockRealize:
        allocated = list(realize.block.alloc_buffers)
        kept = [buf for buf in allocated if buf not in tiles]
        return realize if len(kept) == len(allocated) else with_block(realize, allocs=kept)

    return tvm_ffi.structural_map(body, [(SBlockRealize, without)], order="post"), found
