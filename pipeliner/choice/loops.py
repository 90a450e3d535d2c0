"""Choose which loops are pipelined, and the depth of each ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, Literal

from ..cost.descriptor import Work
from ..cost.memory import LOADED_LATENCY_US
from ..cost.predict import Prediction, predict, predictions
from ..diagnostics import Reason, Why, all_of
from ..errors import PlanError
from ..machine import Machine
from ..mechanisms.copies import of_pixels, streamed_ops
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, Epilogue, LoopPlan, RingPlan
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from ..values.op import Op
from .depth import (
    MAX_DEPTH,
    REGISTER_DEPTH,
    TOLERANCE,
    DepthChoice,
    check_depth,
    choose_depth,
    depth_reasons,
    no_fit,
    taken,
)
from .depth_per_ring import asked_ring_depths, choose_ring_depths, ring_laws
from .ring_limits import (
    CLAMP_TRIPS,
    ENOUGH_IN_FLIGHT_BYTES,
    IM2COL_CLAMP_TRIPS,
    LEAST_TMA_DEPTH,
    TMA_DEPTH,
)

CLAMP_REASON: Final = Reason("clamped.taken")
"""Why overrunning loads are clamped to the last tile.

H100, fp16, 128x256x64: 6 % less time at 4096 cubed, 9 % on ragged sizes, where a branch also keeps
masks from being computed early."""


def plan_loop(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
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
    if loop.annotated:
        plan = LoopPlan(
            loop.name,
            loop.trip_text,
            pipelined=True,
            epilogue=_asked_epilogue(loop, copies, request),
            source="annotation",
            reasons=(Reason("pipelined.annotated"),),
        )
        return plan, predict(work, machine, 1)
    asked = _asked_depths(loop, copies, request)
    if asked and not ring_buffers(loop, copies):
        if asked[loop.name] > 1:
            why = why_no_ring(loop)
            raise PlanError("depth.loop", depth=asked[loop.name], loop=loop.name, why=why)
        return _plan_one_slot(loop, copies, work, machine, request)
    if asked:
        return _plan_asked(loop, copies, work, machine, request, asked)
    if have_producer(copies):
        return _plan_produced(loop, copies, work, machine, request)
    if fixed:
        return _plan_fixed(loop, copies, work, machine, request)
    if loop.trip is not None and loop.trip <= 1:
        once = predict(alone(), machine, 1) if loop.trip else None
        return _decline(loop, Reason("pipelined.short", trip=loop.trip)), once
    if work.usage.global_bytes == 0:
        return _decline(loop, Reason("pipelined.no_load")), None
    choice = choose_depth(work, machine, most_slots(loop, copies))
    if isinstance(choice, Reason):
        return _decline(loop, choice), None
    if choice.depth == 1:
        left = predict(alone(), machine, 1) or choice.prediction
        if not ring_buffers(loop, copies):
            nothing = Reason("pipelined.nothing_ahead", why=why_no_ring(loop))
            return _decline(loop, nothing), left
        deeper = _if_not_alone(left, work, machine, most_slots(loop, copies))
        if deeper is None:
            return _decline(loop, _not_worth_it(choice)), left
        choice = deeper
    choice = choose_ring_depths(choice, work, machine, most_slots(loop, copies))
    return _with_slots(loop, choice, copies, request), choice.prediction


def _if_not_alone(left: Prediction, work: Work, machine: Machine, most: int) -> DepthChoice | None:
    """Two slots or more for a loop that one slot would do, but left alone it would be slower.

    ``left``: where it is left alone, and copies otherwise than ``work``. None: that is as fast.
    """
    found = [option for option in predictions(work, machine, most) if option.depth > 1]
    if not found or (best := taken(found)).us * (1 + TOLERANCE) >= left.us:
        return None
    why = Reason("depth.left_alone", us=left.us, ring_us=best.us)
    return DepthChoice(best.depth, best, (*depth_reasons(best, work, machine, most), why))


def why_no_ring(loop: LoopInfo) -> Reason:
    """Why ``loop`` has nothing that could have slots."""
    filled = tuple(dict.fromkeys(op.dst for op in loop.ops if isinstance(op, CopyInfo)))
    return Reason("depth.not_allocated", buffers=filled) if filled else Reason("depth.no_load")


def _plan_one_slot(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop without rings for which one slot is asked: nothing overlaps."""
    alone = check_depth(loop.name, 1, work, machine)
    choice = DepthChoice(1, alone, (Reason("pipelined.one_slot"),))
    return _loop_plan(loop, (), choice, copies, request, "request"), alone


def _plan_fixed(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop that keeps its asynchronous copies whatever its trip count."""
    choice = choose_depth(work, machine, most_slots(loop, copies))
    if isinstance(choice, Reason):
        raise PlanError("pipelined.refused", loop=loop.name, why=choice)
    choice = choose_ring_depths(choice, work, machine, most_slots(loop, copies))
    return _with_slots(loop, choice, copies, request), choice.prediction


def _plan_produced(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop that a producer warp copies for, by TMA and full/empty mbarriers.

    Its CTA has an SM for itself, so slots that fit cost nothing, and they run ahead of a loaded
    memory system: at 8192 cubed on an H100, 4 slots of 48 KB are 2 % faster than 3.
    """
    fitting = predictions(work, machine, most_slots(loop, copies))
    if not fitting:
        why = no_fit(work, machine)
        raise PlanError("pipelined.refused", loop=loop.name, why=why)
    read = _read_in_step(loop, work, machine)
    wanted = LOADED_LATENCY_US * 1e-6 * machine.dram_bytes_per_second
    together = math.ceil(wanted / read) if read else 0
    enough = max(LEAST_TMA_DEPTH, int(ENOUGH_IN_FLIGHT_BYTES / read)) if read else len(fitting)
    most = min(max(TMA_DEPTH, together), most_slots(loop, copies), enough)
    best = fitting[:most][-1]
    why = Reason("depth.deepest", depth=best.depth, most=most)
    if best.depth > TMA_DEPTH:
        why = Reason("depth.deepest_in_step", depth=best.depth, most=most)
    for deeper in fitting[most:enough]:  # memory, not the loop, asks for more in flight
        if deeper.us < best.us * (1 - TOLERANCE):
            best, why = deeper, Reason("depth.memory", depth=deeper.depth)
    reasons = (*depth_reasons(best, work, machine, max(most, best.depth)), why)
    choice = DepthChoice(best.depth, best, reasons)
    choice = choose_ring_depths(choice, work, machine, most_slots(loop, copies))
    return _with_slots(loop, choice, copies, request), choice.prediction


def _read_in_step(loop: LoopInfo, work: Work, machine: Machine) -> float:
    """Bytes that all CTAs together read from memory in a step; 0 where CTAs are not in step.

    CTAs of one wave walk along K together: memory has each byte of a step in flight once, however
    many CTAs wait for it.
    """
    once = loop.outer == 1 and work.grid.ctas is not None and work.grid.ctas <= machine.sms
    read = sum({op.src: op.src_bytes for op in loop.ops if isinstance(op, CopyInfo)}.values())
    return read / work.grid.trip if once and work.grid.trip else 0.0


def _with_slots(
    loop: LoopInfo,
    choice: DepthChoice,
    copies: tuple[CopyPlan, ...],
    request: Request,
    asked: Container[str] = (),
) -> LoopPlan:
    """The plan of ``loop`` with the rings of ``choice``; ``asked``: rings that were asked for."""
    rings = tuple(
        _ring(loop, buffer, scope, size, choice, requested=buffer in asked)
        for buffer, scope, size in ring_buffers(loop, copies)
    )
    return _loop_plan(loop, rings, choice, copies, request, "request" if asked else "auto")


def _plan_asked(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
    asked: dict[str, int],
) -> tuple[LoopPlan, Prediction]:
    """The plan of a loop some of whose depths are given; other rings take the model's choice."""
    buffers = ring_buffers(loop, copies)
    free = choose_depth(work, machine, most_slots(loop, copies))
    default = max(asked.values()) if isinstance(free, Reason) else free.depth
    depths = {name: asked.get(name, default) for name, _, _ in buffers}
    most = max(depths.values(), default=max(asked.values()))
    names = "+".join(depths) or loop.name
    if len(set(depths.values())) <= 1:
        prediction = check_depth(names, most, work, machine)
        reasons = depth_reasons(prediction, work, machine, MAX_DEPTH)
    else:
        of_shared = {ring.buffer: depths[ring.buffer] for ring in work.shared.rings}
        prediction = check_depth(names, of_shared or min(depths.values()), work, machine)
        reasons = asked_ring_depths(prediction, of_shared, work)
    laws = ring_laws(prediction, work, machine) if len(set(depths.values())) > 1 else {}
    choice = DepthChoice(most, prediction, reasons, depths, laws)
    return _with_slots(loop, choice, copies, request, asked), prediction


def _asked_depths(loop: LoopInfo, copies: tuple[CopyPlan, ...], request: Request) -> dict[str, int]:
    """The depth of each ring that the request or the loop's annotation names.

    A loop without rings has its own name here; more than one slot is not asked of it but of others.
    """
    names = _ring_names(loop, copies) or [loop.name]
    asked = {name: request.depth_of(name) or loop.depth for name in names}
    if not ring_buffers(loop, copies):
        asked = {loop.name: loop.depth or (1 if request.depth == 1 else None)}
    return {name: depth for name, depth in asked.items() if depth is not None}


def _ring_names(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> list[str]:
    """The names that a depth can be asked for: buffers, or loads of a loop without tiles."""
    rings = (*loop.rings, *ring_buffers(loop, copies))
    return list(dict.fromkeys(name for name, _, _ in rings))


def check_buffers(info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a depth of a buffer that is no ring of the kernel."""
    if not isinstance(request.depth, Mapping):
        return
    known = [name for loop in info.loops for name in _ring_names(loop, ())]
    for name in request.depth:
        if name not in known:
            rings = tuple(known)
            raise PlanError("depth.unknown_ring", ring=name, kernel=info.name, rings=rings)


def ring_buffers(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> list[tuple[str, str, int]]:
    """Name, scope and slot bytes of each ring: the tiles that the loop's copies fill.

    A loop without tiles gets a register ring for each of its loads, named after the load: the
    buffer itself is made when the load is split off its statement.
    """
    filled = {plan.dst for plan in copies}
    rings = [ring for ring in loop.rings if ring[0] in filled or ring[1].startswith("shared")]
    if rings:
        return rings
    return [
        (str(streamed_ops(op.op)[0]), "local", op.global_bytes)
        for op in loop.ops
        if isinstance(op, StatementInfo) and op.global_bytes and op.loads and op.kind != "store"
    ]


def _ring(
    loop: LoopInfo,
    buffer: str,
    scope: str,
    size: int,
    choice: DepthChoice,
    *,
    requested: bool,
) -> RingPlan:
    filling = tuple(Op(op.op) for op in loop.ops if isinstance(op, CopyInfo) and op.dst == buffer)
    loads = (streamed_ops(op.op)[0] for op in loop.ops if isinstance(op, StatementInfo))
    producers = filling or tuple(load for load in loads if load == buffer)
    consumers = tuple(
        Op(op.op) for op in loop.ops if isinstance(op, MatmulInfo) and buffer in (op.a, op.b)
    )
    asked = Reason("request.asked") if requested else None
    return RingPlan(
        buffer=buffer,
        scope=scope,
        depth=choice.of(buffer),
        slot_bytes=size,
        producers=producers,
        consumers=consumers,
        requested=requested,
        reason=all_of((asked, *choice.reasons, choice.why.get(buffer))),
    )


def _loop_plan(
    loop: LoopInfo,
    rings: tuple[RingPlan, ...],
    choice: DepthChoice,
    copies: tuple[CopyPlan, ...],
    request: Request,
    source: Literal["auto", "request"],
) -> LoopPlan:
    epilogue = _asked_epilogue(loop, copies, request)
    reasons: tuple[Why, ...] = choice.reasons
    if request.epilogue == "auto" and is_asynchronous(copies):
        clamps = not loop.overwritten and _clamps(loop, copies, choice)
        epilogue = "clamped" if clamps else epilogue
        guarded = Reason("clamped.guarded", why=loop.overwritten or Reason("clamped.dearer"))
        reasons = (*reasons, CLAMP_REASON) if clamps else (guarded, *reasons)
    return LoopPlan(
        name=loop.name,
        trip=loop.trip_text,
        pipelined=True,
        rings=rings,
        epilogue=epilogue,
        source=source,
        reasons=reasons,
    )


def _asked_epilogue(loop: LoopInfo, copies: tuple[CopyPlan, ...], request: Request) -> Epilogue:
    """The epilogue that is asked for; rolled where that is open or nothing can be clamped."""
    if have_producer(copies) and request.epilogue not in ("auto", "rolled"):
        raise PlanError("producer.epilogue", loop=loop.name, epilogue=request.epilogue)
    if is_asynchronous(copies):
        check_clamped(loop, request.epilogue)
    nothing = request.epilogue == "clamped" and not is_asynchronous(copies)
    return "rolled" if request.epilogue == "auto" or nothing else request.epilogue


def check_clamped(loop: LoopInfo, epilogue: str) -> None:
    """PlanError: asynchronous copies of ``loop`` cannot repeat its last tile, as ``epilogue``."""
    if epilogue == "clamped" and loop.overwritten:
        raise PlanError("clamped.overwritten", loop=loop.name, why=loop.overwritten)


def named(copies: Iterable[CopyPlan]) -> tuple[Reason, ...]:
    """``copies`` with their mechanisms, for an error."""
    found = (Reason("clamped.copy", copy=one.op, mechanism=one.mechanism) for one in copies)
    return tuple(found) or (Reason("clamped.none"),)


def is_asynchronous(copies: Iterable[CopyPlan]) -> bool:
    """Whether any copy is by cp.async: only those can be clamped."""
    return any(moved_by(plan).in_groups for plan in copies)


def _clamps(loop: LoopInfo, copies: tuple[CopyPlan, ...], choice: DepthChoice) -> bool:
    """Whether clamping overrunning loads costs less than guarding them.

    ``trip >= CLAMP_TRIPS * (depth - 1)``, ``IM2COL_CLAMP_TRIPS`` for implicit GEMM by wgmma.
    """
    if not is_asynchronous(copies):
        return False
    pixels = any(of_pixels(op) for op in loop.ops if isinstance(op, CopyInfo))
    work = choice.prediction.work
    if pixels and work.usage.tensor and not work.wgmma.cycles:
        return False
    cost = IM2COL_CLAMP_TRIPS if pixels and work.wgmma.cycles else CLAMP_TRIPS
    return loop.trip is None or loop.trip >= cost * (choice.depth - 1)


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


def most_slots(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> int:
    """The deepest ring worth considering: no deeper than the trip count, 1 without a ring."""
    through_registers = all(moved_by(plan).through_registers for plan in copies)
    if not ring_buffers(loop, copies) and not (copies and through_registers):
        return 1
    most = REGISTER_DEPTH if copies and through_registers else MAX_DEPTH
    return most if loop.trip is None else max(1, min(most, loop.trip))
