"""Depth per ring: one ring of a loop with a slot more than the others, where that is faster.

Copies of a step wait for different things: weights that every CTA reads again lie in L2, what
streams through comes from memory. Slots also have different sizes: where one more of each does not
fit, or costs an SM its second CTA, one more of some may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from ..cost.descriptor import Work
from ..cost.predict import Prediction
from ..diagnostics import Reason
from ..machine import Machine
from .depth import TOLERANCE, DepthAxis, DepthChoice, change

Slots: TypeAlias = "Mapping[str, int]"
"""Slots of each ring, by its buffer."""


def choose_ring_depths(choice: DepthChoice, axis: DepthAxis) -> DepthChoice:
    """``choice``, or a slot more for one ring where that is faster than ``TOLERANCE`` tells apart.

    Compared are the neighbours of the common depth. Where the latencies of rings differ, each
    ring's own law is stated in any case.
    """
    work, machine = axis.work, axis.machine
    if work.shared.skew == 0 or len(work.shared.rings) < 2:
        return choice
    best: tuple[Prediction, Slots] | None = None
    fastest = choice.prediction.us * (1 - TOLERANCE)
    for slots in _neighbours(choice.depth, work, axis.most):
        found = axis.at(slots)
        if found is not None and found.us < fastest:
            best, fastest = (found, slots), found.us
    if best is not None:
        return _with_ring_depths(choice, *best, work, machine)
    if len({ring.latency for ring in work.shared.rings}) > 1:
        return replace(choice, why=ring_laws(choice.prediction, work, machine))
    return choice


def _neighbours(depth: int, work: Work, limit: int) -> Iterator[Slots]:
    """The common depth, or one less, with a slot more for one ring; no ring has one slot."""
    for least in (depth - 1, depth):
        if 2 <= least < limit:
            for one in work.shared.rings:
                yield {ring.buffer: least + (ring is one) for ring in work.shared.rings}


def _with_ring_depths(
    equal: DepthChoice, prediction: Prediction, slots: Slots, work: Work, machine: Machine
) -> DepthChoice:
    """The choice of ``slots`` in place of ``equal``, with the reasons of both."""
    reason = Reason(
        "depth.rather_than_equal",
        per_ring=_shown(slots, prediction),
        depth=equal.depth,
        cycles=equal.prediction.step,
        change=change(equal.prediction, prediction),
        resident=equal.prediction.resident,
    )
    return replace(
        equal,
        depth=max(slots.values()),
        prediction=prediction,
        reasons=(*equal.reasons, reason),
        per_ring=slots,
        why=ring_laws(prediction, work, machine),
    )


def _shown(slots: Slots, prediction: Prediction) -> Reason:
    return Reason(
        "depth.per_ring",
        slots=tuple(slots.values()),
        rings=tuple(slots),
        cycles=prediction.step,
        resident=prediction.resident,
    )


def asked_ring_depths(prediction: Prediction, slots: Slots, work: Work) -> tuple[Reason, ...]:
    """Reasons of rings whose different depths were asked for."""
    if not slots:
        return ()
    shown = _shown(slots, prediction)
    if work.shared.skew is None:
        return (shown,)
    most = min(slots.values()) + work.shared.skew
    idle = [name for name, number in slots.items() if number > most]
    if not idle:
        return (shown,)
    why = Reason("depth.in_registers" if work.shared.skew == 0 else "depth.in_order")
    return shown, Reason("depth.idle", rings=tuple(idle), most=most, why=why)


def ring_laws(prediction: Prediction, work: Work, machine: Machine) -> dict[str, Reason]:
    """Little's law of each ring: ``ceil(R / II)`` with the ring's own latency."""
    laws: dict[str, Reason] = {}
    cycles = prediction.resident * prediction.ii
    for ring in work.shared.rings:
        wait = ring.wait(prediction.latency, work.loads.handshake, machine)
        response = prediction.response - prediction.latency + wait
        law = math.ceil(response / cycles) if cycles else 1
        near = ring.latency < machine.global_latency
        code = "depth.from_l2" if near else "depth.from_memory"
        laws[ring.buffer] = Reason(code, response=response, law=law)
    return laws
