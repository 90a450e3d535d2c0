"""From a function to the timeline of one of its loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tvm import tirx

from ..diagnostics import Reason
from ..errors import PlanError
from ..kernel.building import pipeline_with
from ..kernel.compiled import plan_of
from ..machine import Machine, machine_for
from ..passes.ir.nodes import walk
from ..plan import KernelPlan, LoopPlan
from ..plan.request import Options, Request
from ..targets import cuda_target
from ..values.origin import PHASE
from .drawn import Timeline
from .model import LoopRun
from .trace import steady, trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

EXACT: Final = 256
"""Iterations up to which a whole loop is traced; the rest of a longer one runs at its pace."""

MOST: Final = 1000
"""Iterations that a drawing may have."""

MORE_THAN_DEPTH: Final = 4
"""Iterations drawn, beyond the slots of the deepest ring, where none are asked for."""


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
    return timeline_from(func, function, target, loop=loop, iterations=iterations)


def timeline_from(
    func: Any,
    function: Any,
    target: Any,
    *,
    loop: str | None = None,
    iterations: int | None = None,
) -> Timeline:
    """``timeline`` of ``function``, which is what was made of ``func``."""
    plan = plan_of(function)
    name = pipelined_loop(plan, loop or _outermost(function, plan)).name
    edited = _with_single_slots(plan, name)
    plain = plan_of(pipeline_with(func, target, Request(plan=edited)))
    # Not by the plan's name of it, which a machine file may have given.
    machine = machine_for(cuda_target(function.attrs.get("target") if target is None else target))
    return timeline_of(plan, plain, machine, loop=name, iterations=iterations)


def timeline_of(
    plan: KernelPlan,
    plain: KernelPlan,
    machine: Machine,
    *,
    loop: str | None = None,
    iterations: int | None = None,
) -> Timeline:
    """The timeline of a loop of ``plan``, over that of ``plain``, the same with one slot a ring.

    ``loop``: by default the first that is pipelined. ``iterations``: how many to draw. PlanError:
    there is no such loop, or it has fewer iterations.
    """
    fast = pipelined_loop(plan, loop)
    slow = pipelined_loop(plain, fast.name)
    if slow.stages > 1:
        raise PlanError("timeline.never_serial", loop=fast.name, stages=slow.stages)
    count = _iterations(fast, iterations)
    runs = (("pipelined", plan, fast), ("un-pipelined", plain, slow))
    first, second = (_run(*run, count, machine) for run in runs)
    return Timeline(plan.kernel, plan.machine, fast.name, fast.trip, count, first, second)


def pipelined_loop(plan: KernelPlan, name: str | None) -> LoopPlan:
    """The loop called ``name``, or the first pipelined one; PlanError: it is not pipelined."""
    if name is not None:
        loop = plan.loop(name)
        if not loop.pipelined:
            why = loop.reasons or Reason("timeline.no_reason")
            raise PlanError("timeline.not_pipelined", loop=name, why=why)
        return loop
    found = next((loop for loop in plan.loops if loop.pipelined), None)
    if found is None:
        loops = [Reason("timeline.loop", loop=one.name, why=one.reasons) for one in plan.loops]
        why = (*loops, *plan.reasons) or Reason("timeline.loopless")
        raise PlanError("timeline.no_loop", kernel=plan.kernel, why=why)
    return found


def _iterations(loop: LoopPlan, asked: int | None) -> int:
    trip = int(loop.trip) if loop.trip.isdigit() else None
    if asked is None:
        deepest = max((ring.depth for ring in loop.rings), default=1)
        count = max(deepest, loop.stages) + MORE_THAN_DEPTH
        return count if trip is None else max(1, min(count, trip))
    if not 1 <= asked <= MOST:
        raise PlanError("timeline.iterations", most=MOST, value=asked)
    if trip is not None and asked > trip:
        raise PlanError("timeline.trip", value=asked, loop=loop.name, trip=trip)
    return asked


def _run(title: str, plan: KernelPlan, loop: LoopPlan, count: int, machine: Machine) -> LoopRun:
    barriers = plan.sync.barriers > 0
    pace = steady(loop, machine, barriers=barriers)
    whole = None
    if loop.trip.isdigit():
        exact = min(int(loop.trip), EXACT)
        traced = trace(loop, exact, machine, barriers=barriers).cycles
        whole = round(traced + (int(loop.trip) - exact) * pace.cycles)
    alone = sum(other.pipelined for other in plan.loops) == 1
    return LoopRun(
        title,
        trace(loop, count, machine, barriers=barriers),
        pace,
        whole,
        plan.sync.barriers_in_steady / loop.unroll if alone else None,
    )


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
