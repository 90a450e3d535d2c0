"""Leave k-steps that multiply only padding out of the last iteration, in a peeled epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..cost.k_tail import idle_steps, skipped_ops
from ..diagnostics import Reason, is_code
from ..errors import PlanError
from ..plan import KernelPlan, LoopPlan, MatmulPlan
from ..plan.request import Request
from ..values.facts import KernelInfo, LoopInfo
from .depth import TOLERANCE


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
    why = Reason("k_tail.left_out", idle=idle, steps=steps, share=idle / (steps * loop.trip))
    kept = tuple(reason for reason in plan.reasons if not is_code(reason, "clamped.taken"))
    return replace(plan, epilogue="peeled", reasons=(*kept, why))


def check_skips(plan: KernelPlan, info: KernelInfo) -> None:
    """Raise PlanError for an op that skips an iteration in which it has something to do."""
    loops = {loop.name: loop for loop in info.loops}
    for loop in plan.loops:
        allowed = skipped_ops(loops[loop.name], plan.matmuls) if loop.name in loops else frozenset()
        wrong = [op.name for op in loop.ops if op.skips_k_tail and op.name not in allowed]
        if wrong:
            raise PlanError("k_tail.no_padding", op=wrong[0], loop=loop.name)
