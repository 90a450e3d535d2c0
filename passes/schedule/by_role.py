"""Schedule a loop whose copies are a role's of its own: consumers run a step in program order.

    K = ..; V = ..; S = Q K; m = max of S; ..; O += P V
 => stage 0: copies                        the producer, as far ahead as there are slots
    stage D - 1: S, m, .., O               the consumers, one step after the other

A modulo schedule overlaps what one thread issues. Here the copies of later steps are in flight
while consumers compute, whatever the order; and warpgroups that share out the rows overlap each
other: one multiplies while the other does arithmetic. Where the last matmul may be in flight when a
step ends, it runs under the arithmetic of the next one (``overlapped``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...diagnostics import Reason, Why
from ...errors import ScheduleRefused
from ...machine import Machine
from ...plan import LoopPlan, MatmulPlan, OpPlan
from ...values.op import Op
from ..ir.nodes import is_shared
from ..sync.waits import insert_waits
from .modulo import edge_plans, planned_depths, ring_plan
from .modulo_verify import verify
from .op_costs import op_costs
from .overlapped import overlapped, waited_early

if TYPE_CHECKING:
    import networkx as nx


def computes_between(graph: nx.MultiDiGraph) -> bool:
    """Whether the loop of ``graph`` does more than copy and multiply, all of it in registers."""
    rings = graph.graph["rings"]
    nodes = [node for _, node in graph.nodes(data=True) if node["kind"] not in ("copy", "mma")]
    written = {rings[name] for node in nodes for name in node["writes"] if name in rings}
    return bool(nodes) and not any(map(is_shared, written))


def computes(graph: nx.MultiDiGraph) -> bool:
    """Whether the loop of ``graph`` multiplies, and does arithmetic beside that."""
    nodes = [node for _, node in graph.nodes(data=True)]
    multiplies = any(node["kind"] == "mma" for node in nodes)
    return multiplies and any(node["kind"] == "compute" for node in nodes)


def in_program_order(
    graph: nx.MultiDiGraph,
    plan: LoopPlan,
    matmuls: Sequence[MatmulPlan],
    machine: Machine,
    *,
    in_groups: bool = False,
) -> LoopPlan:
    """Return ``plan`` with its copies ahead by the depth of their rings, all else in order.

    ``in_groups``: as for ``insert_waits``; the threads that compute issue the copies, too.
    """
    reasons = list(plan.reasons)
    depths = planned_depths(graph, plan, reasons)
    copies, others = list[OpPlan](), list[OpPlan]()
    for op in op_costs(graph, plan, machine):
        (copies if graph.nodes[op.name]["kind"] == "copy" else others).append(op)
    filled = {name for op in copies for name in graph.nodes[op.name]["writes"]}
    last = min((depth for name, depth in depths.items() if name in filled), default=1) - 1
    in_order = [replace(op, stage=last) for op in others]
    if last and any(matmul.in_flight and Op(matmul.op) in graph for matmul in matmuls):
        computed = overlapped(graph, in_order)
        if computed is not in_order:
            late = next(op for op in computed if op.stage > last and op.kind == "mma")
            said = [*reasons, Reason("schedule.overlapped", op=late.name)]
            try:
                return _scheduled(graph, plan, copies, computed, depths, said)
            except ScheduleRefused as err:
                reasons.append(Reason("schedule.not_overlapped", op=late.name, why=err.reason))
    return _scheduled(graph, plan, copies, in_order, depths, reasons, in_groups=in_groups)


def _scheduled(
    graph: nx.MultiDiGraph,
    plan: LoopPlan,
    copies: Sequence[OpPlan],
    consumed: Sequence[OpPlan],
    depths: Mapping[str, int],
    reasons: list[Why],
    *,
    in_groups: bool = False,
) -> LoopPlan:
    """Return ``plan`` with ``consumed``, in that order and their stages, and ``copies`` ahead.

    Raises ScheduleRefused if that is illegal.
    """
    last = min(op.stage for op in consumed)
    computed, cycle = _timed(graph, consumed)
    copied = [replace(op, stage=0, cycle=0) for op in copies]
    listed = [*computed, *copied] if last else [*copied, *computed]  # of one slot nothing is ahead
    ops = [replace(op, order=at) for at, op in enumerate(listed)]
    load: dict[str, int] = {}
    for op in ops:
        load[op.pipe] = load.get(op.pipe, 0) + op.occupancy
    busiest = max(load, key=lambda pipe: (load[pipe], pipe))
    interval = max(cycle, load[busiest])  # short steps wait for their copies
    pipes = sorted(load.items(), key=lambda one: (-one[1], one[0]))
    busy = tuple(Reason("schedule.busy", pipe=pipe, cycles=spent) for pipe, spent in pipes)
    reasons.append(Reason("schedule.pipes", pipes=busy))
    ordered = waited_early(graph, insert_waits(graph, ops, in_groups=in_groups))
    rings = tuple(
        ring_plan(graph, name, depths.get(name, 1), plan) for name in graph.graph["rings"]
    )
    done = replace(
        plan,
        pipelined=True,
        ops=tuple(ordered),
        edges=edge_plans(graph, ordered, in_groups=in_groups),
        rings=rings,
        ii=interval,
        res_mii=load[busiest],
        rec_mii=cycle,
        limiter="program order" if cycle > load[busiest] else busiest,
        unroll=1,
        reasons=tuple(reasons),
    )
    verify(graph, done)
    return done


def _timed(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> tuple[list[OpPlan], int]:
    """Return ``ops``, issued one after the other, with the cycles they start at, and a step's.

    An op waits for those of the step that it depends on; behind a matmul that is issued, others are
    while it runs.
    """
    stages = {op.name: op.stage for op in ops}
    ends: dict[Op, int] = {}
    issued, found = 0, list[OpPlan]()
    for op in ops:
        edges = graph.in_edges(op.name, data=True)
        read = [src for src, _, e in edges if stages.get(src) == op.stage + e["distance"]]
        start = max([issued, *(ends[src] for src in read if src in ends)])
        found.append(replace(op, cycle=start))
        ends[op.name] = start + op.latency
        issued = start if op.kind == "mma" else ends[op.name]
    return found, max(ends.values(), default=0)
