"""Programmatic dependent launch: whether kernels of a function start while the one before runs."""

from __future__ import annotations

from ..errors import PlanError
from ..kernel import KernelInfo
from ..machine import Machine
from ..plan import LaunchPlan
from ..request import Request


def plan_launch(info: KernelInfo, machine: Machine, request: Request) -> LaunchPlan:
    """How the kernels of a function follow each other; raises PlanError for what the GPU cannot do.

    By default only kernels of one function overlap: what is launched behind them is not ours to
    know.
    """
    if request.pdl is True and not machine.has_early_launch:
        raise PlanError(
            f"cannot launch '{info.name}' early on {machine.name}: griddepcontrol needs sm_90"
        )
    if request.pdl is True:
        return LaunchPlan(True, tuple(range(info.kernels)), "asked for")
    if request.pdl is False or not machine.has_early_launch or info.kernels == 1:
        return LaunchPlan()
    reason = "the next kernel's launch is hidden behind the end of this one"
    return LaunchPlan(True, tuple(range(info.kernels - 1)), reason)


def check_launch(plan: LaunchPlan, info: KernelInfo) -> None:
    """Raise PlanError for a kernel that the function does not have."""
    missing = [number for number in plan.triggers if not 0 <= number < info.kernels]
    if missing:
        raise PlanError(
            f"cannot let a kernel start early behind kernel {missing[0]} of '{info.name}': it "
            f"launches {info.kernels}"
        )
