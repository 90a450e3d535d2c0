"""Emit what the consumer warpgroups of a warp-specialised kernel run: everything but the copies.

    for k in range(n):
        wait full[slot]
        acc += A_shared[slot] * B_shared[slot]        the first wgmma of it
        release the slot before
        acc += A_shared[slot] * B_shared[slot]        the others

wgmma is asynchronous: a step starts while the wgmma of the step before is in flight, and releases
the slot of that step once its wgmma has completed, behind its own first one. For groups of
warpgroups that alternate on tiles (ping-pong), see ``ping_pong``. Consumers that multiply by
mma.sync are warps, which read fragments by ldmatrix.

What orders TMA's accesses of a slot with those of threads:

- A box lands, then ldmatrix reads it: the wait for ``full``. A completed TMA copy that an mbarrier
  has counted is followed by an implicit proxy fence (PTX ISA, async proxy).
- ldmatrix reads, then the next box overwrites: each lane's fence.proxy.async behind its reads, the
  lanes of a warp met, then one arrival for the warp at ``empty``. An arrival releases what its
  thread did through the generic proxy alone; PTX's memory model orders accesses of two proxies only
  with a proxy fence between them, reads before writes too. CUTLASS's main loop for sm_120
  (sm120_mma_tma.hpp) has a barrier and an arrival there, and no fence; DeepEP added one so that TMA
  does not overtake the loads of a slot (deepseek-ai/DeepEP, pull request 642).
- wgmma reads through the async proxy itself: its wait, and no fence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ...mechanisms.roles import by_warpgroup, reads_by_lane
from ...mechanisms.stores import is_by_tma
from ...plan import CONSUMER, OpPlan
from ...values.origin import STEADY
from ..analysis.effects import WRITE, effects
from ..ir.kernels import bodies, with_bodies
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    Var,
    block,
    i32,
    is_global,
    op_of,
    seq,
    variables,
)
from ..map.staged_stores import all_written
from ..matmul.zero_init import accumulators, begin_always, start_from_zero, zeroes
from .consumer_warps import loop_of_warps
from .in_flight import (
    WgmmaGroup,
    WgmmasInFlight,
    parted_behind_first,
    wgmma_wait,
    without_fence,
)
from .loads_ahead import LoadsAhead, in_pairs
from .role_loops import RoleLoop, awaited
from .slots import ConsumerSlots
from .specialised_kernel import SpecialisedKernel
from .statements import holds, rolled, shared_outside


def consumer(kernel: SpecialisedKernel, body: Stmt) -> Stmt:
    """Return ``body``, which all threads would run, as the consumers run it.

    Raises LoweringError for shared memory that is used without mbarriers.
    """
    staged = {str(buf.name) for buf in kernel.stages}
    used = shared_outside(body, set(kernel.loops), kernel.before)
    outside = [name for name in used if name not in staged]
    if outside:
        raise LoweringError("role.kernel", why=Reason("role.outside", buffer=outside[0]))
    stores = [store for store in kernel.plan.stores if is_by_tma(store)]
    last = [all_written(store, kernel.thread) for store in stores[:1]]
    written = frozenset(buf for buf in effects(body).buffers(WRITE) if is_global(buf))
    inner = seq(_Consumer(kernel, written).rest(body, False), *last)
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
    """Emits the consumers' statements of one kernel; ``written``: the global memory it writes."""

    kernel: SpecialisedKernel
    written: frozenset[Buffer]

    @property
    def slots(self) -> ConsumerSlots:
        """How consumers wait for slots and release them."""
        return ConsumerSlots(self.kernel)

    def rest(self, stmt: Stmt, repeats: bool) -> Stmt:
        """Return ``stmt`` without the copies; ``repeats``: its loops may be entered again."""
        op = op_of(stmt)
        if op is not None and op in self.kernel.before:
            return self.kernel.before[op].wait()
        if isinstance(stmt, tirx.For):
            if stmt in self.kernel.loops:
                return self._loop(self.kernel.loops[stmt], repeats)
            if not any(holds(stmt, loop) for loop in self.kernel.loops):
                return stmt
            inner = seq(self.rest(stmt.body, True), *self.slots.next_tiles(stmt.loop_var))
            if self.kernel.ping_pong is not None:
                inner = self.kernel.ping_pong.taken(stmt, inner, self._skipped(stmt.loop_var))
            return rolled(stmt, stmt.loop_var, inner)
        if isinstance(stmt, tirx.SeqStmt):
            kept = self._without_zeroing(list(stmt.seq))
            return seq(*[self.rest(part, repeats) for part in kept])
        inner_bodies = bodies(stmt)
        return with_bodies(stmt, [self.rest(part, repeats) for part in inner_bodies])

    def _skipped(self, var: Var) -> Stmt:
        """Return the advance past a tile of another group, whose steps use slots all the same.

        ``var``: of the loop over tiles.
        """
        loops = self.kernel.loops.values()
        return seq(
            *[one.positions[CONSUMER].advance() for one in self.kernel.tiles_of(var)],
            *[at.skip(loop.form.extent) for loop in loops for at in loop.positions[CONSUMER]],
        )

    def _without_zeroing(self, parts: list[Stmt]) -> list[Stmt]:
        """Return the statements without the zeroing of accumulators that wgmmas do themselves."""
        kept = list(parts)
        for at, part in enumerate(parts):
            loop = self.kernel.loops.get(part) if isinstance(part, tirx.For) else None
            if loop is None or not loop.form.trip or not begin_always(part):
                continue
            wanted = accumulators(part)
            for count in range(1, min(at, len(wanted)) + 1):  # one statement or one for each
                zeroing = parts[at - count : at]
                if zeroes(seq(*zeroing), wanted):
                    loop.zeroes = True
                    kept = [one for one in kept if not any(one.same_as(z) for z in zeroing)]
        return kept

    def _loop(self, loop: RoleLoop, repeats: bool) -> Stmt:
        if not by_warpgroup(self.kernel.plan.matmuls):
            return loop_of_warps(self.slots, loop, repeats=repeats)
        form, places = loop.form, loop.positions[CONSUMER]
        if loop.staged:
            return self._loop_in_stages(loop, repeats)
        flight = WgmmasInFlight()
        self._step(loop, flight)  # what it leaves in flight is so when a step starts
        flight = flight.carried() if loop.late else WgmmasInFlight()
        steps = [*self._step(loop, flight), *[at.advance() for at in places]]
        ahead = LoadsAhead(form.var, self.written)
        if form.trip:
            steps = list(map(ahead.rewritten, steps))

        left_behind = list(flight.groups) if loop.late else []

        def again() -> list[Stmt]:
            now = WgmmasInFlight(left_behind).carried()
            return [*self._step(loop, now, again=True), *[at.advance() for at in places]]

        ping_pong = self.kernel.ping_pong
        last: list[Stmt | None] = [] if ping_pong is None else [ping_pong.pass_on(loop.plan.name)]
        if left := flight.all_done():
            last.append(wgmma_wait(0, left[-1].op))
            if repeats:
                given = seq(*self.slots.released_by(loop, left))
                ran = form.trip is not None and form.trip > 0
                last.append(given if ran else tirx.IfThenElse(i32(0) < form.extent, given, None))
        wait = None if ping_pong is None else ping_pong.wait(loop.plan.name)
        whole = [rolled(form.node, form.var, seq(*steps))]
        if ahead.values:
            whole = in_pairs(form, steps, again, ahead)
        body = seq(wait, *whole, *last, *self.slots.released_tiles(loop))
        others = [buf for buf in form.allocs if buf not in loop.rings] + ahead.registers
        return block("", body, others) if others else body

    def _loop_in_stages(self, loop: RoleLoop, repeats: bool) -> Stmt:
        """Return the main loop of warpgroups that work on two iterations a step.

            S = Q K; P = exp of S; O += P V   =>   S = Q K; P = exp of S             prologue
                                                   for k in range(n - 1):
                                                       S = Q K of k + 1; O += P V of k
                                                       wait S; exp of S; wait O; P = S
                                                   O += P V                          epilogue

        No wgmma is in flight when a step ends. Nobody waits for the last slots unless the loop is
        entered again (``repeats``).
        """
        form, first = loop.form, loop.form.node.min
        ops = loop.consumed()
        early, late = (
            [op for op in ops if not loop.behind(op)],
            [op for op in ops if loop.behind(op)],
        )

        def run(some: list[OpPlan], iterations: tuple[Expr, Expr], phase: str) -> list[Stmt]:
            """The ops ``some`` in order, of the iterations of early and late ones."""
            kept = set() if repeats or phase != "epilogue" else set(range(len(loop.barriers)))
            return self._ops(loop, some, WgmmasInFlight(), iterations, phase, kept=kept)

        advance = [at.advance() for at in loop.positions[CONSUMER]]
        fill = [*run(early, (first, first), "prologue"), *advance]
        steps = seq(*run(ops, (form.var + 1, form.var), STEADY), *advance)
        final = first + form.extent - 1
        drain = run(late, (final, final), "epilogue")
        given = self.slots.released_by_step(loop)
        used = {var for op in late for var in variables(loop.body(op.name))}
        if used.isdisjoint(one.tile for one in self.kernel.last_read(loop)):
            drain = [*given, *drain]  # the last step has read what was copied for the tile
        else:
            drain = [*drain, *given]
        body = seq(*fill, rolled(form.node, form.var, steps, form.extent - 1), *drain)
        if not form.trip:
            none = self.slots.released_by_none(loop)
            body = tirx.IfThenElse(i32(0) < form.extent, body, none)
        others = [buf for buf in form.allocs if buf not in loop.rings]
        return block("", body, others) if others else body

    def _step(self, loop: RoleLoop, flight: WgmmasInFlight, *, again: bool = False) -> list[Stmt]:
        """Return the statements of a step that starts with ``flight``, which becomes its end's.

        ``again``: it is not the only instance.
        """
        at = loop.form.var
        return self._ops(loop, loop.consumed(), flight, (at, at), STEADY, again=again)

    def _ops(
        self,
        loop: RoleLoop,
        ops: list[OpPlan],
        flight: WgmmasInFlight,
        iterations: tuple[Expr, Expr],
        phase: str,
        *,
        again: bool = False,
        kept: Collection[int] = (),
    ) -> list[Stmt]:
        """Return ``ops`` from ``flight`` on, which becomes their end's.

        ``iterations``: those of the ops of the first stage and of those behind it. ``kept``: pairs
        whose slots are not released at the end.
        """
        steps = list[Stmt]()
        apart = all(op.operand == "shared" and not op.promoted for op in self.kernel.plan.matmuls)
        issued = False  # whether the statement before is wgmma, and no thread touches registers
        reading = dict(loop.lanes)  # the slots that a statement has yet to read
        there: set[int] = set()  # the pairs whose slots of this step have been waited for
        for op in ops:
            if op.kind == "wait":
                pairs = [pair for pair in awaited(loop, op) if pair not in there]
                steps += [self.slots.wait(loop, op, pair) for pair in pairs]
                there |= set(pairs)
                continue
            if op.kind == "mma":
                flight.groups.append(loop.group(op))
            else:
                steps += self._done(loop, flight.done_for(loop.registers(op)), flight, reading)
                if loop.reads_under(op):
                    steps += self._done(loop, flight.done_before(), flight, reading)
            self.slots.check(loop, op)
            behind = loop.behind(op)
            at = iterations[behind]
            new = again or loop.staged
            stmt = self.kernel.instance(
                loop, op, CONSUMER, at, behind=behind, phase=phase, again=new
            )
            if op.name in loop.started.values():
                stmt = start_from_zero(stmt, tirx.const(True, "bool"))
            elif loop.zeroes:
                stmt = start_from_zero(stmt, tirx.EQ(at, loop.form.node.min))
            steps.append(without_fence(stmt) if issued and op.kind == "mma" else stmt)
            issued = op.kind == "mma" and apart
            read = [pair for pair, last in reading.items() if last == op.name]
            reading = {pair: last for pair, last in reading.items() if pair not in read}
            steps += self._released_by_lanes(loop, op, read, flight)
        done = flight.done_before() if loop.late else flight.all_done()
        given = self._done(loop, done, flight, kept)
        if loop.late and given and ops[-1].kind == "mma":
            parted = parted_behind_first(steps[-1], given)
            if parted is not None:
                return [*steps[:-1], parted]
        return [*steps, *given]

    def _released_by_lanes(
        self, loop: RoleLoop, op: OpPlan, pairs: list[int], flight: WgmmasInFlight
    ) -> list[Stmt]:
        """Release the slots of ``pairs``, which ``op`` was the last statement of a step to read.

        Not those that wgmmas of this step still read, in flight or to come: they release them.
        """
        reading = {pair for group in flight.groups if not group.before for pair in group.pairs}
        behind = loop.consumed()
        behind = behind[behind.index(op) + 1 :]
        reading |= {
            pair for later in behind if later.kind == "mma" for pair in loop.group(later).pairs
        }
        waited = [pair for pair in pairs if loop.barriers[pair].empty is not None]
        return [
            self.slots.release(loop, pair, behind=False) for pair in waited if pair not in reading
        ]

    def _done(
        self,
        loop: RoleLoop,
        groups: list[WgmmaGroup],
        flight: WgmmasInFlight,
        reading: Collection[int],
    ) -> list[Stmt]:
        """Return the wait for ``groups``, behind which ``flight`` is left, and their releases.

        ``reading``: pairs whose slots statements of this step have yet to read.
        """
        if not groups:
            return []
        matmuls = self.kernel.plan.matmuls
        own = all(op.promoted for op in matmuls) or (loop.late and reads_by_lane(matmuls))
        # What is done with a step's sums or operands in registers waits for it.
        waits = [] if own else [wgmma_wait(flight.count, groups[-1].op)]
        before = self.slots.released_by(loop, [group for group in groups if group.before])
        ran = loop.form.node.min < loop.form.var
        given = [tirx.IfThenElse(ran, seq(*before), None)] if before else []
        now = [
            replace(group, pairs=tuple(pair for pair in group.pairs if pair not in reading))
            for group in groups
            if not group.before
        ]
        return [*waits, *given, *self.slots.released_by(loop, now)]
