"""How many slots a loop's rings get.

The smallest depth whose predicted time is within ``TOLERANCE`` of the best: a slot that hides
nothing costs shared memory, a longer prologue and sometimes a resident CTA. Where it costs none of
that, a slot or two to spare, against latencies longer than the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..errors import PlanError
from ..machine import Machine
from .descriptor import Depth, Work
from .predict import Prediction, predict, why_in_flight

TOLERANCE: Final = 0.01
"""Relative time below which two depths count as equal: the noise of a good measurement."""

LATE_SLOTS: Final = 2
"""Slots to spare of a CTA that has an SM for itself: when a load is late, nobody has work. By the
log of an H100, two to spare cost 0.9 % of the best time instead of 1.1 (nine workloads), and 0.8
instead of 1.3 (the ten others); one or three, more."""

FIRST_SPARE: Final = 3
"""Slots where CTAs take turns and two would do: with one tile in flight, one that lands late keeps
its CTA waiting. Three instead of two took 9 to 11 % less of products and 8 to 19 % less of
convolutions on an H100 with two or three CTAs an SM, and 1 to 3 % less of fp32 products; 2 to 8 %
less of products of 2048 to 8192 by 64 x 128 x 64, three CTAs an SM instead of four."""

LONG_LOOP: Final = 5
"""A loop is that many times as long as its ring with slots to spare, or filling them shows."""

REGISTER_DEPTH: Final = 2
"""Slots of a shared ring filled through registers: its loads wait in registers, so shared memory
only has to hold the tile being read and the one being written. One slot is as fast only where other
CTAs compute just while a load is waited for, so that two are taken where both are predicted alike:
of eight such tiles for mma.sync on an H100 two took 4 to 11 % less time in five, 3 % more in one.
"""

MAX_DEPTH: Final = 16
"""The search ends here: by Little's law a deeper ring only pays for steps under 50 cycles."""


@dataclass(frozen=True, slots=True)
class DepthChoice:
    """A depth, what is predicted of it, and why.

    ``apart``: slots of the rings where they differ; ``depth`` is then the most. ``why``: what is to
    be said of one ring.
    """

    depth: int
    prediction: Prediction
    reasons: tuple[str, ...]
    apart: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)

    def of(self, buffer: str) -> int:
        """Slots of the ring of ``buffer``."""
        return self.apart.get(buffer, self.depth)


def choose_depth(work: Work, machine: Machine, limit: int = MAX_DEPTH) -> DepthChoice | str:
    """The depth of the rings of ``work``, at most ``limit``; a reason when not even 1 fits."""
    options = [
        prediction
        for depth in range(1, limit + 1)
        if (prediction := predict(work, machine, depth)) is not None
    ]
    if not options:
        return (
            f"one slot of its tiles needs {work.smem(1)} bytes of shared memory and "
            f"{work.threads.count} threads of {work.registers_at(1)} registers, more than "
            f"{machine.name} gives a CTA"
        )
    best, spare = _best(options)
    if spare is None:
        return DepthChoice(best.depth, best, depth_reasons(best, work, machine, limit))
    more = "a slot" if spare.depth == best.depth + 1 else f"{spare.depth - best.depth} slots"
    why = f"{more} more than that hide a loaded memory system: {work.smem(spare.depth)} bytes"
    reasons = (*depth_reasons(spare, work, machine, limit), f"{why} are cheap")
    return DepthChoice(spare.depth, spare, reasons)


def taken(options: Sequence[Prediction]) -> Prediction:
    """The depth to take of ``options``, shallowest first, slots to spare included."""
    best, spare = _best(options)
    return best if spare is None else spare


def _best(options: Sequence[Prediction]) -> tuple[Prediction, Prediction | None]:
    """The smallest depth that is as fast as any, and the deeper one to take instead, if one is."""
    fastest = min(option.us for option in options)
    equal = [option for option in options if option.us <= fastest * (1 + TOLERANCE)]
    return equal[0], _to_spare(equal[0], equal)


def _to_spare(best: Prediction, equal: list[Prediction]) -> Prediction | None:
    """A deeper ring that costs no time and is worth having; None: there is none.

    It costs no CTA, unless that leaves two CTAs a third slot, see ``FIRST_SPARE``.
    """
    work = best.work
    if work.loads.register_staged:
        lasts = work.grid.trip is None or work.grid.trip >= LONG_LOOP * REGISTER_DEPTH
        return equal[-1] if lasts and len(equal) > 1 else None
    if work.smem(1) == 0 or best.depth < 2:
        return None
    most = best.depth + LATE_SLOTS if best.resident == 1 else FIRST_SPARE
    long = LONG_LOOP if best.resident == 1 else 1
    found = [
        option
        for option in equal
        if best.depth < option.depth <= most
        and (option.resident == best.resident or (best.depth == 2 and option.resident > 1))
        and (work.grid.trip is None or work.grid.trip > long * option.depth)
    ]
    return found[-1] if found else None


def check_depth(buffers: str, depth: Depth, work: Work, machine: Machine) -> Prediction:
    """The prediction for depths that were asked for; PlanError with numbers when they cannot be."""
    if isinstance(depth, int):
        given, needed, most = f"depth {depth} to {buffers}", "it needs", depth
    else:
        each = ", ".join(f"{name}: {slots}" for name, slots in depth.items())
        given, needed, most = f"depths {each}", "they need", max(depth.values())
    needs = work.smem(depth)
    if needs > machine.smem_per_cta:
        raise PlanError(
            f"cannot give {given}: {needed} {needs} bytes of shared memory, "
            f"a CTA of {machine.name} has {machine.smem_per_cta}"
        )
    prediction = predict(work, machine, depth)
    if prediction is None:
        raise PlanError(
            f"cannot give {given}: {work.threads.count} threads of about "
            f"{work.registers_at(most)} registers do not fit an SM of {machine.name}"
        )
    return prediction


def depth_reasons(best: Prediction, work: Work, machine: Machine, most: int) -> tuple[str, ...]:
    """Why this depth and not one less or one more, with the numbers of the model."""
    limiter = best.occupancy.limiter if best.resident == best.occupancy.ctas else "the grid"
    law = (
        f"R = {best.latency:.0f} latency + {best.load - best.latency:.0f} arrival of "
        f"{work.usage.global_bytes} bytes + {best.response - best.load:.0f} consume = "
        f"{best.response:.0f} cycles; "
        f"II = {best.resident} x {best.ii:.0f} ({best.limiter}); ceil(R / II) = {best.law}"
    )
    here = (
        f"depth {best.depth}: {best.step:.0f} cycles a step with {count(best.resident, 'CTA')} an "
        f"SM ({limiter} limits)"
    )
    reasons = [law, here]
    less = predict(work, machine, best.depth - 1) if best.depth > 1 else None
    if less is not None:
        reasons.append(f"one less: {less.step:.0f} cycles a step, {change(less, best)}")
    reasons.append(_one_more(best, work, machine, most))
    flying = why_in_flight(best, machine)
    return (*reasons, flying) if flying else tuple(reasons)


def _one_more(best: Prediction, work: Work, machine: Machine, most: int) -> str:
    depth = best.depth + 1
    if work.grid.trip is not None and depth > work.grid.trip:
        return f"one more: the loop has only {work.grid.trip} iterations"
    if depth > most:
        return f"one more: {most} is the most that is considered"
    if work.smem(depth) > machine.smem_per_cta:
        return f"one more: {work.smem(depth)} bytes of shared memory exceed {machine.smem_per_cta}"
    more = predict(work, machine, depth)
    if more is None:
        return f"one more: {work.registers_at(depth)} registers a thread do not fit"
    text = f"one more: {more.step:.0f} cycles a step, {change(more, best)}"
    if more.resident < best.resident:
        text += f", {work.smem(depth)} bytes leave {more.resident} of {best.resident} CTAs an SM"
    return text


def count(number: int, thing: str) -> str:
    """``1 CTA``, ``2 CTAs``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def change(other: Prediction, best: Prediction) -> str:
    """How the time of ``other`` compares with that of ``best``."""
    more = other.us / best.us - 1
    if abs(more) < TOLERANCE / 10:
        return "the same time"
    return f"{abs(more):.1%} {'slower' if more > 0 else 'faster'}"
