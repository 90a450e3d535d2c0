"""Slice a kernel by role: some warps copy, the others compute, channels between them.

    for k in range(n):                     if threadIdx.x < 256:            # consumer
        A_shared = box of A                    for k in range(n):
        B_shared = box of B        =>              wait full[slot]
        acc += A_shared * B_shared                 acc += A_shared[slot] * B_shared[slot]
    C = acc                                        give back the slot before
                                               C = acc
                                           elif threadIdx.x == 256:         # producer
                                               for k in range(n):
                                                   wait empty[slot]
                                                   A_shared[slot] = box of A, at full[slot]
                                                   ...

The producer keeps the copies of the loops that have channels, and what stands around them: tile
loops and conditions. Everything else is the consumer's. Arithmetic is asynchronous: a step starts
while that of the step before still runs, and gives back the slot of the step before once that one
is done. Loops of roles stay loops: nvcc would unroll the producer's by its trip count.

Does not handle: statements in such a loop that use a ring otherwise than by wgmma, shared memory
outside of the rings and of what is on its way out, conditions that depend on what is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from ..cost.wgmma import WARPGROUP, launch_registers
from ..errors import LoweringError
from ..machine import Machine
from ..origin import Origin, Place
from ..plan import CONSUMER, PRODUCER, KernelPlan, LoopPlan, OpPlan, RolePlan
from .channels import ROLE_ATTR, ROLES_ATTR, Barriers
from .clearing import accumulators, clears, start_from_zero
from .descriptors import Descriptors
from .effects import WRITE, effects
from .ir import (
    Buffer,
    Expr,
    SBlockRealize,
    Stmt,
    StringImm,
    Var,
    block,
    buffer,
    const_int,
    i32,
    is_global,
    is_shared,
    seq,
    uses,
    walk,
    with_origin,
)
from .kernels import bodies, map_kernels, thread_tag, with_bodies
from .op_form import op_loop
from .rings import Ring, definitions, instantiate
from .role_loops import (
    PHASE,
    RoleLoop,
    awaited,
    check_condition,
    holds,
    op_names,
    origin_at,
    role_loop,
    rolled,
    shared_outside,
    wgmma_wait,
    with_var,
)
from .staged_stores import all_written


def specialise(func: Any, plan: KernelPlan, machine: Machine) -> Any:
    """``func`` with its threads sliced into the roles of ``plan``; the same object without any.

    LoweringError names a statement that no role can do.
    """
    if not plan.roles:
        return func

    def sliced(kernel: Any) -> Any:
        _check_sources(kernel, plan)
        return _Kernel(plan, machine).on_threads(kernel)

    return map_kernels(func, sliced)


def _check_sources(kernel: Any, plan: KernelPlan) -> None:
    """What boxes are copied from must not change: they are not read as the kernel writes."""
    written = {str(buf.name) for buf in effects(kernel).buffers(WRITE) if is_global(buf)}
    for copy in plan.copies:
        if copy.mechanism == "tma" and copy.src in written:
            raise LoweringError(f"cannot copy '{copy.op}' by tma: the kernel writes '{copy.src}'")


@dataclass
class _Kernel:
    """One kernel under way; what the branches need collects in its fields."""

    plan: KernelPlan
    machine: Machine
    thread: Any = None
    loops: dict[Any, RoleLoop] = field(default_factory=dict)
    descriptors: Descriptors | None = None
    remote: Buffer | None = None
    stages: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        """In a cluster consumers release slots of other CTAs."""
        if self.plan.cluster > 1:
            self.remote = buffer([1], "uint32", "remote", "local")

    def on_threads(self, stmt: Stmt) -> Stmt:
        """``stmt`` with the body of its threadIdx loop sliced."""
        if (thread_tag(stmt) or "").startswith("threadIdx"):
            self.thread = stmt.loop_var
            self.descriptors = Descriptors(stmt.loop_var)
            return with_bodies(stmt, [self._sliced(stmt.body)])
        return with_bodies(stmt, [self.on_threads(body) for body in bodies(stmt)])

    def _sliced(self, body: Stmt) -> Stmt:
        fulls = self._placeholders(body)
        inner = body.block.body if fulls else body
        known = list(fulls.values())
        self.stages = [buf for buf in body.block.alloc_buffers if buf not in known] if fulls else []
        self._find_loops(inner, fulls)
        consumer, producer = self.plan.role(CONSUMER), self.plan.role(PRODUCER)
        consumed = self._consumer(consumer, inner)
        produced = self._producer(producer, inner)
        rings = [ring for loop in self.loops.values() for ring in loop.rings.values()]
        channels = [barriers for loop in self.loops.values() for barriers in loop.barriers]
        branches = tirx.IfThenElse(self.thread < consumer.threads, consumed, produced)
        allocs = [*[ring.slots for ring in rings], *self.stages]
        allocs += [buf for barriers in channels for buf in (barriers.full, barriers.empty)]
        names = ",".join(str(buf.name) for buf in allocs)
        roles = tirx.AttrStmt(StringImm(names), ROLES_ATTR, StringImm(names), branches)
        # Other CTAs of a cluster copy into this one and arrive at its barriers until they are done.
        leave = self._meet() if self.plan.cluster > 1 else None
        return block("roles", seq(self._initialise(channels), roles, leave), allocs)

    def _initialise(self, channels: Sequence[Barriers]) -> Stmt:
        init = seq(*[barriers.initialise() for barriers in channels])
        return seq(
            tirx.IfThenElse(tirx.EQ(self.thread, i32(0)), init, None),
            tirx.Evaluate(T.ptx.fence.mbarrier_init.release.cluster()),
            self._meet(),
        )

    def _meet(self) -> Stmt:
        """Every thread of the CTA, or of its cluster, waits for the others."""
        if self.plan.cluster > 1:
            return tirx.Evaluate(T.cuda.cluster_sync())
        return tirx.Evaluate(T.tvm_storage_sync("shared"))

    # Loops.

    def _placeholders(self, body: Stmt) -> dict[str, Buffer]:
        """The ``full`` barriers that copies refer to, by name."""
        names = {channel.full for channel in self.plan.channels}
        if not isinstance(body, SBlockRealize):
            return {}
        found = {str(buf.name): buf for buf in body.block.alloc_buffers}
        return {name: buf for name, buf in found.items() if name in names}

    def _find_loops(self, body: Stmt, fulls: dict[str, Buffer]) -> None:
        planned = {frozenset(op_names(loop)): loop for loop in self.plan.loops if loop.pipelined}
        nodes: list[Any] = []
        walk(body, tirx.For, nodes.append)
        for node in nodes:
            form = op_loop(node)
            loop = None if form is None else planned.get(frozenset(form.names))
            if form is not None and loop is not None:
                self.loops[node] = role_loop(form, loop, self.plan, fulls)
        if len(self.loops) < len(planned):
            raise LoweringError("cannot slice the kernel by role: it lacks a loop of its plan")

    # The consumer.

    def _consumer(self, role: RolePlan, body: Stmt) -> Stmt:
        staged = {str(buf.name) for buf in self.stages}
        outside = [name for name in shared_outside(body, set(self.loops)) if name not in staged]
        if outside:
            raise LoweringError(
                f"cannot slice the kernel by role: '{outside[0]}' is shared memory outside the "
                "rings that channels order"
            )
        stores = [store for store in self.plan.stores if store.mechanism == "tma"]
        last = [all_written(store, self.thread) for store in stores[:1]]
        inner = seq(self._consume(body, False), *last)
        assert self.descriptors is not None
        places = [at for loop in self.loops.values() for at in loop.positions[CONSUMER]]
        held = [buf for at in places for buf in at.buffers]
        starts = [at.start() for at in places]
        remote = [] if self.remote is None else [self.remote]
        return _role(
            role.name,
            seq(
                self._registers(role),
                block(
                    role.name,
                    seq(*self.descriptors.definitions(), *starts, inner),
                    [*self.descriptors.buffers, *held, *remote],
                ),
            ),
        )

    def _consume(self, stmt: Stmt, repeats: bool) -> Stmt:
        """``stmt`` without the copies; ``repeats``: its loops may be entered again."""
        if isinstance(stmt, tirx.For):
            if stmt in self.loops:
                return self._consume_loop(self.loops[stmt], repeats)
            if not any(holds(stmt, loop) for loop in self.loops):
                return stmt
            inner = self._consume(stmt.body, True)
            return rolled(stmt, stmt.loop_var, inner)
        if isinstance(stmt, tirx.SeqStmt):
            kept = self._without_clearing(list(stmt.seq))
            return seq(*[self._consume(part, repeats) for part in kept])
        inner_bodies = bodies(stmt)
        return with_bodies(stmt, [self._consume(part, repeats) for part in inner_bodies])

    def _without_clearing(self, parts: list[Stmt]) -> list[Stmt]:
        """``parts`` without what clears the accumulators of the loop behind it: wgmma does."""
        for before, part in list(itertools.pairwise(parts)):
            loop = self.loops.get(part) if isinstance(part, tirx.For) else None
            if loop is None or not loop.form.trip or not clears(before, accumulators(part)):
                continue
            loop.clears = True
            parts = [other for other in parts if not other.same_as(before)]
        return parts

    def _consume_loop(self, loop: RoleLoop, repeats: bool) -> Stmt:
        form, places = loop.form, loop.positions[CONSUMER]
        steps: list[Stmt] = []
        groups = 0
        reader = ""
        for op in sorted(loop.plan.ops, key=lambda op: op.order):
            if op.role == PRODUCER:
                continue
            if op.kind == "wait":
                steps += [self._wait(loop, op, channel) for channel in awaited(loop, op)]
                continue
            if op.kind == "mma":
                groups, reader = groups + 1, op.name
            self._check_consumer(loop, op)
            stmt = self._instance(loop, op, CONSUMER, form.var)
            if loop.clears:
                stmt = start_from_zero(stmt, tirx.EQ(form.var, form.node.min))
            steps.append(stmt)
        steps.append(wgmma_wait(groups if loop.late else 0, reader))
        first = form.node.min
        released = [self._release(loop, i, at.held) for i, at in enumerate(places)]
        if loop.late:
            steps.append(tirx.IfThenElse(first < form.var, seq(*released), None))
        else:
            steps += released
        steps += [at.advance() for at in places]
        last: list[Stmt | None] = []
        if loop.late:
            last.append(wgmma_wait(0, reader))
            if repeats:
                given = seq(*[self._release(loop, i, at.held) for i, at in enumerate(places)])
                ran = form.trip is not None and form.trip > 0
                last.append(given if ran else tirx.IfThenElse(i32(0) < form.extent, given, None))
        body = seq(rolled(form.node, form.var, seq(*steps)), *last)
        others = [buf for buf in form.allocs if buf not in loop.rings]
        return block("", body, others) if others else body

    def _wait(self, loop: RoleLoop, op: OpPlan, channel: int) -> Stmt:
        at, barriers = loop.positions[CONSUMER][channel], loop.barriers[channel]
        origin = origin_at(loop, op, CONSUMER, channel, [barriers.plan.full])
        return with_origin(origin, barriers.wait_full(at))

    def _release(self, loop: RoleLoop, channel: int, slot: Expr) -> Stmt:
        """A thread of each warpgroup arrives at the slot's empty barrier, one for each CTA."""
        barriers = loop.barriers[channel]
        lane = tirx.floormod(self.thread, WARPGROUP)
        at = loop.positions[CONSUMER][channel]
        counter = at.counters[0] if at.before is None else at.before
        origin = Origin(
            op=f"{barriers.plan.empty}.release",
            kind="release",
            block=loop.plan.name,
            phase=PHASE,
            role=CONSUMER,
            iteration=str(loop.form.var.name),
            places=(Place(barriers.plan.empty, str(counter.name)),),
        )
        if self.remote is None:
            given, who = barriers.release(slot), tirx.EQ(lane, i32(0))
        else:
            given = barriers.release_to(slot, lane, self.remote)
            who = lane < self.plan.cluster
        return tirx.IfThenElse(who, with_origin(origin, given), None)

    def _check_consumer(self, loop: RoleLoop, op: OpPlan) -> None:
        found = effects(loop.body(op.name))
        touched = {buf for access in found.accesses for buf in [access.buffer] if is_shared(buf)}
        if touched and (op.kind != "mma" or found.buffers(WRITE) & touched):
            name = next(iter(touched)).name
            raise LoweringError(
                f"cannot slice loop '{loop.plan.name}' by role: '{op.name}' uses '{name}' "
                "otherwise than by wgmma"
            )

    # The producer.

    def _producer(self, role: RolePlan, body: Stmt) -> Stmt:
        inner = self._produce(body)
        if inner is None:
            raise LoweringError("cannot slice the kernel by role: nothing is left to copy")
        places = [at for loop in self.loops.values() for at in loop.positions[PRODUCER]]
        held = [buf for at in places for buf in at.buffers]
        work = block(role.name, seq(*[at.start() for at in places], inner), held)
        one = tirx.EQ(self.thread, i32(role.first))
        return _role(role.name, seq(self._registers(role), tirx.IfThenElse(one, work, None)))

    def _produce(self, stmt: Stmt) -> Stmt | None:
        """What of ``stmt`` leads to copies; None when nothing does."""
        if isinstance(stmt, tirx.For) and stmt in self.loops:
            return self._produce_loop(self.loops[stmt])
        if isinstance(stmt, tirx.For):
            inner = self._produce(stmt.body)
            if inner is None:
                return None
            var = Var(stmt.loop_var.name, stmt.loop_var.ty)
            return rolled(stmt, var, with_var(inner, stmt.loop_var, var))
        if isinstance(stmt, tirx.IfThenElse):
            parts = [self._produce(part) for part in bodies(stmt)]
            if not any(part is not None for part in parts):
                return None
            check_condition(stmt.condition, self.thread)
            other = parts[1] if len(parts) > 1 else None
            return tirx.IfThenElse(stmt.condition, seq(parts[0]), other)
        if isinstance(stmt, SBlockRealize) and const_int(stmt.predicate) != 1:
            inner = self._produce(stmt.block.body)
            if inner is None:
                return None
            check_condition(stmt.predicate, self.thread)
            return tirx.IfThenElse(stmt.predicate, inner, None)
        found = [self._produce(part) for part in bodies(stmt)]
        return seq(*found) if any(part is not None for part in found) else None

    def _produce_loop(self, loop: RoleLoop) -> Stmt:
        form, places = loop.form, loop.positions[PRODUCER]
        var = Var(form.var.name, form.var.ty)
        steps: list[Stmt] = []
        started: set[int] = set()
        for op in sorted(loop.plan.ops, key=lambda op: op.order):
            if op.role != PRODUCER:
                continue
            (filled,) = effects(loop.body(op.name)).buffers(WRITE)
            channel = loop.channel(filled)
            if channel not in started:
                started.add(channel)
                at, barriers = places[channel], loop.barriers[channel]
                full, empty = barriers.plan.full, barriers.plan.empty
                waits = origin_at(loop, op, PRODUCER, channel, [empty])
                waits = replace(waits, op=f"{empty}.wait", kind="wait")
                expects = origin_at(loop, op, PRODUCER, channel, [full])
                expects = replace(expects, op=f"{full}.expect", kind="expect")
                steps.append(with_origin(waits, barriers.wait_empty(at)))
                steps.append(with_origin(expects, barriers.expect(at)))
            steps.append(self._instance(loop, op, PRODUCER, var))
        steps += [at.advance() for at in places]
        return rolled(form.node, var, seq(*steps))

    # Both.

    def _instance(self, loop: RoleLoop, op: OpPlan, role: str, var: Var) -> Stmt:
        """``op`` on the slots where ``role`` is."""
        places = loop.positions[role]
        names = loop.form.buffer_names()
        slots: dict[Buffer, tuple[Ring, Expr]] = {
            buf: (ring, places[loop.channel(buf)].slot) for buf, ring in loop.rings.items()
        }
        for barriers, at in zip(loop.barriers, places):
            full = next(b for b, ring in loop.fulls.items() if ring.slots.same_as(barriers.full))
            slots[full] = loop.fulls[full], at.slot
        body = loop.body(op.name)
        used = [names[buf] for buf in loop.rings if uses(body, [buf])]
        fresh = definitions(body) if role == PRODUCER else []
        stmt = instantiate(body, {loop.form.var: var}, fresh, slots)
        assert self.descriptors is not None
        stmt = self.descriptors.rewrite(stmt)
        return with_origin(origin_at(loop, op, role, 0, tuple(used)), stmt)

    def _registers(self, role: RolePlan) -> Stmt | None:
        if not role.registers:
            return None
        groups = self.plan.role(CONSUMER).threads // WARPGROUP
        way = "inc" if role.registers > launch_registers(self.machine, groups) else "dec"
        return tirx.Evaluate(T.ptx[f"setmaxnreg.{way}.sync.aligned.u32"](role.registers))


def with_roles(plan: KernelPlan) -> KernelPlan:
    """``plan`` with the role of every scheduled op, and mbarriers on the edges between roles."""
    if not plan.roles:
        return plan
    copied = set(plan.role(PRODUCER).ops)

    def assigned(loop: LoopPlan) -> LoopPlan:
        ops = tuple(
            replace(op, role=PRODUCER if op.name in copied else CONSUMER) for op in loop.ops
        )
        edges = tuple(
            replace(edge, sync="mbarrier") if edge.sync == "cp_async" else edge
            for edge in loop.edges
        )
        return replace(loop, ops=ops, edges=edges)

    return replace(
        plan, loops=tuple(assigned(loop) if loop.pipelined else loop for loop in plan.loops)
    )


def _role(name: str, body: Stmt) -> Stmt:
    return tirx.AttrStmt(StringImm(name), ROLE_ATTR, StringImm(name), body)
