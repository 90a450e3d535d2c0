"""Pipeline one function: recognise its loops, rank the plans, carry out the best that lowers.

    func after TVM's prefix   =>   the pipelined kernel, with attribute "pipeliner.plan"

A function that carries a plan is returned unchanged. An automatic choice that turns out impossible
becomes a declined loop with its reason; an explicit request that is impossible raises. If a plan
fails by a bug of ours, the next one is taken, and the plan and a warning say where the bug is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..choice.again import is_as_predicted, with_prediction
from ..diagnostics import Reason, each_of
from ..errors import TargetError
from ..machine import Machine, machine_for
from ..plan import PLAN_ATTR, KernelPlan, SyncPlan
from ..plan.request import Request
from ..space.axes import clusters_considered
from ..space.ranking import Ranking
from ..values.facts import KernelInfo
from ..values.failure import refusal
from ..values.notes import note_in
from .asked import check_asked
from .carry_out import carry_out, placed
from .dependence.overlap import note_overlap
from .ir.marks import is_marked
from .ir.named_pass import named_pass
from .ir.nodes import SBlockRealize, buffer_bytes, is_global, walk
from .prepare.host_accesses import check_host
from .recognise.facts import Facts, recognise, with_sharing
from .schedule.annotations import is_asked
from .schedule.obeyed import check_given, check_obeyed
from .smem.place import DEFAULT_BUDGET
from .steps import Steps


@named_pass("Pipeline")
def pipeline_function(func: Any, target: Any, request: Request) -> Any:
    """Return ``func`` (after TVM's prefix) pipelined as ``request`` says, with its plan.

    Every function bound to the GPU is returned with barriers and shared memory placed, even if no
    loop is pipelined. An explicit request that is impossible raises. If nothing is requested and no
    plan lowers, the function is left to TVM's own passes as it is, with the reason.
    """
    if is_marked(func):
        return func
    check_host(func)
    func = note_overlap(func)
    if request.plan is not None and request.plan.sync.by == "tvm":
        return _left(func, request.plan)
    try:
        return _pipelined(func, target, request)
    except Exception as err:
        if request != Request() or is_asked(func) or not _has_constant_sizes(func.body):
            raise
        why = Reason("plan.left_to_tvm", why=refusal(err))
        plan = KernelPlan(_name(func), str(target.arch), "", reasons=(why,))
        return _left(func, replace(plan, sync=SyncPlan(by="tvm")))


def _has_constant_sizes(body: Any) -> bool:
    """Whether TVM's passes can allocate all private and shared buffers."""
    allocated: list[Any] = []
    walk(body, SBlockRealize, lambda realize: allocated.extend(realize.block.alloc_buffers))
    return all(is_global(buf) or buffer_bytes(buf) is not None for buf in allocated)


def _left(func: Any, plan: KernelPlan) -> Any:
    """Return ``func``, otherwise unchanged, marked with ``plan``."""
    return func.with_attr(PLAN_ATTR, plan.to_json())


def _pipelined(func: Any, target: Any, request: Request) -> Any:
    """Return ``func`` by the best plan that lowers; raise the first plan's error if none does."""
    steps = Steps(func)
    try:
        machine = machine_for(target)
    except TargetError as err:
        if request != Request():
            raise
        plan = KernelPlan(_name(func), str(target.arch), "", reasons=(err.reason,))
        return _marked(steps, placed(steps, plan, target, DEFAULT_BUDGET))
    facts = _recognised(steps, machine, request)
    accelerated = str(target.arch).endswith("a")
    if request.plan is not None:
        plan = check_given(request, facts.info, machine)
        made = carry_out(steps, facts, plan, target, machine, request.plan)
        return _marked(steps, check_obeyed(request.plan, made, facts.info, machine))
    recognised = steps.func
    refused: list[Exception] = []
    ranking = Ranking(facts.info, machine, request, accelerated=accelerated)
    for candidate in ranking:
        try:
            plan = ranking.explained(candidate)
            made = carry_out(steps, facts, plan, target, machine, asked=request.mechanism != "auto")
            check_asked(request, made)
            if not is_as_predicted(plan, made):
                made = with_prediction(facts.info, machine, made)
            return _marked(steps, made)
        except Exception as err:  # a bug in one candidate, too, leaves the others
            refused.append(err)
            ranking.refuse(candidate, refusal(err))
            steps.func = recognised
    raise refused[0]


def recognised_info(func: Any, machine: Machine, request: Request) -> KernelInfo:
    """Return the description of ``func`` (after TVM's prefix) that plans are ranked by."""
    return _recognised(Steps(func), machine, request).info


def _recognised(steps: Steps, machine: Machine, request: Request) -> Facts:
    """Return the loops and ops of a function, with the copies that CTAs could share."""
    facts = steps.run(recognise)
    considered = clusters_considered(facts.info, machine, request)
    return with_sharing(steps.func, facts, considered, asked=request.cluster != "auto")


def _marked(steps: Steps, plan: KernelPlan) -> Any:
    """Return the function so far, carrying its plan, which says what its schedule notes of it."""
    note = note_in(dict(steps.func.attrs))
    said = [one for one in each_of(note) if one not in plan.reasons]
    plan = replace(plan, reasons=(*said, *plan.reasons))
    return steps.func.with_attr(PLAN_ATTR, plan.to_json())


def _name(func: Any) -> str:
    return str((func.attrs or {}).get("global_symbol", "main"))
