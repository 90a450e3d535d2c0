"""Depths compared once they are compiled: predictions corrected by what ptxas made of each.

    kernel = pipeliner.build(func, "h100", refine=True)
    print(kernel.plan.explain())                    # how the depths compare, as built

Registers are estimated before anything is compiled; how many ptxas takes, whether it spills and
which multiply-adds wait for a register bank is known afterwards. Nothing is measured, no GPU is
needed; each depth that is compared takes a run of nvcc.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import tvm

from ..choice.built import AsBuilt, as_built, best_built, read_loop, worth_building
from ..choice.depth import TOLERANCE, DepthAxis
from ..cost.predict import Prediction, predict
from ..diagnostics import Reason, replaced
from ..errors import PlanError
from ..machine import Machine, machine_for
from ..passes.lower import AddPartialSums, preparation
from ..passes.pipeline import recognised_info
from ..plan import KernelPlan, LoopPlan
from ..plan.request import Request
from ..space.ranking import Ranking
from ..values.facts import KernelInfo
from .building import build_with, target_for
from .compiled import Kernel, as_module, only_function


@dataclass(frozen=True, slots=True)
class _Depth:
    """A kernel with rings of one depth, what ptxas made of it and what is predicted of it then."""

    kernel: Kernel
    found: AsBuilt
    before: Prediction
    after: Prediction

    @property
    def reason(self) -> Reason:
        """How it compares, for the plan."""
        return Reason(
            "refine.depth",
            depth=self.after.depth,
            us=self.after.us,
            before_us=self.before.us,
            registers=self.found.registers,
            estimated=self.before.work.registers_at(self.before.depth),
            code=tuple(self._code()),
        )

    def _code(self) -> Iterator[Reason]:
        """What its loop is in machine code."""
        if not self.found.instructions:
            yield Reason("refine.no_loop")
            return
        yield Reason("refine.instructions", count=self.found.instructions)
        if self.found.conflicts:
            yield Reason("refine.conflicts", count=self.found.conflicts)
        if self.found.spills:
            yield Reason("refine.spills", count=self.found.spills)


def refined(func: Any, target: Any, request: Request) -> Kernel:
    """The kernel of ``func`` with the depth that is best by what nvcc makes of each.

    Compared are the depths that are predicted to be nearly as fast as the best. Its plan has the
    corrected time, and says how they compare.

    Raises
    ------
    PlanError
        A depth or a plan is asked for: nothing is left to choose.
    ToolError
        There is no nvcc, or no disassembler.
    """
    if request.depth != "auto" or request.plan is not None:
        asked = "depth" if request.plan is None else "plan"
        raise PlanError("refine.depth_given", asked=asked)
    first = build_with(func, target, request)
    why = _obstacle(first.plan)
    if why is not None:
        return first.with_plan(replace(first.plan, reasons=(*first.plan.reasons, why)))
    machine = machine_for(target)
    candidate = ranked(func, target, machine, request).taken(first.plan)
    assert candidate is not None  # TVM's passes left no loop to compare depths of
    (loop,), pinned = candidate.loops, candidate.pinned
    kernels: list[tuple[Prediction, Kernel]] = []
    refused: list[Reason] = []
    own = _depth(first.plan)
    for option in _options(loop.depths, own):
        try:
            same = replace(pinned, depth=option.depth).within(request)
            made = first if option.depth == own else build_with(func, target, same)
        except PlanError as err:  # what is predicted to fit may not, once it is laid out
            refused.append(Reason("refine.not_built", depth=option.depth, why=err.reason))
        else:
            kernels.append((option, made))
    with ThreadPoolExecutor(len(kernels) or 1) as threads:  # each waits for nvcc
        codes = list(threads.map(lambda one: (one[1].resources, one[1].loop_code), kernels))
    depths = []
    for (option, kernel), (used, code) in zip(kernels, codes):
        found = read_loop(used.registers, code, loop.loop, kernel.plan.matmuls)
        after = predict(as_built(loop.work, found, machine), machine, option.depth)
        if after is None:
            taken = {"registers": used.registers, "machine": machine.name}
            refused.append(Reason("refine.registers", depth=option.depth, **taken))
        else:
            depths.append(_Depth(kernel, found, option, after))
    return _taken(first, depths, refused)


def recognised(func: Any, target: Any, machine: Machine, request: Request) -> KernelInfo:
    """What the choice is made from, as the passes find it."""
    function = only_function(as_module(func))
    chosen = target_for(target, request)
    function = function.with_attr("target", chosen)
    with chosen:
        passes = [AddPartialSums(request), *preparation()]
        prepared = tvm.transform.Sequential(passes)(as_module(function))
        info: KernelInfo = recognised_info(only_function(prepared), machine, request)
        return info


def ranked(func: Any, target: Any, machine: Machine, request: Request) -> Ranking:
    """The ranked list of ``func``, as the passes choose from it."""
    info = recognised(func, target, machine, request)
    accelerated = str(target_for(target, request).arch).endswith("a")
    return Ranking(info, machine, request, accelerated=accelerated)


def _obstacle(plan: KernelPlan) -> Reason | None:
    """Why depths are not compared as built; None: they are."""
    if plan.roles:
        return Reason("refine.roles")
    if len(plan.loops) != 1:
        return Reason("refine.loops", loops=len(plan.loops))
    return None if plan.matmuls else Reason("refine.no_matmul")


def _options(axis: DepthAxis, own: int) -> tuple[Prediction, ...]:
    """The depths to compile, ``own`` among them, which was chosen by itself."""
    close = worth_building(axis.fitting)
    deepest = max(own, _deepest(close))
    return tuple(option for option in close if option.depth <= deepest)


def _deepest(close: tuple[Prediction, ...]) -> int:
    """Beyond two slots more than the fastest needs nothing changes but what is not used."""
    fastest = min(option.us for option in close)
    enough = (o.depth for o in close if o.us <= fastest * (1 + TOLERANCE))
    return min(enough) + 2


def _taken(first: Kernel, depths: list[_Depth], refused: list[Reason]) -> Kernel:
    """The kernel to take; ``first``: by the choice that was made before any was compiled."""
    best = best_built((one.before for one in depths), (one.after for one in depths))
    if best is None:
        reasons = (*(one.reason for one in depths), *refused, Reason("refine.stands"))
        return first.with_plan(replace(first.plan, reasons=(*reasons, *first.plan.reasons)))
    chosen = next(one for one in depths if one.after is best)
    plan = chosen.kernel.plan
    reasons = tuple(
        Reason("refine.taken", depth=one.reason) if one is chosen else one.reason for one in depths
    )
    us = plan.predicted_us * chosen.after.us / chosen.before.us
    plan = replace(
        plan,
        predicted_us=us,
        loops=tuple(_chosen(loop) for loop in plan.loops),
        reasons=(*reasons, *refused, *plan.reasons),
    )
    return chosen.kernel.with_plan(plan)


def _chosen(loop: LoopPlan) -> LoopPlan:
    """``loop`` as one whose depth nobody asked for."""
    rings = tuple(
        replace(ring, requested=False, reason=replaced(ring.reason, "request.asked"))
        for ring in loop.rings
    )
    return replace(loop, rings=rings, source="auto")


def _depth(plan: KernelPlan) -> int:
    """Slots of the rings that copies fill, 1 where there are none; 0 where they differ."""
    rings = (ring for ring in plan.loops[0].rings if ring.scope.startswith("shared"))
    depths = {ring.depth for ring in rings} or {1}
    return depths.pop() if len(depths) == 1 else 0
