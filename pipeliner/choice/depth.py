"""The depths of a loop's rings: one axis of the plan space, and which of them is taken.

Taken is the smallest depth whose predicted time is within ``TOLERANCE`` of the best: a slot that
hides nothing costs shared memory, a longer prologue and sometimes a resident CTA. Where it costs
none of that, a slot or two to spare, against latencies longer than the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ..cost.descriptor import Depth, Work, least
from ..cost.predict import CROSS_STEP_DEPTH, Prediction, predict, why_in_flight
from ..diagnostics import Reason, Value
from ..errors import PlanError
from ..machine import Machine
from ..machine.constant import chosen, constant, derived, fitted, measured

TOLERANCE: Final = constant(
    "TOLERANCE",
    0.01,
    "1",
    "relative time below which two choices count as equal",
    formula="equal where us <= fastest * (1 + TOLERANCE)",
    source=chosen("the noise of a good measurement"),
    date="2026-11-21",
)

SPARE_SLOTS: Final = constant(
    "SPARE_SLOTS",
    2,
    "slots",
    "slots to spare of a CTA that has an SM for itself: no other CTA has work when a load is late",
    formula="depth <= least of the fastest + SPARE_SLOTS",
    source=fitted(
        "H100 log",
        "0.9 % over the best time instead of 1.1 with none (nine workloads), 0.8 instead of 1.3 "
        "(ten others); one or three cost more",
    ),
    date="2026-11-21",
)

SPARE_DEPTH: Final = constant(
    "SPARE_DEPTH",
    3,
    "slots",
    "slots where CTAs interleave and two would do: with one tile in flight, one that lands late "
    "keeps its CTA waiting",
    formula="depth <= SPARE_DEPTH with several CTAs an SM",
    source=measured(
        "H100, three slots instead of two with two or three CTAs an SM",
        "9 to 11 % less of products, 8 to 19 % less of convolutions, 1 to 3 % less of fp32 "
        "products; 2 to 8 % less of products of 2048 to 8192 by 64x128x64, three CTAs an SM "
        "instead of four",
    ),
    date="2026-11-21",
)

SPARE_TRIPS: Final = constant(
    "SPARE_TRIPS",
    5,
    "1",
    "iterations over slots from which on filling spare slots does not show",
    formula="spare slots where trip > SPARE_TRIPS * depth",
    source=chosen("a shorter loop shows the time in which spare slots are filled"),
    date="2026-11-22",
)

REGISTER_DEPTH: Final = constant(
    "REGISTER_DEPTH",
    2,
    "slots",
    "slots of a shared ring that register-staged copies fill: one tile is read, one is written",
    formula="depth <= REGISTER_DEPTH",
    source=measured(
        "H100, eight such tiles for mma.sync that are predicted alike with one and two slots",
        "two took 4 to 11 % less in five, 3 % more in one",
    ),
    date="2026-11-21",
)

MAX_DEPTH: Final = constant(
    "MAX_DEPTH",
    16,
    "slots",
    "the deepest ring that is considered",
    formula="depth <= MAX_DEPTH",
    source=derived("Little's law: a deeper ring pays only for steps under 50 cycles"),
    date="2026-11-21",
)


class DepthAxis:
    """The depths that the rings of one loop may have, each predicted once.

    What chooses a depth, shows depths or tries other ones reads this list.
    """

    def __init__(
        self, work: Work, machine: Machine, most: int = MAX_DEPTH, in_flight: int | None = None
    ) -> None:
        """The depths of ``work``, ``most`` slots at most; ``in_flight``: as asked for."""
        self.work = work
        self.machine = machine
        self.most = most
        self.in_flight = in_flight
        self._known: dict[object, Prediction | None] = {}

    def at(self, depth: Depth) -> Prediction | None:
        """The prediction of rings of ``depth`` slots; None: a CTA does not fit an SM."""
        key = depth if isinstance(depth, int) else tuple(depth.items())
        if key not in self._known:
            self._known[key] = self._predicted(depth)
        return self._known[key]

    def _predicted(self, depth: Depth) -> Prediction | None:
        if self.in_flight and least(depth) < CROSS_STEP_DEPTH:
            return None
        return predict(self.work, self.machine, depth, self.in_flight)

    @cached_property
    def fitting(self) -> tuple[Prediction, ...]:
        """The predictions of all depths that fit, the shallowest first."""
        found: list[Prediction] = []
        for depth in range(1, self.most + 1):
            one = self.at(depth)
            if one is not None:
                found.append(one)
            elif found:  # a deeper ring takes no less
                break
        return tuple(found)


@dataclass(frozen=True, slots=True)
class DepthChoice:
    """A depth, its prediction, and the reasons."""

    depth: int
    """Slots of the deepest ring."""
    prediction: Prediction
    reasons: tuple[Reason, ...]
    per_ring: Mapping[str, int] = field(default_factory=dict)
    """Slots of each ring, by its buffer, where they differ."""
    why: Mapping[str, Reason] = field(default_factory=dict)
    """What is said of one ring alone, by its buffer."""

    def of(self, buffer: str) -> int:
        """Slots of the ring of ``buffer``."""
        return self.per_ring.get(buffer, self.depth)


def choose_depth(axis: DepthAxis) -> DepthChoice | Reason:
    """The depth to take of ``axis``; a reason where not even one slot fits."""
    if not axis.fitting:
        return no_fit(axis)
    best, spare = _best(axis.fitting)
    if spare is None:
        return DepthChoice(best.depth, best, depth_reasons(best, axis, axis.most))
    more = spare.depth - best.depth
    why = Reason("depth.spare", slots=more, smem=axis.work.smem(spare.depth))
    return DepthChoice(spare.depth, spare, (*depth_reasons(spare, axis, axis.most), why))


def no_fit(axis: DepthAxis) -> Reason:
    """Why not even one slot fits, or the fewest with which wgmma stays in flight as asked for."""
    if axis.in_flight:
        least, smem = CROSS_STEP_DEPTH, axis.work.smem(CROSS_STEP_DEPTH)
        return Reason("in_flight.no_fit", least=least, smem=smem, machine=axis.machine.name)
    return Reason(
        "depth.no_fit",
        smem=axis.work.smem(1),
        threads=axis.work.threads.count,
        registers=axis.work.registers_at(1),
        machine=axis.machine.name,
    )


def taken(options: Sequence[Prediction]) -> Prediction:
    """The depth to take of ``options``, shallowest first, spare slots included."""
    best, spare = _best(options)
    return best if spare is None else spare


def _best(options: Sequence[Prediction]) -> tuple[Prediction, Prediction | None]:
    """The smallest depth within ``TOLERANCE`` of the fastest, and the one to take instead."""
    fastest = min(option.us for option in options)
    equal = [option for option in options if option.us <= fastest * (1 + TOLERANCE)]
    return equal[0], _to_spare(equal[0], equal)


def _to_spare(best: Prediction, equal: list[Prediction]) -> Prediction | None:
    """A deeper ring that costs no time and is worth having; None: there is none.

    It costs no CTA, but for a third slot of two or more CTAs, see ``SPARE_DEPTH``.
    """
    work = best.work
    if work.loads.register_staged:
        lasts = work.grid.trip is None or work.grid.trip >= SPARE_TRIPS * REGISTER_DEPTH
        return equal[-1] if lasts and len(equal) > 1 else None
    if work.smem(1) == 0 or best.depth < 2:
        return None
    most = best.depth + SPARE_SLOTS if best.resident == 1 else SPARE_DEPTH
    long = SPARE_TRIPS if best.resident == 1 else 1
    found = [
        option
        for option in equal
        if best.depth < option.depth <= most
        and (option.resident == best.resident or (best.depth == 2 and option.resident > 1))
        and (work.grid.trip is None or work.grid.trip > long * option.depth)
    ]
    return found[-1] if found else None


def check_depth(buffers: str, depth: Depth, axis: DepthAxis) -> Prediction:
    """The prediction for depths that were asked for; raises PlanError where they do not fit."""
    work, machine = axis.work, axis.machine
    if isinstance(depth, int):
        given, most = Reason("depth.given", depth=depth, buffers=buffers), depth
    else:
        each: dict[str, Value] = {"depths": tuple(depth.values()), "buffers": tuple(depth)}
        given, most = Reason("depth.given_each", **each), max(depth.values())
    needs = work.smem(depth)
    if needs > machine.smem_per_cta:
        room: dict[str, Value] = {"machine": machine.name, "most": machine.smem_per_cta}
        raise PlanError("depth.smem", given=given, smem=needs, **room)
    if axis.in_flight and least(depth) < CROSS_STEP_DEPTH:
        raise PlanError("in_flight.depth", least=CROSS_STEP_DEPTH, depth=least(depth))
    prediction = axis.at(depth)
    if prediction is None:
        raise PlanError(
            "depth.registers",
            given=given,
            threads=work.threads.count,
            registers=work.registers_at(most),
            machine=machine.name,
        )
    return prediction


def depth_reasons(best: Prediction, axis: DepthAxis, most: int) -> tuple[Reason, ...]:
    """Why this depth and not one less or one more, with the numbers of the model."""
    limiter = best.occupancy.limiter if best.resident == best.occupancy.ctas else "the grid"
    law = Reason(
        "depth.law",
        latency=best.latency,
        arrival=best.load - best.latency,
        nbytes=axis.work.usage.global_bytes,
        consume=best.response - best.load,
        response=best.response,
        resident=best.resident,
        ii=best.ii,
        limiter=best.limiter,
        law=best.law,
    )
    here = Reason(
        "depth.taken", depth=best.depth, cycles=best.step, resident=best.resident, limiter=limiter
    )
    reasons = [law, here]
    less = axis.at(best.depth - 1) if best.depth > 1 else None
    if less is not None:
        reasons.append(Reason("depth.less", cycles=less.step, change=change(less, best)))
    reasons.append(_one_more(best, axis, most))
    flying = why_in_flight(best, axis.machine)
    if axis.in_flight is not None:
        flying = Reason("in_flight.asked", steps=axis.in_flight)
    return (*reasons, flying) if flying else tuple(reasons)


def _one_more(best: Prediction, axis: DepthAxis, most: int) -> Reason:
    work, depth = axis.work, best.depth + 1
    if work.grid.trip is not None and axis.most <= work.grid.trip < depth:
        return Reason("depth.more_trip", trip=work.grid.trip)
    if depth > most:
        return Reason("depth.more_most", most=most)
    room = axis.machine.smem_per_cta
    if work.smem(depth) > room:
        return Reason("depth.more_smem", smem=work.smem(depth), most=room)
    more = axis.at(depth)
    if more is None:
        return Reason("depth.more_registers", registers=work.registers_at(depth))
    if more.resident >= best.resident:
        return Reason("depth.more", cycles=more.step, change=change(more, best))
    return Reason(
        "depth.more_fewer_ctas",
        cycles=more.step,
        change=change(more, best),
        smem=work.smem(depth),
        left=more.resident,
        resident=best.resident,
    )


def change(other: Prediction, best: Prediction) -> Reason:
    """How the time of ``other`` compares with that of ``best``."""
    more = other.us / best.us - 1
    if abs(more) < TOLERANCE / 10:
        return Reason("depth.equal")
    return Reason("depth.slower" if more > 0 else "depth.faster", share=abs(more))
