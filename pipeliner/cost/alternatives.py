"""What else could have been chosen for a kernel, and what the model says of it.

Nothing is predicted here: depths come from ``predict`` on the very descriptors that the depth was
chosen with, instructions and mechanisms from ``choose`` itself with that one thing asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..errors import PipelinerError, PlanError
from ..kernel import CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from ..machine import Machine
from ..plan import Consumers, KernelPlan, LoopPlan
from ..request import CONSUMERS, INSTRUCTIONS, MECHANISMS, Request
from .choose import choose
from .depth import check_depth
from .loops import most_slots, ring_buffers
from .mapped import LoopWork, as_chosen, map_kernel, uses_wgmma
from .mapping import EXACT
from .predict import predict

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
    """The depths of every loop of ``plan`` that could have rings."""
    if plan.matmuls and uses_wgmma(plan.matmuls):
        request = as_chosen(request, plan)
    mapped = map_kernel(info, machine, replace(request, cluster=plan.cluster, consumers=_way(plan)))
    return tuple(
        LoopDepths(one.loop.name, _depths(one, plan.loop(one.loop.name), machine))
        for one in mapped.loops
        if one.work.usage.global_bytes
    )


def _depths(one: LoopWork, plan: LoopPlan, machine: Machine) -> tuple[DepthOption, ...]:
    filled = {name for name, _, _ in ring_buffers(one.loop, one.copies)}
    chosen = max((ring.depth for ring in plan.rings if ring.buffer in filled), default=1)
    apart = _apart(one, plan, machine)
    options: list[DepthOption] = []
    for depth in range(1, max(chosen, most_slots(one.loop, one.copies)) + 1):
        smem = one.work.smem(depth)
        found = predict(one.work, machine, depth)
        if found is None:
            options.append(DepthOption(depth, smem, why=_obstacle(one, depth, machine)))
            break
        taken = depth == chosen and not apart
        options.append(DepthOption(depth, smem, found.resident, found.step, found.us, taken))
    return (*options, *apart)


def _apart(one: LoopWork, plan: LoopPlan, machine: Machine) -> list[DepthOption]:
    """What the plan takes where its rings differ in depth; else nothing."""
    slots = {ring.buffer: plan.ring(ring.buffer).depth for ring in one.work.rings if plan.rings}
    found = predict(one.work, machine, slots) if len(set(slots.values())) > 1 else None
    if found is None:
        return []
    option = DepthOption(
        found.depth, one.work.smem(slots), found.resident, found.step, found.us, chosen=True
    )
    return [replace(option, apart=tuple(slots.values()))]


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
    options = [_option(name, info, machine, one, name in taken) for name, one in asked.items()]
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
            options.append(_option(name, info, machine, asked, name in taken))
            continue
        # As with one slot, whatever the rings: nothing of it is in flight.
        option = _option(name, info, machine, replace(asked, depth=1), chosen=False)
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
        _option(name, info, machine, replace(request, consumers=name), name == _way(plan))
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
    name: str, info: KernelInfo, machine: Machine, request: Request, chosen: bool
) -> WayOption:
    try:
        plan = choose(info, machine, request)
    except PipelinerError as err:
        return WayOption(name, None, chosen=chosen, why=str(err))
    instruction = plan.matmuls[0].instruction if plan.matmuls else ""
    if plan.predicted_us:
        return WayOption(name, plan.predicted_us, instruction, chosen)
    why = next((loop.reasons[0] for loop in plan.loops if loop.reasons), "no loop has a prediction")
    return WayOption(name, None, instruction, chosen, why)


def _with_reason(option: WayOption, info: KernelInfo, plan: KernelPlan) -> WayOption:
    """``option`` with what the choice itself said of it, where its time does not."""
    if option.chosen or option.why:
        return option
    if option.name == "wgmma":
        said = (text.removeprefix(_NOT_TAKEN) for text in plan.reasons if _NOT_TAKEN in text)
        return replace(option, why=next(said, ""))
    matmuls = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    exact = option.name == "mma" and any(op.a_dtype == "float32" for op in matmuls)
    return replace(option, why=EXACT) if exact else option
