"""Schedule the loops that a plan pipelines: a stage and a place in the step for each op.

    plan: loop k, depth 3   =>   plan: loop k, II = 480 cycles; copy: stage 0; compute: stage 2

The function stays as it is; the schedule stands in the plan. It is the one of a plan that was
handed in (``obeyed``), the one that the loop is annotated with (``annotations``), or a new one
(``modulo``), whose rings then have the slots that it uses (``used_slots``).

Does not handle: a loop that cannot be scheduled, or in which nothing would overlap. It is returned
as a failure with its error, and who made the plan decides what becomes of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...choice.mapped import uses_wgmma
from ...errors import PlanError, ScheduleRefused
from ...machine import Machine
from ...plan import KernelPlan, LoopPlan, MatmulPlan
from ...values.op import Op
from ..dependence.graph import dependence
from ..ir.named_pass import named_pass
from ..ir.op_form import op_loops, thread_extents
from .annotations import annotated_plan
from .by_role import computes, computes_between, in_program_order
from .code_size import check_size
from .modulo import schedule_loop
from .obeyed import is_scheduled, scheduled_as
from .overlapped import check_stages
from .register_versions import why_too_many, why_too_many_alive
from .used_slots import why_no_overlap, with_slots_used

GIVEN: Final = ("request", "annotation", "edited")
"""Sources of a loop's plan for which it counts as requested."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A loop whose plan cannot be carried out, and the error."""

    loop: str
    error: PlanError


@named_pass("Modulo")
def schedule_loops(
    func: Any, plan: KernelPlan, machine: Machine, given: KernelPlan | None, *, asked: bool
) -> tuple[Any, KernelPlan | Failure]:
    """Return ``func`` as it is, and ``plan`` with its loops scheduled or the first that cannot be.

    ``given``: a plan that was handed in. ``asked``: the mechanism of copies was asked for, so loops
    in which nothing overlaps stay pipelined.
    """
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
            scheduled = _scheduled_loop(graph, form.node, loop, plan, machine, own)
            check_size(scheduled)
            why = None if given is not None else why_no_overlap(graph, scheduled, form.node)
            if (
                why is not None
                and not asked
                and not uses_wgmma(plan.matmuls)
                and loop.source not in GIVEN
            ):
                raise ScheduleRefused(why)
            scheduled = replace(scheduled, reasons=(*scheduled.reasons, *filter(None, [why])))
        except PlanError as err:
            return func, Failure(loop.name, err)
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
    return func, plan


def _scheduled_loop(
    graph: Any,
    node: Any,
    loop: LoopPlan,
    plan: KernelPlan,
    machine: Machine,
    given: LoopPlan | None,
) -> LoopPlan:
    """Return ``loop`` with a schedule: the one of ``given``, the annotated one or a new one."""
    matmuls = plan.matmuls
    between = uses_wgmma(matmuls) and computes_between(graph)
    by_role = bool(plan.roles) and between
    if given is not None and is_scheduled(given):
        if by_role:
            check_stages(graph, given, matmuls)
        scheduled = scheduled_as(graph, given, loop, machine, in_groups=not by_role)
        _check_in_flight(scheduled, matmuls)
        return scheduled
    if loop.source == "annotation":
        return annotated_plan(graph, node, loop, machine)
    if by_role:
        return with_slots_used(graph, in_program_order(graph, loop, matmuls, machine), node)
    waited = [matmul for matmul in matmuls if Op(matmul.op, "mma_wait") in graph]
    in_flight = min((matmul.in_flight for matmul in waited), default=0)
    scheduled = schedule_loop(graph, loop, machine, in_flight=in_flight)
    if plan.roles or loop.source in GIVEN or not (between or computes(graph)):
        return with_slots_used(graph, scheduled, node)
    too_many = why_too_many if between else why_too_many_alive
    why = too_many(graph, node, scheduled, machine, plan.threads)
    if why is not None:
        told = replace(loop, reasons=(*loop.reasons, why))
        still = [replace(matmul, in_flight=0) for matmul in matmuls]
        try:
            scheduled = in_program_order(graph, told, still, machine, in_groups=True)
        except ScheduleRefused as err:
            scheduled = replace(scheduled, reasons=(*scheduled.reasons, err.reason))
    return with_slots_used(graph, scheduled, node)


def _left_in_flight(matmul: MatmulPlan, loop: LoopPlan) -> int | None:
    """Return how many steps of ``matmul`` are in flight when a step ends.

    None if nothing waits for it: if another role copies, it waits by itself.
    """
    stages = {op.name: op.stage for op in loop.ops}
    done = stages.get(Op(matmul.op, "mma_wait"))
    return None if done is None else done - stages[Op(matmul.op)]


def _check_in_flight(loop: LoopPlan, matmuls: Sequence[MatmulPlan]) -> None:
    """Raise ScheduleRefused if a loop's stages leave other steps in flight than the plan says."""
    for matmul in matmuls:
        left = _left_in_flight(matmul, loop)
        if left not in (None, matmul.in_flight):
            steps = {"planned": matmul.in_flight, "left": left}
            raise ScheduleRefused("schedule.in_flight", loop=loop.name, op=matmul.op, **steps)
