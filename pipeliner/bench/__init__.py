"""Time kernels against their peers on the GPU of this machine, side by side in one process.

Every contender is checked against float64 first, on an output that holds NaN before. Then all of
one problem are interleaved, their order rotated each round, the L2 cache overwritten before each
run, so that clocks and temperature drift for all alike; a contender's figure is the median of its
rounds.
Operands are standard normal: zeros draw less power and run faster than any real matrix.
"""

from __future__ import annotations

from ..records.record import OURS
from .chart import check_chart, groups, svg, write_chart
from .claims import spine, spine_claims, square, stopwatch, transformation_ms
from .compiling import compiled_ahead
from .conditions import Conditions, check_gpu, current_conditions, device_name, require_gpu
from .libraries import Runner
from .problems import PEERS, USUAL_PEERS, Contender, Problem, contenders, describe
from .results import (
    CUBLAS,
    CUDNN,
    OURS_PLAIN,
    STOCK_PREFIX,
    TRITON,
    Claim,
    Report,
    Result,
    SpeedSummary,
)
from .suites import suite
from .timing import FLUSH_BYTES, ROUNDS, WARM_UP, measure, quick

__all__ = [
    "CUBLAS",
    "CUDNN",
    "FLUSH_BYTES",
    "OURS",
    "OURS_PLAIN",
    "PEERS",
    "ROUNDS",
    "STOCK_PREFIX",
    "TRITON",
    "USUAL_PEERS",
    "WARM_UP",
    "Claim",
    "Conditions",
    "Contender",
    "Problem",
    "Report",
    "Result",
    "Runner",
    "SpeedSummary",
    "check_chart",
    "check_gpu",
    "compiled_ahead",
    "contenders",
    "current_conditions",
    "describe",
    "device_name",
    "groups",
    "measure",
    "quick",
    "require_gpu",
    "spine",
    "spine_claims",
    "square",
    "stopwatch",
    "suite",
    "svg",
    "transformation_ms",
    "write_chart",
]
