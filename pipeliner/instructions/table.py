"""Every instruction of matmuls, to ask for its properties (``pipeliner/plan/kinds.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import PlanError
from ..machine import Machine, MmaRate
from ..plan import SCALAR, MatmulPlan
from ..plan.kinds import MatmulInstruction
from ..plan.request import Instruction
from .mma_sync import MMA
from .simt import SIMT
from .wgmma import WGMMA

NESTS: Final = MatmulInstruction(SCALAR, operands="elements", mapped=False)

MATMUL_INSTRUCTIONS: Final[Mapping[str, MatmulInstruction]] = {
    one.name: one for one in (WGMMA, MMA, SIMT, NESTS)
}


def multiplied_by(plan: MatmulPlan) -> MatmulInstruction:
    """The instruction of a matmul: wgmma for ``wgmma.m64n256k16.f16.f32``.

    PlanError: there is none, as a plan from outside may have it.
    """
    found = MATMUL_INSTRUCTIONS.get(plan.instruction.partition(".")[0])
    if found is None:
        example = "mma.m16n8k16.f16.f32"
        given = plan.instruction
        raise PlanError("matmul.instruction", matmul=plan.op, example=example, instruction=given)
    return found


def rate_of(plan: MatmulPlan, machine: Machine) -> MmaRate | None:
    """What tensor cores do of the plan's instruction on ``machine``; None: they do nothing."""
    rate = multiplied_by(plan).rate
    return None if rate is None else rate(machine, plan.dtype)


def may_be_warpgroup_wide(asked: Instruction) -> bool:
    """Whether what is asked for leaves it open that warpgroups multiply."""
    return asked == "auto" or MATMUL_INSTRUCTIONS[asked].warpgroup_wide
