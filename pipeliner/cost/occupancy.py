"""CTAs of a kernel that one SM holds, and what stops one more.

    warp_registers = registers * 32, rounded up to register_granularity
    cta_smem       = smem, rounded up to smem_granularity, + smem_reserved
    CTAs           = min(max_ctas_per_sm, max_threads_per_sm / threads,
                         registers_per_sm / PARTITIONS / warp_registers * PARTITIONS / warps,
                         smem_per_sm / cta_smem)

These are the rules of ``cuda_occupancy.h`` in the CUDA toolkit; each quotient is rounded down.
"""

from __future__ import annotations

from typing import NamedTuple

from ..instructions.warps import PARTITIONS
from ..machine import WARP, Machine


class Occupancy(NamedTuple):
    """Resident CTAs of one SM; ``limiter``: threads, registers, shared memory or CTA slots."""

    ctas: int
    limiter: str


def occupancy(machine: Machine, threads: int, registers: int, smem: int) -> Occupancy:
    """CTAs of ``threads`` threads with ``registers`` each and ``smem`` bytes that one SM holds."""
    warps = -(-threads // WARP)
    unit, grain = machine.register_granularity, machine.smem_granularity
    warp_registers = -(-registers * WARP // unit) * unit
    cta_smem = -(-smem // grain) * grain + machine.smem_reserved
    ctas, limiter = machine.max_ctas_per_sm, "CTA slots"
    thread_limit = machine.max_threads_per_sm // (warps * WARP)
    if thread_limit < ctas:
        ctas, limiter = thread_limit, "threads"
    by_registers = machine.registers_per_sm // PARTITIONS // warp_registers * PARTITIONS // warps
    if by_registers < ctas:
        ctas, limiter = by_registers, "registers"
    if cta_smem and machine.smem_per_sm // cta_smem < ctas:
        ctas, limiter = machine.smem_per_sm // cta_smem, "shared memory"
    return Occupancy(ctas, limiter)
