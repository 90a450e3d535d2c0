"""Where the waits for asynchronous copies stand in a step.

Copies that are consumed together share a wait. It stands directly before the first consumer, in
that consumer's stage; an early copy that would stand between two steps' consumers moves behind a
wait at the start of the step, so that the one barrier after the wait orders both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plan import EdgePlan, OpPlan

if TYPE_CHECKING:
    import networkx as nx

WAIT_SUFFIX = ".wait"


def insert_waits(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> list[OpPlan]:
    """``ops`` (in order) with wait ops inserted, renumbered; the others keep their order.

    A wait that only copies of later iterations precede goes before them: the barrier behind it then
    orders those copies too, and one a step is enough.
    """
    listed = list(ops)
    for members, consumer in _groups(graph, listed):
        wait = OpPlan(
            name=members[0] + WAIT_SUFFIX,
            kind="wait",
            block=members[0],
            pipe="sync",
            latency=1,
            occupancy=1,
            cycle=consumer.cycle,
            stage=consumer.stage,
        )
        listed.insert(listed.index(consumer), wait)
    leading = _leading_waits(graph, listed)
    if leading:
        listed = leading + [op for op in listed if op not in leading]
    return [dataclasses.replace(op, order=position) for position, op in enumerate(listed)]


def wait_edges(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> tuple[EdgePlan, ...]:
    """Copy -> wait -> consumer, for each wait among ``ops``."""
    edges: list[EdgePlan] = []
    plain = [op for op in ops if op.kind != "wait"]
    for members, _ in _groups(graph, plain):
        wait = members[0] + WAIT_SUFFIX
        for name in members:
            buffers = graph.nodes[name]["writes"]
            edges += [EdgePlan(name, wait, "RAW", b, 0, "cp_async") for b in buffers]
            edges += [
                EdgePlan(wait, dst, "RAW", edge["buffer"], 0)
                for _, dst, edge in graph.out_edges(name, data=True)
                if edge["kind"] == "RAW" and edge["distance"] == 0
            ]
    return tuple(dict.fromkeys(edges))


def _groups(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> list[tuple[list[str], OpPlan]]:
    """Async copies consumed together, with their first consumer."""
    at = {op.name: (op.stage, position) for position, op in enumerate(ops)}
    firsts: list[tuple[tuple[int, int], str]] = []
    for op in ops:
        if not graph.nodes[op.name]["is_async"]:
            continue
        consumers = [
            at[dst]
            for _, dst, edge in graph.out_edges(op.name, data=True)
            if edge["kind"] == "RAW" and edge["distance"] == 0
        ]
        if consumers:
            firsts.append((min(consumers), op.name))
    groups: list[tuple[list[str], OpPlan]] = []
    last = (-1, -1)
    for (stage, position), name in sorted(firsts):
        between = range(last[1], position) if last[0] == stage else None
        if groups and between is not None and _can_share(graph, ops, groups[-1], name, between):
            groups[-1][0].append(name)
        else:
            groups.append(([name], ops[position]))
            last = (stage, position)
    return groups


def _can_share(
    graph: nx.MultiDiGraph,
    ops: Sequence[OpPlan],
    group: tuple[list[str], OpPlan],
    name: str,
    between: range,
) -> bool:
    """Whether only loads lie between the first consumers, and the copy comes before both."""
    at = {op.name: (op.stage, position) for position, op in enumerate(ops)}
    first = at[group[1].name]
    light = all(graph.nodes[ops[i].name]["kind"] in ("load", "copy") for i in between)
    return light and at[name] < first


def _leading_waits(graph: nx.MultiDiGraph, ops: Sequence[OpPlan]) -> list[OpPlan]:
    """Waits behind nothing but copies of later iterations: they go to the front of the step."""
    leading: list[OpPlan] = []
    copies: list[OpPlan] = []
    served = {edge.dst: set[str]() for edge in wait_edges(graph, ops)}
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
