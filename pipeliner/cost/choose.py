"""Fix instruction, mechanism, layout and depth of everything in a kernel, with the reason for each.

A request is honoured or raises; a free choice is made by predicted time, and a loop that gains
nothing is left alone with the number that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Final, cast

from ..errors import PlanError
from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from ..machine import Machine
from ..plan import (
    CopyPlan,
    KernelPlan,
    LoopPlan,
    MatmulPlan,
    OpKind,
    OpPlan,
    RingPlan,
    SmemPlan,
)
from ..request import Request
from .copies import plan_copy, shared_bytes
from .depth import MAX_DEPTH, DepthChoice, check_depth, choose_depth, count, depth_reasons
from .mapping import Mapping as Mapped
from .mapping import map_matmul
from .ops import op_cost
from .predict import Prediction, Work, predict
from .usage import Usage, memory_rate, of_arithmetic, of_copy, of_fragments, of_statement

DEFAULT_REGISTERS: Final = 64
"""Assumed for a thread of a kernel whose compute we do not map."""

DEFAULT_THREADS: Final = 256
"""Of a tile function without a matmul: eight warps keep every scheduler busy."""

REGISTER_DEPTH: Final = 2
"""Slots of a shared ring filled through registers: its loads wait in registers, so shared memory
only has to hold the tile being read and the one being written."""


def choose(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan:
    """The plan of one kernel, up to its schedule: cycles, stages and barriers come from the passes.

    Raises PlanError or TargetError for a request that this kernel or GPU cannot meet.
    """
    _check_buffers(info, request)
    matmuls, threads, registers, reasons = _map_matmuls(info, machine, request)
    loops: list[LoopPlan] = []
    copies: list[CopyPlan] = []
    predicted: list[Prediction] = []
    for loop in info.loops:
        moved = tuple(
            plan_copy(op, loop, matmuls, machine, request)
            for op in loop.ops
            if isinstance(op, CopyInfo)
        )
        work = work_of(info, loop, moved, matmuls, threads, registers, machine)
        plan, prediction = _plan_loop(loop, moved, work, machine, request)
        loops.append(plan)
        copies.extend(moved if plan.pipelined else _unpipelined(loop, moved))
        if prediction is not None:
            predicted.append(prediction)
    loops.extend(
        LoopPlan(name=name, trip="", pipelined=False, reasons=(why,)) for name, why in info.declined
    )
    kernel = KernelPlan(
        kernel=info.name,
        target=machine.arch,
        machine=machine.name,
        threads=threads,
        loops=tuple(loops),
        copies=tuple(copies),
        matmuls=matmuls,
        smem=SmemPlan(budget=machine.smem_per_cta),
        predicted_us=round(sum(p.us for p in predicted), 2),
        reasons=(*reasons, *(_summary(prediction, machine) for prediction in predicted)),
    )
    return replace(
        kernel,
        loops=tuple(
            replace(loop, ops=_op_plans(found, info, kernel, machine)) if loop.pipelined else loop
            for loop, found in zip_longest(kernel.loops, info.loops)
        ),
    )


def _op_plans(
    loop: LoopInfo, info: KernelInfo, plan: KernelPlan, machine: Machine
) -> tuple[OpPlan, ...]:
    """The ops that mapping makes of a loop's statements, with their costs, in program order."""
    return tuple(
        OpPlan(name, kind, block, *op_cost(name, info, plan, machine))
        for op in loop.ops
        for name, kind, block in _op_names(op, plan)
    )


def _op_names(
    op: CopyInfo | MatmulInfo | StatementInfo, plan: KernelPlan
) -> Iterator[tuple[str, OpKind, str]]:
    """Name, kind and source block of each op that statement ``op`` becomes."""
    if isinstance(op, StatementInfo):
        yield op.op, cast(OpKind, op.kind), op.op
    elif isinstance(op, CopyInfo):
        through_registers = any(c.op == op.op and c.mechanism == "register" for c in plan.copies)
        if through_registers:
            yield f"{op.op}.load", "load", op.op
            yield f"{op.op}.store", "store", op.op
        else:
            yield op.op, "copy", op.op
    else:
        steps = next((mapped.steps for mapped in plan.matmuls if mapped.op == op.op), 0)
        if not steps:
            yield op.op, "mma", op.op
        for step in range(steps):
            yield f"{op.op}.k{step}.a", "load", op.op
            yield f"{op.op}.k{step}.b", "load", op.op
            yield f"{op.op}.k{step}", "mma", op.op


def work_of(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    threads: int,
    registers: int,
    machine: Machine,
) -> Work:
    """The descriptor of one loop of a kernel, from its statements and how they are mapped."""
    rate = memory_rate(machine, loop)
    usage = sum(_usages(loop, copies, matmuls, machine, rate), Usage())
    shared = sum(size for _, scope, size in loop.rings if scope.startswith("shared"))
    staged = sum(
        shared_bytes(op)
        for op, plan in _copies(loop, copies)
        if plan.mechanism == "register" or op.dst_scope == "local"
    )
    streamed = 0 if copies else usage.global_bytes
    ctas = 1
    for extent in info.grid:
        ctas = 0 if extent is None else ctas * extent
    outer = loop.outer or 1
    mapped = list(_mapped(loop, matmuls))
    return Work(
        usage=usage,
        rate=rate,
        trip=None if loop.trip is None else loop.trip * outer,
        ctas=ctas or None,
        threads=threads,
        registers=registers + -(-staged // (4 * threads)),
        slot_bytes=shared,
        fixed_smem=sum(size for _, scope, size in info.accumulators if scope.startswith("shared")),
        slot_registers=-(-streamed // (4 * threads)),
        store_bytes=sum(size for _, scope, size in info.accumulators if scope == "local")
        * (info.threads or 1),
        synchronised=shared > 0,
        ahead=max((1 / plan.steps for _, plan in mapped if plan.steps > 1), default=0.0),
        first=max(
            (
                sum(of_fragments(op, plan, machine, side).lsu for side in "ab") / plan.steps
                for op, plan in mapped
            ),
            default=0.0,
        ),
    )


def _usages(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
) -> Iterator[Usage]:
    for copy, plan in _copies(loop, copies):
        yield of_copy(copy, plan, machine, rate)
    for op in loop.ops:
        if isinstance(op, StatementInfo):
            yield of_statement(op, machine, rate)
    for matmul, mapping in _mapped(loop, matmuls):
        yield of_arithmetic(matmul, mapping, machine)
        yield of_fragments(matmul, mapping, machine, "a")
        yield of_fragments(matmul, mapping, machine, "b")


def _mapped(
    loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> Iterator[tuple[MatmulInfo, MatmulPlan]]:
    by_name = {plan.op: plan for plan in matmuls}
    for op in loop.ops:
        if isinstance(op, MatmulInfo) and op.op in by_name:
            yield op, by_name[op.op]


def _copies(loop: LoopInfo, plans: tuple[CopyPlan, ...]) -> Iterator[tuple[CopyInfo, CopyPlan]]:
    by_name = {plan.op: plan for plan in plans}
    for op in loop.ops:
        if isinstance(op, CopyInfo):
            yield op, by_name[op.op]


def _map_matmuls(
    info: KernelInfo, machine: Machine, request: Request
) -> tuple[tuple[MatmulPlan, ...], int, int, tuple[str, ...]]:
    """Mapped matmuls, threads of a CTA, registers of a thread, and what could not be mapped."""
    plans: list[MatmulPlan] = []
    reasons: list[str] = []
    threads = info.threads or None
    registers = info.registers_hint or DEFAULT_REGISTERS
    for loop in info.loops:
        for op in loop.ops:
            if not isinstance(op, MatmulInfo):
                continue
            mapped = map_matmul(op, machine, request, threads)
            if isinstance(mapped, Mapped):
                plans.append(mapped.plan)
                threads, registers = mapped.threads, max(registers, mapped.registers)
            else:
                reasons.append(f"'{op.op}' is not mapped: {mapped}")
    return tuple(plans), threads or DEFAULT_THREADS, registers, tuple(reasons)


def _plan_loop(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
) -> tuple[LoopPlan, Prediction | None]:
    if loop.annotated:
        why = "stages and order are the schedule's own annotation"
        plan = LoopPlan(loop.name, loop.trip_text, True, source="annotation", reasons=(why,))
        return plan, predict(work, machine, 1)
    asked = _asked_depths(loop, request)
    if asked:
        return _plan_asked(loop, copies, work, machine, request, asked)
    if loop.trip is not None and loop.trip <= 1:
        alone = predict(work, machine, 1) if loop.trip else None
        return _decline(loop, f"{count(loop.trip, 'iteration')}: nothing to overlap"), alone
    if work.usage.global_bytes == 0:
        return _decline(loop, "no statement of the loop loads from global memory"), None
    choice = choose_depth(work, machine, _most(copies))
    if isinstance(choice, str):
        return _decline(loop, choice), None
    if choice.depth == 1:
        return _decline(loop, _not_worth_it(choice)), choice.prediction
    rings = tuple(
        _ring(loop, buffer, scope, size, choice.depth, choice.reasons)
        for buffer, scope, size in _ring_buffers(loop, copies)
    )
    return _loop_plan(loop, rings, choice, machine, request), choice.prediction


def _plan_asked(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    work: Work,
    machine: Machine,
    request: Request,
    asked: dict[str, int],
) -> tuple[LoopPlan, Prediction]:
    """A loop some of whose depths are given; the others take what the model gives the loop."""
    buffers = _ring_buffers(loop, copies)
    free = choose_depth(work, machine, _most(copies))
    default = max(asked.values()) if isinstance(free, str) else free.depth
    depths = {name: asked.get(name, default) for name, _, _ in buffers}
    needs = work.fixed_smem + sum(
        depths[name] * size for name, scope, size in buffers if scope.startswith("shared")
    )
    most = max(depths.values(), default=max(asked.values()))
    names = "+".join(depths) or loop.name
    if len(set(depths.values())) <= 1:
        prediction = check_depth(names, most, work, machine)
    elif needs > machine.smem_per_cta:
        given = ", ".join(f"{name}: {depth}" for name, depth in depths.items())
        raise PlanError(
            f"cannot give depths {given}: they need {needs} bytes of shared memory, "
            f"a CTA of {machine.name} has {machine.smem_per_cta}"
        )
    else:
        prediction = check_depth(names, min(depths.values()), work, machine)
    reasons = depth_reasons(prediction, work, machine, MAX_DEPTH)
    rings = tuple(
        _ring(loop, name, scope, size, depths[name], reasons, requested=name in asked)
        for name, scope, size in buffers
    )
    choice = DepthChoice(most, prediction, reasons)
    return _loop_plan(loop, rings, choice, machine, request, source="request"), prediction


def _asked_depths(loop: LoopInfo, request: Request) -> dict[str, int]:
    """Depth of each ring that the request or the loop's annotation names."""
    names = [name for name, _, _ in loop.rings] or [loop.name]
    asked = {name: request.depth_of(name) or loop.depth for name in names}
    return {name: depth for name, depth in asked.items() if depth is not None}


def _check_buffers(info: KernelInfo, request: Request) -> None:
    if not isinstance(request.depth, Mapping):
        return
    known = [name for loop in info.loops for name, _, _ in loop.rings]
    for name in request.depth:
        if name not in known:
            raise PlanError(f"cannot give a depth to '{name}': '{info.name}' has rings {known}")


def _ring_buffers(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> list[tuple[str, str, int]]:
    """Name, scope and slot bytes of what gets slots: the tiles that the loop's copies fill.

    A loop without any gets a register ring for each of its loads, named after the load: the buffer
    itself is made when the load is split off its statement.
    """
    filled = {plan.dst for plan in copies}
    rings = [ring for ring in loop.rings if ring[0] in filled or ring[1].startswith("shared")]
    if rings:
        return rings
    return [
        (f"{op.op}.load", "local", op.global_bytes)
        for op in loop.ops
        if isinstance(op, StatementInfo) and op.global_bytes and op.kind != "store"
    ]


def _ring(
    loop: LoopInfo,
    buffer: str,
    scope: str,
    size: int,
    depth: int,
    reasons: tuple[str, ...],
    requested: bool = False,
) -> RingPlan:
    producers = tuple(
        op.op for op in loop.ops if isinstance(op, CopyInfo) and op.dst == buffer
    ) or tuple(op.op for op in loop.ops if f"{op.op}.load" == buffer)
    consumers = tuple(
        op.op for op in loop.ops if isinstance(op, MatmulInfo) and buffer in (op.a, op.b)
    )
    reason = ("asked for; " if requested else "") + "; ".join(reasons)
    return RingPlan(
        buffer=buffer,
        scope=scope,
        depth=depth,
        slot_bytes=size,
        producers=producers,
        consumers=consumers,
        requested=requested,
        reason=reason,
    )


def _loop_plan(
    loop: LoopInfo,
    rings: tuple[RingPlan, ...],
    choice: DepthChoice,
    machine: Machine,
    request: Request,
    source: str = "auto",
) -> LoopPlan:
    return LoopPlan(
        name=loop.name,
        trip=loop.trip_text,
        pipelined=True,
        rings=rings,
        epilogue="rolled" if request.epilogue == "auto" else request.epilogue,
        source="request" if source == "request" else "auto",
        reasons=choice.reasons,
    )


def _decline(loop: LoopInfo, why: str) -> LoopPlan:
    return LoopPlan(loop.name, loop.trip_text, pipelined=False, reasons=(why,))


def _not_worth_it(choice: DepthChoice) -> str:
    best = choice.prediction
    return (
        f"a deeper ring gains nothing: {best.resident} CTAs an SM already hide R = "
        f"{best.response:.0f} cycles at {best.step:.0f} a step (bound by {best.limiter})"
    )


def _most(copies: tuple[CopyPlan, ...]) -> int:
    through_registers = any(plan.mechanism == "register" for plan in copies)
    return REGISTER_DEPTH if through_registers else MAX_DEPTH


def _unpipelined(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> Iterator[CopyPlan]:
    """Copies of a loop that is left alone: nothing waits for an asynchronous one there."""
    bound = {op.op for op in loop.ops if isinstance(op, CopyInfo) and op.bound}
    for plan in copies:
        if plan.op not in bound:
            yield _through_registers(plan)


def _through_registers(plan: CopyPlan) -> CopyPlan:
    if plan.mechanism != "cp_async":
        return plan
    return replace(
        plan, mechanism="register", reason="through registers: its loop is not pipelined"
    )


def _summary(prediction: Prediction, machine: Machine) -> str:
    return (
        f"predicted {prediction.us:.1f} us: {prediction.roofline:.0%} of the compute roofline of "
        f"{machine.name}, limited by {prediction.limiter}"
    )
