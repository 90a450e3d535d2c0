"""Run the last matmul of a consumer's step under the arithmetic of the next step.

    S = Q K                stage s                  prologue   S = Q K; P = exp of S
    P = exp of S           stage s        =>        steady     S = Q K of i + 1; O += P V of i
    O = f O; O += P V      stage s + 1                         P = exp of S, behind O
                                                    epilogue   O += P V

While the tensor cores multiply P and V the same warps compute the next S's exponentials, not only
those of another warpgroup (FlashAttention-3, arXiv 2407.08608, section 3.2). Nothing needs a second
version: P is made of S behind the matmul that reads the P before. The waits of both stages stand in
the first: so every role knows one slot and one phase of a ring. The wait for the tile of the second
stands before what P is made by, and parts the arithmetic from the wait for the matmul: nvcc moves
that one up to the last branch (13.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ScheduleRefused
from ...plan import LoopPlan, MatmulPlan, OpPlan
from ...values.op import Op
from ..ir.nodes import is_shared

if TYPE_CHECKING:
    import networkx as nx


def overlapped(graph: nx.MultiDiGraph, ops: list[OpPlan]) -> list[OpPlan]:
    """Return ``ops``, a step in program order, with the last matmul in a stage behind the others.

    They stay as they are unless a statement makes its operand of an earlier matmul's sums, and
    nothing but matmuls reads shared memory, each its own.
    """
    matmuls = [at for at, op in enumerate(ops) if graph.nodes[op.name]["kind"] == "mma"]
    if len(matmuls) < 2:
        return ops
    first, last = matmuls[0], matmuls[-1]
    between, behind = ops[first + 1 : last], ops[last + 1 :]
    sums = set(graph.nodes[ops[last].name]["writes"])
    written = {op: set(graph.nodes[op.name]["writes"]) for op in between}
    own = [op for op in between if written[op] and written[op] <= sums]
    rest = [op for op in between if op not in own]
    makes = _makers(graph, {op.name for op in (*own, ops[last])})
    read = [_shared_read(graph, op.name) for op in ops if op.name != ops[last].name]
    alike = any(_shared_read(graph, ops[last].name) & one for one in read)
    by_lane = any(_shared_read(graph, op.name) for op in ops if op.kind != "mma")
    if not makes & {op.name for op in rest} or alike or by_lane:
        return ops
    late = [replace(op, stage=op.stage + 1) for op in (*own, ops[last])]
    return [*ops[: first + 1], *late, *rest, *behind]


def waited_early(graph: nx.MultiDiGraph, ops: list[OpPlan]) -> list[OpPlan]:
    """Return ``ops`` with every wait in the first stage that has one.

    Those of the later stage stand before what makes the operands of that.
    """
    first = min((op.stage for op in ops if op.kind == "wait"), default=0)
    waits = [op for op in ops if op.kind == "wait" and op.stage > first]
    if not waits:
        return ops
    rest = [op for op in ops if op not in waits]
    makes = _makers(graph, {op.name for op in rest if op.name in graph and op.stage > first})
    at = max(at for at, op in enumerate(rest) if op.name in makes and op.kind != "copy")
    moved = [replace(op, stage=first, cycle=rest[at].cycle) for op in waits]
    listed = [*rest[:at], *moved, *rest[at:]]
    return [replace(op, order=place) for place, op in enumerate(listed)]


def check_stages(graph: nx.MultiDiGraph, given: LoopPlan, matmuls: Sequence[MatmulPlan]) -> None:
    """Raise ScheduleRefused if consumers cannot run the stages of ``given``.

    They run one iteration a step, or two neighbouring ones, all waits in the first, each ring read
    in one of them, and nothing in flight of any other step.
    """
    stages = {
        op.name: op.stage
        for op in given.ops
        if op.kind == "wait" or (op.name in graph and graph.nodes[op.name]["kind"] != "copy")
    }
    first, last = min(stages, key=stages.__getitem__), max(stages, key=stages.__getitem__)
    low, high = stages[first], stages[last]
    if low == high:
        return
    waits = {stages[op.name] for op in given.ops if op.kind == "wait"}
    by_ring: dict[str, set[int]] = {}
    for name, stage in stages.items():
        for ring in _shared_read(graph, name):
            by_ring.setdefault(ring, set()).add(stage)
    flying = {matmul.op: matmul.in_flight for matmul in matmuls}
    carried = all(flying.get(name.statement, 1) for name, stage in stages.items() if stage == high)
    alone = all(len(found) == 1 for found in by_ring.values())
    if high - low == 1 and waits <= {low} and alone and carried:
        return
    raise ScheduleRefused(
        "schedule.of_consumers", loop=given.name, ops=(first, last), first=low, last=high
    )


def _makers(graph: nx.MultiDiGraph, ops: set[Op]) -> set[Op]:
    """Return the ops whose values ``ops`` read in the same iteration, without themselves."""
    edges: list[tuple[Op, Op, Mapping[str, object]]] = list(graph.in_edges(ops, data=True))
    found = {src for src, _, edge in edges if edge["kind"] == "RAW" and not edge["distance"]}
    return found - ops


def _shared_read(graph: nx.MultiDiGraph, name: Op) -> set[str]:
    """Return the rings of shared memory that an op reads; a wait reads none."""
    if name not in graph:
        return set()
    rings = graph.graph["rings"]
    return {one for one in graph.nodes[name]["reads"] if one in rings and is_shared(rings[one])}
