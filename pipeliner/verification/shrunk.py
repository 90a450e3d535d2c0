"""The kernel of a plan on smaller extents: what is run on the CPU in place of what is planned.

Extents shrink, the plan does not: tile, instruction, mechanisms, roles, cluster, stores, depths and
the whole schedule are handed over. Where a plan does not fit smaller extents, larger ones are
tried, the original ones last; what still differs then is said.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ..diagnostics import Reason, Why
from ..errors import PipelinerError, PlanError
from ..instructions.wgmma_shapes import WARPGROUP
from ..kernel.building import build_with
from ..kernel.compiled import Kernel
from ..kernel.refined import recognised
from ..machine import WARP, machine_for
from ..mechanisms.roles import by_warpgroup
from ..mechanisms.stores import is_staged
from ..plan import CONSUMER, KernelPlan, SmemPlan, SyncPlan
from ..plan.comparing import FREE
from ..plan.request import Request
from ..schedules import GemmTile
from ..schedules.scheduled import scheduled
from ..schedules.smaller import Needs, smaller
from ..schedules.tiles import Tile
from ..schedules.workloads import Gemm, Spec
from ..targets import cuda_target

SMALL: Final = 1 << 22
"""Multiply-adds that are run as they are: a product of 160 cubed, seconds on a CPU."""

LARGE: Final = 1 << 30
"""Multiply-adds that are run at most where a plan fits nothing smaller: half a minute."""

_EXTENTS: Final = FREE | {"kernel", "trip", "ctas"}
"""Fields of a plan that say how large the problem is, estimates and words."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A workload on smaller extents, its kernel, and where its plan is not that of ``whole``."""

    whole: Spec
    spec: Spec
    tile: Tile
    kernel: Kernel
    differences: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What was made smaller, what stayed, and what did not; '' where nothing is smaller."""
        if self.spec == self.whole:
            return ""
        same = f"the same {_what_stays(self.tile, self.kernel.plan)}"
        but = f"; but {'; '.join(self.differences)}" if self.differences else ""
        return f"{self.whole.title} verified on {_extents(self.spec, self.whole)}: {same}{but}"


def shrunk(spec: Spec, tile: Tile, kernel: Kernel) -> Shrunk:
    """``kernel``, of ``spec`` cut by ``tile``, on extents as small as its plan can be obeyed on.

    PlanError: it fits none.
    """
    if spec.flops() <= 2 * SMALL:
        return Shrunk(spec, spec, tile, kernel)
    nearest: Shrunk | None = None
    refused: Why = ""
    for small, cut in smaller(spec, tile, needs_of(kernel.plan)):
        if small == spec:
            if nearest is None and spec.flops() <= 2 * LARGE:
                return Shrunk(spec, spec, tile, kernel)
            refused = refused or Reason("smaller.large", flops=spec.flops(), most=2 * LARGE)
            break
        try:
            made = handed_over(scheduled(small, cut), kernel.target, kernel.plan)
        except PipelinerError as err:
            refused = err.reason
            continue
        found = Shrunk(spec, small, cut, made, differences(kernel.plan, made.plan))
        if not found.differences:
            return found
        nearest = nearest or found
    if nearest is None:
        raise PlanError("smaller.none", workload=spec.name, why=refused)
    return nearest


def needs_of(plan: KernelPlan) -> Needs:
    """What smaller extents must leave room for.

    Steps: the prologue, a wrap of every ring (two where barriers count phases, but of parts of a
    sum), the unrolled steady state once and a step beside it.
    """
    depth = max(
        (ring.depth for loop in plan.loops for ring in loop.rings if ring.scope != "local"),
        default=1,
    )
    once = not plan.mbarriers or plan.elementwise  # many parts are many CTAs
    wraps = depth + 1 if once else 2 * depth
    steps = [loop.ahead + loop.unroll for loop in plan.loops if loop.pipelined]
    return Needs(1 + max([wraps, *steps]), plan.cluster, plan.ping_pong_groups)


def fitted(plan: KernelPlan, function: Any, target: Any) -> KernelPlan:
    """``plan`` for the same kernel of other extents, ``function``: what counts steps is its own."""
    given = cuda_target(target)
    info = recognised(function, given, machine_for(given), Request())
    trips = {loop.name: loop.trip_text for loop in info.loops}
    grids = {
        made.op: "symbolic" if made.ctas is None else str(made.ctas) for made in info.elementwise
    }
    return replace(
        plan,
        kernel=info.name,
        loops=tuple(replace(loop, trip=trips.get(loop.name, loop.trip)) for loop in plan.loops),
        elementwise=tuple(
            replace(made, ctas=grids.get(made.op, made.ctas)) for made in plan.elementwise
        ),
    )


def handed_over(function: Any, target: Any, plan: KernelPlan) -> Kernel:
    """``function`` by ``plan``, which was made for other extents; raises what ``build`` raises.

    Dependences of a loop of one step are not those of a longer one: where the schedule itself
    cannot be obeyed, loops are scheduled anew with the rings of ``plan``.
    """
    fit = fitted(plan, function, target)
    try:
        return build_with(function, target, Request(plan=fit))
    except PipelinerError:
        loops = tuple(
            replace(loop, edges=(), source="request") if loop.pipelined else loop
            for loop in fit.loops
        )
        anew = replace(fit, loops=loops, sync=SyncPlan(), smem=SmemPlan())
        return build_with(function, target, Request(plan=anew))


def differences(plan: KernelPlan, other: KernelPlan) -> tuple[str, ...]:
    """Where ``other`` is not ``plan`` on other extents, as ``copies[0].mechanism is b, not a``."""
    return tuple(_differing("", plan, other))


def _differing(place: str, one: Any, other: Any) -> Iterator[str]:
    if type(one) is type(other) and dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in _EXTENTS:
                inner = f"{place}.{field.name}" if place else field.name
                yield from _differing(inner, getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for number, (first, second) in enumerate(zip(one, other)):
            yield from _differing(f"{place}[{number}]", first, second)
    elif one != other:
        yield f"{place} is {_short(other)}, not {_short(one)}"


def _short(value: Any) -> str:
    return textwrap.shorten(str(value), 60, placeholder=" ...")


def _what_stays(tile: Tile, plan: KernelPlan) -> str:
    """Tile, instruction, mechanisms, roles, cluster, store and depth, in a few words."""
    parts = []
    if isinstance(tile, GemmTile):
        parts.append(f"tile {tile.m}x{tile.n}x{tile.k}")
        if tile.splits > 1:
            parts.append(f"split-K {tile.splits}")
    parts += dict.fromkeys(matmul.instruction for matmul in plan.matmuls)
    parts += dict.fromkeys(copy.way for copy in plan.copies)
    if plan.roles:
        kind = "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
        consumer = plan.role(CONSUMER)
        wide = by_warpgroup(plan.matmuls)
        count = consumer.threads // (WARPGROUP if wide else WARP)
        word = ("warpgroup" if wide else "warp") + ("s" if count > 1 else "")
        parts.append(f"a producer and {count} {kind} consumer {word}")
    if plan.cluster > 1:
        parts.append(f"clusters of {plan.cluster}")
    ways = dict.fromkeys(store.mechanism for store in plan.stores if is_staged(store))
    parts += [f"store {way}" for way in ways]
    depths = {ring.depth for loop in plan.loops for ring in loop.rings if ring.scope != "local"}
    if depths:
        parts.append(f"depth {'/'.join(map(str, sorted(depths)))}")
    return ", ".join(parts) or "plan"


def _extents(small: Spec, whole: Spec) -> str:
    if isinstance(small, Gemm):
        batch = f"{small.batch} x " if small.batch else ""
        return f"{batch}{small.m}x{small.n}x{small.k}"
    return small.title.removeprefix(whole.title.partition(" conv")[0]).strip()
