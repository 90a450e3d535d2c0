"""Place the waits for asynchronous copies in a step.

    copy A, copy B, use A and B    =>    copy A, copy B, wait, use A and B

Copies that are consumed together share a wait. It stands directly before the first consumer, in
that consumer's stage. An early copy that would stand between the consumers of two steps moves
behind a wait at the start of the step, so that one barrier after the wait orders both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...plan import EdgePlan, OpPlan
from ...values.op import Op

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class _Group:
    """Copies that one wait serves; ``stage`` and ``position`` are those of its first consumer."""

    members: list[Op]
    stage: int
    position: int


def insert_waits(
    graph: nx.MultiDiGraph, ops: Sequence[OpPlan], *, in_groups: bool = True
) -> list[OpPlan]:
    """Return ``ops`` (in order) with wait ops inserted, renumbered.

    ``in_groups``: copies are committed in groups, of which a wait for one is also for those before;
    else each lands at an mbarrier.
    """
    listed = list(ops)
    for group in sorted(
        _groups(graph, ops, in_groups=in_groups), key=lambda g: g.position, reverse=True
    ):
        consumer = ops[group.position] if group.position < len(ops) else ops[-1]
        wait = OpPlan(
            name=group.members[0].wait(),
            kind="wait",
            block=group.members[0],
            pipe="sync",
            latency=1,
            occupancy=1,
            cycle=consumer.cycle,
            stage=group.stage,
        )
        listed.insert(group.position, wait)
    leading = _leading_waits(graph, listed) if in_groups else []
    if leading:
        listed = leading + [op for op in listed if op not in leading]
    return [dataclasses.replace(op, order=position) for position, op in enumerate(listed)]


def wait_edges(
    graph: nx.MultiDiGraph, ops: Sequence[OpPlan], *, in_groups: bool = True
) -> tuple[EdgePlan, ...]:
    """Return the edges copy -> wait -> consumer for each wait among ``ops``."""
    edges: list[EdgePlan] = []
    plain = [op for op in ops if op.kind != "wait"]
    for group in _groups(graph, plain, in_groups=in_groups):
        wait = group.members[0].wait()
        for name in group.members:
            buffers = graph.nodes[name]["writes"]
            edges += [EdgePlan(name, wait, "RAW", b, 0, "cp_async") for b in buffers]
            edges += [
                EdgePlan(wait, dst, edge["kind"], edge["buffer"], edge["distance"])
                for _, dst, edge in _uses(graph, name)
            ]
    return tuple(dict.fromkeys(edges))


def _uses(graph: nx.MultiDiGraph, copy: Op) -> list[tuple[Op, Op, Any]]:
    """Return the edges to ops that need the copy to have landed.

    Those are what reads its target, what writes there next, and what overwrites its source, which
    it reads until then.
    """
    return list(graph.out_edges(copy, data=True))


def _groups(graph: nx.MultiDiGraph, ops: Sequence[OpPlan], *, in_groups: bool) -> list[_Group]:
    """Return groups of asynchronous copies consumed together, and where their wait stands."""
    at = {op.name: (op.stage, position) for position, op in enumerate(ops)}
    last = max((op.stage for op in ops), default=0), len(ops)
    firsts: list[tuple[tuple[int, int], Op]] = []
    for op in ops:
        if not graph.nodes[op.name]["is_async"]:
            continue
        found = _uses(graph, op.name)
        uses = [(at[dst][0] + edge["distance"], at[dst][1]) for _, dst, edge in found]
        # Who overwrites its source does not use what it has copied.
        used = any(edge["kind"] != "WAR" for _, _, edge in found)
        outlives = any(name not in graph.graph["rings"] for name in graph.nodes[op.name]["writes"])
        if used or outlives:
            # What is used after the last stage, or after the loop, is waited for in the last stage.
            firsts.append((min([*uses, last]), op.name))
        else:  # not read, but its slot is filled again: it must land before
            stage, position = at[op.name]
            firsts.append(((stage, position + 1), op.name))
    groups: list[_Group] = []
    for (stage, position), name in sorted(firsts):
        if groups and _can_share(
            graph, ops, groups[-1], stage, position, name, in_groups=in_groups
        ):
            groups[-1].members.append(name)
        else:
            groups.append(_Group([name], stage, position))
    return groups


def _can_share(
    graph: nx.MultiDiGraph,
    ops: Sequence[OpPlan],
    group: _Group,
    stage: int,
    position: int,
    name: Op,
    *,
    in_groups: bool,
) -> bool:
    """Whether the copy comes before the wait, which then waits for little more than it did.

    It waits for nothing more if they are committed together. Otherwise only loads may stand between
    the first consumers; what the plan costs as a load may also round what it has loaded, or permute
    its bytes.
    """
    at = {op.name: (op.stage, place) for place, op in enumerate(ops)}
    if stage != group.stage or at[name] >= (group.stage, group.position):
        return False
    sides = {(at[copy][0], at[copy][1] < group.position) for copy in (name, *group.members)}
    between = ops[group.position : position]
    return (in_groups and len(sides) == 1) or all(
        op.pipe == "lsu" or graph.nodes[op.name]["kind"] in ("load", "copy") for op in between
    )


def _leading_waits(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> list[OpPlan]:
    """Return the waits behind only copies of later iterations: they go to the front of a step."""
    leading: list[OpPlan] = []
    copies: list[OpPlan] = []
    served = {edge.dst: set[Op]() for edge in wait_edges(graph, ops)}
    for edge in wait_edges(graph, ops):
        served[edge.dst].add(edge.src)
    for op in ops:
        if op.kind == "wait":
            if any(copy.name in served[op.name] and copy.stage >= op.stage for copy in copies):
                return leading
            leading.append(op)
        elif graph.nodes[op.name]["kind"] in ("copy",) or graph.nodes[op.name]["is_global_load"]:
            copies.append(op)
        else:
            return leading
    return leading
