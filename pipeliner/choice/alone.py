"""The copies of a loop that is not pipelined.

An asynchronous copy is waited for by the schedule that a pipelined loop has. Without one the copies
are register-staged, in the layout and as wide as that is planned anew. Deeper rings are compared
with this loop, and the kernel is predicted by its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..diagnostics import Reason, replaced
from ..machine import Machine
from ..mechanisms.copies import plan_copy
from ..plan import CopyPlan, MatmulPlan, Mechanism
from ..plan.request import Request
from ..values.facts import CopyInfo, LoopInfo

WHY: Final = Reason("mechanism.staged_alone")


def left_alone(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
) -> tuple[CopyPlan, ...]:
    """``copies`` of ``loop`` where it is not pipelined; those bound to threads are direct."""
    ops = {op.op: op for op in loop.ops if isinstance(op, CopyInfo)}

    def alone(plan: CopyPlan) -> CopyPlan:
        op = ops[plan.op]
        if op.bound:
            return plan_copy(op, loop, matmuls, machine, Request(mechanism="direct"))
        if plan.mechanism != "cp_async":
            return plan
        way: Mechanism = "direct" if op.no_register else "register"
        made = plan_copy(op, loop, matmuls, machine, Request(mechanism=way))
        return replace(made, reason=replaced(made.reason, "request.asked", WHY))

    return tuple(map(alone, copies))


def unpipelined(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
) -> tuple[CopyPlan, ...]:
    """The plans of ``copies`` of a loop that is not pipelined, without those bound to threads."""
    bound = {op.op for op in loop.ops if isinstance(op, CopyInfo) and op.bound}
    kept = tuple(plan for plan in copies if plan.op not in bound)
    return left_alone(loop, kept, matmuls, machine)
