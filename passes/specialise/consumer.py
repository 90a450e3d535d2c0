"""Emit what the consumer warpgroups of a warp-specialised kernel run: everything but the copies.

    for k in range(n):
        wait full[slot]
        acc += A_shared[slot] * B_shared[slot]
        release the slot before

wgmma is asynchronous: a step starts while the wgmma of the step before is in flight, and releases
the slot of that step once its wgmma has completed. For groups of warpgroups that alternate on tiles
(ping-pong), see ``turns``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.script import tirx as T

from ...diagnostics import Reason
from ...errors import LoweringError
from ...instructions.wgmma import WARPGROUP
from ...machine import WARP
from ...mechanisms.roles import reads_by_lane
from ...mechanisms.stores import is_staged
from ...plan import CONSUMER, PRODUCER, OpPlan
from ...values.op import NO_OP, Op
from ...values.origin import STEADY, Origin, Place
from ..analysis.effects import WRITE
from ..ir.kernels import bodies, with_bodies
from ..ir.nodes import Expr, Stmt, block, i32, is_shared, seq, with_origin
from ..map.staged_stores import all_written
from ..matmul.zero_init import accumulators, start_from_zero, zeroes
from .role_loops import (
    RoleLoop,
    SpecialisedKernel,
    awaited,
    groups_of,
    holds,
    origin_at,
    rolled,
    shared_outside,
    wgmma_wait,
    without_fence,
)


def consumer(kernel: SpecialisedKernel, body: Stmt) -> Stmt:
    """Return ``body``, which all threads would run, as the consumers run it.

    Raises LoweringError for shared memory that is used without mbarriers.
    """
    staged = {str(buf.name) for buf in kernel.stages}
    outside = [name for name in shared_outside(body, set(kernel.loops)) if name not in staged]
    if outside:
        raise LoweringError("role.kernel", why=Reason("role.outside", buffer=outside[0]))
    stores = [store for store in kernel.plan.stores if is_staged(store)]
    last = [all_written(store, kernel.thread) for store in stores[:1]]
    inner = seq(_Consumer(kernel).rest(body, False), *last)
    places = kernel.places(CONSUMER)
    buffers = [buf for at in places for buf in at.buffers]
    starts = [at.start() for at in places]
    if kernel.ping_pong is not None:
        buffers += kernel.ping_pong.registers
        starts.append(kernel.ping_pong.start())
    remote = [] if kernel.remote is None else [kernel.remote]
    return block(
        CONSUMER,
        seq(*kernel.descriptors.definitions(), *starts, inner),
        [*kernel.descriptors.buffers, *buffers, *remote],
    )


@dataclass(frozen=True)
class _Consumer:
    """Emits the consumers' statements of one kernel."""

    kernel: SpecialisedKernel

    def rest(self, stmt: Stmt, repeats: bool) -> Stmt:
        """Return ``stmt`` without the copies; ``repeats``: its loops may be entered again."""
        if isinstance(stmt, tirx.For):
            if stmt in self.kernel.loops:
                return self._loop(self.kernel.loops[stmt], repeats)
            if not any(holds(stmt, loop) for loop in self.kernel.loops):
                return stmt
            inner = self.rest(stmt.body, True)
            if self.kernel.ping_pong is not None:
                inner = self.kernel.ping_pong.taken(stmt, inner, self._skipped())
            return rolled(stmt, stmt.loop_var, inner)
        if isinstance(stmt, tirx.SeqStmt):
            kept = self._without_zeroing(list(stmt.seq))
            return seq(*[self.rest(part, repeats) for part in kept])
        inner_bodies = bodies(stmt)
        return with_bodies(stmt, [self.rest(part, repeats) for part in inner_bodies])

    def _skipped(self) -> Stmt:
        """Return the advance past a tile of another group, whose steps use slots all the same."""
        loops = self.kernel.loops.values()
        return seq(
            *[at.skip(loop.form.extent) for loop in loops for at in loop.positions[CONSUMER]]
        )

    def _without_zeroing(self, parts: list[Stmt]) -> list[Stmt]:
        """Return the statements without the zeroing of accumulators that wgmmas do themselves."""
        kept = list(parts)
        for at, part in enumerate(parts):
            loop = self.kernel.loops.get(part) if isinstance(part, tirx.For) else None
            if loop is None or not loop.form.trip:
                continue
            wanted = accumulators(part)
            for count in range(1, min(at, len(wanted)) + 1):  # one statement or one for each
                zeroing = parts[at - count : at]
                if zeroes(seq(*zeroing), wanted):
                    loop.zeroes = True
                    kept = [one for one in kept if not any(one.same_as(z) for z in zeroing)]
        return kept

    def _loop(self, loop: RoleLoop, repeats: bool) -> Stmt:
        form, places = loop.form, loop.positions[CONSUMER]
        steps: list[Stmt] = []
        groups = 0
        reader = NO_OP
        apart = all(op.operand == "shared" and not op.promoted for op in self.kernel.plan.matmuls)
        issued = False  # whether the statement before is wgmma, and no thread touches registers
        for op in sorted(loop.plan.ops, key=lambda op: op.order):
            if op.role == PRODUCER:
                continue
            if op.kind == "wait":
                steps += [self._wait(loop, op, pair) for pair in awaited(loop, op)]
                continue
            if op.kind == "mma":
                groups, reader = groups + groups_of(loop.body(op.name)), op.name
            self._check(loop, op)
            stmt = self.kernel.instance(loop, op, CONSUMER, form.var)
            if loop.zeroes:
                stmt = start_from_zero(stmt, tirx.EQ(form.var, form.node.min))
            steps.append(without_fence(stmt) if issued and op.kind == "mma" else stmt)
            issued = op.kind == "mma" and apart
        matmuls = self.kernel.plan.matmuls
        own = all(op.promoted for op in matmuls) or (loop.late and reads_by_lane(matmuls))
        if not own:  # what is done with a step's sums or operands in registers waits for it
            steps.append(wgmma_wait(groups if loop.late else 0, reader))
        first = form.node.min
        released = self._released(loop)
        if loop.late:
            steps.append(tirx.IfThenElse(first < form.var, seq(*released), None))
        else:
            steps += released
        steps += [at.advance() for at in places]
        ping_pong = self.kernel.ping_pong
        last: list[Stmt | None] = [] if ping_pong is None else [ping_pong.pass_on(loop.plan.name)]
        if loop.late:
            last.append(wgmma_wait(0, reader))
            if repeats:
                given = seq(*self._released(loop))
                ran = form.trip is not None and form.trip > 0
                last.append(given if ran else tirx.IfThenElse(i32(0) < form.extent, given, None))
        wait = None if ping_pong is None else ping_pong.wait(loop.plan.name)
        body = seq(wait, rolled(form.node, form.var, seq(*steps)), *last)
        others = [buf for buf in form.allocs if buf not in loop.rings]
        return block("", body, others) if others else body

    def _wait(self, loop: RoleLoop, op: OpPlan, pair: int) -> Stmt:
        at, barriers = loop.positions[CONSUMER][pair], loop.barriers[pair]
        origin = origin_at(loop, op, CONSUMER, pair, [barriers.plan.full])
        return with_origin(origin, barriers.wait_full(at))

    def _released(self, loop: RoleLoop) -> list[Stmt]:
        """Release the slots of a step, of each mbarrier pair that is waited for."""
        places = loop.positions[CONSUMER]
        waited = [i for i, barriers in enumerate(loop.barriers) if barriers.empty is not None]
        return [self._release(loop, i, places[i].previous) for i in waited]

    def _release(self, loop: RoleLoop, pair: int, slot: Expr) -> Stmt:
        """Return the arrival of each warpgroup at the slot's empty mbarrier, one for each CTA.

        If lanes load operands themselves, a thread of each warp arrives.
        """
        barriers, by_warp = loop.barriers[pair], reads_by_lane(self.kernel.plan.matmuls)
        lane = tirx.floormod(self.kernel.thread, WARP if by_warp else WARPGROUP)
        at = loop.positions[CONSUMER][pair]
        counter = at.counters[0] if at.before is None else at.before
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

    def _check(self, loop: RoleLoop, op: OpPlan) -> None:
        found = loop.effects(op.name)
        touched = {buf for access in found.accesses for buf in [access.buffer] if is_shared(buf)}
        if touched and (op.kind != "mma" or found.buffers(WRITE) & touched):
            name = str(next(iter(touched)).name)
            why = Reason("role.use", op=op.name, buffer=name)
            raise LoweringError("role.loop", loop=loop.plan.name, why=why)
