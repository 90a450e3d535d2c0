"""Schedule a loop whose copies are a role's of its own: consumers run a step in program order.

    K = ..; V = ..; S = Q K; m = max of S; ..; O += P V
 => stage 0: copies                        the producer, as far ahead as there are slots
    stage D - 1: S, m, .., O               the consumers, one step after the other

A modulo schedule overlaps what one thread issues. Here the copies of later steps are in flight
while consumers compute, whatever the order; and warpgroups that share out the rows overlap each
other: one multiplies while the other does arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ScheduleRefused
from ...machine import Machine
from ...plan import LoopPlan, OpPlan
from ..ir.nodes import is_shared
from ..sync.waits import insert_waits
from .modulo import edge_plans, planned_depths, ring_plan
from .modulo_verify import verify
from .op_costs import op_costs

if TYPE_CHECKING:
    import networkx as nx


def computes_between(graph: nx.MultiDiGraph) -> bool:
    """Whether the loop of ``graph`` does more than copy and multiply, all of it in registers."""
    rings = graph.graph["rings"]
    nodes = [node for _, node in graph.nodes(data=True) if node["kind"] not in ("copy", "mma")]
    written = {rings[name] for node in nodes for name in node["writes"] if name in rings}
    return bool(nodes) and not any(map(is_shared, written))


def in_program_order(graph: nx.MultiDiGraph, plan: LoopPlan, machine: Machine) -> LoopPlan:
    """Return ``plan`` with its copies ahead by the depth of their rings, all else in order."""
    reasons = list(plan.reasons)
    depths = planned_depths(graph, plan, reasons)
    copies, others = list[OpPlan](), list[OpPlan]()
    for op in op_costs(graph, plan, machine):
        (copies if graph.nodes[op.name]["kind"] == "copy" else others).append(op)
    filled = {name for op in copies for name in graph.nodes[op.name]["writes"]}
    last = min((depth for name, depth in depths.items() if name in filled), default=1) - 1
    cycle = 0
    computed: list[OpPlan] = []
    for op in others:
        computed.append(replace(op, stage=last, cycle=cycle))
        cycle += op.latency
    copied = [replace(op, stage=0, cycle=0) for op in copies]
    listed = [*computed, *copied] if last else [*copied, *computed]  # of one slot nothing is ahead
    ops = [replace(op, order=at) for at, op in enumerate(listed)]
    load: dict[str, int] = {}
    for op in ops:
        load[op.pipe] = load.get(op.pipe, 0) + op.occupancy
    interval = max(cycle, *load.values())  # short steps wait for their copies
    ordered = insert_waits(graph, ops, in_groups=False)
    rings = tuple(
        ring_plan(graph, name, depths.get(name, 1), plan) for name in graph.graph["rings"]
    )
    done = replace(
        plan,
        pipelined=True,
        ops=tuple(ordered),
        edges=edge_plans(graph, ordered, in_groups=False),
        rings=rings,
        ii=interval,
        res_mii=interval,
        rec_mii=interval,
        limiter="program order",
        unroll=1,
        reasons=tuple(reasons),
    )
    verify(graph, done)
    return done


def check_one_stage(graph: nx.MultiDiGraph, given: LoopPlan) -> None:
    """Raise ScheduleRefused if consumers should run parts of one step in several iterations."""
    stages = {
        op.name: op.stage
        for op in given.ops
        if op.name in graph and graph.nodes[op.name]["kind"] != "copy"
    }
    if len(set(stages.values())) > 1:
        first, last = min(stages, key=stages.__getitem__), max(stages, key=stages.__getitem__)
        found = {"first": stages[first], "last": stages[last]}
        raise ScheduleRefused("schedule.of_consumers", loop=given.name, ops=(first, last), **found)
