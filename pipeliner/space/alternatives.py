"""The alternatives to a plan: the ranked list that it was taken from, axis by axis, and its depths.

The plan's own numbers are those of ``predicted``; all others are those of the list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..choice.again import predicted, slots_of
from ..choice.depth import check_depth
from ..choice.mapped import LoopWork
from ..cost.descriptor import most
from ..cost.predict import Prediction
from ..diagnostics import Reason, Why
from ..errors import PlanError
from ..plan import Consumers, KernelPlan, LoopPlan
from ..values.facts import LoopInfo
from .axes import AXES
from .candidates import PlanCandidate, Tier
from .ranking import Ranking, refusals


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


def depth_options(plan: KernelPlan, ranking: Ranking) -> tuple[LoopDepths, ...]:
    """The depths of every loop of ``plan`` that could have rings, those of its candidate.

    The plan's own has the prediction of the plan as it is. Of a loop that is not pipelined, other
    depths have the copies that they would have had.
    """
    taken = ranking.taken(plan)
    own = predicted(ranking.info, ranking.machine, plan).loops
    return tuple(
        LoopDepths(one.loop.name, _depths(one, plan.loop(one.loop.name), own.get(one.loop.name)))
        for one in (taken.loops if taken else ())
        if one.work.usage.global_bytes
    )


def _depths(one: LoopWork, plan: LoopPlan, own: Prediction | None) -> tuple[DepthOption, ...]:
    """The depths of one loop, up to the first that does not fit; ``own``: of the plan."""
    axis, slots = one.depths, slots_of(one.work, plan)
    options: list[DepthOption] = []
    for depth in range(1, max(most(slots), axis.most) + 1):
        taken = slots == depth and own is not None
        found = own if taken else axis.at(depth)
        if found is None:
            options.append(DepthOption(depth, axis.work.smem(depth), why=_obstacle(one, depth)))
            break
        options.append(_shown(found, found.work.smem(depth), chosen=taken))
    if isinstance(slots, int) or own is None:
        return tuple(options)
    per_ring = _shown(own, own.work.smem(slots), chosen=True)
    return (*options, replace(per_ring, ring_depths=tuple(slots.values())))


def _shown(found: Prediction, smem: int, *, chosen: bool) -> DepthOption:
    return DepthOption(found.depth, smem, found.resident, found.step, found.us, chosen)


def _obstacle(one: LoopWork, depth: int) -> Why:
    try:
        check_depth(_rings(one.loop), depth, one.depths)
    except PlanError as err:
        return err.reason
    return ""


def _rings(loop: LoopInfo) -> str:
    return "+".join(name for name, _, _ in loop.rings) or loop.name


def candidate_options(plan: KernelPlan, ranking: Ranking) -> tuple[CandidateOption, ...]:
    """The ranked list that ``plan`` was taken from: what is compared, best first, then the others.

    Those that the passes refused have the reason that the plan keeps. The one that was taken is
    shown as the passes made it.
    """
    refused, taken = refusals(plan), ranking.taken(plan)
    return tuple(
        replace(_as_made(one, plan), chosen=True)
        if one is taken
        else _as_listed(one, refused.get(one.name) or _why_slower(one, taken))
        for one in ranking.everything()
    )


def _as_made(one: PlanCandidate, plan: KernelPlan) -> CandidateOption:
    """``one`` as ``plan`` has it, with its time in the list where it was made otherwise."""
    made = _option(one, plan, plan.predicted_us or one.us)
    listed = _option(one, one.plan, one.us)
    if replace(made, us=listed.us) == listed:
        return made
    pipelined = {loop.name for loop in one.plan.loops if loop.pipelined}
    for loop in plan.loops:
        if loop.name in pipelined and not loop.pipelined:
            why = Reason("choice.left_alone", us=one.us, loop=loop.name, why=loop.reasons[-1])
            return replace(made, why=why)
    return replace(made, why=Reason("choice.as_made", us=one.us))


def _as_listed(one: PlanCandidate, why: Why) -> CandidateOption:
    if not one.is_possible:
        return CandidateOption(one.name, one.tier, None, why=why)
    return replace(_option(one, one.plan, one.us), why=why)


def _why_slower(one: PlanCandidate, taken: PlanCandidate | None) -> Why:
    """Why ``one`` is not taken, where its time does not tell."""
    if one.obstacle:
        return one.obstacle
    if one.tier == "asked":
        return Reason("choice.if_asked")
    if not one.us:
        said = (loop.reasons[0] for loop in one.plan.loops if loop.reasons)
        return next(said, Reason("choice.no_prediction"))
    if taken is None or one.us >= taken.us:
        return ""
    if one.tier == "spare":
        return Reason("choice.if_none_lowers")
    axis = next(axis for axis in AXES if axis.value(one.decided) != axis.value(taken.decided))
    return Reason("choice.margin", percent=axis.margin)


def _option(one: PlanCandidate, plan: KernelPlan, us: float) -> CandidateOption:
    listed = {ring.buffer for loop in one.plan.loops for ring in loop.rings}
    rings = [ring.depth for loop in plan.loops for ring in loop.rings if ring.buffer in listed]
    return CandidateOption(
        one.name,
        one.tier,
        us or None,
        "+".join(dict.fromkeys(matmul.instruction for matmul in plan.matmuls)),
        "+".join(sorted({copy.mechanism for copy in plan.copies})),
        _way(plan) if plan.roles else "",
        plan.cluster,
        "+".join(map(str, rings if len(set(rings)) > 1 else rings[:1])),
    )


def _way(plan: KernelPlan) -> Consumers:
    """Whether consumers of ``plan`` are cooperative or ping-pong."""
    return "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
