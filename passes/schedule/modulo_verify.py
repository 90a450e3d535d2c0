"""Verify a schedule against the dependence graph, sharing no code with what made it.

    edge u -> v of distance d holds  iff  step(v, i + d) > step(u, i), or equal and v is later

At step ``t`` of the pipelined loop an op of stage ``s`` works on iteration ``t - s``, and the ops
of a step run by ``order``. Rings, waits, pipes and clamped copies are checked too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason
from ...errors import ScheduleRefused
from ...plan import LoopPlan, OpPlan
from ...values.op import Op

if TYPE_CHECKING:
    import networkx as nx

_FENCE: Final = "<fence>"

_WHY: Final = {
    "RAW": "edge.RAW",
    "WAR": "edge.WAR",
    "WAW": "edge.WAW",
}


def verify(graph: nx.MultiDiGraph, plan: LoopPlan) -> None:
    """Raise ScheduleRefused, naming the edge, ring or pipe, unless ``plan`` is legal.

    ``graph``: as ``dependence`` made it (without the plan's waits).
    """
    if not plan.pipelined:
        return
    ops = {op.name: op for op in plan.ops}
    _check_ops(graph, plan, ops)
    for src, dst, edge in graph.edges(data=True):
        _check_edge(graph, plan, ops[src], ops[dst], edge)
    _check_rings(graph, plan, ops)
    _check_done(graph, plan, ops)
    _check_waits(graph, plan, ops)
    _check_clamped(graph, plan, ops)
    _check_pipes(plan)


def versions_needed(graph: nx.MultiDiGraph, plan: LoopPlan, buffer: str) -> int:
    """Return how many slots of ``buffer`` the schedule keeps alive at once."""
    nodes = graph.nodes
    users = [op for op in plan.ops if op.name in graph and _touches(nodes[op.name], buffer)]
    writers = [op for op in users if buffer in nodes[op.name]["writes"]]
    return max((_lag(user, writer) for user in users for writer in writers), default=1)


def _touches(node: Mapping[str, Any], buffer: str) -> bool:
    return buffer in node["reads"] or buffer in node["writes"]


def _lag(user: OpPlan, writer: OpPlan) -> int:
    """Return the least V for which ``writer`` of iteration ``i + V`` follows ``user`` of ``i``."""
    return max(1, user.stage - writer.stage + (writer.order < user.order))


def _check_ops(graph: nx.MultiDiGraph, plan: LoopPlan, ops: Mapping[Op, OpPlan]) -> None:
    loop = plan.name
    names = [op.name for op in plan.ops]
    twice = [name for name in ops if names.count(name) > 1]
    if twice:
        raise ScheduleRefused("schedule.op_twice", loop=loop, op=twice[0])
    missing = sorted(set(graph.nodes) - set(ops))
    if missing:
        raise ScheduleRefused("schedule.op_lacks", loop=loop, op=missing[0])
    extra = sorted(op.name for op in plan.ops if op.name not in graph and op.kind != "wait")
    if extra:
        raise ScheduleRefused("schedule.op_unknown", loop=loop, op=extra[0])
    by_order: dict[int, Op] = {}
    for op in plan.ops:
        if op.stage < 0:
            raise ScheduleRefused("schedule.stage", loop=loop, op=op.name, stage=op.stage)
        if op.order in by_order:
            both = by_order[op.order], op.name
            raise ScheduleRefused("schedule.order", loop=loop, ops=both, order=op.order)
        by_order[op.order] = op.name


def _check_edge(
    graph: nx.MultiDiGraph, plan: LoopPlan, src: OpPlan, dst: OpPlan, edge: Mapping[str, object]
) -> None:
    distance, buffer, kind = int(str(edge["distance"])), str(edge["buffer"]), str(edge["kind"])
    if _comes_after(src, dst, distance):
        return
    gap = src.stage - dst.stage - distance
    late = Reason("schedule.earlier_in_step")
    if gap > 0:
        late = Reason("schedule.steps_earlier", steps=gap)
    why = Reason(_WHY[kind], buffer=buffer)
    if buffer == _FENCE:
        why = Reason("edge.fence", op=src.name if src.kind == "opaque" else dst.name)
    refused = Reason(
        "schedule.dependence",
        loop=plan.name,
        op=dst.name,
        iteration=_i(distance),
        after=src.name,
        why=why,
        kind=kind,
        stage=dst.stage,
        order=dst.order,
        late=late,
        after_stage=src.stage,
        after_order=src.order,
    )
    # Whether a second version would have helped.
    if buffer in graph.graph["carried"] or (distance and kind != "RAW"):
        one = why_one_version(graph, buffer)
        refused = Reason("schedule.one_version", refused=refused, buffer=buffer, why=one)
    raise ScheduleRefused(refused)


def why_one_version(graph: nx.MultiDiGraph, buffer: str) -> Reason:
    """Return why ``buffer``, which is no ring of the loop of ``graph``, has one slot."""
    found: Reason = graph.graph["carried"].get(buffer, Reason("version.outside"))
    return found


def _i(distance: int) -> str:
    return f"i + {distance}" if distance else "i"


def _comes_after(src: OpPlan, dst: OpPlan, distance: int) -> bool:
    step = dst.stage + distance - src.stage
    return step > 0 or (step == 0 and (dst.order > src.order or dst.name == src.name))


def _check_rings(graph: nx.MultiDiGraph, plan: LoopPlan, ops: Mapping[Op, OpPlan]) -> None:
    depths = {ring.buffer: ring.depth for ring in plan.rings}
    unknown = sorted(set(depths) - set(graph.graph["rings"]))
    for name in unknown:
        if depths[name] > 1:
            raise no_ring(graph, plan, name, depths[name])
    for name in graph.graph["rings"]:
        depth = depths.get(name, 1)
        users = [ops[op] for op, node in graph.nodes(data=True) if _touches(node, name)]
        for writer in users:
            if name not in graph.nodes[writer.name]["writes"]:
                continue
            for user in users:
                if _lag(user, writer) > depth:
                    raise ScheduleRefused(
                        "ring.overwritten",
                        loop=plan.name,
                        writer=writer.name,
                        depth=depth,
                        buffer=name,
                        user=user.name,
                        needed=_lag(user, writer),
                    )


def no_ring(graph: nx.MultiDiGraph, plan: LoopPlan, buffer: str, slots: int) -> ScheduleRefused:
    """Return the refusal of ``slots`` slots for a buffer that can have only one."""
    why = why_one_version(graph, buffer)
    return ScheduleRefused("ring.slots", buffer=buffer, slots=slots, loop=plan.name, why=why)


def _check_done(graph: nx.MultiDiGraph, plan: LoopPlan, ops: Mapping[Op, OpPlan]) -> None:
    """Check that every step issues what a wait leaves in flight, so that its count is constant."""
    for name, node in graph.nodes(data=True):
        if (ops[name].kind == "mma_wait") != (node["kind"] == "mma_wait"):
            kinds = {"kind": node["kind"], "planned": ops[name].kind}
            raise ScheduleRefused("schedule.kind", loop=plan.name, op=name, **kinds)
    for src, dst, edge in graph.edges(data=True):
        awaited = graph.nodes[dst]["kind"] == "mma_wait" and graph.nodes[src]["kind"] == "mma"
        if not awaited or edge["kind"] != "RAW" or edge["distance"]:
            continue
        if ops[dst].stage > ops[src].stage != plan.ahead:
            raise ScheduleRefused(
                "schedule.left_in_flight",
                loop=plan.name,
                wait=dst,
                wait_stage=ops[dst].stage,
                op=src,
                stage=ops[src].stage,
                last=plan.ahead,
            )


def _check_waits(graph: nx.MultiDiGraph, plan: LoopPlan, ops: Mapping[Op, OpPlan]) -> None:
    """Check for a wait before every use of an asynchronous copy, and every write to its source."""
    waits = [op for op in plan.ops if op.kind == "wait"]
    served = _served(plan, waits)
    for name, node in graph.nodes(data=True):
        if not node["is_async"]:
            continue
        mine = [w for w in waits if name in served[w.name] and _comes_after(ops[name], w, 0)]
        outer = [buf for buf in node["writes"] if buf not in graph.graph["rings"]]
        if outer and not mine:
            raise ScheduleRefused("schedule.not_waited", loop=plan.name, copy=name, buffer=outer[0])
        for _, dst, edge in graph.out_edges(name, data=True):
            distance = edge["distance"]
            if any(_comes_after(wait, ops[dst], distance) for wait in mine):
                continue
            where = {"op": dst, "iteration": _i(distance), "buffer": edge["buffer"], "copy": name}
            if edge["kind"] == "RAW":
                raise ScheduleRefused("schedule.read_before_wait", loop=plan.name, **where)
            raise ScheduleRefused("schedule.overwrite_before_wait", loop=plan.name, **where)


def _check_clamped(graph: nx.MultiDiGraph, plan: LoopPlan, ops: Mapping[Op, OpPlan]) -> None:
    """Check that no op writes what clamped copies read once more.

    What a fence of the function itself lets others write is in ``LoopInfo.overwritten``, from
    recognition. Fences that mapping adds only order what is there.
    """
    if plan.epilogue != "clamped":
        return
    late = {
        name
        for name, node in graph.nodes(data=True)
        if node["is_async"] and ops[name].stage < plan.ahead
    }
    for src, dst, edge in graph.edges(data=True):
        copy, writer = (src, dst) if edge["kind"] == "WAR" else (dst, src)
        if copy not in late or edge["kind"] == "WAW" or edge["buffer"] in graph.graph["rings"]:
            continue
        if edge["buffer"] in graph.nodes[copy]["reads"]:
            clash = {"writer": writer, "buffer": edge["buffer"], "copy": copy}
            raise ScheduleRefused("schedule.clamped", loop=plan.name, **clash)


def _served(plan: LoopPlan, waits: Iterable[OpPlan]) -> dict[Op, set[Op]]:
    served: dict[Op, set[Op]] = {wait.name: set() for wait in waits}
    for edge in plan.edges:
        if edge.dst in served and edge.kind == "RAW" and edge.distance == 0:
            served[edge.dst].add(edge.src)
    return served


def _check_pipes(plan: LoopPlan) -> None:
    """Check that no pipe is busy longer than the interval; without one there are no cycles."""
    if plan.ii == 0:
        return
    load: dict[str, int] = {}
    for op in plan.ops:
        load[op.pipe] = load.get(op.pipe, 0) + op.occupancy
    for pipe, cycles in load.items():
        if pipe != "sync" and cycles > plan.ii:
            raise ScheduleRefused(
                "schedule.pipe", loop=plan.name, pipe=pipe, cycles=cycles, ii=plan.ii
            )
