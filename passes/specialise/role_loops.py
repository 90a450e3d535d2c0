"""Describe loops whose iterations are shared by two roles: rings, mbarriers, and positions.

    loop k of a plan with roles   =>   RoleLoop: a ring for each tile, full / empty mbarriers for
                                       each pair, slot and phase of each role in registers

``producer`` and ``consumer`` emit their statements from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import tirx

from ...diagnostics import Reason
from ...errors import LoweringError
from ...machine import WARP
from ...mechanisms.roles import by_warpgroup
from ...plan import CONSUMER, PRODUCER, KernelPlan, LoopPlan, OpPlan
from ...values.op import Op
from ...values.origin import STEADY, Origin, Place
from ..analysis.effects import READ, WRITE, Effects, effects
from ..expand.rings import Ring, definitions, instantiate, make_ring
from ..ir.kernels import bodies
from ..ir.nodes import (
    Buffer,
    Call,
    Expr,
    ForKind,
    Stmt,
    TensorLoad,
    Var,
    collect,
    has,
    is_buffer_var,
    is_private,
    is_shared,
    op_of,
    uses,
    variables,
    with_origin,
)
from ..ir.op_form import OpLoop
from ..matmul.descriptors import Descriptors
from ..matmul.zero_init import accumulators, begin_always, zeroes
from ..sync.mbarriers import Barriers, Position
from .before import CopiedBefore
from .in_flight import WgmmaGroup, WgmmasInFlight, groups_of
from .ping_pong import PingPong
from .read_ahead import reads_ahead


@dataclass
class RoleLoop:
    """A loop with mbarrier pairs: its form, rings, and the position of each role in each pair.

    ``late``: slots are released one step late. ``staged``: consumers do the first stage of their
    ops for the iteration ahead of that of the others.
    """

    form: OpLoop
    plan: LoopPlan
    barriers: tuple[Barriers, ...]
    rings: dict[Buffer, Ring]
    fulls: dict[Buffer, Ring]
    late: bool
    staged: bool
    positions: dict[str, tuple[Position, ...]]
    zeroes: bool = False
    _effects: dict[Op, Effects] = field(default_factory=dict)

    def body(self, name: Op) -> Stmt:
        """Return the statement of an op."""
        return dict(self.form.ops)[name]

    def effects(self, name: Op) -> Effects:
        """Return the effects of an op's statement."""
        if name not in self._effects:
            self._effects[name] = effects(self.body(name))
        return self._effects[name]

    def consumed(self) -> list[OpPlan]:
        """Return what consumers run of a step, in order, without what starts sums from zero."""
        ops = sorted(self.plan.ops, key=lambda op: op.order)
        return [op for op in ops if op.role != PRODUCER and op.name not in self.started]

    @cached_property
    def started(self) -> dict[Op, Op]:
        """The ops that set to zero what the matmul of the same step is the next to touch, by op."""
        ops = [op for op in sorted(self.plan.ops, key=lambda op: op.order) if op.kind != "wait"]
        found: dict[Op, Op] = {}
        for at, op in enumerate(ops):
            if op.role == PRODUCER or op.kind == "mma":
                continue
            stored = self.effects(op.name).buffers(WRITE)
            users = [o for o in ops[at + 1 :] if stored & set(variables(self.body(o.name)))]
            first = users[0] if users else op
            if first.kind != "mma" or not begin_always(self.body(first.name)):
                continue
            if zeroes(self.body(op.name), self.sums(first)):
                found[op.name] = first.name
        return found

    def sums(self, op: OpPlan) -> dict[Buffer, int]:
        """Return the accumulators of ``op``, with their elements."""
        return accumulators(self.body(op.name))

    def group(self, op: OpPlan) -> WgmmaGroup:
        """Return the wgmmas of ``op`` as groups in flight."""
        body = self.body(op.name)
        registers = frozenset(var for var in variables(body) if _is_register(var))
        return WgmmaGroup(op.name, groups_of(body), registers, tuple(self._last_read_by(op)))

    def registers(self, op: OpPlan) -> set[Buffer]:
        """Return the registers that ``op`` touches."""
        return {var for var in variables(self.body(op.name)) if _is_register(var)}

    def behind(self, op: OpPlan) -> bool:
        """Whether consumers do ``op`` for the iteration before the one that they wait for."""
        return op.stage > min(one.stage for one in self.plan.ops if one.role != PRODUCER)

    def read_behind(self, *, every: bool) -> set[int]:
        """Return the mbarrier pairs with slots that are read for the iteration before.

        ``every``: all pairs have, wherever the loop works on two iterations.
        """
        deep = {at for at, made in enumerate(self.barriers) if made.plan.depth > 1}
        if every:
            return deep if self.staged else set()
        ops = [op for op in self.consumed() if op.kind != "wait" and self.behind(op)]
        read = {var for op in ops for var in variables(self.body(op.name))}
        return {self.pair(ring) for ring in self.rings if ring in read} & deep

    def _last_read_by(self, op: OpPlan) -> list[int]:
        """Return the mbarrier pairs of which ``op`` is the last of a step to read slots."""
        last: dict[int, Op] = {}
        for other in self.consumed():
            if other.kind == "mma":
                inside = variables(self.body(other.name))
                last |= {self.pair(ring): other.name for ring in self.rings if ring in inside}
        own = [pair for pair, reader in last.items() if reader == op.name]
        return [pair for pair in sorted(own) if self.barriers[pair].empty is not None]

    @cached_property
    def lanes(self) -> dict[int, Op]:
        """The mbarrier pairs whose slots statements read themselves, with the last of a step."""
        found: dict[int, Op] = {}
        for op in self.consumed():
            if op.kind not in ("wait", "mma"):
                read = self.effects(op.name).buffers(READ)
                found |= {self.pair(ring): op.name for ring in self.rings if ring in read}
        return found

    def reads_under(self, op: OpPlan) -> bool:
        """Whether threads read slots in ``op`` behind the last matmul of its step.

        The wait for the matmuls of the step before then stands between the two. The slots of that
        step are released sooner, and ptxas, which would move the first half of ``op`` to before
        the second wgmma, moves nothing past a wait (13.0).
        """
        ops = self.consumed()
        behind = ops[ops.index(op) + 1 :]
        reads = self.effects(op.name).buffers(READ) & set(self.rings)
        return bool(reads) and not any(later.kind == "mma" for later in behind)

    def left_in_flight(self) -> list[int]:
        """Return the mbarrier pairs whose slots are released in the step after they are read."""
        if not self.late:
            return []
        flight = WgmmasInFlight()
        for op in self.consumed():
            if op.kind == "mma":
                flight.groups.append(self.group(op))
            elif op.kind != "wait":
                flight.done_for(self.registers(op))
        return [pair for group in flight.groups for pair in group.pairs]

    def pair(self, ring: Buffer) -> int:
        """Return which mbarrier pair synchronises the slots of ``ring``."""
        names = self.form.buffer_names()
        return next(i for i, b in enumerate(self.barriers) if names[ring] in b.plan.rings)


@dataclass(frozen=True)
class SpecialisedKernel:
    """A warp-specialised kernel, whose threads, numbered ``thread``, have the roles of ``plan``.

    ``loops``: by their nodes. ``remote``: in a cluster, a register for the address of another CTA's
    mbarrier. ``stages``: shared memory that results are staged through. ``ping_pong``: the order of
    consumer warpgroups that alternate on tiles. ``before``: tiles that are copied before the loops.
    """

    plan: KernelPlan
    thread: Var
    loops: Mapping[Any, RoleLoop]
    descriptors: Descriptors
    remote: Buffer | None
    stages: Sequence[Buffer] = ()
    ping_pong: PingPong | None = None
    before: Mapping[Op, CopiedBefore] = field(default_factory=dict)

    def places(self, role: str) -> list[Position]:
        """Return the position of ``role`` in every mbarrier pair whose slots are filled again."""
        channels = [one.positions[role] for one in self.before.values() if one.positions]
        return [*channels, *(at for loop in self.loops.values() for at in loop.positions[role])]

    def tiles_of(self, var: Var) -> list[CopiedBefore]:
        """Return what is copied in each iteration of the loop of ``var``, to be released there."""
        return [one for one in self.before.values() if var.same_as(one.around)]

    def last_read(self, loop: RoleLoop) -> list[CopiedBefore]:
        """Return the tiles of the tile loop around that ``loop`` alone reads."""
        return [one for one in self.before.values() if loop.form.var.same_as(one.reader)]

    def is_by_warp(self, loop: RoleLoop, pair: int) -> bool:
        """Whether each warp of a warpgroup releases the slots of ``pair``, as the plan counts."""
        role = self.plan.role(CONSUMER)
        warps = role.threads // role.ping_pong_groups // WARP
        return loop.barriers[pair].plan.arrivals == warps * self.plan.cluster

    def instance(
        self,
        loop: RoleLoop,
        op: OpPlan,
        role: str,
        iteration: Expr,
        *,
        behind: bool = False,
        phase: str = STEADY,
        again: bool = False,
    ) -> Stmt:
        """Return ``op`` of one iteration on the slots of ``role``'s position.

        ``behind``: on those of the step before. ``again``: it is not the only instance, so that
        what it defines is new.
        """
        places = loop.positions[role]
        names = loop.form.buffer_names()
        slots: dict[Buffer, tuple[Ring, Expr]] = {
            buf: (ring, places[loop.pair(buf)].at(behind=behind))
            for buf, ring in loop.rings.items()
        }
        for barriers, at in zip(loop.barriers, places):
            full = next(b for b, ring in loop.fulls.items() if ring.slots.same_as(barriers.full))
            slots[full] = loop.fulls[full], at.slot
        body = loop.body(op.name)
        inside = variables(body)
        used = [names[buf] for buf in loop.rings if buf in inside]
        fresh = definitions(body) if role == PRODUCER or again else []
        stmt = instantiate(body, {loop.form.var: iteration}, fresh, slots)
        stmt = self.descriptors.rewrite(stmt)
        origin = origin_at(loop, op, role, 0, tuple(used), behind=behind)
        return with_origin(replace(origin, phase=phase, iteration=str(iteration)), stmt)


def role_loop(form: OpLoop, loop: LoopPlan, plan: KernelPlan, fulls: dict[str, Buffer]) -> RoleLoop:
    """Return ``loop`` in op form with new rings and mbarriers.

    ``fulls``: the placeholders of the mbarriers that its copies arrive at.
    """
    pairs = [c for c in plan.mbarriers if c.loop == loop.name]
    if not pairs:
        raise LoweringError("role.loop", loop=loop.name, why=Reason("role.no_mbarriers"))
    barriers = tuple(Barriers.of(pair) for pair in pairs)
    depths = {name: pair.depth for pair in pairs for name in pair.rings}
    rings = {
        buf: make_ring(buf, depths[name], form.node.body)
        for buf, name in form.buffer_names().items()
        if name in depths
    }
    placed = {
        fulls[made.plan.full]: Ring(fulls[made.plan.full], made.full, made.plan.depth, 1)
        for made in barriers
    }
    in_flight = min((matmul.in_flight for matmul in plan.matmuls), default=0)
    staged = reads_ahead(loop.ops)
    by_warp = not by_warpgroup(plan.matmuls)
    late = in_flight > 0 and min(depths.values()) > 1 and (by_warp or not staged)
    made = RoleLoop(form, loop, barriers, rings, placed, late, staged, {})
    kept = {*made.left_in_flight(), *made.read_behind(every=by_warp)}

    def keeps_slot(role: str, number: int) -> bool:
        """Whether the slot of the step before is used in the next."""
        return role == CONSUMER and number in kept

    made.positions = {
        role: tuple(
            Position.of(role, pair, late=keeps_slot(role, n)) for n, pair in enumerate(pairs)
        )
        for role in (PRODUCER, CONSUMER)
    }
    return made


def op_names(loop: LoopPlan) -> list[Op]:
    """Return the ops of a loop that have statements."""
    return [op.name for op in loop.ops if op.kind != "wait"]


def awaited(loop: RoleLoop, op: OpPlan) -> list[int]:
    """Return the mbarrier pairs whose slots a wait is for."""
    members = {edge.src for edge in loop.plan.edges if edge.dst == op.name}
    rings = {buf for name in members for buf in loop.effects(name).buffers(WRITE)}
    return sorted({loop.pair(ring) for ring in rings})


def origin_at(
    loop: RoleLoop,
    op: OpPlan,
    role: str,
    pair: int,
    rings: Sequence[str],
    *,
    behind: bool = False,
) -> Origin:
    """Return the origin of ``op`` run by ``role``, with its current slots of ``rings``.

    ``behind``: with those of the step before.
    """
    slot = loop.positions[role][pair].register(behind=behind).name
    return Origin(
        op=op.name,
        kind=op.kind,
        block=op.block,
        stage=op.stage,
        phase=STEADY,  # such a loop has no prologue or epilogue
        role=role,
        iteration=str(loop.form.var.name),
        places=tuple(Place(name, str(slot)) for name in rings),
    )


def rolled(loop: Any, var: Var, body: Stmt, extent: Expr | None = None) -> Stmt:
    """Return ``loop`` with another body (and ``extent``), which nvcc does not unroll."""
    annotations = {"disable_unroll": True}
    times = loop.extent if extent is None else extent
    return tirx.For(var, loop.min, times, ForKind.SERIAL, body, None, annotations)


def with_var(stmt: Stmt, old: Var, new: Var) -> Stmt:
    """Return ``stmt`` with another loop variable."""
    return tvm_ffi.structural_map(
        stmt, [(Var, lambda v: new if v.same_as(old) else v)], order="post"
    )


def holds(stmt: Stmt, loop: Any) -> bool:
    """Whether ``loop`` is inside ``stmt``."""
    return has(stmt, tirx.For, lambda node: bool(node.same_as(loop)))


def shared_outside(body: Stmt, loops: set[Any], ops: Collection[Op]) -> list[str]:
    """Return the names of the shared buffers that are used outside ``loops`` and ``ops``."""
    if (isinstance(body, tirx.For) and body in loops) or op_of(body) in ops:
        return []
    inner = bodies(body)
    if inner:
        return [name for part in inner for name in shared_outside(part, loops, ops)]
    return [str(var.name) for var in collect(body, Var, _is_shared_buffer)]


def _is_register(var: Any) -> bool:
    return is_buffer_var(var) and is_private(var)


def _is_shared_buffer(var: Any) -> bool:
    return is_buffer_var(var) and is_shared(var)


def check_condition(condition: Expr, thread: Any) -> None:
    """Check that every thread agrees on a condition around a loop with mbarrier pairs."""
    if has(condition, (TensorLoad, Call)) or uses(condition, [thread]):
        why = Reason("role.condition", condition=str(condition))
        raise LoweringError("role.kernel", why=why)


def shared_by(loop: RoleLoop, op: OpPlan) -> set[Buffer]:
    """Return the shared memory that ``op`` accesses; a wait accesses none."""
    if op.kind == "wait":
        return set()
    accessed = {access.buffer for access in loop.effects(op.name).accesses}
    return {buf for buf in accessed if is_shared(buf)}
