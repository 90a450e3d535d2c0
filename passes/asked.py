"""Whether a finished plan has what was asked for: nothing is left out in silence.

Whoever makes a plan refuses what it cannot have where it meets it, with the reason that it knows
there. This is the last word: it reads the plan as it was built, and knows no way to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..cost.mapped import uses_wgmma
from ..cost.wgmma import WARPGROUP
from ..errors import PlanError
from ..plan import CONSUMER, KernelPlan
from ..request import Request


def check_asked(request: Request, plan: KernelPlan) -> None:
    """PlanError: something that ``request`` asks for is otherwise in ``plan``, or not there."""
    for what, asked, found in _differences(request, plan):
        raise PlanError(
            f"cannot give '{plan.kernel}' {what} {asked}, as asked for: as it is built, it has "
            f"{found}"
        )


def _differences(request: Request, plan: KernelPlan) -> Iterator[tuple[str, object, object]]:
    """What differs, as asked for and as found; what is not there at all has nothing to differ."""
    yield from _depths(request, plan)
    for copy in plan.copies:
        filled = any(ring.buffer == copy.dst for loop in plan.loops for ring in loop.rings)
        if request.mechanism not in ("auto", copy.mechanism) and filled:
            yield f"copy '{copy.op}' by", request.mechanism, copy.mechanism
    for matmul in plan.matmuls:
        family = matmul.instruction.partition(".")[0]
        if request.instruction not in ("auto", family):
            yield f"'{matmul.op}' by", request.instruction, matmul.instruction
        if request.warps not in (None, matmul.warps):
            yield f"warps of '{matmul.op}'", request.warps, matmul.warps
        if request.thread_tile not in (None, matmul.thread_tile):
            yield f"thread tile of '{matmul.op}'", request.thread_tile, matmul.thread_tile
        if request.operand not in ("auto", matmul.operand):
            yield f"an operand of '{matmul.op}' in", request.operand, matmul.operand
        if request.accumulate == "promoted" and not matmul.promoted:
            yield f"sums of '{matmul.op}'", "promoted", "what tensor cores add up alone"
    for store in plan.stores:
        if request.store not in ("auto", store.mechanism):
            yield f"store '{store.op}' by", request.store, store.mechanism
    if request.roles != "auto" and (plan.roles or request.roles):
        groups = plan.role(CONSUMER).threads // WARPGROUP if plan.roles else 0
        if groups != request.roles and uses_wgmma(plan.matmuls):
            yield "warpgroups with a role of their own:", request.roles, groups
    way = "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
    if request.consumers not in ("auto", way):
        yield "consumers", request.consumers, way
    if request.cluster not in ("auto", plan.cluster):
        yield "clusters of", request.cluster, plan.cluster
    if request.pdl not in ("auto", plan.launch.pdl):
        yield "programmatic dependent launch", request.pdl, plan.launch.pdl
    for loop in plan.loops:
        copied = loop.pipelined and any(op.kind == "copy" for op in loop.ops)
        # Clamped are those loops alone whose copies land by themselves.
        if copied and request.epilogue not in ("auto", "clamped", loop.epilogue):
            yield f"loop '{loop.name}' an epilogue", request.epilogue, loop.epilogue


def _depths(request: Request, plan: KernelPlan) -> Iterator[tuple[str, object, object]]:
    rings = [ring for loop in plan.loops if loop.pipelined for ring in loop.rings]
    if isinstance(request.depth, Mapping):
        found = {ring.buffer: ring.depth for ring in rings}
        for name, depth in request.depth.items():
            if found.get(name, 1) != depth:
                yield f"depth of '{name}'", depth, found.get(name, 1)
    elif isinstance(request.depth, int):
        for ring in rings:
            if ring.depth != request.depth and (ring.requested or request.depth == 1):
                yield f"depth of '{ring.buffer}'", request.depth, ring.depth
        if request.depth > 1 and all(ring.depth != request.depth for ring in rings):
            yield "rings of depth", request.depth, "none"
