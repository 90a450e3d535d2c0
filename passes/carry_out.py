"""Carry out one plan: make the kernel that the plan describes from a recognised function.

    a loop in op form, a plan => threads and instructions, copies, a modulo schedule, prologue and
                                 steady state (or roles), shared memory, barriers

``pipeline`` calls it for one plan after the other until one can be carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm.support import nvcc

from ..choice.alone import unpipelined
from ..choice.k_tail import check_skips
from ..choice.mapped import uses_wgmma
from ..diagnostics import Reason, Why
from ..errors import PlanError, ScheduleRefused, TargetError
from ..machine import Machine
from ..plan import CopyPlan, KernelPlan, LoopPlan, MatmulPlan
from ..values.facts import KernelInfo
from .copy.copies import lower_copies
from .dependence.graph import dependence
from .expand.rewrite import expand
from .ir.op_form import op_loops, thread_extents
from .map.beside import map_beside
from .map.elementwise import map_elementwise
from .map.instructions import map_tiles
from .matmul.descriptors import compute_once
from .recognise.facts import Kernel
from .schedule.annotations import annotated_plan, async_statements, is_annotated, staged_statements
from .schedule.code_size import check_size
from .schedule.modulo import schedule_loop
from .schedule.obeyed import is_scheduled, scheduled_as
from .schedule.used_slots import why_no_overlap, with_slots_used
from .smem.place import place
from .smem.vthreads import private_buffers
from .specialise.slice import specialise, with_roles
from .steps import Steps
from .sync.labels import label
from .sync.launch import dependent_launches
from .sync.synchronise import synchronise

_GIVEN: Final = ("request", "annotation", "edited")
"""Sources of a loop's plan for which it counts as requested."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A loop whose plan cannot be carried out, and the error."""

    loop: str
    error: PlanError


def carry_out(
    steps: Steps,
    kernel: Kernel,
    plan: KernelPlan,
    target: Any,
    machine: Machine,
    given: KernelPlan | None = None,
    *,
    asked: bool = False,
) -> KernelPlan:
    """Carry ``plan`` out on the recognised function; return the plan as it was carried out.

    A loop that cannot be scheduled, or would overlap nothing, is left as it is, unless the plan was
    ``given``. ``asked``: the mechanism of copies was asked for, so such copies stay. Raises
    PlanError if the plan is impossible.
    """
    if uses_wgmma(plan.matmuls) and not str(target.arch).endswith("a"):
        raise TargetError("matmul.target", arch=str(target.arch), needed=plan.target)
    check_skips(plan, kernel.info)
    plan = _with_legal_copies(steps.func, plan)
    recognised = steps.func
    while True:
        try:
            done = _schedule(steps, kernel, plan, machine, given, asked=asked)
            if isinstance(done, KernelPlan):
                return placed(steps, done, target, machine.smem_per_cta)
            if given is not None:
                raise done.error
            plan = _without_pipelining(plan, kernel.info, machine, done.error, done.loop)
        except PlanError as err:
            if given is not None:
                raise
            plan = _without_pipelining(plan, kernel.info, machine, err)
        steps.func = recognised


def _with_legal_copies(func: Any, plan: KernelPlan) -> KernelPlan:
    """Return ``plan`` with the copy mechanisms that the function itself determines.

    In a loop with TVM's annotations exactly the copies that it marks are asynchronous. A buffer of
    which every virtual thread has a copy must be written by stores, because TVM looks at nothing
    else.
    """
    named: dict[str, bool] = {}
    staged: frozenset[str] = frozenset()
    for form in op_loops(func):
        if is_annotated(form.node):
            wanted = async_statements(form.node)
            named.update((name, name in wanted) for name in form.names)
            staged |= staged_statements(form.node)
    private = {str(buffer.name) for buffer in private_buffers(func.body)}

    def legal(copy: CopyPlan) -> CopyPlan:
        if copy.op in staged:
            return replace(copy, mechanism="register", reason=Reason("annotation.staged"))
        if not named.get(copy.op, True):
            why = Reason("annotation.not_async")
            return replace(copy, mechanism="direct", reason=why)
        if copy.mechanism == "cp_async" and copy.dst in private:
            return replace(
                copy, mechanism="register", reason=Reason("copy.vthread", buffer=copy.dst)
            )
        return copy

    return replace(plan, copies=tuple(legal(copy) for copy in plan.copies))


def _schedule(
    steps: Steps,
    kernel: Kernel,
    plan: KernelPlan,
    machine: Machine,
    given: KernelPlan | None,
    *,
    asked: bool,
) -> KernelPlan | _Failure:
    """Map, copy, schedule and expand; return the plan with its loops scheduled."""
    notes: list[Why] = []
    steps.rewrite("MapTiles", lambda func: map_tiles(func, kernel, plan, notes))
    steps.rewrite("LowerCopies", lambda func: lower_copies(func, plan))
    plan = replace(plan, reasons=tuple(dict.fromkeys([*plan.reasons, *notes])))
    done = steps.run(
        "Modulo", lambda func: (func, _scheduled(func, plan, machine, given, asked=asked))
    )
    if isinstance(done, KernelPlan) and done.roles:
        assigned = with_roles(done)
        steps.rewrite("Specialise", lambda func: specialise(func, assigned, machine))
        done = assigned
    elif isinstance(done, KernelPlan):
        steps.rewrite("Expand", lambda func: expand(func, done))
    if not isinstance(done, KernelPlan):
        return done
    planned = done
    steps.rewrite("MapElementwise", lambda func: map_elementwise(func, planned))
    beside: list[Why] = []
    steps.rewrite("MapBeside", lambda func: map_beside(func, planned, machine, beside))
    return replace(planned, reasons=tuple(dict.fromkeys([*planned.reasons, *beside])))


def _scheduled(
    func: Any, plan: KernelPlan, machine: Machine, given: KernelPlan | None, *, asked: bool
) -> KernelPlan | _Failure:
    forms = {str(form.var.name): form for form in op_loops(func)}
    threads = thread_extents(func)
    for loop in plan.loops:
        if not loop.pipelined:
            continue
        form = forms.get(loop.name)
        if form is None:
            raise PlanError("schedule.loop_unknown", loop=loop.name, loops=tuple(sorted(forms)))
        graph = dependence(form.node, threads)
        try:
            own = None if given is None else given.loop(loop.name)
            scheduled = _scheduled_loop(graph, form.node, loop, plan.matmuls, machine, own)
            check_size(scheduled)
            why = None if given is not None else why_no_overlap(graph, scheduled, form.node)
            if (
                why is not None
                and not asked
                and not uses_wgmma(plan.matmuls)
                and loop.source not in _GIVEN
            ):
                raise ScheduleRefused(why)
            scheduled = replace(scheduled, reasons=(*scheduled.reasons, *filter(None, [why])))
        except PlanError as err:
            return _Failure(loop.name, err)
        if not scheduled.pipelined:  # nothing overlaps, so that it has no schedule
            scheduled = LoopPlan(loop.name, loop.trip, False, reasons=scheduled.reasons)
        plan = replace(
            plan.with_loop(scheduled),
            matmuls=tuple(
                matmul if left is None else replace(matmul, in_flight=left)
                for matmul in plan.matmuls
                for left in [_left_in_flight(matmul, scheduled)]
            ),
        )
    return plan


def _scheduled_loop(
    graph: Any,
    node: Any,
    loop: LoopPlan,
    matmuls: Sequence[MatmulPlan],
    machine: Machine,
    given: LoopPlan | None,
) -> LoopPlan:
    """Return ``loop`` with a schedule: the one of ``given``, the annotated one or a new one."""
    if given is not None and is_scheduled(given):
        scheduled = scheduled_as(graph, given, loop, machine)
        _check_in_flight(scheduled, matmuls)
        return scheduled
    if loop.source == "annotation":
        return annotated_plan(graph, node, loop, machine)
    waited = [matmul for matmul in matmuls if f"{matmul.op}.mma_wait" in graph]
    in_flight = min((matmul.in_flight for matmul in waited), default=0)
    scheduled = schedule_loop(graph, loop, machine, in_flight=in_flight)
    return with_slots_used(graph, scheduled, node)


def _left_in_flight(matmul: MatmulPlan, loop: LoopPlan) -> int | None:
    """Return how many steps of ``matmul`` are in flight when a step ends.

    None if nothing waits for it: if another role copies, it waits by itself.
    """
    stages = {op.name: op.stage for op in loop.ops}
    done = stages.get(f"{matmul.op}.mma_wait")
    return None if done is None else done - stages[matmul.op]


def _check_in_flight(loop: LoopPlan, matmuls: Sequence[MatmulPlan]) -> None:
    """Raise ScheduleRefused if a loop's stages leave other steps in flight than the plan says."""
    for matmul in matmuls:
        left = _left_in_flight(matmul, loop)
        if left not in (None, matmul.in_flight):
            steps = {"planned": matmul.in_flight, "left": left}
            raise ScheduleRefused("schedule.in_flight", loop=loop.name, op=matmul.op, **steps)


def placed(steps: Steps, plan: KernelPlan, target: Any, budget: int) -> KernelPlan:
    """Place shared memory and barriers and order kernel launches; return the plan with those.

    Descriptors are computed once only behind that, because barriers are placed by the buffers that
    they are encoded from. With roles they are computed once already.
    """
    native_bf16 = nvcc.have_bf16(nvcc.get_target_compute_version(target))
    smem = steps.run("Place", lambda func: place(func, budget, native_bf16=native_bf16))
    sync = steps.run("Synchronise", lambda func: synchronise(func, smem))
    steps.rewrite("Label", lambda func: label(func, smem))
    if uses_wgmma(plan.matmuls) and not plan.roles:
        steps.rewrite("Descriptors", compute_once)
    steps.rewrite("Launch", lambda func: dependent_launches(func, plan.launch))
    return replace(plan, smem=smem, sync=sync)


def _without_pipelining(
    plan: KernelPlan, info: KernelInfo, machine: Machine, err: PlanError, name: str = ""
) -> KernelPlan:
    """Return ``plan`` without loop ``name``, or all automatic ones; raise ``err`` if requested."""
    free = [loop for loop in plan.loops if loop.pipelined and loop.source not in _GIVEN]
    if name:
        free = [loop for loop in free if loop.name == name]
    if not free:
        raise err
    copies = {copy.op: copy for copy in plan.copies}
    for loop in free:
        plan = plan.with_loop(LoopPlan(loop.name, loop.trip, False, reasons=(err.reason,)))
        found = next(known for known in info.loops if known.name == loop.name)
        own = [copies.pop(op.op) for op in found.ops if op.op in copies]
        left = unpipelined(found, tuple(own), plan.matmuls, machine)
        copies.update((copy.op, copy) for copy in left)
    return replace(plan, copies=tuple(copies.values()))
