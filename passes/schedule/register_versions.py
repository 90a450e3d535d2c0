"""Count the registers of a thread that versions of register tiles take, beside what lives on.

    scores_frag: 2 versions of 64, acc_frag: 64   =>   128 of 255 - 64 - 28 registers

A modulo schedule may overlap so much that versions of its tiles do not fit in registers: ptxas
then keeps some in local memory.
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


def _room(graph: nx.MultiDiGraph, node: Any, machine: Machine, threads: int) -> int:
    """Return the registers of a thread beside those of tiles that live across iterations."""
    touched = [load.source for load in collect(node.body, TensorLoad)]
    touched += [store.buffer for store in collect(node.body, tirx.BufferStore)]
    rings = graph.graph["rings"]
    kept = {buf for buf in touched if is_private(buf) and str(buf.name) not in rings}
    most = min(machine.max_registers_per_thread, machine.registers_per_sm // max(1, threads))
    return max(0, most - sum(_words(buffer_bytes(buf) or 0) for buf in kept) - MATH_WARP_OVERHEAD)


def _words(nbytes: int) -> int:
    return -(-nbytes // REGISTER_BYTES)
