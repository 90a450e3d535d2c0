"""Kernels beside the one with the loops, whose outputs are each made on its own: threads and time.

time = launch + bytes / min(rate of memory, resident bytes in flight / latency)
"""

from __future__ import annotations

import math
from typing import Final

from ..kernel import ElementwiseInfo
from ..machine import WARP, Machine
from ..plan import ElementwisePlan

MAX_THREADS: Final = 256
"""Eight warps: small enough for many CTAs of an SM to come and go one by one."""


def plan_elementwise(info: ElementwiseInfo, machine: Machine) -> ElementwisePlan:
    """One vector for each thread, as far as a CTA goes."""
    vectors = math.ceil(info.elements / info.vector)
    threads = min(MAX_THREADS, math.ceil(vectors / WARP) * WARP)
    us = elementwise_us(info, machine)
    return ElementwisePlan(
        op=info.op,
        ctas="symbolic" if info.ctas is None else str(info.ctas),
        elements=info.elements,
        threads=threads,
        vector=info.vector,
        reason=f"predicted {us:.1f} us, its launch included",
    )


def elementwise_us(info: ElementwiseInfo, machine: Machine) -> float:
    """Microseconds that the kernel takes behind the one before."""
    moved = (info.ctas or 1) * info.global_bytes
    per_cycle = (
        machine.l2_bytes_per_cycle if moved <= machine.l2_bytes else (machine.dram_bytes_per_cycle)
    )
    cycles = 2 * machine.global_latency + moved / machine.sms / per_cycle
    return machine.launch_us + machine.cycles_to_us(cycles)
