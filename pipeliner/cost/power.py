"""Time of a long wgmma kernel at the clock that its power leaves."""

from __future__ import annotations

from typing import Final

from ..machine import Machine
from ..machine.constant import constant, fitted, measured
from .descriptor import Work
from .usage import PIPE_NORM

POWER_RESERVE_US: Final = constant(
    "POWER_RESERVE_US",
    20,
    "us",
    "of what a kernel takes at the clock that its power leaves, that what runs before it spares: "
    "power is limited as a mean over some time, and overwriting L2 takes less of it",
    formula="power = ... / clock - POWER_RESERVE_US",
    source=fitted(
        "H200, 1,900 kernels of 55 products",
        "mean error 6.4 % with 10 and 20, 6.6 with 30, 6.9 with none or where only kernels from "
        "300 us on are limited: of more than 400 TFLOP/s those of 15 to 80 us are 4 to 17 % faster "
        "than predicted then, those of 120 us and more 5 to 9 % slower. ncu, "
        "496x4264x8192 by 128x144, 52 us: 1.68 GHz of 1.98. Not always: 4096 cubed takes 178 us "
        "where 194 are predicted",
    ),
    date="2026-11-30",
)

POWER_LIMITED_RATE: Final = constant(
    "POWER_LIMITED_RATE",
    0.71,
    "1",
    "fraction of the tensor cores' peak that 700 W sustain with normally distributed data",
    formula="power = rounds * trip * tensor / POWER_LIMITED_RATE / clock",
    source=measured(
        "H100: 8192 cubed in 1570 us, 700 TFLOP/s of 989",
        "at 1346 MHz with ping-pong and 1224 MHz cooperative, which needs 9 % fewer cycles",
    ),
    date="2026-11-22",
)

PING_PONG_POWER: Final = constant(
    "PING_PONG_POWER",
    0.97,
    "1",
    "time of a power-limited kernel with ping-pong over that of the best cooperative tile",
    formula="power * PING_PONG_POWER with ping-pong",
    source=measured(
        "H100, kernels apart: 0.965 to 0.985 at 8192 cubed, 0.966 at 4096x14336x4096, 0.96 at "
        "8192x8192x2048, 1.03 at 4096x4096x14336",
        "predicted 0.97, 0.97, 0.96 and 1.11; 0.6 s of kernels back to back take as long either "
        "way at 8192 cubed",
    ),
    date="2026-11-22",
)


def power_limited_us(work: Work, machine: Machine, us: float, iterations: float) -> float:
    """Microseconds of the SMs where power limits the clock; ``us``: what their cycles take.

    ``iterations``: of one SM. The norm of the two times: the limit sets in gradually.
    """
    if not work.wgmma.cycles:
        return us
    power = iterations * work.wgmma.cycles / POWER_LIMITED_RATE / (machine.clock_ghz * 1e3)
    power *= PING_PONG_POWER if work.wgmma.consumer_groups > 1 else 1.0
    power = max(0.0, power - POWER_RESERVE_US)
    return float((us**PIPE_NORM + power**PIPE_NORM) ** (1.0 / PIPE_NORM))
