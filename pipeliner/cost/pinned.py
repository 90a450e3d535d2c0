"""What to ask for of each part of a kernel, to get what a finished plan says of it.

A request that has a plan leaves nothing open that the plan decides: instruction, warps and operand
of a matmul, mechanism of a copy, way of a store. Whatever follows from those is made anew, and what
the plan says of it can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..plan import CopyPlan, KernelPlan, MatmulPlan, StorePlan
from ..request import Instruction, Request


def pinned(plan: KernelPlan) -> Request:
    """The request that leaves nothing open that ``plan`` decides, but depths and launch."""
    return Request(
        plan=plan,
        consumers="ping-pong" if plan.teams > 1 else "cooperative",
        cluster=plan.cluster,
    )


def pinned_matmul(request: Request, op: str) -> Request:
    """``request``, asking for what its plan, where it has one, says of matmul ``op``."""
    plan: MatmulPlan | None = _of(request, "matmuls", op)
    if plan is None:
        return request
    wide = plan.instruction.startswith("wgmma")
    return replace(
        request,
        instruction=kind(plan),
        warps=plan.warps,
        thread_tile=plan.thread_tile if plan.instruction == "simt" else None,
        operand=plan.operand if wide else "auto",
        accumulate="promoted" if wide and plan.promoted else "auto",
    )


def pinned_copy(request: Request, op: str) -> Request:
    """``request``, asking for what its plan, where it has one, says of copy ``op``.

    A copy that the plan does not name stays as it is written.
    """
    if request.plan is None:
        return request
    plan: CopyPlan | None = _of(request, "copies", op)
    return replace(request, mechanism="direct" if plan is None else plan.mechanism)


def pinned_width(request: Request, op: str) -> int:
    """Bytes at once that the plan of ``request`` gives copy ``op``; 0: it has no such copy."""
    plan: CopyPlan | None = _of(request, "copies", op)
    return 0 if plan is None else plan.vector_bytes


def pinned_store(request: Request, op: str) -> Request:
    """``request``, asking for what its plan, where it has one, says of store ``op``."""
    plan: StorePlan | None = _of(request, "stores", op)
    return request if plan is None else replace(request, store=plan.mechanism)


def pinned_slots(request: Request, op: str) -> int:
    """Boxes that the plan of ``request`` gives store ``op``; 0: it has no such store."""
    plan: StorePlan | None = _of(request, "stores", op)
    return 0 if plan is None else plan.slots


def kind(plan: MatmulPlan) -> Instruction:
    """What to ask for to get the instruction of ``plan``."""
    if plan.instruction == "simt":
        return "simt"
    return "wgmma" if plan.instruction.startswith("wgmma") else "mma"


def _of(request: Request, parts: str, op: str) -> Any:
    if request.plan is None:
        return None
    return next((part for part in getattr(request.plan, parts) if part.op == op), None)
