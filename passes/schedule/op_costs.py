"""Derive latency and occupancy of each op of a loop, for ops that exist only after mapping.

    C_update   =>   C_update.k0.a, C_update.k0.b, C_update.k0, ...

The plan's ops have the cost model's numbers for the statements of the source. The ops that mapping
makes of a statement inherit from it:

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


def base_name(op: str) -> str:
    """Return the source statement that an op was made from: its name up to the first dot."""
    return op.split(".", 1)[0]


def op_costs(graph: nx.MultiDiGraph, plan: LoopPlan, machine: Machine) -> list[OpPlan]:
    """Return pipe, latency and occupancy of each op of the graph, in program order."""
    known = {op.name: op for op in plan.ops}
    order = sorted(graph.nodes, key=lambda name: int(graph.nodes[name]["index"]))
    heirs: dict[tuple[str, str], int] = {}
    for name in order:
        key = (base_name(name), str(graph.nodes[name]["kind"]))
        heirs[key] = heirs.get(key, 0) + 1
    result: list[OpPlan] = []
    for name in order:
        node = graph.nodes[name]
        if name in known:
            result.append(dataclasses.replace(known[name], kind=node["kind"]))
            continue
        base = known.get(base_name(name))
        share = heirs[base_name(name), node["kind"]]
        result.append(_derived(name, node, base, share, graph, machine))
    return result


def _derived(
    name: str, node: Any, base: OpPlan | None, share: int, graph: nx.MultiDiGraph, machine: Machine
) -> OpPlan:
    kind = node["kind"]
    if kind == "mma_wait":  # what it waits for has been counted
        return OpPlan(name, kind, base_name(name), "sync", 1, 1)
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
    block = base.block if base is not None else base_name(name)
    return OpPlan(name, kind, block, pipe, max(1, latency), max(1, occupancy))


def _shared_cycles(node: Any, graph: nx.MultiDiGraph, machine: Machine) -> int:
    """Return the cycles in which shared memory moves the registers that the op fills or stores."""
    rings = graph.graph["rings"]
    buffers = [rings[name] for name in (*node["reads"], *node["writes"]) if name in rings]
    private = [buf for buf in buffers if is_private(buf)]
    total = sum(buffer_bytes(buf) or 0 for buf in private) * int(graph.graph["threads"])
    return math.ceil(total / machine.smem_bytes_per_cycle)
