"""The ops of a loop that only work on the K tail: on padding in the last iteration.

A tile of 64 along K has four k-steps of mma.m16n8k16. Where K is 4040 the last tile has 8 elements,
and three of its k-steps multiply zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..instructions.ops import k_steps
from ..instructions.table import multiplied_by
from ..plan import MatmulPlan, OpPlan
from ..values.facts import LoopInfo, MatmulInfo
from ..values.op import Op


def idle_steps(loop: LoopInfo, matmuls: Sequence[MatmulPlan]) -> dict[str, int]:
    """K-steps that are padding in the last iteration, for each matmul on mma.sync."""
    plans = {plan.op: plan for plan in matmuls if multiplied_by(plan).skips_k_tail}
    return {
        op.op: plans[op.op].steps - math.ceil((op.k_last or op.k) / plans[op.op].k_step)
        for op in loop.ops
        if isinstance(op, MatmulInfo) and op.op in plans
    }


def marked(
    ops: Sequence[OpPlan], loop: LoopInfo, matmuls: Sequence[MatmulPlan]
) -> tuple[OpPlan, ...]:
    """``ops`` of ``loop``; those that only work on padding at the end are marked to skip it."""
    skipped = skipped_ops(loop, matmuls)
    return tuple(replace(op, skips_k_tail=True) if op.name in skipped else op for op in ops)


def skipped_ops(loop: LoopInfo, matmuls: Sequence[MatmulPlan]) -> frozenset[Op]:
    """The ops that only work on padding in the last iteration of ``loop``."""
    idle = idle_steps(loop, matmuls)
    return frozenset(
        op
        for plan in matmuls
        for step in k_steps(plan)[plan.steps - idle.get(plan.op, 0) :]
        for op in step
        if op is not None
    )
