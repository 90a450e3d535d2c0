"""Remove slots that a schedule cannot use, from the allocation and from the plan.

    for k: poll(k), copy(k), multiply(k)        depth 3 chosen, 2 slots used   =>   depth 2

How many slots pay is known before the loop is scheduled. How far copies may run ahead is known only
after it: no copy moves above a poll of the loop, for instance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason
from ...plan import LoopPlan
from ..analysis.effects import effects
from ..dependence.graph import FENCE
from ..ir.nodes import is_shared
from .modulo import slots_used
from .modulo_verify import verify

if TYPE_CHECKING:
    import networkx as nx

FEWEST: Final = 2
"""Least slots of a ring: one is filled while the other is read."""


def with_slots_used(graph: nx.MultiDiGraph, plan: LoopPlan, node: Any) -> LoopPlan:
    """Return ``plan`` of loop ``node`` without slots of shared memory that no tile is ever in.

    At least two stay, if there were as many: copies fill one while the other is read, without a
    barrier between. Requested slots stay too, as ``schedule_loop`` refuses those that have no use.
    """
    fewer: dict[str, int] = {}
    for ring in plan.rings:
        if plan.pipelined and not ring.requested and is_shared(graph.graph["rings"][ring.buffer]):
            used = slots_used(graph, plan, ring.buffer)
            if used is not None and max(used, FEWEST) < ring.depth:
                fewer[ring.buffer] = max(used, FEWEST)
    if not fewer:
        return plan
    said = tuple(
        Reason("ring.has_slots", buffer=ring.buffer, slots=fewer[ring.buffer], planned=ring.depth)
        for ring in plan.rings
        if ring.buffer in fewer
    )
    why = Reason("ring.fewer_slots", rings=said, why=_why(node))
    rings = (replace(ring, depth=fewer.get(ring.buffer, ring.depth)) for ring in plan.rings)
    made = replace(plan, rings=tuple(rings), reasons=(*plan.reasons, why))
    verify(graph, made)
    return made


def why_no_overlap(graph: nx.MultiDiGraph, plan: LoopPlan, node: Any) -> Reason | None:
    """Return why every value of loop ``node`` is used in the step that makes it, or None.

    Such a schedule may still move an op that makes no value, such as a wait for others, to the step
    before.
    """
    if not plan.pipelined or not any(ring.depth > 1 for ring in plan.rings):
        return None
    stages = {op.name: op.stage for op in plan.ops}
    steps = [
        stages[user] - stages[source]
        for source, user, edge in graph.edges(data=True)
        if edge["kind"] == "RAW" and edge["distance"] == 0 and edge["buffer"] != FENCE
    ]
    if not steps or any(steps):
        return None
    return Reason("schedule.no_overlap", loop=plan.name, why=_why(node))


def _why(node: Any) -> Reason:
    """Return why copies of loop ``node`` run no further ahead."""
    found = effects(node.body)
    polled = sorted(str(buf.name) for buf in found.polled.difference(found.allocated))
    if polled:
        return Reason("ahead.polled", buffer=polled[0])
    fence = found.why_fence()
    return Reason("ahead.none") if fence is None else Reason("ahead.fence", fence=fence)
