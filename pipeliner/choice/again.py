"""Rebuild a plan from its decisions, and predict its time.

Decided are mechanisms, instructions, warps, slots, clusters, launches and stages. Everything else
of a plan follows from those and from the function, so that rebuilding it says whether a plan that
was handed in fits. The plan, its alternatives and its timeline show the same predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..cost.descriptor import Depth, Work
from ..cost.interval import residual_of
from ..cost.ops import op_plans
from ..cost.predict import Prediction, predict
from ..diagnostics import is_code
from ..errors import PlanError
from ..machine import Machine
from ..mechanisms.eviction import check_eviction
from ..mechanisms.launch import check_launch
from ..mechanisms.pinned import pinned
from ..mechanisms.roles import plan_roles
from ..mechanisms.stores import put_together
from ..mechanisms.table import have_producer, moved_by
from ..plan import (
    SCALAR,
    CopyPlan,
    KernelPlan,
    LaunchPlan,
    LoopPlan,
    MatmulPlan,
    RingPlan,
    SmemPlan,
)
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, LoopInfo
from .depth import REGISTER_DEPTH
from .elementwise import elementwise_plans
from .epilogues import check_clamped, is_asynchronous, named
from .mapped import LoopWork, MappedKernel, map_kernel, uses_wgmma
from .planned import check_cluster, predicted_us, summary
from .scalar import shared_out

PREDICTED: Final = "choice.predicted"
"""The code of a plan's reason that states the predicted time of a loop."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predictions of a plan's loops, by name, and the microseconds of the kernel."""

    loops: dict[str, Prediction]
    us: float


def mapped_as(info: KernelInfo, machine: Machine, plan: KernelPlan) -> MappedKernel:
    """The kernel without its depths, mapped as ``plan`` says; raises what cannot be had."""
    return map_kernel(info, machine, pinned(plan))


def predicted(info: KernelInfo, machine: Machine, plan: KernelPlan) -> Predicted:
    """The time of ``plan`` as it is: its rings, its mechanisms, its loops left alone.

    Nothing is predicted of a kernel whose nests are shared out over threads.
    """
    if _is_shared_out(plan):
        return Predicted({}, 0.0)
    return _predicted(mapped_as(info, machine, plan), info, machine, plan)


def with_prediction(info: KernelInfo, machine: Machine, plan: KernelPlan) -> KernelPlan:
    """``plan`` with its predicted time in place of what was predicted before it was built."""
    found = predicted(info, machine, plan)
    news = tuple(summary(one, machine) for one in found.loops.values())
    old = [at for at, reason in enumerate(plan.reasons) if is_code(reason, PREDICTED)]
    at = old[0] if old else len(plan.reasons)
    said = [reason for reason in plan.reasons if not is_code(reason, PREDICTED)]
    return replace(
        plan,
        predicted_us=found.us,
        predicted_within=residual_of(found.us, list(found.loops.values()), machine),
        reasons=(*said[:at], *news, *said[at:]),
    )


def is_as_predicted(chosen: KernelPlan, made: KernelPlan) -> bool:
    """Whether ``made`` has the loops, slots and wgmma in flight that ``chosen`` was predicted with.

    A loop that is not pipelined was predicted with copies that it does not have.
    """
    loops = {loop.name: loop for loop in made.loops}
    flying = [(matmul.op, matmul.in_flight) for matmul in chosen.matmuls]
    return flying == [(matmul.op, matmul.in_flight) for matmul in made.matmuls] and all(
        _has_depths(loop, loops[loop.name]) for loop in chosen.loops if loop.trip
    )


def _has_depths(chosen: LoopPlan, made: LoopPlan) -> bool:
    depths = {ring.buffer: ring.depth for ring in made.rings}
    same = all(depths.get(ring.buffer, 1) == ring.depth for ring in chosen.rings)
    return chosen.pipelined and made.pipelined and same and chosen.source != "annotation"


def remade(info: KernelInfo, machine: Machine, plan: KernelPlan) -> KernelPlan:
    """The plan that the decisions of ``plan`` lead to; its loops are not scheduled yet.

    Raises PlanError or TargetError for a decision that cannot be had.
    """
    if _is_shared_out(plan):
        return replace(
            shared_out(info, machine, Request()), launch=_launch(plan.launch, info, machine)
        )
    mapped = mapped_as(info, machine, plan)
    info = put_together(info, mapped.stores)
    wide = uses_wgmma(mapped.matmuls)
    loops: list[LoopPlan] = []
    copies = [_as_decided(copy, plan) for copy in mapped.before]
    for one in mapped.loops:
        loop, moved = _loop(one, plan, wide=wide)
        loops.append(loop)
        copies.extend(moved)
    loops.extend(LoopPlan(name, "", pipelined=False, reasons=(why,)) for name, why in info.declined)
    cluster = plan.cluster
    consumers = pinned(plan).consumers
    roles, pairs = plan_roles(
        info, tuple(loops), tuple(copies), mapped.matmuls, machine, cluster, consumers
    )
    check_cluster(info, cluster, copies)
    flying = {matmul.op: matmul.in_flight for matmul in plan.matmuls}

    def with_in_flight(matmul: MatmulPlan) -> MatmulPlan:
        given = flying.get(matmul.op, 0)
        steps = min(given, matmul.in_flight) if roles else given if wide else 0
        return replace(matmul, in_flight=steps)

    made = KernelPlan(
        kernel=info.name,
        target=f"{machine.arch}a" if wide else machine.arch,
        machine=machine.name,
        threads=sum(role.threads for role in roles) or mapped.threads,
        loops=tuple(loops),
        copies=tuple(copies),
        matmuls=tuple(map(with_in_flight, mapped.matmuls)),
        elementwise=elementwise_plans(info, machine),
        stores=mapped.stores,
        roles=roles,
        mbarriers=pairs,
        cluster=cluster,
        launch=_launch(plan.launch, info, machine),
        smem=SmemPlan(budget=machine.smem_per_cta),
        reasons=mapped.reasons,
    )
    known = {found.name: found for found in info.loops}
    costed = tuple(
        replace(loop, ops=op_plans(known[loop.name], info, made, machine))
        if loop.pipelined
        else loop
        for loop in made.loops
    )
    return replace(made, loops=costed)


def _is_shared_out(plan: KernelPlan) -> bool:
    """Whether threads compute the elements of a matmul one by one."""
    return any(matmul.instruction == SCALAR for matmul in plan.matmuls)


def _loop(one: LoopWork, plan: KernelPlan, *, wide: bool) -> tuple[LoopPlan, tuple[CopyPlan, ...]]:
    """The loop and its copies as ``plan`` decides them, without the loop's schedule."""
    given = plan.loop(one.loop.name)
    moved = tuple(_as_decided(copy, plan) for copy in one.copies)
    check_eviction(moved)
    if not given.pipelined:
        return _left_alone(one.loop, moved, plan, wide=wide)
    if given.source == "annotation" and not one.loop.annotated:
        raise PlanError("decided.annotation", loop=given.name)
    _check_epilogue(given, moved)
    check_clamped(one.loop, given.epilogue)
    _check_moved(given, moved, wide=wide)
    loop = LoopPlan(
        given.name,
        one.loop.trip_text,
        pipelined=True,
        rings=tuple(_ring(ring, one.loop) for ring in given.rings),
        epilogue=given.epilogue,
        source=given.source,
        reasons=given.reasons,
    )
    return loop, moved


def _as_decided(copy: CopyPlan, plan: KernelPlan) -> CopyPlan:
    """``copy`` with what a plan may decide freely: its cache and its L2 eviction priority."""
    given = next((one for one in plan.copies if one.op == copy.op), None)
    if given is None:
        return copy
    widest = copy.mechanism == "cp_async" and copy.vector_bytes == 16
    cache = given.cache if widest else copy.cache
    return replace(copy, cache=cache, eviction=given.eviction)


def _left_alone(
    loop: LoopInfo, copies: tuple[CopyPlan, ...], plan: KernelPlan, *, wide: bool
) -> tuple[LoopPlan, tuple[CopyPlan, ...]]:
    """A loop that is not pipelined, and its copies, none of which may be asynchronous."""
    bound = {op.op for op in loop.ops if isinstance(op, CopyInfo) and op.bound}
    named = {copy.op for copy in plan.copies}
    kept = tuple(copy for copy in copies if copy.op in named or copy.op not in bound)
    for copy in kept:
        if moved_by(copy).completion != "loads":
            mechanism = copy.mechanism
            raise PlanError("decided.not_waited", copy=copy.op, mechanism=mechanism, loop=loop.name)
    if wide and copies:
        raise PlanError("decided.wgmma", loop=loop.name)
    return LoopPlan(loop.name, loop.trip_text, pipelined=False), kept


def _check_moved(loop: LoopPlan, copies: tuple[CopyPlan, ...], *, wide: bool) -> None:
    """Raise PlanError where a producer makes only some copies, or fills what is no ring."""
    others = [copy for copy in copies if not moved_by(copy).by_producer]
    if wide and others and len(others) < len(copies):
        mechanism = others[0].mechanism
        raise PlanError("decided.mixed", copy=others[0].op, mechanism=mechanism, loop=loop.name)
    rings = {ring.buffer for ring in loop.rings}
    for copy in copies:
        if moved_by(copy).by_producer and copy.dst not in rings:
            raise PlanError("decided.no_ring", copy=copy.op, buffer=copy.dst, loop=loop.name)


def _check_epilogue(loop: LoopPlan, copies: tuple[CopyPlan, ...]) -> None:
    """Raise PlanError for an epilogue that the copies of the loop cannot have."""
    if have_producer(copies) and loop.epilogue != "rolled":
        raise PlanError("producer.epilogue", loop=loop.name, epilogue=loop.epilogue)
    if loop.epilogue == "clamped" and not is_asynchronous(copies):
        raise PlanError("clamped.loop", loop=loop.name, copies=named(copies))


def _ring(given: RingPlan, loop: LoopInfo) -> RingPlan:
    """``given`` with the bytes of a slot, where the loop states them."""
    if given.depth < 1:
        raise PlanError("plan.no_slot", ring=given.buffer, depth=given.depth)
    sizes = {name: size for name, _, size in loop.rings}
    return replace(given, slot_bytes=sizes.get(given.buffer, given.slot_bytes))


def _launch(given: LaunchPlan, info: KernelInfo, machine: Machine) -> LaunchPlan:
    """``given``; raises PlanError where the machine cannot launch so."""
    check_launch(given, info)
    if given.pdl and not machine.has_pdl:
        raise PlanError("launch.pdl", kernel=info.name, machine=machine.name)
    if given.pdl and info.cooperative:
        raise PlanError("launch.cooperative", kernel=info.name)
    triggers = sorted(set(given.triggers)) if given.pdl else []
    return replace(given, triggers=tuple(triggers))


def _predicted(
    mapped: MappedKernel, info: KernelInfo, machine: Machine, plan: KernelPlan
) -> Predicted:
    found: dict[str, Prediction] = {}
    for one in mapped.loops:
        loop = plan.loop(one.loop.name)
        flying = _in_flight(plan, one.loop) if loop.pipelined else 0
        prediction = predict(one.work, machine, slots_of(one.work, loop), flying)
        runs = one.loop.trip != 0 and one.work.usage.global_bytes > 0
        if prediction is not None and (loop.pipelined or runs):
            found[loop.name] = prediction
    left = put_together(info, mapped.stores)
    return Predicted(found, predicted_us(left, list(found.values()), machine))


def slots_of(work: Work, loop: LoopPlan) -> Depth:
    """Slots of the rings of ``loop`` that hide loads: one number, or one for each ring."""
    if not loop.pipelined:
        return 1
    depths = {ring.buffer: ring.depth for ring in loop.rings}
    shared = {ring.buffer: depths.get(ring.buffer, 1) for ring in work.shared.rings}
    loads = [ring.depth for ring in loop.rings if ring.load is not None]
    if not shared and not loads:  # a tile may be staged in registers until the slot is free
        return min(REGISTER_DEPTH, loop.stages) if work.loads.register_staged else 1
    found = list(shared.values()) or loads
    if len(set(found)) == 1:
        return found[0]
    return shared or min(loads)


def _in_flight(plan: KernelPlan, loop: LoopInfo) -> int | None:
    """Steps of wgmma that stay in flight; None: the model chooses, as with a producer warp."""
    names = {op.op for op in loop.ops}
    own = [m for m in plan.matmuls if m.op in names and m.instruction.startswith("wgmma")]
    return None if plan.roles or not own else min(matmul.in_flight for matmul in own)
