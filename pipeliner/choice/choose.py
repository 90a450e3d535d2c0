"""Choose instruction, mechanism, layout and depth of everything in a kernel, each with a reason.

A request is honoured or raises. A free choice is made by predicted time. A loop that gains nothing
is not pipelined, and its plan has the number that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Final

from ..cost.descriptor import Work
from ..cost.ops import op_plans
from ..cost.predict import Prediction
from ..diagnostics import Reason, Why
from ..errors import PipelinerError, PlanError
from ..instructions.mapping import TENSOR
from ..machine import Machine
from ..machine.constant import chosen, constant, fitted
from ..mechanisms.elementwise import elementwise_us, plan_elementwise
from ..mechanisms.launch import plan_launch
from ..mechanisms.ping_pong import promotion_stalls, why_cooperative
from ..mechanisms.roles import plan_roles
from ..mechanisms.tma import is_off_lines
from ..plan import CopyPlan, KernelPlan, LoopPlan, SmemPlan
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, MatmulInfo
from .alone import left_alone, unpipelined
from .depth import TOLERANCE
from .k_tail import leave_out
from .loops import check_buffers, is_asynchronous, named, plan_loop, ring_buffers, why_no_ring
from .mapped import LoopWork, MappedKernel, map_kernel, uses_wgmma

AUTOMATIC_CLUSTERS: Final = constant(
    "AUTOMATIC_CLUSTERS",
    (2,),
    "CTAs",
    "sizes of clusters that are compared by default",
    formula="cluster in AUTOMATIC_CLUSTERS",
    source=chosen("larger ones leave SMs without a whole cluster idle"),
    date="2026-11-21",
)

CP_ASYNC_MARGIN: Final = constant(
    "CP_ASYNC_MARGIN",
    0.05,
    "1",
    "relative time by which cp.async by the math warps must be predicted to be faster than TMA",
    formula="cp.async where us < us by TMA * (1 - CP_ASYNC_MARGIN)",
    source=fitted(
        "H100 log, 88 tiles measured both ways",
        "14 are so chosen and take 0.88 of the time by TMA as a mean, 1.19 at most; with no "
        "margin 24, which take 0.91",
    ),
    date="2026-11-22",
)

BY_MATH_WARPS: Final = "cp.async by the math warps"
PING_PONG: Final = "ping-pong"
WGMMA: Final = "wgmma"

_NOTHING_ELSE: Final = Reason("choice.taken", what=WGMMA, why=Reason("choice.only"))


def choose(
    info: KernelInfo, machine: Machine, request: Request, *, accelerated: bool = True
) -> KernelPlan:
    """The plan of one kernel without its schedule: stages and barriers come from the passes.

    Where no instruction is asked for, wgmma multiplies (copied for by TMA, or by cp.async of the
    math warps) if that is possible and predicted to be no slower. ``accelerated``: the code may use
    what only sm_90a has. Raises PlanError or TargetError for a request that cannot be met.
    """
    if not _may_use_warpgroups(info, machine, request):
        return planned(info, machine, request)
    if request.consumers == "ping-pong":
        plan = planned(info, machine, replace(request, instruction="wgmma"))
        return replace(plan, reasons=(*plan.reasons, _NOTHING_ELSE))
    if any(store.partial_sums for store in info.stores):  # by tma, which stores what wgmma computes
        return planned(info, machine, replace(request, instruction="wgmma"))
    wide = _by_warpgroup(info, machine, request) if accelerated else Reason("choice.sm_90")
    try:
        plain = planned(info, machine, request)
    except PipelinerError:
        if isinstance(wide, Reason):
            raise
        return replace(wide, reasons=(*wide.reasons, _NOTHING_ELSE))
    if isinstance(wide, Reason):
        return _with_reason(plain, Reason("choice.not_taken", what=WGMMA, why=wide))
    if not plain.matmuls or plain.predicted_us == 0.0:
        why = Reason("choice.only_holds", tiles=_tiles_of(wide))
        return _with_reason(wide, Reason("choice.taken", what=WGMMA, why=why))
    times = _times(wide, plain, plain.matmuls[0].instruction)
    if plain.predicted_us < wide.predicted_us:
        return _with_reason(plain, Reason("choice.not_taken", what=WGMMA, why=times))
    return _with_reason(wide, Reason("choice.taken", what=WGMMA, why=times))


def _tiles_of(plan: KernelPlan) -> tuple[Reason, ...]:
    return tuple(Reason("choice.tile", tile=(tile.m, tile.n, tile.k)) for tile in plan.matmuls)


def _times(plan: KernelPlan, other: KernelPlan, name: str) -> Reason:
    """The predicted times of ``plan`` and of ``other``, which goes by ``name``."""
    return Reason("choice.times", us=plan.predicted_us, other_us=other.predicted_us, other=name)


def _with_reason(plan: KernelPlan, why: Reason) -> KernelPlan:
    return replace(plan, reasons=(*plan.reasons, why))


def _may_use_warpgroups(info: KernelInfo, machine: Machine, request: Request) -> bool:
    """Whether the instruction is open and the GPU has wgmma."""
    hints = {op.instruction for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)}
    return (
        request.instruction == "auto"
        and bool(machine.wgmmas)
        and bool(hints)
        and hints <= {"auto", TENSOR}
    )


def _by_warpgroup(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan | Reason:
    """The plan with wgmma, or why it is not taken by default."""
    matmuls = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    if any(op.a_dtype == "float32" and op.instruction != TENSOR for op in matmuls):
        return Reason("mapping.exact")
    if request.warps is not None or any(op.warps or op.thread_tile for op in matmuls):
        return Reason("choice.warps_asked")
    asked = replace(request, instruction="wgmma")
    try:
        return _or_by_math_warps(info, machine, asked, planned(info, machine, asked))
    except PipelinerError as err:
        return err.reason


def _or_by_math_warps(
    info: KernelInfo, machine: Machine, request: Request, plan: KernelPlan
) -> KernelPlan:
    """``plan``, with wgmma, or one whose math warps issue cp.async where that saves time."""
    if not _may_copy_by_math_warps(plan, request):
        return plan
    if any(loop.outer != 1 for loop in info.loops):
        why = Reason("choice.persistent")
        return _with_reason(plan, Reason("choice.not_compared", what=BY_MATH_WARPS, why=why))
    return _faster(
        plan,
        lambda: planned(info, machine, replace(request, mechanism="cp_async")),
        BY_MATH_WARPS,
        "TMA by a producer warp",
        CP_ASYNC_MARGIN,
    )


def _faster(
    plan: KernelPlan, other: Callable[[], KernelPlan], name: str, otherwise: str, margin: float
) -> KernelPlan:
    """``plan``, or the one that ``other`` makes where that is faster by ``margin``.

    ``name``: what the other one has; ``otherwise``: what ``plan`` has in place of that.
    """
    try:
        found = other()
    except PlanError as err:
        return _with_reason(plan, Reason("choice.not_taken", what=name, why=err.reason))
    times = _times(found, plan, otherwise)
    if found.predicted_us < plan.predicted_us * (1 - margin):
        return _with_reason(found, Reason("choice.taken", what=name, why=times))
    return _with_reason(plan, Reason("choice.not_taken", what=name, why=times))


def _may_copy_by_math_warps(plan: KernelPlan, request: Request) -> bool:
    """Whether ``plan`` copies by TMA, and nothing that is asked for needs that.

    A depth that is asked for is compared with other depths by the same mechanism.
    """
    asked = (
        request.depth,
        request.mechanism,
        request.roles,
        request.consumers,
        request.cluster,
        request.store,
    )
    by_tma = any(copy.mechanism == "tma" for copy in plan.copies)
    return by_tma and plan.predicted_us > 0.0 and all(option == "auto" for option in asked)


def planned(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan:
    """The plan with the instruction that is asked for, or without wgmma.

    Consumers ping-pong by default where that saves time.
    """
    plan = _in_clusters(info, machine, request)
    alone = promotion_stalls(plan.matmuls)
    if request.consumers == "ping-pong" and alone:
        return _with_reason(plan, Reason("choice.asked", what=PING_PONG, why=alone))
    if request.consumers != "auto" or not plan.roles:
        return plan
    why = why_cooperative(info, plan.matmuls, plan.copies)
    if why:
        said = Reason("choice.not_compared", what=PING_PONG, why=why)
        return replace(plan, reasons=(said, *plan.reasons))
    return _faster(
        plan,
        lambda: _in_clusters(info, machine, replace(request, consumers="ping-pong")),
        PING_PONG,
        "cooperative consumers",
        TOLERANCE,
    )


def _in_clusters(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan:
    """The plan with the consumers that are asked for, or cooperative ones.

    CTAs form clusters by default where multicast saves time.
    """
    plan = _of_cluster(info, machine, request)
    if request.cluster != "auto" or not plan.roles:
        return plan
    copies = [op for loop in info.loops for op in loop.ops if isinstance(op, CopyInfo)]
    for size in AUTOMATIC_CLUSTERS:
        names = [op.op for op in copies if size in op.multicast]
        if not names or not may_gain_from_clusters(copies):
            continue
        other = _of_cluster(info, machine, replace(request, cluster=size))
        if other.predicted_us < plan.predicted_us * (1 - TOLERANCE):
            times = {"us": other.predicted_us, "other_us": plan.predicted_us}
            why = Reason("choice.cluster", cluster=size, copies=tuple(names), **times)
            plan = _with_reason(other, why)
    return plan


def may_gain_from_clusters(copies: Iterable[CopyInfo]) -> bool:
    """Whether clusters that multicast ``copies`` are worth a comparison.

    On an H100 CTAs that wait for each other are slower wherever L2 keeps up, as it does with rows
    of whole lines; 17 % faster at 4000x4104x4040, whose rows are not.
    """
    return any(map(is_off_lines, copies))


def _of_cluster(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan:
    """The plan with the cluster that is asked for, or without one."""
    check_buffers(info, request)
    _check_any_loop(info, request)
    mapped = map_kernel(info, machine, request)
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
            one.loop,
            one.copies,
            one.work,
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
    cluster = 1 if request.cluster == "auto" else request.cluster
    roles, pairs = plan_roles(
        info, tuple(loops), tuple(copies), matmuls, machine, cluster, request.consumers
    )
    check_cluster(info, cluster, bool(roles))
    kernel = KernelPlan(
        kernel=info.name,
        target=f"{machine.arch}a" if uses_wgmma(matmuls) else machine.arch,
        machine=machine.name,
        threads=sum(role.threads for role in roles) or mapped.threads,
        loops=tuple(loops),
        copies=tuple(copies),
        elementwise=tuple(plan_elementwise(found, machine) for found in info.elementwise),
        matmuls=matmuls
        if roles
        else tuple(replace(plan, in_flight=in_flight.get(plan.op, 0)) for plan in matmuls),
        stores=mapped.stores,
        roles=roles,
        mbarriers=pairs,
        cluster=cluster,
        launch=plan_launch(info, machine, request),
        smem=SmemPlan(budget=machine.smem_per_cta),
        predicted_us=predicted_us(info, predicted, machine),
        reasons=(*reasons, *(summary(prediction, machine) for prediction in predicted)),
    )
    return replace(
        kernel,
        loops=tuple(
            replace(loop, ops=op_plans(found, info, kernel, machine)) if loop.pipelined else loop
            for loop, found in zip_longest(kernel.loops, info.loops)
        ),
    )


def _work_alone(mapped: MappedKernel, one: LoopWork, machine: Machine) -> Work:
    """The descriptor of ``one``, a loop of ``mapped``, where it is left alone."""
    copies = left_alone(one.loop, one.copies, mapped.matmuls, machine)
    return one.work if copies == one.copies else mapped.work_of(one.loop.name, copies)


def predicted_us(info: KernelInfo, loops: list[Prediction], machine: Machine) -> float:
    """Microseconds of all kernels of the function; 0: no loop has a prediction."""
    behind = sum(elementwise_us(found, machine) for found in info.elementwise)
    return round(sum(loop.us for loop in loops) + behind, 2) if loops else 0.0


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


def check_cluster(info: KernelInfo, cluster: int, has_roles: bool) -> None:
    """Raise PlanError for a cluster of CTAs that share nothing, or that the grid does not fill."""
    if cluster == 1:
        return
    if not has_roles:
        why = Reason("cluster.no_tma")
        raise PlanError("cluster.refused", ctas=cluster, why=why)
    extent = info.grid[-1] if info.grid else 1
    if extent is None or extent % cluster:
        why = Reason("cluster.dynamic_grid")
        if extent is not None:
            why = Reason("cluster.grid", extent=extent)
        raise PlanError("cluster.refused", ctas=cluster, why=why)


def _check_clamped(copies: list[CopyPlan], info: KernelInfo, request: Request) -> None:
    """Raise PlanError for a clamped epilogue where no copy is asynchronous."""
    if request.epilogue != "clamped" or is_asynchronous(copies):
        return
    raise PlanError("clamped.kernel", kernel=info.name, copies=named(copies))


def summary(prediction: Prediction, machine: Machine) -> Reason:
    """The reason of a plan that states the predicted time of a loop."""
    return Reason(
        "choice.predicted",
        us=prediction.us,
        roofline=prediction.roofline,
        machine=machine.name,
        limiter=prediction.limiter,
    )
