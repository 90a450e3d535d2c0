"""The K tail: k-steps of the last iteration that multiply only padding are left out.

A tile of 64 along K has four k-steps of mma.m16n8k16. Where K is 4040 the last tile has 8 elements,
and three of its k-steps multiply zeros. A peeled epilogue need not have them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import PlanError
from ..kernel import KernelInfo, LoopInfo, MatmulInfo
from ..plan import KernelPlan, LoopPlan, MatmulPlan, OpPlan
from ..request import Request
from .depth import TOLERANCE, count
from .loops import CLAMP_REASON


def idle_steps(loop: LoopInfo, matmuls: Sequence[MatmulPlan]) -> dict[str, int]:
    """K-steps that are padding in the last iteration, for each matmul on mma.sync."""
    plans = {plan.op: plan for plan in matmuls if plan.instruction.startswith("mma.")}
    return {
        op.op: plans[op.op].steps - math.ceil((op.k_last or op.k) / plans[op.op].k_step)
        for op in loop.ops
        if isinstance(op, MatmulInfo) and op.op in plans
    }


def leave_out(
    plan: LoopPlan, loop: LoopInfo, matmuls: Sequence[MatmulPlan], request: Request
) -> LoopPlan:
    """``plan`` with a peeled epilogue where leaving padding out saves more than it costs.

    Straight code is as fast as a clamped loop within the noise, but larger: the padding has to be
    ``TOLERANCE`` of the loop's k-steps.
    """
    idle, steps = sum(idle_steps(loop, matmuls).values()), sum(plan.steps for plan in matmuls)
    if request.epilogue != "auto" or plan.epilogue != "clamped" or loop.trip is None or not idle:
        return plan
    if idle < TOLERANCE * steps * loop.trip:
        return plan
    why = (
        f"straight code for the last iterations leaves out {idle} of {count(steps, 'step')} of the "
        f"last one, which are padding: {idle / (steps * loop.trip):.1%} of the loop"
    )
    kept = tuple(reason for reason in plan.reasons if reason != CLAMP_REASON)
    return replace(plan, epilogue="peeled", reasons=(*kept, why))


def marked(
    ops: Sequence[OpPlan], loop: LoopInfo, matmuls: Sequence[MatmulPlan]
) -> tuple[OpPlan, ...]:
    """``ops`` of ``loop``; those that only work on padding at the end are marked to skip it."""
    skipped = _skipped(loop, matmuls)
    return tuple(replace(op, skips_k_tail=True) if op.name in skipped else op for op in ops)


def check_skips(plan: KernelPlan, info: KernelInfo) -> None:
    """Raise PlanError for an op that skips an iteration in which it has something to do."""
    loops = {loop.name: loop for loop in info.loops}
    for loop in plan.loops:
        allowed = _skipped(loops[loop.name], plan.matmuls) if loop.name in loops else frozenset()
        wrong = [op.name for op in loop.ops if op.skips_k_tail and op.name not in allowed]
        if wrong:
            raise PlanError(
                f"cannot leave '{wrong[0]}' out of the last iteration of loop '{loop.name}': "
                "it works on more than padding there"
            )


def _skipped(loop: LoopInfo, matmuls: Sequence[MatmulPlan]) -> frozenset[str]:
    """The ops that only work on padding in the last iteration of ``loop``."""
    steps = {plan.op: plan.steps for plan in matmuls}
    return frozenset(
        f"{name}.k{step}{part}"
        for name, idle in idle_steps(loop, matmuls).items()
        for step in range(steps[name] - idle, steps[name])
        for part in ("", ".a", ".b")
    )
