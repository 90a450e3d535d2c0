"""Check that a finished plan has what the request asked for.

Whoever makes a plan refuses what it cannot have at that point, with its reason. This check comes
last and knows only the finished plan, so that nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..choice.mapped import uses_wgmma
from ..diagnostics import Reason, Value
from ..errors import PlanError
from ..instructions.wgmma_shapes import WARPGROUP
from ..plan import CONSUMER, KernelPlan
from ..plan.request import Request


def check_asked(request: Request, plan: KernelPlan) -> None:
    """Raise PlanError if ``plan`` differs from what ``request`` asks for, or lacks it."""
    for different in _differences(request, plan):
        raise PlanError(different)


def _differences(request: Request, plan: KernelPlan) -> Iterator[Reason]:
    """Yield what differs, as asked for and as found; what the plan lacks cannot differ."""

    def reason(code: str, asked: Value, found: Value, **where: Value) -> Reason:
        return Reason(code, kernel=plan.kernel, asked=asked, found=found, **where)

    yield from _depths(request, plan)
    for copy in plan.copies:
        filled = any(ring.buffer == copy.dst for loop in plan.loops for ring in loop.rings)
        if request.mechanism not in ("auto", copy.mechanism) and filled:
            yield reason("asked.mechanism", request.mechanism, copy.mechanism, copy=copy.op)
    for matmul in plan.matmuls:
        op = matmul.op
        family = matmul.instruction.partition(".")[0]
        if request.instruction not in ("auto", family):
            yield reason("asked.instruction", request.instruction, matmul.instruction, matmul=op)
        if request.warps not in (None, matmul.warps):
            yield reason("asked.warps", request.warps, matmul.warps, matmul=op)
        if request.thread_tile not in (None, matmul.thread_tile):
            yield reason("asked.thread_tile", request.thread_tile, matmul.thread_tile, matmul=op)
        if request.operand not in ("auto", matmul.operand):
            yield reason("asked.operand", request.operand, matmul.operand, matmul=op)
        if request.accumulate == "promoted" and not matmul.promoted:
            yield reason("asked.accumulate", "promoted", "fast", matmul=op)
    for store in plan.stores:
        if request.store not in ("auto", store.mechanism):
            yield reason("asked.store", request.store, store.mechanism, store=store.op)
    if request.roles != "auto" and (plan.roles or request.roles):
        groups = plan.role(CONSUMER).threads // WARPGROUP if plan.roles else 0
        if groups != request.roles and uses_wgmma(plan.matmuls):
            for copy in plan.copies:  # the first that no producer warp can issue
                for why in Reason.of(copy.reason).walk():
                    if not groups and why.code == "mechanism.no_box":
                        yield reason("asked.no_box", request.roles, groups, copy=copy.op, why=why)
            yield reason("asked.roles", request.roles, groups)
    way = "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
    if request.consumers not in ("auto", way):
        yield reason("asked.consumers", request.consumers, way)
    if request.cluster not in ("auto", plan.cluster):
        yield reason("asked.cluster", request.cluster, plan.cluster)
    if request.pdl not in ("auto", plan.launch.pdl):
        yield reason("asked.pdl", request.pdl, plan.launch.pdl)
    for loop in plan.loops:
        copied = loop.pipelined and any(op.kind == "copy" for op in loop.ops)
        # Clamped are those loops alone whose copies land by themselves.
        if copied and request.epilogue not in ("auto", "clamped", loop.epilogue):
            yield reason("asked.epilogue", request.epilogue, loop.epilogue, loop=loop.name)


def _depths(request: Request, plan: KernelPlan) -> Iterator[Reason]:
    def reason(name: str, asked: int, found: int) -> Reason:
        return Reason("asked.depth", kernel=plan.kernel, buffer=name, asked=asked, found=found)

    rings = [ring for loop in plan.loops if loop.pipelined for ring in loop.rings]
    if isinstance(request.depth, Mapping):
        found = {ring.buffer: ring.depth for ring in rings}
        for name, depth in request.depth.items():
            if found.get(name, 1) != depth:
                yield reason(name, depth, found.get(name, 1))
    elif isinstance(request.depth, int):
        for ring in rings:
            if ring.depth != request.depth and (ring.requested or request.depth == 1):
                yield reason(ring.buffer, request.depth, ring.depth)
        if request.depth > 1 and all(ring.depth != request.depth for ring in rings):
            yield Reason("asked.no_ring", kernel=plan.kernel, asked=request.depth)
