"""A warp-specialised kernel as its roles see it: loops, tiles that are copied before, positions.

an op of a loop, for one role   =>   the op of an iteration, on the slots of that role's position
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import tirx

from ...machine import WARP
from ...mechanisms.roles import released_to
from ...plan import CONSUMER, PRODUCER, KernelPlan, MbarrierPair, OpPlan
from ...values.op import Op
from ...values.origin import STEADY
from ..expand.rings import Ring, definitions, instantiate
from ..ir.nodes import (
    Buffer,
    Expr,
    Stmt,
    Var,
    i32,
    variables,
    with_origin,
)
from ..matmul.descriptors import Descriptors
from ..sync.mbarriers import Position
from .before import CopiedBefore
from .ping_pong import PingPong
from .role_loops import RoleLoop, origin_at


@dataclass(frozen=True)
class SpecialisedKernel:
    """A warp-specialised kernel, whose threads, numbered ``thread``, have the roles of ``plan``.

    ``loops``: by their nodes. ``rank``: of a CTA in its cluster. ``remote``: in a cluster, a
    register for the address of another CTA's mbarrier. ``stages``: shared memory that results are
    staged through. ``ping_pong``: the order of consumer warpgroups that alternate on tiles.
    ``before``: tiles that are copied before the loops.
    """

    plan: KernelPlan
    thread: Var
    loops: Mapping[Any, RoleLoop]
    descriptors: Descriptors
    rank: Var | None
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
        plan = loop.barriers[pair].plan
        return plan.arrivals == warps * len(self._released_to(plan))

    def is_own(self, pair: MbarrierPair) -> bool:
        """Whether a CTA alone fills its slots of ``pair``."""
        return len(self._released_to(pair)) == 1

    def fills(self, rank: Expr, pair: MbarrierPair) -> Expr:
        """Whether there is a CTA of that rank in the cluster that fills this one's slots."""
        ranks, cluster = self._released_to(pair), self.plan.cluster
        there = rank < cluster
        if len(ranks) == cluster or self.rank is None:
            return there
        differing = tirx.bitwise_xor(rank, self.rank)
        bits = i32(sum(1 << one for one in ranks))
        fills = tirx.EQ(tirx.bitwise_and(tirx.shift_right(bits, differing), i32(1)), i32(1))
        return tirx.And(there, fills)

    def _released_to(self, pair: MbarrierPair) -> tuple[int, ...]:
        return released_to(pair, self.plan.copies, self.plan.cluster)

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
