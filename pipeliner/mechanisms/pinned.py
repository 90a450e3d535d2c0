"""Requests that leave nothing open that a finished plan decides.

Instruction, warps and operand of a matmul, mechanism of a copy, way of a store. Whatever follows
from those is made anew, and what the plan says of it can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ..instructions.table import multiplied_by
from ..plan import CopyPlan, KernelPlan, MatmulPlan, StorePlan
from ..plan.request import Instruction, OperandAsked, Request


def pinned(plan: KernelPlan) -> Request:
    """The request that asks for all that ``plan`` decides, but for depths and launch."""
    return Request(
        plan=plan,
        consumers="ping-pong" if plan.ping_pong_groups > 1 else "cooperative",
        cluster=plan.cluster,
    )


def pinned_matmul(request: Request, op: str) -> Request:
    """``request``, asking for the plan's mapping of matmul ``op``, where it has a plan."""
    plan: MatmulPlan | None = _of(request, "matmuls", op)
    if plan is None:
        return request
    by = multiplied_by(plan)
    return replace(
        request,
        instruction=kind(plan),
        warps=plan.warps,
        thread_tile=plan.thread_tile if by.thread_tile else None,
        operand="auto" if by.thread_tile else _asked(plan),
        accumulate="promoted" if by.warpgroup_wide and plan.promoted else "auto",
    )


def _asked(plan: MatmulPlan) -> OperandAsked:
    """Where the first operand is to be read from: nobody chooses where one is computed."""
    return "auto" if plan.operand == "computed" else plan.operand


def pinned_copy(request: Request, op: str) -> Request:
    """``request``, asking for the plan's mechanism of copy ``op``, where it has a plan.

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
    """``request``, asking for the plan's way of store ``op``, where it has a plan."""
    plan: StorePlan | None = _of(request, "stores", op)
    return request if plan is None else replace(request, store=plan.mechanism)


def pinned_slots(request: Request, op: str) -> int:
    """Slots of store ``op`` in the plan of ``request``; 0: it has no such store."""
    plan: StorePlan | None = _of(request, "stores", op)
    return 0 if plan is None else plan.slots


def kind(plan: MatmulPlan) -> Instruction:
    """The instruction to ask for to get that of ``plan``: simt, mma or wgmma."""
    return cast(Instruction, multiplied_by(plan).name)


def _of(request: Request, parts: str, op: str) -> Any:
    if request.plan is None:
        return None
    return next((part for part in getattr(request.plan, parts) if part.op == op), None)
