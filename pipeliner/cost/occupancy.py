"""How many CTAs of a kernel one SM holds, and what stops one more.

The rules are those of ``cuda_occupancy.h`` in the CUDA toolkit: registers are charged for each warp
in units, shared memory for each CTA in units plus what the system keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import WARP, Machine


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident CTAs of one SM; ``limiter``: threads, registers, shared memory or CTA slots."""

    ctas: int
    limiter: str


def occupancy(machine: Machine, threads: int, registers: int, smem: int) -> Occupancy:
    """CTAs of ``threads`` threads with ``registers`` each and ``smem`` bytes that one SM holds."""
    warps = -(-threads // WARP)
    warp_registers = _round_up(registers * WARP, machine.register_granularity)
    cta_smem = _round_up(smem, machine.smem_granularity) + machine.smem_reserved
    limits = {
        "CTA slots": machine.max_ctas_per_sm,
        "threads": machine.max_threads_per_sm // (warps * WARP),
        "registers": machine.registers_per_sm // (warps * warp_registers),
        "shared memory": machine.smem_per_sm // cta_smem if cta_smem else machine.max_ctas_per_sm,
    }
    limiter = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limiter], limiter)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
