"""The ops that a matmul becomes when it is mapped.

    C_update   =>   C_update.k0.a, C_update.k0.b, C_update.k0, ...     simt, mma.sync
    C_update   =>   C_update, C_update.mma_wait                        wgmma

The cost model prices these ops, and ``passes/matmul`` emits them.
"""

from __future__ import annotations

from typing import NamedTuple

from ..plan import MatmulPlan
from ..values.op import Op
from .table import multiplied_by


class KStep(NamedTuple):
    """The ops of one k-step of a matmul on fragments, in program order."""

    a: Op | None
    """It loads the fragments of operand A; None: they are computed."""
    b: Op
    """It loads the fragments of operand B."""
    multiply: Op
    """It multiplies them and adds the product to the accumulator."""


def matmul_ops(plan: MatmulPlan, *, specialised: bool) -> tuple[Op, ...]:
    """The ops of a matmul in program order; ``specialised``: a producer warp copies for it."""
    by = multiplied_by(plan)
    if by.warpgroup_wide:
        return wgmma_ops(plan, specialised=specialised)
    if not by.mapped:
        return (Op(plan.op),)
    return tuple(op for step in k_steps(plan) for op in step if op is not None)


def k_steps(plan: MatmulPlan) -> tuple[KStep, ...]:
    """The ops of each k-step of a matmul by mma.sync, or by multiply-adds of threads."""
    return tuple(
        KStep(
            a=None if plan.operand == "computed" else Op(plan.op, "a", k_step=step),
            b=Op(plan.op, "b", k_step=step),
            multiply=Op(plan.op, "multiply", k_step=step),
        )
        for step in range(plan.steps)
    )


def wgmma_ops(plan: MatmulPlan, *, specialised: bool) -> tuple[Op, ...]:
    """The op that issues all k-steps, and the wait for them.

    There is none where the op itself waits, to promote sums, or where the consumer's loop does.
    """
    issue = Op(plan.op)
    return (issue,) if specialised or plan.promoted else (issue, Op(plan.op, "mma_wait"))
