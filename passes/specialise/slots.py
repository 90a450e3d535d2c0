"""Wait for slots as consumers do, and release them: what the main loops of all consumers use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.wgmma_shapes import WARPGROUP
from ...machine import WARP
from ...mechanisms.roles import by_warpgroup, reads_by_lane
from ...plan import CONSUMER, OpPlan
from ...values.op import Op
from ...values.origin import STEADY, Origin, Place
from ..analysis.effects import WRITE
from ..ir.nodes import Buffer, Expr, Stmt, Var, has, i32, seq, with_origin
from ..map.staged_stores import warpgroup_barrier
from ..sync.mbarriers import Barriers
from .before import CopiedBefore
from .in_flight import WgmmaGroup
from .role_loops import RoleLoop, origin_at, shared_by
from .specialised_kernel import SpecialisedKernel


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

        If lanes load operands themselves, a thread of each warp arrives. Where a condition may
        leave out the matmul, in which a warpgroup's warps meet, they meet before: one that still
        waited for the slot could find the parity gone that it waits for.
        """
        barriers = loop.barriers[pair]
        by_warp = reads_by_lane(self.kernel.plan.matmuls) or self.kernel.is_by_warp(loop, pair)
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
        given = self._arrival(barriers, slot, origin, self.kernel.remote, by_warp=by_warp)
        if by_warp or not self._is_left_out(loop):
            return given
        meeting = replace(origin, kind="barrier")
        return seq(with_origin(meeting, warpgroup_barrier(self.kernel.thread)), given)

    def _is_left_out(self, loop: RoleLoop) -> bool:
        """Whether there are steps of ``loop`` in which no matmul is."""
        names = {one.op for one in self.kernel.plan.matmuls}
        matmuls = [op.name for op in loop.plan.ops if op.name.statement in names]
        return all(has(loop.body(name), tirx.IfThenElse) for name in matmuls)

    def released_tiles(self, loop: RoleLoop) -> list[Stmt]:
        """Release the tiles that ``loop`` alone reads, behind it: they are copied for its next run.

        Threads have met in its last step, where it makes any.
        """
        if loop.form.trip:
            return self.released_by_step(loop)
        made = seq(*self.released_by_step(loop)) if self.kernel.last_read(loop) else None
        none = self.released_by_none(loop)
        return [] if made is None else [tirx.IfThenElse(i32(0) < loop.form.extent, made, none)]

    def released_by_step(self, loop: RoleLoop) -> list[Stmt]:
        """Release the tiles that ``loop`` alone reads, behind its last step."""
        return [self.release_tile(one, met=True) for one in self.kernel.last_read(loop)]

    def released_by_none(self, loop: RoleLoop) -> Stmt | None:
        """Release the tiles that ``loop`` alone reads, where it makes no step."""
        tiles = self.kernel.last_read(loop)
        return seq(*[self.release_tile(one, met=False) for one in tiles]) if tiles else None

    def next_tiles(self, var: Var) -> list[Stmt]:
        """Return what ends an iteration of the loop of ``var``: its own tiles are done with."""
        ended: list[Stmt] = []
        for one in self.kernel.tiles_of(var):
            ended += [] if one.reader is not None else [self.release_tile(one, met=False)]
            ended.append(one.positions[CONSUMER].advance())
        return ended

    def release_tile(self, one: CopiedBefore, *, met: bool) -> Stmt:
        """Return the arrival of each warpgroup at the empty mbarrier of a tile of the tile loop.

        ``met``: its threads have met behind their waits and their last reads, in a step of the loop
        that reads it. Otherwise they do here: a thread that still waited could find the parity gone
        that it waits for.
        """
        released = Op.parse(one.barriers.plan.empty).adding("release")
        origin = one.origin(released, "release", CONSUMER)
        by_lane = reads_by_lane(self.kernel.plan.matmuls)
        met = met and not (by_lane and by_warpgroup(self.kernel.plan.matmuls))
        given = self._arrival(one.barriers, i32(0), origin, None, by_warp=by_lane, met=met)
        if met or by_lane:
            return given
        meeting = one.origin(released, "barrier", CONSUMER)
        return seq(with_origin(meeting, warpgroup_barrier(self.kernel.thread)), given)

    def _arrival(
        self,
        barriers: Barriers,
        slot: Expr,
        origin: Origin,
        remote: Buffer | None,
        *,
        by_warp: bool,
        met: bool = False,
    ) -> Stmt:
        """Return the arrival at the empty mbarrier of ``slot``; ``remote``: in each CTA.

        ``by_warp``: each warp arrives; where its lanes have not ``met``, behind a fence.
        """
        lane = tirx.floormod(self.kernel.thread, WARP if by_warp else WARPGROUP)
        if remote is None or self.kernel.is_own(barriers.plan):
            given, who = barriers.release(slot), tirx.EQ(lane, i32(0))
        else:
            given = barriers.release_to(slot, lane, remote)
            who = self.kernel.fills(lane, barriers.plan)
        release = tirx.IfThenElse(who, with_origin(origin, given), None)
        if not by_warp or met:
            return release
        # What lanes have read, and not wgmma alone, the next copy overwrites.
        fence = tirx.Evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        meeting = tirx.Evaluate(T.cuda.warp_sync())
        return seq(with_origin(origin, fence), with_origin(origin, meeting), release)

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
