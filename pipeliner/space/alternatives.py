"""The alternatives to a plan: the ranked list that it was taken from, axis by axis, and its depths.

The plan's own numbers are those of ``predicted``; other depths come from ``predict`` on the same
descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..choice.again import mapped_as, predicted, slots_of
from ..choice.depth import check_depth
from ..choice.loops import most_slots
from ..choice.mapped import LoopWork, as_chosen, map_kernel, uses_wgmma
from ..cost.descriptor import most
from ..cost.predict import Prediction, predict
from ..diagnostics import Reason, Why, is_code
from ..errors import PlanError
from ..machine import Machine
from ..plan import Consumers, KernelPlan, LoopPlan
from ..plan.request import Request
from ..values.facts import KernelInfo, LoopInfo
from .axes import AXES
from .candidates import PlanCandidate, Tier
from .ranking import Ranking

NOT_TAKEN: Final = "plan.not_taken"
"""The code of a plan's reason that names a candidate that the passes refused."""


@dataclass(frozen=True, slots=True)
class DepthOption:
    """One depth of a loop's rings and what it leads to."""

    depth: int
    """Slots of the deepest ring."""
    smem: int
    """Bytes of shared memory of a CTA."""
    ctas: int = 0
    """CTAs of an SM at once."""
    step: float = 0.0
    """Cycles of an SM for one iteration of one CTA."""
    us: float | None = None
    """Microseconds of the kernel; None: the depth is impossible."""
    chosen: bool = False
    """The plan has it."""
    why: Why = ""
    """Why it is impossible; empty where it is not."""
    ring_depths: tuple[int, ...] = ()
    """Slots of each ring where they differ."""
    measured_us: float | None = None
    """Microseconds of the kernel, where records have them."""

    @property
    def slots(self) -> str:
        """``3``, or ``3+2`` where rings have different depths."""
        return "+".join(map(str, self.ring_depths or (self.depth,)))


@dataclass(frozen=True, slots=True)
class LoopDepths:
    """The depths of one loop that were compared, up to the first that does not fit."""

    loop: str
    depths: tuple[DepthOption, ...]


@dataclass(frozen=True, slots=True)
class CandidateOption:
    """A candidate of the ranked list, and what it leads to."""

    name: str
    """What is decided, in short."""
    tier: Tier
    """Whether it is taken by its time, where nothing else lowers, or where it is asked for."""
    us: float | None
    """Microseconds of the kernel; None: impossible, or without a prediction."""
    instruction: str = ""
    """The instruction that multiplies, in full."""
    mechanism: str = ""
    """How tiles are copied, where it is possible."""
    consumers: str = ""
    """How consumer warpgroups have their tiles; empty without a producer warp."""
    cluster: int = 1
    """CTAs of a cluster."""
    slots: str = ""
    """Slots of the rings."""
    chosen: bool = False
    """The plan is this one."""
    why: Why = ""
    """Why it is impossible or is not taken, where its time does not tell."""


def depth_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[LoopDepths, ...]:
    """The depths of every loop of ``plan`` that could have rings.

    All have the copies and instructions of the plan. Of a loop that is not pipelined, depths above
    1 have those that it would have had.
    """
    own = predicted(info, machine, plan).loops
    asked = as_chosen(request, plan) if uses_wgmma(plan.matmuls) else request
    free = replace(asked, cluster=plan.cluster, consumers=_way(plan), plan=None)
    compared = {one.loop.name: one for one in map_kernel(info, machine, free).loops}
    return tuple(
        LoopDepths(one.loop.name, _depths(one, other, loop, own.get(loop.name), machine))
        for one in mapped_as(info, machine, plan).loops
        for loop in [plan.loop(one.loop.name)]
        for other in [one if loop.pipelined else compared[one.loop.name]]
        if one.work.usage.global_bytes
    )


def _depths(
    one: LoopWork, other: LoopWork, plan: LoopPlan, own: Prediction | None, machine: Machine
) -> tuple[DepthOption, ...]:
    """The depths of one loop; ``own``: the plan's own prediction, with ``one`` as its mapping."""
    slots = slots_of(one, plan)
    chosen = most(slots)
    options: list[DepthOption] = []
    for depth in range(1, max(chosen, most_slots(other.loop, other.copies)) + 1):
        taken = slots == depth and own is not None
        work = one.work if taken else other.work
        found = own if taken else predict(work, machine, depth)
        if found is None:
            options.append(
                DepthOption(depth, work.smem(depth), why=_obstacle(other, depth, machine))
            )
            break
        options.append(_shown(found, work.smem(depth), chosen=taken))
    if isinstance(slots, int) or own is None:
        return tuple(options)
    per_ring = _shown(own, one.work.smem(slots), chosen=True)
    return (*options, replace(per_ring, ring_depths=tuple(slots.values())))


def _shown(found: Prediction, smem: int, *, chosen: bool) -> DepthOption:
    return DepthOption(found.depth, smem, found.resident, found.step, found.us, chosen)


def _obstacle(one: LoopWork, depth: int, machine: Machine) -> Why:
    try:
        check_depth(_rings(one.loop), depth, one.work, machine)
    except PlanError as err:
        return err.reason
    return ""


def _rings(loop: LoopInfo) -> str:
    return "+".join(name for name, _, _ in loop.rings) or loop.name


def candidate_options(plan: KernelPlan, ranking: Ranking) -> tuple[CandidateOption, ...]:
    """The ranked list that ``plan`` was taken from: what is compared, best first, then the others.

    Those that the passes refused have the reason that the plan keeps.
    """
    refused = {
        str(reason["name"]): reason.why
        for reason in plan.reasons
        if isinstance(reason, Reason) and is_code(reason, NOT_TAKEN)
    }
    listed = list(ranking.everything())
    possible = [one for one in listed if one.is_possible and one.name not in refused]
    taken = next((one for one in possible if _is(one, plan)), None)
    us = plan.predicted_us
    return tuple(
        replace(
            _option(one, refused.get(one.name) or _why_slower(one, taken)),
            chosen=one is taken,
            us=us if one is taken and us else one.us or None,
        )
        for one in listed
    )


def _is(one: PlanCandidate, plan: KernelPlan) -> bool:
    """Whether ``plan`` has what is decided in ``one``."""
    return _decided(one.plan) == _decided(plan)


def _decided(plan: KernelPlan) -> tuple[object, ...]:
    copies = {copy.mechanism for copy in plan.copies}
    multiplies = tuple((matmul.instruction, matmul.warps) for matmul in plan.matmuls)
    return multiplies, copies, plan.cluster, plan.ping_pong_groups


def _why_slower(one: PlanCandidate, taken: PlanCandidate | None) -> Why:
    """Why ``one`` is not taken, where its time does not tell."""
    if one.obstacle:
        return one.obstacle
    if one.tier == "asked":
        return Reason("choice.if_asked")
    if not one.us:
        said = (loop.reasons[0] for loop in one.plan.loops if loop.reasons)
        return next(said, Reason("choice.no_prediction"))
    if one.tier == "spare" or taken is None or one is taken or one.us >= taken.us:
        return ""
    axis = next(axis for axis in AXES if axis.value(one.decided) != axis.value(taken.decided))
    return Reason("choice.margin", percent=axis.margin)


def _option(one: PlanCandidate, why: Why) -> CandidateOption:
    if not one.is_possible:
        return CandidateOption(one.name, one.tier, None, why=why)
    plan = one.plan
    rings = [ring.depth for loop in plan.loops for ring in loop.rings]
    return CandidateOption(
        one.name,
        one.tier,
        one.us or None,
        "+".join(dict.fromkeys(matmul.instruction for matmul in plan.matmuls)),
        "+".join(sorted(one.mechanisms)),
        _way(plan) if plan.roles else "",
        plan.cluster,
        "+".join(map(str, rings if len(set(rings)) > 1 else rings[:1])),
        why=why,
    )


def _way(plan: KernelPlan) -> Consumers:
    """Whether consumers of ``plan`` are cooperative or ping-pong."""
    return "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
