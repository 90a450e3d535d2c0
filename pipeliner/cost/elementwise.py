"""Kernels beside the one with the loops, whose outputs are each made on its own: threads and time.

Time is the launch, a load and a store behind one another, and all bytes at the rate of memory.
"""

from __future__ import annotations

import math
from typing import Final

from ..kernel import ElementwiseInfo
from ..machine import WARP, Machine
from ..plan import ElementwisePlan

MAX_THREADS: Final = 256
"""Eight warps: small enough for the CTAs of an SM to come and go one by one."""


PASSES: Final = 1.3
"""Times that a byte crosses to memory for each that is moved: what was just written is read from
the L2 cache, what is written drives out as much. Fitted to 77 candidates of six workloads of the
log of an H100 on tensor cores, beside what the parts themselves drive out."""


def plan_elementwise(info: ElementwiseInfo, machine: Machine) -> ElementwisePlan:
    """One vector for each thread, as far as a CTA goes."""
    vectors = math.ceil(info.elements / info.vector)
    us = elementwise_us(info, machine)
    reason = f"predicted {us:.1f} us, {machine.launch_us:.1f} of them its launch"
    return ElementwisePlan(
        op=info.op,
        ctas="symbolic" if info.ctas is None else str(info.ctas),
        elements=info.elements,
        threads=min(MAX_THREADS, math.ceil(vectors / WARP) * WARP),
        vector=info.vector,
        reason=f"{info.note}; {reason}" if info.note else reason,
    )


def elementwise_us(info: ElementwiseInfo, machine: Machine) -> float:
    """Microseconds that the kernel takes behind the one before; one CTA where that is open."""
    moved = (info.ctas or 1) * info.global_bytes
    passing = PASSES * moved / machine.sms / machine.dram_bytes_per_cycle
    cycles = 2 * machine.global_latency + passing
    return machine.launch_us + machine.cycles_to_us(cycles)
