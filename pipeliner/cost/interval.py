"""How far a predicted time is to be trusted: an interval by what bounds the kernel.

Of the kernels in the logs, four of five took a time within the interval. Kernels are told apart by
what their time is made of, and by nothing else:

    short     fixed costs of a launch count, of which there is one constant
    roof      tensor cores, CUDA cores or memory alone would take most of the time
    waiting   latency, barriers and contention make up most of the time

``pipeliner residuals`` computes the residuals from the logs, and what they cover out of sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from ..machine import Machine
from ..machine.constant import chosen, constant, measured
from .predict import Prediction

TimeBound: TypeAlias = Literal["short", "roof", "waiting"]
"""What a kernel's time is made of."""

COVERED: Final = constant(
    "COVERED",
    0.8,
    "1",
    "fraction of measured kernels whose time lies within the interval",
    formula="residual = quantile(abs(measured / predicted - 1), COVERED)",
    source=chosen("two of ten kernels outside are few enough to act on"),
    date="2026-11-24",
)

SHORT_US: Final = constant(
    "SHORT_US",
    20.0,
    "us",
    "predicted time below which fixed costs of a kernel are a large part of its error",
    formula="short where us < SHORT_US",
    source=chosen("a microsecond more or less is 5 % of it"),
    date="2026-11-24",
)

NEAR_ROOF: Final = constant(
    "NEAR_ROOF",
    0.5,
    "1",
    "fraction of the predicted time that arithmetic or memory alone take, from which on they bound "
    "the kernel",
    formula="roof where max(compute, memory) >= NEAR_ROOF * us, else waiting",
    source=chosen("more than half"),
    date="2026-11-24",
)

_LOGS: Final = "logs of an H100 and an H200, `pipeliner residuals`"

SHORT_RESIDUAL: Final = constant(
    "SHORT_RESIDUAL",
    0.09,
    "1",
    "residual of short kernels",
    formula="interval = us * (1 +- SHORT_RESIDUAL)",
    source=measured(_LOGS, "80 % out of sample"),
    date="2026-11-24",
)

ROOF_RESIDUAL: Final = constant(
    "ROOF_RESIDUAL",
    0.12,
    "1",
    "residual of kernels that arithmetic or memory bounds",
    formula="interval = us * (1 +- ROOF_RESIDUAL)",
    source=measured(_LOGS, "80 % out of sample"),
    date="2026-11-24",
)

WAITING_RESIDUAL: Final = constant(
    "WAITING_RESIDUAL",
    0.14,
    "1",
    "residual of kernels that wait for most of their time",
    formula="interval = us * (1 +- WAITING_RESIDUAL)",
    source=measured(_LOGS, "80 % out of sample"),
    date="2026-11-24",
)

RESIDUALS: Final[dict[TimeBound, float]] = {
    "short": SHORT_RESIDUAL,
    "roof": ROOF_RESIDUAL,
    "waiting": WAITING_RESIDUAL,
}

_MEASURED: Final = "sm_90"
"""The architecture of the GPUs that there are logs of."""


def bound_of(us: float, loops: Sequence[Prediction]) -> TimeBound:
    """What the time of a kernel of ``us`` with these loops is made of."""
    if us < SHORT_US:
        return "short"
    alone = sum(max(one.spent.arithmetic, one.work.traffic.memory_us) for one in loops)
    return "roof" if alone >= NEAR_ROOF * us else "waiting"


def residual_of(us: float, loops: Sequence[Prediction], machine: Machine) -> float:
    """The fraction of ``us`` that the interval spans to each side; 0: nothing is known of it.

    That is so where nothing is predicted, and on GPUs of which there is no log.
    """
    if not us or machine.arch != _MEASURED:
        return 0.0
    return RESIDUALS[bound_of(us, loops)]
