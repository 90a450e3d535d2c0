"""Wait for slots as consumers do, and release them: what the main loops of all consumers use."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.wgmma import WARPGROUP
from ...machine import WARP
from ...mechanisms.roles import by_warpgroup, reads_by_lane
from ...plan import CONSUMER, OpPlan
from ...values.op import Op
from ...values.origin import STEADY, Origin, Place
from ..analysis.effects import WRITE
from ..ir.nodes import Stmt, i32, seq, with_origin
from .in_flight import WgmmaGroup
from .role_loops import RoleLoop, SpecialisedKernel, origin_at, shared_by


@dataclass(frozen=True)
class ConsumerSlots:
    """The slots of one kernel's rings, as its consumers use them."""

    kernel: SpecialisedKernel

    def wait(self, loop: RoleLoop, op: OpPlan, pair: int) -> Stmt:
        """Return the wait of ``op`` for the slot of ``pair``."""
        at, barriers = loop.positions[CONSUMER][pair], loop.barriers[pair]
        origin = origin_at(loop, op, CONSUMER, pair, [barriers.plan.full])
        return with_origin(origin, barriers.wait_full(at))

    def released(self, loop: RoleLoop, *, behind: bool) -> list[Stmt]:
        """Release the slots of a step, of each mbarrier pair that is waited for.

        ``behind``: those of the step before, where that is kept.
        """
        waited = [i for i, barriers in enumerate(loop.barriers) if barriers.empty is not None]
        return [self.release(loop, i, behind=behind) for i in waited]

    def released_by(self, loop: RoleLoop, groups: list[WgmmaGroup]) -> list[Stmt]:
        """Release the slots that ``groups`` were the last to read."""
        return [self.release(loop, pair, behind=True) for one in groups for pair in one.pairs]

    def release(self, loop: RoleLoop, pair: int, *, behind: bool) -> Stmt:
        """Return the arrival of each warpgroup at the slot's empty mbarrier, one for each CTA.

        If lanes load operands themselves, a thread of each warp arrives.
        """
        barriers = loop.barriers[pair]
        by_warp = reads_by_lane(self.kernel.plan.matmuls) or self.kernel.is_by_warp(loop, pair)
        lane = tirx.floormod(self.kernel.thread, WARP if by_warp else WARPGROUP)
        at = loop.positions[CONSUMER][pair]
        slot, counter = at.at(behind=behind), at.register(behind=behind)
        origin = Origin(
            op=Op.parse(barriers.plan.empty).adding("release"),
            kind="release",
            block=loop.plan.name,
            phase=STEADY,
            role=CONSUMER,
            iteration=str(loop.form.var.name),
            places=(Place(barriers.plan.empty, str(counter.name)),),
        )
        if self.kernel.remote is None:
            given, who = barriers.release(slot), tirx.EQ(lane, i32(0))
        else:
            given = barriers.release_to(slot, lane, self.kernel.remote)
            who = lane < self.kernel.plan.cluster
        release = tirx.IfThenElse(who, with_origin(origin, given), None)
        if not by_warp:
            return release
        # What lanes have read, and not wgmma alone, the next copy overwrites.
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        met = tirx.Evaluate(T.cuda.warp_sync())
        return seq(with_origin(origin, fence), with_origin(origin, met), release)

    def check(self, loop: RoleLoop, op: OpPlan) -> None:
        """Raise LoweringError if ``op`` uses slots as the plan does not release them."""
        touched, matmuls = shared_by(loop, op), {one.op for one in self.kernel.plan.matmuls}
        written = loop.effects(op.name).buffers(WRITE) & touched
        read = [loop.pair(buf) for buf in touched if buf in loop.rings]
        waited = [pair for pair in read if loop.barriers[pair].empty is not None]
        by_lane = (
            by_warpgroup(self.kernel.plan.matmuls)
            and not loop.staged
            and len(read) == len(touched) == len(waited)
            and all(self.kernel.is_by_warp(loop, pair) for pair in waited)
        )
        if touched and (not (op.name.statement in matmuls or by_lane) or written):
            name = str(next(iter(touched)).name)
            why = Reason("role.use", op=op.name, buffer=name)
            raise LoweringError("role.loop", loop=loop.plan.name, why=why)
