"""Count the registers of a thread that versions of register tiles take, beside what lives on.

    scores_frag: 2 versions of 64, acc_frag: 64   =>   128 of 255 - 64 - 28 registers

A modulo schedule may overlap so much that versions of its tiles do not fit in registers: ptxas
then keeps some in local memory. Where warps load fragments for mma.sync, these count as well: each
tile from the first op that touches it to the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tvm import tirx

from ...diagnostics import Reason
from ...instructions.registers import MATH_WARP_OVERHEAD
from ...machine import Machine
from ...plan import LoopPlan
from ..ir.nodes import TensorLoad, buffer_bytes, collect, is_private
from .modulo import is_register

if TYPE_CHECKING:
    import networkx as nx

REGISTER_BYTES: Final = 4


def why_too_many(
    graph: nx.MultiDiGraph, node: Any, plan: LoopPlan, machine: Machine, threads: int
) -> Reason | None:
    """Return why versions of register tiles in ``plan`` do not fit; None: they do.

    ``node``: the loop, whose accumulators live across iterations. Tiles of one version do not
    count: most of them live in a part of a step alone.
    """
    wide = [ring for ring in plan.rings if is_register(ring.scope) and ring.depth > 1]
    needed = sum(ring.depth * _words(ring.slot_bytes) for ring in wide)
    room = _room(graph, node, machine, threads)
    if needed <= room:
        return None
    names = tuple(ring.buffer for ring in wide)
    return Reason("schedule.too_many_versions", buffers=names, needed=needed, room=room)


def why_too_many_alive(
    graph: nx.MultiDiGraph, node: Any, plan: LoopPlan, machine: Machine, threads: int
) -> Reason | None:
    """Return why the register tiles alive at once in a step of ``plan`` do not fit; None: they do.

    They take more registers than a thread has, addresses and counters not counted. ``node``: the
    loop, whose accumulators live across iterations.
    """
    alive, names = _alive(graph, plan)
    room = _room(graph, node, machine, threads, overhead=0)
    if alive <= room:
        return None
    return Reason("schedule.too_many_alive", buffers=names, needed=alive, room=room)


def _alive(graph: nx.MultiDiGraph, plan: LoopPlan) -> tuple[int, tuple[str, ...]]:
    """Return the most registers of tiles that are alive at once in a step, and whose.

    An instance lives from the first op that touches it to the last; several are alive at once where
    that is longer than a step.
    """
    count = len(plan.ops)
    places = {op.name: op.stage * count + op.order for op in plan.ops}
    words, names = [0] * count, [dict[str, None]() for _ in range(count)]
    for ring in plan.rings:
        if not is_register(ring.scope):
            continue
        touched = [
            places[op]
            for op, data in graph.nodes(data=True)
            if op in places and ring.buffer in (*data["writes"], *data["reads"])
        ]
        for at in range(min(touched, default=0), max(touched, default=-1) + 1):
            words[at % count] += _words(ring.slot_bytes)
            names[at % count][ring.buffer] = None
    most = max(words, default=0)
    return most, tuple(names[words.index(most)]) if words else ()


def _room(
    graph: nx.MultiDiGraph,
    node: Any,
    machine: Machine,
    threads: int,
    overhead: int = MATH_WARP_OVERHEAD,
) -> int:
    """Return the registers of a thread beside those of tiles that live across iterations."""
    touched = [load.source for load in collect(node.body, TensorLoad)]
    touched += [store.buffer for store in collect(node.body, tirx.BufferStore)]
    rings = graph.graph["rings"]
    kept = {buf for buf in touched if is_private(buf) and str(buf.name) not in rings}
    most = min(machine.max_registers_per_thread, machine.registers_per_sm // max(1, threads))
    return max(0, most - sum(_words(buffer_bytes(buf) or 0) for buf in kept) - overhead)


def _words(nbytes: int) -> int:
    return -(-nbytes // REGISTER_BYTES)
