"""The one ranked list of a kernel: its candidates, best first, each with its time or its refusal.

The fastest is taken, but for ties: along each axis of ``AXES`` a later value must be faster than an
earlier one by the axis' margin. What the passes cannot keep is refused, and the next one is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..diagnostics import Reason, is_code
from ..machine import Machine
from ..mechanisms.ping_pong import promotion_stalls
from ..plan import KernelPlan
from ..plan.request import Request
from ..values.facts import KernelInfo
from .axes import (
    AXES,
    CLUSTER,
    CONSUMERS,
    INSTRUCTION,
    MECHANISM,
    PlanAxis,
    multicast,
    wgmma_is_open,
)
from .candidates import PlanCandidate, PlanSpace

BY_MATH_WARPS: Final = "cp.async by the math warps"
PING_PONG: Final = "ping-pong"
WGMMA: Final = "wgmma"


def choose(
    info: KernelInfo, machine: Machine, request: Request, *, accelerated: bool = True
) -> KernelPlan:
    """The plan of one kernel of least predicted time, without its schedule, with its reasons.

    ``accelerated``: the code may use what only sm_90a has. Raises PlanError or TargetError for a
    request that cannot be met.
    """
    ranking = Ranking(info, machine, request, accelerated=accelerated)
    return ranking.explained(ranking.best())


class Ranking:
    """The candidates of one kernel, best first; ``refuse`` takes one out that does not lower."""

    def __init__(
        self, info: KernelInfo, machine: Machine, request: Request, *, accelerated: bool = True
    ) -> None:
        """Plan what is compared by default; ``accelerated``: sm_90a's code may be used."""
        self._space = PlanSpace(info, machine, request, accelerated)
        self._listed = list(self._space.compared())
        self._refused: list[PlanCandidate] = []

    def best(self) -> PlanCandidate:
        """The candidate to take; where none has a plan, the one that says why."""
        found = self._possible(self._listed)
        return best_of(found) if found else self._failed()

    def __iter__(self) -> Iterator[PlanCandidate]:
        """All candidates that may be taken, in the order in which they are tried."""
        if self._space.shares_nests_out():
            yield self._space.scalar()
        left = self._possible(self._listed)
        first = best_of(left) if left else self._failed()
        yield first
        known = {first.name}
        spare = list(self._space.spare())
        left += [one for one in spare if one.decided.instruction == WGMMA and one.is_possible]
        while left:
            left.remove(best := best_of(left))
            if best.name not in known:
                known.add(best.name)
                yield best
        for one in spare:
            if one.name not in known:
                known.add(one.name)
                yield one

    def refuse(self, candidate: PlanCandidate) -> None:
        """Leave ``candidate`` out of all comparisons: it does not lower."""
        self._refused.append(candidate)

    def explained(self, candidate: PlanCandidate) -> KernelPlan:
        """The plan of ``candidate``, which says how it compares; raises why it has none."""
        plan = candidate.plan
        if candidate.tier != "compared":
            return plan
        said = (
            *self._unsaid(),
            self._of_cluster(candidate),
            self._of_consumers(candidate),
            self._of_mechanism(candidate),
            self._of_instruction(candidate),
        )
        return replace(plan, reasons=(*plan.reasons, *(one for one in said if one is not None)))

    def _unsaid(self) -> Iterator[Reason]:
        """Why what was compared has no plan, where no comparison tells: clusters, and bugs."""
        by_default = self._space.request.cluster == "auto"
        for one in self._listed:
            if one.tier == "compared" and not one.is_possible:
                in_cluster = by_default and one.decided.cluster != "auto"
                if in_cluster or is_code(one.obstacle, "plan.bug"):
                    yield Reason("choice.not_taken", what=one.name, why=one.obstacle)

    def everything(self) -> Iterator[PlanCandidate]:
        """All candidates, best first, then those that are taken only where they are asked for."""
        known: set[str] = set()
        for one in (*self, *self._listed, *self._space.others()):
            if one.name not in known:
                known.add(one.name)
                yield one

    def _failed(self) -> PlanCandidate:
        """The candidate whose error counts where none has a plan: the one that needs least."""
        return next(one for one in reversed(self._listed) if one.tier == "compared")

    def _possible(self, candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
        return [
            one
            for one in candidates
            if one.tier == "compared" and one.is_possible and one not in self._refused
        ]

    def _of_cluster(self, one: PlanCandidate) -> Reason | None:
        """That CTAs form clusters, and what that gains."""
        size = one.decided.cluster
        if size in ("auto", 1) or self._space.request.cluster != "auto":
            return None
        others = [other for other in self._alike(one, CLUSTER) if other.decided.cluster != size]
        names = multicast(self._space.info, int(size))
        us = best_of(others).us if others else 0.0
        return Reason("choice.cluster", cluster=size, copies=names, us=one.us, other_us=us)

    def _of_consumers(self, one: PlanCandidate) -> Reason | None:
        """How ping-pong compares with cooperative consumers."""
        if self._space.request.consumers == "auto":
            return self._compared(one, CONSUMERS, PING_PONG, PING_PONG, "cooperative consumers")
        stalls = promotion_stalls(one.plan.matmuls)
        if one.decided.consumers == PING_PONG and stalls:
            return Reason("choice.asked", what=PING_PONG, why=stalls)
        return None

    def _of_mechanism(self, one: PlanCandidate) -> Reason | None:
        """How cp.async by the math warps compares with TMA by a producer warp."""
        if self._space.request.mechanism != "auto":
            return None
        return self._compared(one, MECHANISM, "cp_async", BY_MATH_WARPS, "TMA by a producer warp")

    def _of_instruction(self, one: PlanCandidate) -> Reason | None:
        """How wgmma compares with what needs no warpgroups."""
        if not wgmma_is_open(self._space.info, self._space.machine, self._space.request):
            return None
        others = self._possible([o for o in self._listed if o.decided.instruction != WGMMA])
        plain = best_of(others).plan.matmuls if others else ()
        if one.decided.instruction == WGMMA and others and not (plain and best_of(others).us):
            tiles = tuple(Reason("choice.tile", tile=(m.m, m.n, m.k)) for m in one.plan.matmuls)
            why = Reason("choice.only_holds", tiles=tiles)
            return Reason("choice.taken", what=WGMMA, why=why)
        name = plain[0].instruction if plain else ""
        return self._compared(one, INSTRUCTION, WGMMA, WGMMA, name)

    def _compared(
        self, one: PlanCandidate, axis: PlanAxis, value: str, what: str, otherwise: str
    ) -> Reason | None:
        """How those with ``value`` on ``axis`` compare with the others; None: there are none.

        ``what`` is what they have, ``otherwise`` what the others have in place of that.
        """
        alike = self._alike(one, axis, possible=False)
        its = [other for other in alike if axis.value(other.decided) == value]
        if not its:
            return None
        with_it = self._possible(its)
        without = self._possible([other for other in alike if other not in its])
        if not with_it:
            return Reason("choice.not_taken", what=what, why=its[0].why or its[0].obstacle)
        if not without:
            return Reason("choice.taken", what=what, why=Reason("choice.only"))
        us, other_us = best_of(with_it).us, best_of(without).us
        times = Reason("choice.times", us=us, other_us=other_us, other=otherwise)
        code = "choice.taken" if axis.value(one.decided) == value else "choice.not_taken"
        return Reason(code, what=what, why=times)

    def _alike(
        self, one: PlanCandidate, axis: PlanAxis, *, possible: bool = True
    ) -> list[PlanCandidate]:
        """The candidates that share with ``one`` what lies outside of ``axis``."""
        outer = AXES[: AXES.index(axis)]
        found = [
            other
            for other in self._listed
            if all(part.value(other.decided) == part.value(one.decided) for part in outer)
            and other not in self._refused
        ]
        return self._possible(found) if possible else found


def best_of(candidates: Sequence[PlanCandidate], axes: Sequence[PlanAxis] = AXES) -> PlanCandidate:
    """The fastest of ``candidates``, which all have a plan, ties broken along ``axes``."""
    if not axes:
        return candidates[0]
    axis, *inner = axes
    groups: dict[object, list[PlanCandidate]] = {}
    for one in candidates:
        groups.setdefault(axis.value(one.decided), []).append(one)
    taken, *others = (best_of(group, inner) for group in groups.values())
    for other in others:
        holds = other.plan.matmuls or not taken.plan.matmuls
        if holds and 0 < other.us < taken.us * (1 - axis.margin):
            taken = other
    return taken
