"""The candidates of a kernel: every way to make it, planned when it is asked for its time.

What is compared by default comes in stages: clusters and ping-pong are open where the first plan of
an instruction has a producer warp. What is ruled out by default has the reason, and is planned
where somebody wants to see its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from ..choice.mapped import LoopWork
from ..choice.planned import PlannedKernel, planned
from ..choice.scalar import is_free, shared_out
from ..diagnostics import Reason, Why
from ..instructions.table import multiplied_by
from ..machine import Machine
from ..mechanisms.ping_pong import why_cooperative
from ..mechanisms.pinned import kind
from ..mechanisms.roles import by_warpgroup
from ..mechanisms.table import PRODUCED
from ..plan import Consumers, KernelPlan, StoreMechanism
from ..plan.request import INSTRUCTIONS, MECHANISMS, Request
from ..values.facts import KernelInfo
from ..values.failure import refusal
from .axes import (
    Combination,
    is_exact,
    matmuls_of,
    may_be_put_together,
    wgmma_is_open,
    why_not_wgmma,
    worthwhile_clusters,
)

Tier: TypeAlias = Literal["compared", "spare", "asked"]
"""When a candidate is taken: by its predicted time; where none of those lowers; where it is asked
for."""

NEVER_BY_DEFAULT: Final = Reason("choice.in_statement")
"""Why a copy that stays in its statement is never taken by default."""


@dataclass(frozen=True)
class PlanCandidate:
    """One way to make a kernel, with its plan or the reason why there is none.

    ``why``: what rules it out by default, empty where nothing does.
    """

    decided: Combination
    tier: Tier
    make: Callable[[], PlannedKernel]
    why: Why = ""
    scalar: bool = False
    """No instruction multiplies: its nests are shared out."""

    @cached_property
    def outcome(self) -> PlannedKernel | Exception:
        """The plan without its schedule, or what was raised in its place."""
        try:
            return self.make()
        except Exception as err:  # a bug in one of them, too, leaves the others
            return err

    @property
    def is_possible(self) -> bool:
        """Whether it has a plan."""
        return isinstance(self.outcome, PlannedKernel)

    @property
    def plan(self) -> KernelPlan:
        """The plan; raises why there is none."""
        if isinstance(self.outcome, PlannedKernel):
            return self.outcome.plan
        raise self.outcome

    @property
    def loops(self) -> tuple[LoopWork, ...]:
        """Its loops with the innermost axis, the depths, of which the plan has the best."""
        return self.outcome.loops if isinstance(self.outcome, PlannedKernel) else ()

    @cached_property
    def obstacle(self) -> Why:
        """Why there is no plan, or what rules it out by default; empty where it is compared."""
        return self.why if isinstance(self.outcome, PlannedKernel) else refusal(self.outcome)

    @property
    def us(self) -> float:
        """Predicted microseconds; 0: impossible, or without a prediction."""
        return self.plan.predicted_us if self.is_possible else 0.0

    @property
    def family(self) -> str:
        """The instruction that multiplies, in short, or what is asked to."""
        if self.is_possible and self.plan.matmuls:
            return multiplied_by(self.plan.matmuls[0]).name
        return self.decided.instruction

    @property
    def mechanisms(self) -> set[str]:
        """The mechanisms of the copies, or the one that is asked for."""
        if self.is_possible:
            return {copy.mechanism for copy in self.plan.copies}
        return {self.decided.mechanism}

    @property
    def pinned(self) -> Combination:
        """What leads to it where it is asked for: nothing that is compared is left open."""
        plan = self.plan
        pinned = (
            replace(self.decided, instruction=kind(plan.matmuls[0]))
            if plan.matmuls
            else self.decided
        )
        if plan.roles:
            way: Consumers = "ping-pong" if plan.ping_pong_groups > 1 else "cooperative"
            return replace(pinned, consumers=way, cluster=plan.cluster)
        if pinned.instruction == "wgmma":
            return replace(pinned, mechanism="cp_async")
        return pinned

    @property
    def name(self) -> str:
        """What is decided, in short: ``wgmma, tma, ping-pong, clusters of 2``."""
        if self.scalar:
            return "nests shared out"
        instruction = {"auto": "no wgmma"}.get(self.family, self.family)
        words = [instruction, *sorted(self.mechanisms - {"auto"})]
        if self.decided.consumers != "auto":
            words.append(self.decided.consumers)
        if self.decided.cluster not in ("auto", 1):
            words.append(f"clusters of {self.decided.cluster}")
        if self.decided.store != "auto":
            words.append(f"{self.decided.store} store")
        if self.decided.depth == 1:
            words.append("one slot")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """What a kernel, a machine and a request leave open; ``accelerated``: sm_90a's code, too."""

    info: KernelInfo
    machine: Machine
    request: Request
    accelerated: bool

    def compared(self) -> Iterator[PlanCandidate]:
        """The candidates that are compared by time, and beside them what is ruled out by default.

        wgmma multiplies, copied for by TMA, or by cp.async of the math warps, or something else,
        which on GPUs without wgmma TMA may copy for too.
        """
        own = Combination.of(self.request)
        if not wgmma_is_open(self.info, self.machine, self.request):
            found = list(self._with_roles(own, "compared"))
            yield from found
            yield from self._by_producer_warp(found[0])
            return
        wide = replace(own, instruction="wgmma")
        if self._needs_wgmma():
            yield from self._with_roles(wide, "compared")
            return
        why = why_not_wgmma(self.info, self.request, accelerated=self.accelerated)
        if why is not None:
            yield self._candidate(wide, "asked", why)
        else:
            found = list(self._with_roles(wide, "compared"))
            yield from found
            yield from self._by_math_warps(found)
        yield from self._with_roles(own, "compared")

    def _needs_wgmma(self) -> bool:
        """Whether nothing else shares tiles, or adds partial sums by TMA, as is asked for."""
        partial_sums = any(store.partial_sums for store in self.info.stores)
        return self.request.consumers == "ping-pong" or partial_sums

    def _candidate(self, decided: Combination, tier: Tier, why: Why = "") -> PlanCandidate:
        asked = decided.within(self.request)
        return PlanCandidate(decided, tier, lambda: planned(self.info, self.machine, asked), why)

    def _with_roles(
        self, decided: Combination, tier: Tier, said: Why = ""
    ) -> Iterator[PlanCandidate]:
        """``decided``, and where that has a producer warp, the ways to share tiles and copies."""
        plain = self._candidate(decided, tier, said)
        yield plain
        if not plain.is_possible or not plain.plan.roles:
            return
        if not by_warpgroup(plain.plan.matmuls):
            return
        if decided.store == "auto" and may_be_put_together(self.info, self.machine, self.request):
            yield self._candidate(replace(decided, store="cluster"), tier, said)
        sizes = list(worthwhile_clusters(self.info)) if decided.cluster == "auto" else []
        for size in sizes:
            yield self._candidate(replace(decided, cluster=size), tier, said)
        if decided.consumers != "auto":
            return
        other = replace(decided, consumers="ping-pong")
        why = why_cooperative(self.info, plain.plan.matmuls, plain.plan.copies)
        if why is not None:
            yield self._candidate(other, "asked", why)
            return
        yield self._candidate(other, tier, said)
        for size in sizes:
            yield self._candidate(replace(other, cluster=size), tier, said)

    def _by_math_warps(self, found: list[PlanCandidate]) -> Iterator[PlanCandidate]:
        """Wgmma whose math warps issue cp.async, where TMA copies and nothing else is asked for.

        A depth that is asked for is compared with other depths by the same mechanism.
        """
        first = found[0]
        asked = (*self._asked_of_roles(), self.request.depth)
        if not first.us or first.mechanisms != {"tma"} or asked != ("auto",) * len(asked):
            return
        decided = replace(first.decided, mechanism="cp_async")
        if any(loop.outer != 1 for loop in self.info.loops):
            yield self._candidate(decided, "asked", Reason("choice.persistent"))
        else:
            yield self._candidate(decided, "compared")

    def _by_producer_warp(self, first: PlanCandidate) -> Iterator[PlanCandidate]:
        """mma.sync that a producer warp copies for by TMA, where the GPU has no wgmma.

        Of GPUs that have it nothing is asked here: what mma.sync is for there was measured with
        cp.async. A depth that is asked for is compared with other depths by the same mechanism.
        """
        asked = (*self._asked_of_roles(), self.request.depth)
        if self.machine.wgmmas or not self.machine.has_tma or asked != ("auto",) * len(asked):
            return
        if first.us and first.mechanisms == {"cp_async"} and first.family == "mma":
            yield self._candidate(replace(first.decided, mechanism="tma"), "compared")

    def _asked_of_roles(self) -> tuple[object, ...]:
        asked = self.request
        return asked.mechanism, asked.roles, asked.consumers, asked.cluster, asked.store

    def spare(self) -> Iterator[PlanCandidate]:
        """The candidates that are tried where none that is compared lowers, in this order.

        They have an instruction of a warp or a thread, then no ring; where nothing is asked for,
        the last one holds any tile function.
        """
        own = Combination.of(self.request)
        if self._may_copy_for_wgmma():
            decided = replace(own, instruction="wgmma", mechanism="cp_async")
            yield self._candidate(decided, "spare")
        if not self._is_wgmmas_alone():
            ways = [own]
            hints = [op.instruction for op in matmuls_of(self.info)]
            if own.instruction == "auto" and hints and set(hints) == {"auto"}:
                ways = [own, replace(own, instruction="simt")]
            for decided in ways:
                yield self._candidate(decided, "spare")
            for decided in ways if own.depth == "auto" else ():
                yield self._candidate(replace(decided, depth=1), "spare")
        if is_free(self.info, self.request) and not self.shares_nests_out():
            yield self.scalar()

    def _may_copy_for_wgmma(self) -> bool:
        """Whether wgmma whose math warps issue cp.async may be had: float32 stays float32."""
        if not self.machine.wgmmas or not matmuls_of(self.info):
            return False
        if any(asked != "auto" for asked in self._asked_of_roles()):
            return False
        if self.request.instruction != "auto":
            return self.request.instruction == "wgmma"
        why = why_not_wgmma(self.info, self.request, accelerated=self.accelerated)
        return why is None and wgmma_is_open(self.info, self.machine, self.request)

    def _is_wgmmas_alone(self) -> bool:
        """Whether something is asked for that no other instruction has."""
        asked = self.request
        return (
            asked.instruction == "wgmma"
            or asked.mechanism in PRODUCED
            or asked.store == "tma"
            or asked.roles not in ("auto", 0)
            or asked.cluster not in ("auto", 1)
            or asked.consumers != "auto"
            or asked.operand == "registers"
            or asked.accumulate == "promoted"
            or asked.atomic_reduction
        )

    def shares_nests_out(self) -> bool:
        """Whether all that there is is nests of a CTA that need nothing of each other."""
        return self.info.independent > 1 and is_free(self.info, self.request)

    def scalar(self) -> PlanCandidate:
        """The candidate without an instruction."""
        return PlanCandidate(
            Combination(),
            "spare",
            lambda: PlannedKernel(shared_out(self.info, self.machine, self.request)),
            scalar=True,
        )

    def _stores_otherwise(self, one: PlanCandidate) -> bool:
        """Whether ``one``, of whose stores nothing is decided, is to be shown with other ones."""
        own = Combination.of(self.request)
        simple = (one.decided.consumers, one.decided.cluster) == (own.consumers, own.cluster)
        if one.tier != "compared" or own.store != "auto" or not simple or not one.is_possible:
            return False
        if not one.plan.roles or not by_warpgroup(one.plan.matmuls):
            return False
        return len({found.mechanism for found in one.plan.stores}) == 1

    def others(self, listed: Sequence[PlanCandidate]) -> Iterator[PlanCandidate]:
        """What is taken only where it is asked for: other stores, instructions, copy mechanisms.

        ``listed``: what is compared, whose results may be stored otherwise.
        """
        own = Combination.of(self.request)
        for one in listed:
            if self._stores_otherwise(one):
                own_store = one.plan.stores[0].mechanism
                store: StoreMechanism = "tma" if own_store == "direct" else "direct"
                yield self._candidate(replace(one.decided, store=store), "asked")
        if matmuls_of(self.info):
            for instruction in INSTRUCTIONS:
                if instruction not in ("auto", own.instruction):
                    exact = is_exact(self.info) and instruction != "simt"
                    why = Reason("mapping.exact") if exact else ""
                    decided = replace(own, instruction=instruction)
                    yield from self._with_roles(decided, "asked", why)
        kinds = {own.instruction}
        if wgmma_is_open(self.info, self.machine, self.request):
            kinds.add("wgmma")
        for mechanism in MECHANISMS:
            if mechanism in ("auto", own.mechanism):
                continue
            for instruction in sorted(kinds, reverse=True):
                decided = replace(own, instruction=instruction, mechanism=mechanism)
                if mechanism == "direct":  # as with one slot: nothing of it is in flight
                    decided = replace(decided, depth=1)
                    yield self._candidate(decided, "asked", NEVER_BY_DEFAULT)
                else:
                    yield self._candidate(decided, "asked")
