"""Find latency and occupancy of each op of a loop as it was mapped.

    graph: A_shared.load, A_shared.store   =>   OpPlans with pipe, latency and occupancy

The plan has the cost model's numbers for the ops that it says mapping makes. Where the function
itself determined otherwise (TVM's annotations, virtual threads) ops inherit from what the plan has
of their statement:

    occupancy = occupancy of the statement / its ops of that kind
    latency   = occupancy + (latency - occupancy of the statement)

A load or store of shared memory takes ``shared_latency`` and its bytes / ``smem_bytes_per_cycle``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Final

from ...machine import Machine
from ...plan import LoopPlan, OpPlan, Pipe
from ...values.op import Op
from ..ir.nodes import buffer_bytes, is_private

if TYPE_CHECKING:
    import networkx as nx

_PIPES: Final[dict[str, Pipe]] = {
    "copy": "lsu",
    "load": "lsu",
    "store": "lsu",
    "wait": "sync",
    "mma": "tensor",
    "compute": "fma",
    "opaque": "alu",
}


def op_costs(graph: nx.MultiDiGraph, plan: LoopPlan, machine: Machine) -> list[OpPlan]:
    """Return pipe, latency and occupancy of each op of the graph, in program order."""
    known = {op.name: op for op in plan.ops}
    order: list[Op] = sorted(graph.nodes, key=lambda op: int(graph.nodes[op]["index"]))
    heirs: dict[tuple[str, str], int] = {}
    for op in order:
        key = (op.statement, str(graph.nodes[op]["kind"]))
        heirs[key] = heirs.get(key, 0) + 1
    result: list[OpPlan] = []
    for op in order:
        node = graph.nodes[op]
        if op in known:
            result.append(dataclasses.replace(known[op], kind=node["kind"]))
            continue
        base = known.get(Op(op.statement))
        share = heirs[op.statement, node["kind"]]
        result.append(_derived(op, node, base, share, graph, machine))
    return result


def _derived(
    op: Op, node: Any, base: OpPlan | None, share: int, graph: nx.MultiDiGraph, machine: Machine
) -> OpPlan:
    kind = node["kind"]
    if kind == "mma_wait":  # what it waits for has been counted
        return OpPlan(op, kind, op.statement, "sync", 1, 1)
    pipe = base.pipe if base is not None and kind in ("mma", "compute") else _PIPES[kind]
    if node["is_global_load"] and kind in ("copy", "load"):
        pipe = "l2"
        latency = base.latency if base is not None else machine.global_latency
        occupancy = base.occupancy // share if base is not None else 1
    elif kind in ("load", "store"):
        occupancy = _shared_cycles(node, graph, machine)
        latency = machine.shared_latency + occupancy
    elif base is not None:
        # What follows the last instruction of the statement: its pipe's own latency.
        tail = max(0, base.latency - base.occupancy)
        occupancy = math.ceil(base.occupancy / share)
        latency = occupancy + tail
    else:
        occupancy = 1
        latency = (
            machine.mmas[0].latency if kind == "mma" and machine.mmas else machine.fp32_latency
        )
    block = base.block if base is not None else op.statement
    return OpPlan(op, kind, block, pipe, max(1, latency), max(1, occupancy))


def _shared_cycles(node: Any, graph: nx.MultiDiGraph, machine: Machine) -> int:
    """Return the cycles in which shared memory moves the registers that the op fills or stores."""
    rings = graph.graph["rings"]
    buffers = [rings[name] for name in (*node["reads"], *node["writes"]) if name in rings]
    private = [buf for buf in buffers if is_private(buf)]
    total = sum(buffer_bytes(buf) or 0 for buf in private) * int(graph.graph["threads"])
    return math.ceil(total / machine.smem_bytes_per_cycle)
