"""Elementwise kernels behind the one with the loops: their threads and their time.

``passes/map/elementwise.py`` maps them.

    us = launch_us + (waited + max(bytes / bandwidth, waves * CTA's bytes / L2)) / clock
    waited = 2 * l2_latency                        behind the kernel that wrote what is read
             EXPOSED_LATENCIES * global_latency    where no cache has it

A load and a store stand behind one another; all bytes move at the rate of memory, those of an SM no
faster than L2 gives them to one: few CTAs that add many partial sums wait for that. On an H200 a
kernel that adds sums takes 0.6 us less beside its bytes than two latencies of memory are, those
that copy operands of odd rows 1.2 us more (1046x657x397).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ..cost.memory import EXPOSED_LATENCIES
from ..diagnostics import Reason, all_of, each_of
from ..machine import WARP, Machine
from ..machine.constant import chosen, constant
from ..plan import ElementwisePlan
from ..values.facts import ElementwiseInfo, KernelInfo

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


def elementwise_plans(info: KernelInfo, machine: Machine) -> tuple[ElementwisePlan, ...]:
    """The plans of the elementwise kernels of ``info``."""
    return tuple(
        _plan(found, elementwise_us(found, machine, behind=behind), machine)
        for found, behind in elementwise_kernels(info)
    )


def _plan(info: ElementwiseInfo, us: float, machine: Machine) -> ElementwisePlan:
    """The plan of an elementwise kernel: one vector for each thread, as far as a CTA goes.

    Vectors are narrower where a warp would have threads without one: each output is a chain of
    operations, and a thread works on those of its vector one after the other.
    """
    vector = info.vector
    while vector > 1 and vector % 2 == 0 and info.elements < WARP * vector:
        vector //= 2
    vectors = math.ceil(info.elements / vector)
    reason = Reason("elementwise.predicted", us=us, launch_us=machine.launch_us)
    return ElementwisePlan(
        op=info.op,
        ctas="symbolic" if info.ctas is None else str(info.ctas),
        elements=info.elements,
        threads=min(ELEMENTWISE_THREADS, math.ceil(vectors / WARP) * WARP),
        vector=vector,
        reason=all_of((*each_of(info.note), reason)),
    )


def elementwise_kernels(info: KernelInfo) -> Iterator[tuple[ElementwiseInfo, bool]]:
    """Each elementwise kernel of ``info``, and whether those before it write what it reads."""
    for at, found in enumerate(info.elementwise, start=1):
        last = info.ends_elementwise and at == len(info.elementwise)
        yield found, last and info.kernels > 1


def elementwise_us(info: ElementwiseInfo, machine: Machine, *, behind: bool) -> float:
    """Microseconds from the end of the kernel before to its own; one CTA where that is symbolic.

    ``behind``: that kernel wrote what this one reads, so that L2 has it.
    """
    moved = (info.ctas or 1) * info.global_bytes
    passing = moved / machine.sms / machine.dram_bytes_per_cycle
    waves = math.ceil((info.ctas or 1) / machine.sms)
    of_an_sm = waves * info.global_bytes / machine.l2_bytes_per_cycle
    waited = 2 * machine.l2_latency if behind else EXPOSED_LATENCIES * machine.global_latency
    return machine.launch_us + machine.cycles_to_us(waited + max(passing, of_an_sm))
