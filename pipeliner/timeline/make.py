"""From a function to the timeline of one of its loops."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from ..api import pipeline_with
from ..compiled import plan_of
from ..machine import machine_for
from ..plan import KernelPlan
from ..request import Request
from .model import Timeline, pipelined_loop, timeline_of

_PLAIN: Final = Request()


def timeline(
    func: Any,
    target: Any = None,
    *,
    loop: str | None = None,
    iterations: int | None = None,
    request: Request = _PLAIN,
) -> Timeline:
    """Model time of a loop of ``func``, pipelined as ``request`` says, and un-pipelined.

    The un-pipelined loop is the same plan with one slot in each of the loop's rings, scheduled by
    the same passes: the same copies, instructions and threads, and nothing overlaps.

    Parameters
    ----------
    func, target
        As for ``pipeline``.
    loop
        The loop to draw; by default the first that is pipelined, which is the outermost.
    iterations
        How many to draw: by default a few more than there are slots.
    request
        What is asked of the plan, as for ``pipeline``.

    Raises
    ------
    PlanError
        No loop is pipelined, or not that one, or it has fewer iterations; and what ``pipeline``
        raises.
    """
    plan = plan_of(pipeline_with(func, target, request))
    edited = _with_single_slots(plan, pipelined_loop(plan, loop).name)
    plain = plan_of(pipeline_with(func, target, dataclasses.replace(request, plan=edited)))
    return timeline_of(plan, plain, machine_for(plan.target), loop=loop, iterations=iterations)


def _with_single_slots(plan: KernelPlan, loop: str) -> KernelPlan:
    for ring in plan.loop(loop).rings:
        plan = plan.with_depth(ring.buffer, 1)
    return plan
