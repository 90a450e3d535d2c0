"""Leave k-steps that multiply only padding out of the last iteration, in a peeled epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import PlanError
from ..kernel import KernelInfo, LoopInfo
from ..plan import KernelPlan, LoopPlan, MatmulPlan
from ..request import Request
from .depth import TOLERANCE, count
from .k_tail import idle_steps, skipped_ops
from .loops import CLAMP_REASON


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


def check_skips(plan: KernelPlan, info: KernelInfo) -> None:
    """Raise PlanError for an op that skips an iteration in which it has something to do."""
    loops = {loop.name: loop for loop in info.loops}
    for loop in plan.loops:
        allowed = skipped_ops(loops[loop.name], plan.matmuls) if loop.name in loops else frozenset()
        wrong = [op.name for op in loop.ops if op.skips_k_tail and op.name not in allowed]
        if wrong:
            raise PlanError(
                f"cannot leave '{wrong[0]}' out of the last iteration of loop '{loop.name}': "
                "it works on more than padding there"
            )
