"""Choose which loops are pipelined, and the depth of each ring."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Literal

from ..cost.descriptor import Work
from ..cost.predict import Prediction, predict
from ..diagnostics import Reason, Why
from ..errors import PlanError
from ..machine import Machine
from ..mechanisms.table import have_producer
from ..plan import LoopPlan, RingPlan
from ..plan.request import Request
from ..values.facts import KernelInfo, LoopInfo
from .depth import (
    MAX_DEPTH,
    TOLERANCE,
    DepthAxis,
    DepthChoice,
    check_depth,
    choose_depth,
    depth_reasons,
    taken,
)
from .depth_per_ring import asked_ring_depths, choose_ring_depths, ring_laws
from .depth_produced import choose_produced_depth
from .epilogues import CLAMP_REASON, asked_epilogue, clamps, is_asynchronous
from .mapped import LoopWork
from .rings import ring_buffers, ring_names, ring_plan, why_no_ring


def plan_loop(
    one: LoopWork,
    machine: Machine,
    request: Request,
    *,
    alone: Callable[[], Work],
    fixed: bool = False,
) -> tuple[LoopPlan, Prediction | None]:
    """The plan of one candidate loop and its prediction; raises what cannot be honoured.

    ``alone``: makes the descriptor of the loop left alone. ``fixed``: the loop is pipelined
    whatever that gains, as its copies can be made no other way.
    """
    loop, axis = one.loop, one.depths
    if loop.annotated:
        plan = LoopPlan(
            loop.name,
            loop.trip_text,
            pipelined=True,
            epilogue=asked_epilogue(loop, one.copies, request),
            source="annotation",
            reasons=(Reason("pipelined.annotated"),),
        )
        return plan, axis.at(1)
    asked = _asked_depths(one, request)
    if asked:
        return _plan_asked(one, request, asked)
    if fixed or have_producer(one.copies):
        return _plan_fixed(one, request)
    if loop.trip is not None and loop.trip <= 1:
        once = predict(alone(), machine, 1) if loop.trip else None
        return _decline(loop, Reason("pipelined.short", trip=loop.trip)), once
    if one.work.usage.global_bytes == 0:
        return _decline(loop, Reason("pipelined.no_load")), None
    choice = choose_depth(axis)
    if isinstance(choice, Reason):
        return _decline(loop, choice), None
    if choice.depth == 1:
        left = predict(alone(), machine, 1) or choice.prediction
        if not ring_buffers(loop, one.copies):
            nothing = Reason("pipelined.nothing_ahead", why=why_no_ring(loop))
            return _decline(loop, nothing), left
        deeper = _if_not_alone(left, axis)
        if deeper is None:
            return _decline(loop, _not_worth_it(choice)), left
        choice = deeper
    return _with_ring_depths(one, choice, request)


def _if_not_alone(left: Prediction, axis: DepthAxis) -> DepthChoice | None:
    """Two slots or more for a loop that one slot would do, but left alone it would be slower.

    ``left``: where it is left alone, and copies otherwise. None: that is as fast.
    """
    found = [option for option in axis.fitting if option.depth > 1]
    if not found or (best := taken(found)).us * (1 + TOLERANCE) >= left.us:
        return None
    why = Reason("depth.left_alone", us=left.us, ring_us=best.us)
    return DepthChoice(best.depth, best, (*depth_reasons(best, axis, axis.most), why))


def _plan_fixed(one: LoopWork, request: Request) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop that keeps its asynchronous copies whatever its trip count.

    A CTA with a producer warp has an SM for itself where warpgroups multiply; of others there may
    be several, fewer with deeper rings.
    """
    alone = have_producer(one.copies) and one.work.wgmma.cycles > 0
    choice = choose_produced_depth(one.loop, one.depths) if alone else choose_depth(one.depths)
    if isinstance(choice, Reason):
        raise PlanError("pipelined.refused", loop=one.loop.name, why=choice)
    return _with_ring_depths(one, choice, request)


def _with_ring_depths(
    one: LoopWork, choice: DepthChoice, request: Request
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop whose rings have the depth of ``choice``, or one of them a slot more."""
    choice = choose_ring_depths(choice, one.depths)
    return _with_slots(one, choice, request), choice.prediction


def _plan_asked(
    one: LoopWork, request: Request, asked: dict[str, int]
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop some of whose depths are given; other rings take the model's choice."""
    loop, axis = one.loop, one.depths
    buffers = [name for name, _, _ in ring_buffers(loop, one.copies)]
    if not buffers:
        return _plan_one_slot(one, request, asked[loop.name])
    default = max(asked.values())
    if not asked.keys() >= set(buffers) and isinstance(free := choose_depth(axis), DepthChoice):
        default = free.depth
    depths = {name: asked.get(name, default) for name in buffers}
    most, names = max(depths.values()), "+".join(depths)
    laws: Mapping[str, Reason] = {}
    if len(set(depths.values())) == 1:
        prediction = check_depth(names, most, axis)
        reasons = depth_reasons(prediction, axis, MAX_DEPTH)
    else:
        of_shared = {ring.buffer: depths[ring.buffer] for ring in axis.work.shared.rings}
        prediction = check_depth(names, of_shared or min(depths.values()), axis)
        reasons = asked_ring_depths(prediction, of_shared, axis.work)
        laws = ring_laws(prediction, axis.work, axis.machine)
    choice = DepthChoice(most, prediction, reasons, depths, laws)
    return _with_slots(one, choice, request, asked), prediction


def _plan_one_slot(one: LoopWork, request: Request, depth: int) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop without rings for which one slot is asked: nothing overlaps."""
    name = one.loop.name
    if depth > 1:
        raise PlanError("depth.loop", depth=depth, loop=name, why=why_no_ring(one.loop))
    alone = check_depth(name, 1, one.depths)
    choice = DepthChoice(1, alone, (Reason("pipelined.one_slot"),))
    return _loop_plan(one, (), choice, request, "request"), alone


def _asked_depths(one: LoopWork, request: Request) -> dict[str, int]:
    """The depth of each ring that the request or the loop's annotation names.

    A loop without rings has its own name here; more than one slot is not asked of it but of others.
    """
    loop = one.loop
    names = ring_names(loop, one.copies) or [loop.name]
    asked = {name: request.depth_of(name) or loop.depth for name in names}
    if not ring_buffers(loop, one.copies):
        asked = {loop.name: loop.depth or (1 if request.depth == 1 else None)}
    return {name: depth for name, depth in asked.items() if depth is not None}


def check_buffers(info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a depth of a buffer that is no ring of the kernel."""
    if not isinstance(request.depth, Mapping):
        return
    known = [name for loop in info.loops for name in ring_names(loop, ())]
    for name in request.depth:
        if name not in known:
            rings = tuple(known)
            raise PlanError("depth.unknown_ring", ring=name, kernel=info.name, rings=rings)


def _with_slots(
    one: LoopWork, choice: DepthChoice, request: Request, asked: Container[str] = ()
) -> LoopPlan:
    """The plan of a loop with the rings of ``choice``; ``asked``: rings that were asked for."""
    rings = tuple(
        ring_plan(one.loop, buffer, scope, size, choice, requested=buffer in asked)
        for buffer, scope, size in ring_buffers(one.loop, one.copies)
    )
    return _loop_plan(one, rings, choice, request, "request" if asked else "auto")


def _loop_plan(
    one: LoopWork,
    rings: tuple[RingPlan, ...],
    choice: DepthChoice,
    request: Request,
    source: Literal["auto", "request"],
) -> LoopPlan:
    loop = one.loop
    epilogue = asked_epilogue(loop, one.copies, request)
    reasons: tuple[Why, ...] = choice.reasons
    if request.epilogue == "auto" and is_asynchronous(one.copies):
        clamped = not loop.overwritten and clamps(one, choice)
        epilogue = "clamped" if clamped else epilogue
        guarded = Reason("clamped.guarded", why=loop.overwritten or Reason("clamped.dearer"))
        reasons = (*reasons, CLAMP_REASON) if clamped else (guarded, *reasons)
    return LoopPlan(
        name=loop.name,
        trip=loop.trip_text,
        pipelined=True,
        rings=rings,
        epilogue=epilogue,
        source=source,
        reasons=reasons,
    )


def _decline(loop: LoopInfo, why: Reason) -> LoopPlan:
    return LoopPlan(loop.name, loop.trip_text, pipelined=False, reasons=(why,))


def _not_worth_it(choice: DepthChoice) -> Reason:
    best = choice.prediction
    return Reason(
        "depth.gains_nothing",
        resident=best.resident,
        response=best.response,
        cycles=best.step,
        limiter=best.limiter,
    )
