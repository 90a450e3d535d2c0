"""What else could have been chosen for a kernel, and what the model says of it.

Nothing is predicted here: what the plan has is what ``predicted`` says of it, other depths come
from ``predict`` on the same descriptors, instructions and mechanisms from ``choose`` itself with
that one thing asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..errors import PlanError
from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from ..machine import Machine
from ..plan import Consumers, KernelPlan, LoopPlan
from ..reason import refusal
from ..request import CONSUMERS, INSTRUCTIONS, MECHANISMS, Request
from .again import mapped_as, predicted, slots_of
from .choose import choose
from .depth import check_depth
from .descriptor import most
from .loops import most_slots
from .mapped import LoopWork, as_chosen, map_kernel, uses_wgmma
from .mapping import EXACT
from .predict import Prediction, predict

NEVER_UNASKED: Final = "the statement waits for its load: no slot hides that"
"""Of a copy that is left as it is."""

_NOT_TAKEN: Final = "wgmma is not taken: "


@dataclass(frozen=True, slots=True)
class DepthOption:
    """Rings of ``depth`` slots: shared memory of a CTA in bytes, CTAs of an SM, time of the loop.

    ``step``: cycles of one iteration of one CTA. ``why``: what makes it impossible; then there is
    no time. ``apart``: slots of each ring where they differ; ``depth`` is then the most.
    ``measured_us``: of the kernel, where records have it.
    """

    depth: int
    smem: int
    ctas: int = 0
    step: float = 0.0
    us: float | None = None
    chosen: bool = False
    why: str = ""
    apart: tuple[int, ...] = ()
    measured_us: float | None = None

    @property
    def slots(self) -> str:
        """``3``, or ``3+2`` where rings differ."""
        return "+".join(map(str, self.apart or (self.depth,)))


@dataclass(frozen=True, slots=True)
class LoopDepths:
    """The depths of one loop that were compared, and the first that does not fit."""

    loop: str
    depths: tuple[DepthOption, ...]


@dataclass(frozen=True, slots=True)
class WayOption:
    """An instruction, a mechanism or a way to share tiles, with the time of the kernel by it.

    ``us``: None where it is impossible or cannot be predicted, for the reason ``why``, which may
    also say why it is not taken. ``instruction``: what multiplies then, in full.
    """

    name: str
    us: float | None
    instruction: str = ""
    chosen: bool = False
    why: str = ""


def depth_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[LoopDepths, ...]:
    """The depths of every loop of ``plan`` that could have rings.

    All are of the copies and instructions that the plan has; of a loop that is left alone, those
    that are more than one slot are of what was compared with it.
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
    """``own``: what the plan itself says of its loop, as it is mapped in ``one``."""
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
    apart = _shown(own, one.work.smem(slots), chosen=True)
    return (*options, replace(apart, apart=tuple(slots.values())))


def _shown(found: Prediction, smem: int, *, chosen: bool) -> DepthOption:
    return DepthOption(found.depth, smem, found.resident, found.step, found.us, chosen)


def _obstacle(one: LoopWork, depth: int, machine: Machine) -> str:
    try:
        check_depth(_rings(one.loop), depth, one.work, machine)
    except PlanError as err:
        return str(err)
    return ""


def _rings(loop: LoopInfo) -> str:
    return "+".join(name for name, _, _ in loop.rings) or loop.name


def instruction_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[WayOption, ...]:
    """What each instruction would make of the same tiles; nothing where nothing is a matmul."""
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
    """What each mechanism would make of the same tiles; nothing where nothing is copied."""
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
        options.append(replace(option, why=option.why or NEVER_UNASKED))
    return tuple(options)


def consumer_options(
    info: KernelInfo, plan: KernelPlan, machine: Machine, request: Request
) -> tuple[WayOption, ...]:
    """How those who compute could share tiles; nothing where they have no role of their own."""
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
    """How those who compute share the tiles of ``plan``."""
    return "ping-pong" if plan.teams > 1 else "cooperative"


def family(instruction: str) -> str:
    """``wgmma`` of ``wgmma.m64n256k16.f16.f32``."""
    return instruction.split(".", 1)[0]


def _option(
    name: str,
    info: KernelInfo,
    machine: Machine,
    request: Request,
    own: KernelPlan | None = None,
    chosen: bool = False,
) -> WayOption:
    """What ``request`` would make of the kernel; ``own``: the plan itself, where that is it."""
    try:
        plan = choose(info, machine, request) if own is None else own
    except Exception as err:  # a bug in one of them, too, leaves the others
        return WayOption(name, None, chosen=chosen, why=refusal(err))
    instruction = plan.matmuls[0].instruction if plan.matmuls else ""
    if plan.predicted_us:
        return WayOption(name, plan.predicted_us, instruction, chosen)
    why = next(
        (str(loop.reasons[0]) for loop in plan.loops if loop.reasons), "no loop has a prediction"
    )
    return WayOption(name, None, instruction, chosen, why)


def _with_reason(option: WayOption, info: KernelInfo, plan: KernelPlan) -> WayOption:
    """``option`` with what the choice itself said of it, where its time does not."""
    if option.chosen or option.why:
        return option
    if option.name == "wgmma":
        said = (
            text.removeprefix(_NOT_TAKEN) for text in map(str, plan.reasons) if _NOT_TAKEN in text
        )
        return replace(option, why=next(said, ""))
    matmuls = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    exact = option.name == "mma" and any(op.a_dtype == "float32" for op in matmuls)
    return replace(option, why=EXACT) if exact else option
