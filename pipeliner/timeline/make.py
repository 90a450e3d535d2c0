"""From a function to the timeline of one of its loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx

from ..kernel.building import pipeline_with
from ..kernel.compiled import plan_of
from ..machine import machine_for
from ..passes.ir.nodes import walk
from ..plan import KernelPlan
from ..plan.request import Options, Request
from ..targets import cuda_target
from ..values.origin import PHASE
from .model import Timeline, pipelined_loop, timeline_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


def timeline(
    func: Any,
    target: Any = None,
    *,
    loop: str | None = None,
    iterations: int | None = None,
    **options: Unpack[Options],
) -> Timeline:
    """Model time of a loop of ``func``, pipelined as the ``options`` say, and un-pipelined.

    The un-pipelined loop is the same plan with one slot in each of the loop's rings, scheduled by
    the same passes: the same copies, instructions and threads, and nothing overlaps.

    Parameters
    ----------
    func, target, **options
        As for ``pipeline``.
    loop
        The loop to draw; by default the first that is pipelined and in no other that is. A
        pipelined loop inside of it is one op of it.
    iterations
        How many to draw: by default a few more than there are slots.

    Raises
    ------
    PlanError
        No loop is pipelined, or not that one, or it has fewer iterations; and what ``pipeline``
        raises.
    """
    return timeline_with(func, target, Request(**options), loop=loop, iterations=iterations)


def timeline_with(
    func: Any,
    target: Any,
    request: Request,
    *,
    loop: str | None = None,
    iterations: int | None = None,
) -> Timeline:
    """``timeline`` with the options of ``pipeline`` as one value."""
    function = pipeline_with(func, target, request)
    plan = plan_of(function)
    name = pipelined_loop(plan, loop or _outermost(function, plan)).name
    edited = _with_single_slots(plan, name)
    plain = plan_of(pipeline_with(func, target, Request(plan=edited)))
    # Not by the plan's name of it, which a machine file may have given.
    machine = machine_for(cuda_target(function.attrs.get("target") if target is None else target))
    return timeline_of(plan, plain, machine, loop=name, iterations=iterations)


def _outermost(function: Any, plan: KernelPlan) -> str | None:
    """The first pipelined loop that is in no other, None where there is none."""
    inside: set[str] = set()

    def visit(loop: Any) -> None:
        if PHASE in loop.annotations:
            walk(loop.body, tirx.For, lambda inner: inside.add(str(inner.loop_var.name)))

    walk(function.body, tirx.For, visit)
    names = [loop.name for loop in plan.loops if loop.pipelined]
    return next((name for name in names if name not in inside), None)


def _with_single_slots(plan: KernelPlan, loop: str) -> KernelPlan:
    for ring in plan.loop(loop).rings:
        plan = plan.with_depth(ring.buffer, 1)
    return plan
