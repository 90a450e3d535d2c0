"""Slots that a schedule cannot put to use are not allocated, and the plan does not speak of them.

    for k: poll(k), copy(k), multiply(k)        three slots pay, and two are ever in use

How many pay is known before the loop is scheduled; how far copies may go ahead is known behind it:
none goes above what the loop polls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..diagnostics import Reason
from ..plan import LoopPlan
from .dependence import FENCE
from .effects import effects
from .ir import is_shared
from .modulo import slots_used
from .modulo_verify import verify

if TYPE_CHECKING:
    import networkx as nx

FEWEST: Final = 2
"""Slots of a ring: one is filled while the other is read."""


def with_slots_used(graph: nx.MultiDiGraph, plan: LoopPlan, node: Any) -> LoopPlan:
    """``plan`` of loop ``node`` without slots of shared memory that no tile is ever in.

    Two stay where there were as many: copies go to one while the other is read, and no barrier
    stands between. Those that were asked for stay, as ``schedule_loop`` refuses what has no use.
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
    """Why every value of loop ``node`` is used in the step that makes it; None: some is later.

    A schedule may then still move what makes none: a wait for others to the step before.
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
    """Why copies of loop ``node`` go no further ahead."""
    found = effects(node.body)
    polled = sorted(str(buf.name) for buf in found.polled.difference(found.allocated))
    if polled:
        return Reason("ahead.polled", buffer=polled[0])
    fence = found.why_fence()
    return Reason("ahead.none") if fence is None else Reason("ahead.fence", fence=fence)
