"""Registers of a thread that multiplies by wgmma: at launch, exchanged with a producer, and wanted.

The constants are in ``registers``.
"""

from __future__ import annotations

from ..machine import WARP, Machine
from ..plan import MatmulPlan
from .registers import (
    IM2COL_MATH_WARP_OVERHEAD,
    MATH_WARP_OVERHEAD,
    MAX_CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    REGISTER_UNIT,
)
from .wgmma_shapes import WARPGROUP


def launch_registers(machine: Machine, groups: int) -> int:
    """Registers of a thread at launch, with ``groups`` consumer warpgroups and one producer."""
    share = machine.registers_per_sm // ((groups + 1) * WARPGROUP)
    return min(share, machine.max_registers_per_thread) // REGISTER_UNIT * REGISTER_UNIT


def consumer_registers(machine: Machine, groups: int) -> int:
    """Registers of a consumer thread once the producer has given up most of its own.

        (launch * (groups + 1) - PRODUCER_REGISTERS) / groups, at most MAX_CONSUMER_REGISTERS

    Warpgroups exchange what the CTA got at launch (PTX ISA, setmaxnreg). One that computes alone
    has enough, and changes its number all the same: behind that instruction ptxas knows that warps
    run together, and keeps slots and descriptors in uniform registers.
    """
    spare = launch_registers(machine, groups) * (groups + 1) - PRODUCER_REGISTERS
    return min(MAX_CONSUMER_REGISTERS, spare // groups) // REGISTER_UNIT * REGISTER_UNIT


def math_warp_registers(plan: MatmulPlan, gathered: bool, beside: int = 0) -> int:
    """Registers of a math warp's thread that copies too: ``accumulators + MATH_WARP_OVERHEAD``.

    ``beside``: words of other accumulators of the CTA.
    """
    threads = plan.warps[0] * plan.warps[1] * WARP
    overhead = IM2COL_MATH_WARP_OVERHEAD if gathered else MATH_WARP_OVERHEAD
    words = plan.m * plan.n // sums_per_register(plan.accumulator) + beside
    return words // threads + overhead


def group_accumulators(plan: MatmulPlan) -> int:
    """Registers of a thread for the accumulators of a tile that one warpgroup has for itself."""
    return plan.m * plan.n // WARPGROUP // sums_per_register(plan.accumulator)


def sums_per_register(accumulator: str) -> int:
    """Sums of a type that one register has."""
    return 2 if accumulator == "float16" else 1
