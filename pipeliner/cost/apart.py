"""Rings of one loop with slots of their own: where one deserves more of them than the others.

Copies of a step wait for different things: weights that every CTA reads again lie in L2, what
streams through comes from memory. And slots have different sizes: where one more of each does not
fit, or takes an SM its second CTA, one more of some may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from ..machine import Machine
from .depth import TOLERANCE, DepthChoice, change, count
from .descriptor import Work
from .predict import Prediction, predict

Slots: TypeAlias = "Mapping[str, int]"
"""Of each ring, by its buffer."""


def choose_apart(choice: DepthChoice, work: Work, machine: Machine, limit: int) -> DepthChoice:
    """``choice``, or a slot more for one ring than for the others where that is faster.

    ``limit``: the most slots of any. Compared are the neighbours of the depth that all have in
    common. Where latencies differ, what is waited for is said of each ring in any case.
    """
    if work.shared.skew == 0 or len(work.shared.rings) < 2:
        return choice
    best: tuple[Prediction, Slots] | None = None
    fastest = choice.prediction.us * (1 - TOLERANCE)
    for slots in _neighbours(choice.depth, work, limit):
        found = predict(work, machine, slots)
        if found is not None and found.us < fastest:
            best, fastest = (found, slots), found.us
    if best is not None:
        return _apart(choice, *best, work, machine)
    if len({ring.latency for ring in work.shared.rings}) > 1:
        return replace(choice, why=ring_laws(choice.prediction, work, machine))
    return choice


def _neighbours(depth: int, work: Work, limit: int) -> Iterator[Slots]:
    """One ring with a slot more than the others, which have ``depth`` or one less; none has 1."""
    for least in (depth - 1, depth):
        if 2 <= least < limit:
            for one in work.shared.rings:
                yield {ring.buffer: least + (ring is one) for ring in work.shared.rings}


def _apart(
    equal: DepthChoice, prediction: Prediction, slots: Slots, work: Work, machine: Machine
) -> DepthChoice:
    """``slots`` instead of ``equal``, with the reasons of both."""
    reason = (
        f"{_shown(slots, prediction)}; {equal.depth} of each: {equal.prediction.step:.0f} cycles, "
        f"{change(equal.prediction, prediction)}, {count(equal.prediction.resident, 'CTA')} an SM"
    )
    return replace(
        equal,
        depth=max(slots.values()),
        prediction=prediction,
        reasons=(*equal.reasons, reason),
        apart=slots,
        why=ring_laws(prediction, work, machine),
    )


def _shown(slots: Slots, prediction: Prediction) -> str:
    each = ", ".join(f"{number} of {name}" for name, number in slots.items())
    ctas = count(prediction.resident, "CTA")
    return f"slots of their own, {each}: {prediction.step:.0f} cycles a step with {ctas} an SM"


def asked_apart(prediction: Prediction, slots: Slots, work: Work) -> tuple[str, ...]:
    """What the model says of rings of different depths that are asked for."""
    if not slots:
        return ()
    shown = _shown(slots, prediction)
    if work.shared.skew is None:
        return (shown,)
    most = min(slots.values()) + work.shared.skew
    idle = [name for name, number in slots.items() if number > most]
    if not idle:
        return (shown,)
    why = "copies land in the order in which they were issued"
    if work.shared.skew == 0:
        why = "one tile waits in registers"
    return shown, f"of {' and '.join(idle)} no more than {most} slots are in flight: {why}"


def ring_laws(prediction: Prediction, work: Work, machine: Machine) -> dict[str, str]:
    """Little's law for each ring, from the latency that is its own."""
    laws: dict[str, str] = {}
    cycles = prediction.resident * prediction.ii
    for ring in work.shared.rings:
        wait = ring.wait(prediction.latency, work.loads.handshake, machine)
        response = prediction.response - prediction.latency + wait
        where = "L2, where all CTAs find it" if ring.latency < machine.global_latency else "memory"
        law = math.ceil(response / cycles) if cycles else 1
        laws[ring.buffer] = f"from {where}: R = {response:.0f} cycles, ceil(R / II) = {law}"
    return laws
