"""Programmatic dependent launch: whether kernels of a function start while the one before runs.

``passes/sync/launch.py`` emits the waits and releases.

Every kernel waits by itself for the one before it, so that its launch is hidden behind that one's
end. Back to back in a CUDA graph that is up to 1.4 us (H200, 2026-11-28: of 29 products and
convolutions 4 % in the mean, none slower by more than 0.3 %). Kernels of one function release
the next one ahead of their end, its last does not: CTAs that come early fill the SMs that are free
first, two to an SM where they fit, and what is launched behind a function is not ours to know. Of
those 29 behind themselves 7 gained by a release (64 CTAs of 16x64: 10.5 -> 8.7 us) and 7 lost (94
CTAs of 24x64: 8.7 -> 10.6 us). Unless it is elementwise, as one that adds partial sums: its CTAs
leave room on every SM, so that those that come spread as on an idle GPU. Of five such products one
gained (512x768x3072: 8.4 -> 6.9 us) and none lost. Or unless it leaves half of the SMs: 65 kernels
of at most 66 CTAs take 15 % less as a mean, 86 of 67 to 132 as long (0.81 to 1.23 times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine import Machine
from ..plan import LaunchPlan
from ..plan.request import Request
from ..values.facts import KernelInfo


def plan_launch(info: KernelInfo, machine: Machine, request: Request) -> LaunchPlan:
    """How kernels follow each other; raises PlanError for what the GPU cannot do."""
    if request.pdl is True and not machine.has_pdl:
        raise PlanError("launch.pdl", kernel=info.name, machine=machine.name)
    if request.pdl is True and info.cooperative:
        raise PlanError("launch.cooperative", kernel=info.name)
    if request.pdl is True:
        return LaunchPlan(True, tuple(range(info.kernels)), Reason("request.asked"))
    if request.pdl is False or not machine.has_pdl:
        return LaunchPlan()
    if info.cooperative:
        return LaunchPlan(reason=Reason("launch.together"))
    alone = info.kernels == 1 and bool(info.loops)
    small = alone and leaves_room(info.grid, machine)
    last = 0 if info.ends_elementwise or small else 1
    return LaunchPlan(True, tuple(range(info.kernels - last)), Reason("launch.hidden"))


def leaves_room(grid: Sequence[int | None], machine: Machine) -> bool:
    """Whether the CTAs of ``grid``, one an SM, leave room for as many more."""
    extents = [extent for extent in grid if extent is not None]
    return len(extents) == len(grid) and 2 * math.prod(extents) <= machine.sms


def check_launch(plan: LaunchPlan, info: KernelInfo) -> None:
    """Raise PlanError for a kernel that the function does not have."""
    missing = [number for number in plan.triggers if not 0 <= number < info.kernels]
    if missing:
        launched = {"number": missing[0], "kernels": info.kernels}
        raise PlanError("launch.trigger", kernel=info.name, **launched)
