"""The alternatives to a plan: other depths, instructions and mechanisms with their predicted times.

The plan's own numbers are those of ``predicted``; other depths come from ``predict`` on the same
descriptors, other instructions and mechanisms from ``choose`` with that one thing asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..cost.descriptor import most
from ..cost.predict import Prediction, predict
from ..diagnostics import Reason, Why, is_code
from ..errors import PlanError
from ..machine import Machine
from ..plan import Consumers, KernelPlan, LoopPlan
from ..plan.request import CONSUMERS, INSTRUCTIONS, MECHANISMS, Request
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from ..values.failure import refusal
from .again import mapped_as, predicted, slots_of
from .choose import WGMMA, choose
from .depth import check_depth
from .loops import most_slots
from .mapped import LoopWork, as_chosen, map_kernel, uses_wgmma

NEVER_BY_DEFAULT: Final = Reason("choice.in_statement")
"""Why a copy that stays in its statement is never taken by default."""


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
class WayOption:
    """An instruction, a mechanism or a sharing of tiles, and what it leads to."""

    name: str
    us: float | None
    """Microseconds of the kernel; None: impossible, or without a prediction."""
    instruction: str = ""
    """The instruction that multiplies, in full."""
    chosen: bool = False
    """The plan has it."""
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


def instruction_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[WayOption, ...]:
    """The kernel with each instruction on the same tiles; empty where nothing is a matmul."""
    if not any(isinstance(op, MatmulInfo) for loop in info.loops for op in loop.ops):
        return ()
    taken = {family(matmul.instruction) for matmul in plan.matmuls}
    asked = {name: replace(request, instruction=name) for name in INSTRUCTIONS if name != "auto"}
    asked |= {name: as_chosen(request, plan) for name in asked if {name} == taken}
    options = [
        _option(name, info, machine, one, plan if {name} == taken else None, name in taken)
        for name, one in asked.items()
    ]
    return tuple(_with_reason(option, info, plan) for option in options)


def mechanism_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[WayOption, ...]:
    """The kernel with each copy mechanism on the same tiles; empty where nothing is copied."""
    if not any(isinstance(op, CopyInfo) for loop in info.loops for op in loop.ops):
        return ()
    taken = {copy.mechanism for copy in plan.copies}
    options: list[WayOption] = []
    for name in MECHANISMS:
        if name == "auto":
            continue
        asked = replace(request, mechanism=name)
        if name != "direct" or name in taken:
            own = plan if {name} == taken else None
            options.append(_option(name, info, machine, asked, own, name in taken))
            continue
        # As with one slot, whatever the rings: nothing of it is in flight.
        option = _option(name, info, machine, replace(asked, depth=1))
        options.append(replace(option, why=option.why or NEVER_BY_DEFAULT))
    return tuple(options)


def consumer_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[WayOption, ...]:
    """The kernel cooperative and with ping-pong; empty without a producer warp."""
    if not plan.roles:
        return ()
    if plan.matmuls and uses_wgmma(plan.matmuls):
        request = replace(request, instruction="wgmma")
    request = replace(request, cluster=plan.cluster)
    return tuple(
        _option(
            name,
            info,
            machine,
            replace(request, consumers=name),
            plan if name == _way(plan) else None,
            name == _way(plan),
        )
        for name in CONSUMERS
        if name != "auto"
    )


def _way(plan: KernelPlan) -> Consumers:
    """Whether consumers of ``plan`` are cooperative or ping-pong."""
    return "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"


def family(instruction: str) -> str:
    """The first word of an instruction: ``wgmma`` of ``wgmma.m64n256k16.f16.f32``."""
    return instruction.split(".", 1)[0]


def _option(
    name: str,
    info: KernelInfo,
    machine: Machine,
    request: Request,
    own: KernelPlan | None = None,
    chosen: bool = False,
) -> WayOption:
    """The kernel that ``request`` leads to; ``own``: the plan itself, where that is it."""
    try:
        plan = choose(info, machine, request) if own is None else own
    except Exception as err:  # a bug in one of them, too, leaves the others
        return WayOption(name, None, chosen=chosen, why=refusal(err))
    instruction = plan.matmuls[0].instruction if plan.matmuls else ""
    if plan.predicted_us:
        return WayOption(name, plan.predicted_us, instruction, chosen)
    said = (loop.reasons[0] for loop in plan.loops if loop.reasons)
    why = next(said, Reason("choice.no_prediction"))
    return WayOption(name, None, instruction, chosen, why)


def _with_reason(option: WayOption, info: KernelInfo, plan: KernelPlan) -> WayOption:
    """``option`` with the reason that the choice gave, where its time does not tell."""
    if option.chosen or option.why:
        return option
    if option.name == "wgmma":
        return replace(option, why=next(filter(None, map(_why_not_wgmma, plan.reasons)), ""))
    matmuls = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    exact = option.name == "mma" and any(op.a_dtype == "float32" for op in matmuls)
    return replace(option, why=Reason("mapping.exact")) if exact else option


def _why_not_wgmma(why: Why) -> Reason | None:
    """What ``why`` says of why wgmma is not taken; None: nothing."""
    if not isinstance(why, Reason) or not is_code(why, "choice.not_taken"):
        return None
    return why.why if why["what"] == WGMMA else None
