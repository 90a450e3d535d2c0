"""The one ranked list of a kernel: its candidates, best first, each with its time or its refusal.

The fastest is taken, but for ties: along each axis of ``AXES`` a later value must be faster than an
earlier one by the axis' margin. What the passes cannot keep is refused, and the next one is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from ..choice.planned import with_ops
from ..diagnostics import Reason, Why, is_code
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
    STORE,
    PlanAxis,
    multicast,
    wgmma_is_open,
)
from .candidates import PlanCandidate, PlanSpace

BY_MATH_WARPS: Final = "cp.async by the math warps"
BY_PRODUCER: Final = "TMA by a producer warp"
PING_PONG: Final = "ping-pong"
BY_CLUSTERS: Final = "a sum by clusters"
BY_SECOND_KERNEL: Final = "a second kernel"
WGMMA: Final = "wgmma"

NOT_TAKEN: Final = "plan.not_taken"
"""The code of a plan's reason that names a candidate that the passes refused."""


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
        self.info, self.machine, self.request = info, machine, request
        self._space = PlanSpace(info, machine, request, accelerated)
        self._listed = list(self._space.compared())
        self._refused: list[tuple[PlanCandidate, Why]] = []

    def best(self) -> PlanCandidate:
        """The candidate to take; where none has a plan, the one that says why."""
        found = self._possible(self._listed)
        return best_of(found) if found else self._failed()

    @cached_property
    def _shared_out(self) -> list[PlanCandidate]:
        """What comes before everything, where all that there is is nests."""
        return [self._space.scalar()] if self._space.shares_nests_out() else []

    @cached_property
    def _spare(self) -> list[PlanCandidate]:
        """What is tried where nothing else lowers, planned when it is."""
        return list(self._space.spare())

    def __iter__(self) -> Iterator[PlanCandidate]:
        """All candidates that may be taken, in the order in which they are tried."""
        return _each_once(self._in_order())

    def _in_order(self) -> Iterator[PlanCandidate]:
        yield from self._shared_out
        left = [one for one in self._listed if one.tier == "compared" and one.is_possible]
        yield best_of(left) if left else self._failed()
        wide = [one for one in self._spare if one.decided.instruction == WGMMA]
        left += [one for one in wide if one.is_possible]
        while left:
            yield (best := best_of(left))
            left.remove(best)
        yield from self._spare

    def refuse(self, candidate: PlanCandidate, why: Why) -> None:
        """Leave ``candidate`` out of all comparisons: it does not lower."""
        self._refused.append((candidate, why))

    def taken(self, plan: KernelPlan) -> PlanCandidate | None:
        """The candidate that ``plan`` was made of: the first that was not refused before it.

        None: TVM's own passes were left to make the kernel.
        """
        refused = refusals(plan)
        left = (one for one in self if one.name not in refused)
        return None if plan.sync.by == "tvm" else next(left, None)

    def explained(self, candidate: PlanCandidate) -> KernelPlan:
        """The plan of ``candidate``, which says how it compares; raises why it has none."""
        plan = with_ops(candidate.plan, self.info, self.machine)
        said: list[Reason | None] = []
        if candidate.tier == "compared":
            said = [
                *self._unsaid(),
                self._of_store(candidate),
                self._of_cluster(candidate),
                self._of_consumers(candidate),
                self._of_mechanism(candidate),
                self._of_instruction(candidate),
            ]
        said += [Reason(NOT_TAKEN, name=one.name, why=why) for one, why in self._refused]
        return replace(plan, reasons=(*plan.reasons, *(one for one in said if one is not None)))

    def _unsaid(self) -> Iterator[Reason]:
        """Why what was compared has no plan, where no comparison tells: clusters, and bugs."""
        by_default = self.request.cluster == "auto"
        for one in self._listed:
            if one.tier == "compared" and not one.is_possible:
                in_cluster = by_default and one.decided.cluster != "auto"
                if in_cluster or is_code(one.obstacle, "plan.bug"):
                    yield Reason("choice.not_taken", what=one.name, why=one.obstacle)

    def everything(self) -> Iterator[PlanCandidate]:
        """All candidates, best first, then those that are taken only where they are asked for."""
        return _each_once((*self, *self._listed, *self._space.others(self._listed)))

    def _failed(self) -> PlanCandidate:
        """The candidate whose error counts where none has a plan: the one that needs least.

        What copies no boxes cannot be in a cluster that is asked for; where others do, theirs does.
        """
        compared = [one for one in reversed(self._listed) if one.tier == "compared"]
        boxed = (one for one in compared if not _copies_no_boxes(one.obstacle))
        return next(boxed, compared[0])

    def _possible(self, candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
        return [
            one
            for one in candidates
            if one.tier == "compared" and one.is_possible and self._refusal(one) is None
        ]

    def _refusal(self, one: PlanCandidate) -> Why | None:
        """Why the passes refused ``one``; None: they did not."""
        return next((why for refused, why in self._refused if refused is one), None)

    def _of_store(self, one: PlanCandidate) -> Reason | None:
        """How a sum of parts by clusters compares with one by a second kernel."""
        if self.request.store != "auto":
            return None
        return self._compared(one, STORE, "cluster", BY_CLUSTERS, BY_SECOND_KERNEL)

    def _of_cluster(self, one: PlanCandidate) -> Reason | None:
        """That CTAs form clusters, and what that gains."""
        size = one.decided.cluster
        if size in ("auto", 1) or self.request.cluster != "auto":
            return None
        alike = self._possible(self._alike(one, CLUSTER))
        others = [other for other in alike if other.decided.cluster != size]
        names = multicast(self.info, int(size))
        us = best_of(others).us if others else 0.0
        return Reason("choice.cluster", cluster=size, copies=names, us=one.us, other_us=us)

    def _of_consumers(self, one: PlanCandidate) -> Reason | None:
        """How ping-pong compares with cooperative consumers."""
        if self.request.consumers == "auto":
            return self._compared(one, CONSUMERS, PING_PONG, PING_PONG, "cooperative consumers")
        stalls = promotion_stalls(one.plan.matmuls)
        if one.decided.consumers == PING_PONG and stalls:
            return Reason("choice.asked", what=PING_PONG, why=stalls)
        return None

    def _of_mechanism(self, one: PlanCandidate) -> Reason | None:
        """How cp.async by the math warps compares with TMA by a producer warp."""
        if self.request.mechanism != "auto":
            return None
        if not self.machine.wgmmas:
            return self._compared(one, MECHANISM, "tma", BY_PRODUCER, BY_MATH_WARPS)
        return self._compared(one, MECHANISM, "cp_async", BY_MATH_WARPS, BY_PRODUCER)

    def _of_instruction(self, one: PlanCandidate) -> Reason | None:
        """How wgmma compares with what needs no warpgroups."""
        if not wgmma_is_open(self.info, self.machine, self.request):
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
        alike = self._alike(one, axis)
        its = [
            other
            for other in alike
            if axis.value(other.decided) == value and self._refusal(other) is None
        ]
        if not its:
            return None
        with_it = self._possible(its)
        others = [other for other in alike if axis.value(other.decided) != value]
        without = self._possible(others)
        if not with_it:
            return Reason("choice.not_taken", what=what, why=its[0].why or its[0].obstacle)
        if not without:
            return Reason("choice.taken", what=what, why=self._why_only(others))
        us, other_us = best_of(with_it).us, best_of(without).us
        times = Reason("choice.times", us=us, other_us=other_us, other=otherwise)
        code = "choice.taken" if axis.value(one.decided) == value else "choice.not_taken"
        return Reason(code, what=what, why=times)

    def _why_only(self, others: Sequence[PlanCandidate]) -> Reason:
        """That none of ``others`` can be had, with what the first one lacks."""
        if not others:
            return Reason("choice.only")
        first = others[0]
        return Reason("choice.only_possible", why=self._refusal(first) or first.obstacle)

    def _alike(self, one: PlanCandidate, axis: PlanAxis) -> list[PlanCandidate]:
        """What is listed and shares with ``one`` all that lies outside of ``axis``."""
        outer = AXES[: AXES.index(axis)]
        return [
            other
            for other in self._listed
            if all(part.value(other.decided) == part.value(one.decided) for part in outer)
        ]


def refusals(plan: KernelPlan) -> dict[str, Why]:
    """Why the passes refused candidates that were ranked before the one of ``plan``, by name."""
    return {
        str(reason["name"]): reason.why
        for reason in plan.reasons
        if isinstance(reason, Reason) and is_code(reason, NOT_TAKEN)
    }


def _copies_no_boxes(why: Why) -> bool:
    """Whether a cluster is refused for the kind of the copies."""
    inner = why.why if isinstance(why, Reason) and is_code(why, "cluster.refused") else ""
    return is_code(inner, "cluster.no_tma")


def _each_once(candidates: Iterable[PlanCandidate]) -> Iterator[PlanCandidate]:
    """The first of each name, in their order."""
    known: set[str] = set()
    for one in candidates:
        if one.name not in known:
            known.add(one.name)
            yield one


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
