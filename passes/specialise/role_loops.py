"""Describe loops whose iterations are shared by two roles: rings, mbarriers, and positions.

    loop k of a plan with roles   =>   RoleLoop: a ring for each tile, full / empty mbarriers for
                                       each pair, slot and phase of each role in registers

``producer`` and ``consumer`` emit their statements from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...diagnostics import Reason
from ...errors import LoweringError
from ...mechanisms.roles import by_warpgroup
from ...plan import CONSUMER, PRODUCER, KernelPlan, LoopPlan, OpPlan
from ...values.op import Op
from ...values.origin import STEADY, Origin, Place
from ..analysis.effects import READ, WRITE, Effects, effects
from ..expand.rings import Ring, make_ring
from ..ir.nodes import (
    Buffer,
    Stmt,
    is_buffer_var,
    is_private,
    is_shared,
    variables,
)
from ..ir.op_form import OpLoop
from ..matmul.zero_init import accumulators, begin_always, zeroes
from ..sync.mbarriers import Barriers, Position
from .in_flight import WgmmaGroup, WgmmasInFlight, groups_of
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
        return [pair for group in self._left().groups for pair in group.pairs]

    def begins_with_wait(self) -> bool:
        """Whether a step first waits for the matmuls before: none need be in flight between steps.

        ptxas would make each of those wait for the one before (13.0: C7514).
        """
        first = next((op for op in self.consumed() if op.kind != "wait"), None)
        touched = set() if first is None or first.kind == "mma" else self.registers(first)
        return bool(self._left().done_for(touched))

    def _left(self) -> WgmmasInFlight:
        """Return what a step that starts with nothing in flight leaves there."""
        flight = WgmmasInFlight()
        for op in self.consumed():
            if op.kind == "mma":
                flight.groups.append(self.group(op))
            elif op.kind != "wait":
                flight.done_for(self.registers(op))
        return flight

    def pair(self, ring: Buffer) -> int:
        """Return which mbarrier pair synchronises the slots of ``ring``."""
        names = self.form.buffer_names()
        return next(i for i, b in enumerate(self.barriers) if names[ring] in b.plan.rings)


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
    made.late = late and not made.begins_with_wait()
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


def _is_register(var: Any) -> bool:
    return is_buffer_var(var) and is_private(var)


def shared_by(loop: RoleLoop, op: OpPlan) -> set[Buffer]:
    """Return the shared memory that ``op`` accesses; a wait accesses none."""
    if op.kind == "wait":
        return set()
    accessed = {access.buffer for access in loop.effects(op.name).accesses}
    return {buf for buf in accessed if is_shared(buf)}
