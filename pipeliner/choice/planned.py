"""The plan of a kernel whose instruction, copies, consumers and cluster are decided.

What is left open here is each loop's: whether it is pipelined, and how deep its rings are. A
request is honoured or raises. A loop that gains nothing is not pipelined, and its plan has the
number that says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from ..cost.descriptor import Work
from ..cost.interval import residual_of
from ..cost.ops import op_plans
from ..cost.predict import Prediction
from ..diagnostics import Reason, Why
from ..errors import PlanError
from ..machine import Machine
from ..mechanisms.launch import plan_launch
from ..mechanisms.roles import plan_roles
from ..mechanisms.stores import put_together
from ..mechanisms.table import moved_by
from ..plan import CopyPlan, KernelPlan, LoopPlan, MatmulPlan, SmemPlan
from ..plan.request import Request
from ..values.facts import KernelInfo, StatementInfo
from .alone import left_alone, unpipelined
from .elementwise import elementwise_kernels, elementwise_plans, elementwise_us
from .epilogues import is_asynchronous, named
from .k_tail import leave_out
from .loops import check_buffers, plan_loop
from .mapped import LoopWork, MappedKernel, map_kernel, uses_wgmma
from .rings import ring_buffers, why_no_ring


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A plan without ops and schedule, and the loops it is of, each with its axis of depths."""

    plan: KernelPlan
    loops: tuple[LoopWork, ...] = ()


def planned(info: KernelInfo, machine: Machine, request: Request) -> PlannedKernel:
    """The plan of one kernel without its schedule: stages and barriers come from the passes.

    What ``request`` leaves open is wgmma never, a producer warp where wgmma can have one, consumers
    that are cooperative, CTAs that are no cluster. Raises PlanError or TargetError for a request
    that cannot be met.
    """
    check_buffers(info, request)
    _check_any_loop(info, request)
    mapped = map_kernel(info, machine, request)
    info = put_together(info, mapped.stores)
    matmuls = mapped.matmuls
    reasons: tuple[Why, ...] = mapped.reasons
    # Nor is a loop left alone whose copies are asked to land by themselves.
    fixed = uses_wgmma(matmuls) or request.mechanism == "cp_async"
    _check_any_ring(mapped.loops, info, request)
    loops: list[LoopPlan] = []
    copies: list[CopyPlan] = []
    predicted: list[Prediction] = []
    in_flight: dict[str, int] = {}
    for one in mapped.loops:
        plan, prediction = plan_loop(
            one,
            machine,
            request,
            alone=partial(_work_alone, mapped, one, machine),
            fixed=fixed,
        )
        plan = leave_out(plan, one.loop, matmuls, request)
        loops.append(plan)
        copies.extend(
            one.copies if plan.pipelined else unpipelined(one.loop, one.copies, matmuls, machine)
        )
        if prediction is not None:
            predicted.append(prediction)
            in_flight |= dict.fromkeys((op.op for op in one.loop.ops), prediction.in_flight)
    _check_clamped([copy for one in mapped.loops for copy in one.copies], info, request)
    loops.extend(
        LoopPlan(name=name, trip="", pipelined=False, reasons=(why,)) for name, why in info.declined
    )
    if not info.loops and not info.declined:
        reasons = (*reasons, Reason("loop.none"))
    if info.alone or info.unmapped:
        reasons = (*reasons, info.alone or Reason("choice.one_thread"))
    copies = [*mapped.before, *copies]
    cluster = 1 if request.cluster == "auto" else request.cluster
    roles, pairs = plan_roles(
        info, tuple(loops), tuple(copies), matmuls, machine, cluster, request.consumers
    )
    check_cluster(info, cluster, copies)
    kernel = KernelPlan(
        kernel=info.name,
        target=f"{machine.arch}a" if uses_wgmma(matmuls) else machine.arch,
        machine=machine.name,
        threads=sum(role.threads for role in roles) or mapped.threads,
        loops=tuple(loops),
        copies=tuple(copies),
        elementwise=elementwise_plans(info, machine),
        matmuls=in_flight_by_role(info, matmuls, request)
        if roles
        else tuple(replace(plan, in_flight=in_flight.get(plan.op, 0)) for plan in matmuls),
        stores=mapped.stores,
        roles=roles,
        mbarriers=pairs,
        cluster=cluster,
        launch=plan_launch(info, machine, request),
        smem=SmemPlan(budget=machine.smem_per_cta),
        predicted_us=(us := predicted_us(info, predicted, machine)),
        predicted_within=residual_of(us, predicted, machine),
        reasons=(*reasons, *(summary(prediction, machine) for prediction in predicted)),
    )
    return PlannedKernel(kernel, mapped.loops)


def in_flight_by_role(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], request: Request
) -> tuple[MatmulPlan, ...]:
    """``matmuls`` of consumers, none of which is in flight when a step ends where that is asked.

    Nor where a step computes with the sums, in a loop whose trip count is no constant: ptxas then
    waits behind every wgmma (C7515, nvcc 13.0). A matmul whose operand is computed in the step is
    waited for in the next one, so that none is in flight when a step ends.
    """
    plans: list[MatmulPlan] = []
    for plan in matmuls:
        loop = next((one for one in info.loops if any(op.op == plan.op for op in one.ops)), None)
        computed = loop is not None and any(isinstance(op, StatementInfo) for op in loop.ops)
        made = any(one.operand == "computed" for one in matmuls)
        at_once = computed and loop is not None and loop.trip is None and not made
        if request.in_flight == 0 or (request.in_flight == "auto" and at_once):
            plans.append(replace(plan, in_flight=0))
        else:
            plans.append(plan)
    return tuple(plans)


def with_ops(plan: KernelPlan, info: KernelInfo, machine: Machine) -> KernelPlan:
    """``plan`` with the ops of its pipelined loops: only one that is carried out needs them."""
    costed = tuple(
        replace(loop, ops=op_plans(found, info, plan, machine)) if loop.pipelined else loop
        for loop, found in zip_longest(plan.loops, info.loops)
    )
    return replace(plan, loops=costed)


def _work_alone(mapped: MappedKernel, one: LoopWork, machine: Machine) -> Work:
    """The descriptor of ``one``, a loop of ``mapped``, where it is left alone."""
    copies = left_alone(one.loop, one.copies, mapped.matmuls, machine)
    return one.work if copies == one.copies else mapped.work_of(one.loop.name, copies)


def predicted_us(info: KernelInfo, loops: list[Prediction], machine: Machine) -> float:
    """Microseconds of all kernels of the function; 0: no loop has a prediction."""
    beside = sum(
        elementwise_us(found, machine, behind=behind) for found, behind in elementwise_kernels(info)
    )
    return round(sum(loop.us for loop in loops) + beside, 2) if loops else 0.0


def _check_any_loop(info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a depth above 1 where no loop could have it."""
    if info.loops or not isinstance(request.depth, int) or request.depth == 1:
        return
    found = tuple(Reason("depth.of_loop", loop=name, why=why) for name, why in info.declined)
    why = found or (Reason("depth.no_serial_loop"),)
    raise PlanError("depth.kernel", depth=request.depth, kernel=info.name, why=why)


def _check_any_ring(loops: Iterable[LoopWork], info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a depth above 1 where no loop has a ring."""
    if not isinstance(request.depth, int) or request.depth == 1 or not info.loops:
        return
    if not any(ring_buffers(one.loop, one.copies) for one in loops):
        found = tuple(
            Reason("depth.of_loop", loop=loop.name, why=why_no_ring(loop)) for loop in info.loops
        )
        raise PlanError("depth.kernel", depth=request.depth, kernel=info.name, why=found)


def check_cluster(info: KernelInfo, cluster: int, copies: Iterable[CopyPlan]) -> None:
    """Raise PlanError for a cluster of CTAs that share nothing, or that the grid does not fill.

    Boxes alone are copied for several CTAs.
    """
    if cluster == 1:
        return
    if not any(moved_by(copy).moves_boxes for copy in copies):
        why = Reason("cluster.no_tma")
        raise PlanError("cluster.refused", ctas=cluster, why=why)
    extent = info.grid[-1] if info.grid else 1
    if extent is None or extent % cluster:
        why = Reason("cluster.dynamic_grid")
        if extent is not None:
            why = Reason("cluster.grid", extent=extent)
        raise PlanError("cluster.refused", ctas=cluster, why=why)
    if all(copy.multicast == 1 for copy in copies):
        raise PlanError("cluster.refused", ctas=cluster, why=Reason("cluster.nothing_shared"))


def _check_clamped(copies: list[CopyPlan], info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a clamped epilogue where no copy is asynchronous."""
    if request.epilogue != "clamped" or is_asynchronous(copies):
        return
    raise PlanError("clamped.kernel", kernel=info.name, copies=named(copies))


def summary(prediction: Prediction, machine: Machine) -> Reason:
    """The reason of a plan that states the predicted time of a loop."""
    spent = prediction.spent
    return Reason(
        "choice.predicted",
        us=prediction.us,
        where=Reason(
            "choice.where_memory" if spent.memory else "choice.where",
            start_us=spent.start,
            sms_us=spent.sms,
            steps_us=spent.steps,
            **({"memory_us": spent.memory} if spent.memory else {}),
        ),
        arithmetic_us=spent.arithmetic,
        machine=machine.name,
        limiter=prediction.bound,
    )
