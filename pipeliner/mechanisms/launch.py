"""Programmatic dependent launch: whether kernels of a function start while the one before runs.

``passes/sync/launch.py`` emits the waits and releases.
"""

from __future__ import annotations

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine import Machine
from ..plan import LaunchPlan
from ..plan.request import Request
from ..values.facts import KernelInfo


def plan_launch(info: KernelInfo, machine: Machine, request: Request) -> LaunchPlan:
    """How the kernels of a function follow each other; raises PlanError for what the GPU cannot do.

    By default only kernels of one function overlap: what is launched behind them is not ours to
    know.
    """
    if request.pdl is True and not machine.has_pdl:
        raise PlanError("launch.pdl", kernel=info.name, machine=machine.name)
    if request.pdl is True:
        return LaunchPlan(True, tuple(range(info.kernels)), Reason("request.asked"))
    if request.pdl is False or not machine.has_pdl or info.kernels == 1:
        return LaunchPlan()
    return LaunchPlan(True, tuple(range(info.kernels - 1)), Reason("launch.hidden"))


def check_launch(plan: LaunchPlan, info: KernelInfo) -> None:
    """Raise PlanError for a kernel that the function does not have."""
    missing = [number for number in plan.triggers if not 0 <= number < info.kernels]
    if missing:
        launched = {"number": missing[0], "kernels": info.kernels}
        raise PlanError("launch.trigger", kernel=info.name, **launched)
