"""Elementwise kernels behind the one with the loops: their threads and their time.

``passes/map/elementwise.py`` maps them.

    us = launch_us + (2 * global_latency + max(bytes / bandwidth, waves * CTA's bytes / L2)) / clock

A load and a store stand behind one another; all bytes move at the rate of memory, those of an SM no
faster than L2 gives them to one: few CTAs that add many partial sums wait for that.
"""

from __future__ import annotations

import math
from typing import Final

from ..diagnostics import Reason, all_of, each_of
from ..machine import WARP, Machine
from ..machine.constant import chosen, constant
from ..plan import ElementwisePlan
from ..values.facts import ElementwiseInfo

ELEMENTWISE_THREADS: Final = constant(
    "ELEMENTWISE_THREADS",
    256,
    "threads",
    "threads of a CTA of an elementwise kernel: eight warps, so that CTAs of an SM come and go "
    "one by one",
    formula="threads = min(ELEMENTWISE_THREADS, elements / vector)",
    source=chosen("eight CTAs fill an SM"),
    date="2026-11-21",
)


def plan_elementwise(info: ElementwiseInfo, machine: Machine) -> ElementwisePlan:
    """The plan of an elementwise kernel: one vector for each thread, as far as a CTA goes.

    Vectors are narrower where a warp would have threads without one: each output is a chain of
    operations, and a thread works on those of its vector one after the other.
    """
    vector = info.vector
    while vector > 1 and vector % 2 == 0 and info.elements < WARP * vector:
        vector //= 2
    vectors = math.ceil(info.elements / vector)
    us = elementwise_us(info, machine)
    reason = Reason("elementwise.predicted", us=us, launch_us=machine.launch_us)
    return ElementwisePlan(
        op=info.op,
        ctas="symbolic" if info.ctas is None else str(info.ctas),
        elements=info.elements,
        threads=min(ELEMENTWISE_THREADS, math.ceil(vectors / WARP) * WARP),
        vector=vector,
        reason=all_of((*each_of(info.note), reason)),
    )


def elementwise_us(info: ElementwiseInfo, machine: Machine) -> float:
    """Microseconds from the end of the kernel before to its own; one CTA where that is symbolic."""
    moved = (info.ctas or 1) * info.global_bytes
    passing = moved / machine.sms / machine.dram_bytes_per_cycle
    waves = math.ceil((info.ctas or 1) / machine.sms)
    of_an_sm = waves * info.global_bytes / machine.l2_bytes_per_cycle
    cycles = 2 * machine.global_latency + max(passing, of_an_sm)
    return machine.launch_us + machine.cycles_to_us(cycles)
