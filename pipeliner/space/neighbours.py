"""The neighbours of a candidate: what each axis may have in the place of what it has.

What searches for a faster kernel, or times one beside others, asks for them by the options of a
request. They are varied one by one or several at once; not all that come of it is possible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from ..instructions.table import multiplied_by
from ..machine import Machine
from ..machine.constant import constant, measured
from ..mechanisms.roles import by_warpgroup
from ..plan import Consumers, KernelPlan, Mechanism, StoreMechanism
from ..plan.request import Instruction
from .axes import copies_of
from .candidates import PlanCandidate
from .ranking import Ranking

AxisValues: TypeAlias = "tuple[str, Sequence[Any]]"
"""The name of an option, and what it may be."""

USUAL_DEPTH: Final = constant(
    "USUAL_DEPTH",
    6,
    "slots",
    "up to this each depth is tried",
    formula="depth <= max(USUAL_DEPTH, what is predicted to be best + 2)",
    source=measured("H100, a convolution with few channels: 1 was fastest, 4 was predicted"),
    date="2026-11-22",
)


def neighbours(ranking: Ranking, candidate: PlanCandidate) -> list[AxisValues]:
    """What may be asked for in the place of what ``candidate`` of ``ranking`` has."""
    plan = candidate.plan
    wide = bool(plan.roles) and by_warpgroup(plan.matmuls)
    persistent = any(loop.outer != 1 for loop in ranking.info.loops)
    return [
        ("depth", _depths(candidate)),
        ("mechanism", _mechanisms(plan, ranking.machine)),
        ("store", _stores(plan)),
        ("cluster", _clusters(ranking) if wide else ()),
        ("roles", (0,) if plan.roles else ()),
        ("consumers", _consumers(plan) if persistent and wide else ()),
    ]


def crossed(values: Sequence[AxisValues], at_once: int) -> Iterator[dict[str, Any]]:
    """Every choice of up to ``at_once`` axes, with one value of each."""
    named = [[(name, value) for value in found] for name, found in values]
    for count in range(1, at_once + 1):
        for some in itertools.combinations(named, count):
            for made in itertools.product(*some):
                yield dict(made)


def instructions(machine: Machine, *, exact: bool) -> tuple[Instruction, ...]:
    """What may multiply without changing the numerics; ``exact``: float32, which stays so."""
    if exact:
        return ("simt",)
    return ("wgmma", "mma", "simt") if machine.wgmmas else ("mma", "simt")


def depth_of(plan: KernelPlan) -> int:
    """Slots of the deepest ring; 1 where there is none."""
    return max((ring.depth for loop in plan.loops for ring in loop.rings), default=1)


def _depths(candidate: PlanCandidate) -> list[int]:
    """The other depths of its loops, but for those far deeper than its own."""
    own = depth_of(candidate.plan)
    fitting = {found.depth for one in candidate.loops for found in one.depths.fitting}
    return sorted(depth for depth in fitting - {own} if depth <= max(USUAL_DEPTH, own + 2))


def _mechanisms(plan: KernelPlan, machine: Machine) -> tuple[Mechanism, ...]:
    """The copy mechanisms that may fill the rings of ``plan`` ahead of time."""
    if any(multiplied_by(one).warpgroup_wide for one in plan.matmuls):
        return ("tma", "cp_async")
    without_tma: tuple[Mechanism, ...] = ("register",)
    if machine.has_cp_async:
        without_tma = ("cp_async", "register")
    matrices = any(multiplied_by(one).operands == "ldmatrix" for one in plan.matmuls)
    return (*without_tma, "tma") if machine.has_tma and matrices else without_tma


def _stores(plan: KernelPlan) -> tuple[StoreMechanism, ...]:
    """How accumulators may reach memory."""
    if not plan.stores:
        return ()
    parts = plan.elementwise or any(store.parts for store in plan.stores)
    return ("direct", "tma", "coalesced", *(("cluster",) if parts else ()))


def _clusters(ranking: Ranking) -> list[int]:
    """Sizes of clusters whose CTAs are known to have something to share, and none."""
    return sorted({1, *(size for op in copies_of(ranking.info) for size, _ in op.multicast)})


def _consumers(plan: KernelPlan) -> tuple[Consumers, ...]:
    """The other way to share tiles, in a kernel whose consumers are warpgroups."""
    return ("cooperative",) if plan.ping_pong_groups > 1 else ("ping-pong",)
