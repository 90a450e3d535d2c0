"""Time kernels against their peers on the GPU of this machine, side by side in one process."""

from __future__ import annotations

from ..measuring import WARM_UP, Conditions, current_conditions, device_name, require_gpu
from ..records.record import OURS
from ..schedules.products import random_gemms
from ..schedules.suites import suite
from .chart import check_chart, draw, ratios
from .claims import spine, spine_claims, transformation_ms
from .decode import copied_per_us, decode_claims
from .pairs import (
    GATED_DTYPE,
    back_to_back_claims,
    back_to_back_problems,
    gated_claims,
    gated_problems,
)
from .problems import PEERS, USUAL_PEERS, Contender, Problem, contenders
from .results import BEST, CUBLAS, CUDNN, OURS_PLAIN, STOCK_PREFIX, TRITON, Claim, Report, Result
from .roofs import roofs
from .rows import (
    GROUPED_DTYPE,
    ROW_DTYPE,
    grouped_claims,
    grouped_problems,
    row_claims,
    row_problems,
)
from .scaled import (
    PACKED_DTYPE,
    SCALED_DTYPE,
    packed_claims,
    packed_problems,
    scaled_claims,
    scaled_problems,
)
from .timing import measure, quick

__all__ = [
    "BEST",
    "CUBLAS",
    "CUDNN",
    "GATED_DTYPE",
    "GROUPED_DTYPE",
    "OURS",
    "OURS_PLAIN",
    "PACKED_DTYPE",
    "PEERS",
    "ROW_DTYPE",
    "SCALED_DTYPE",
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
    "back_to_back_claims",
    "back_to_back_problems",
    "check_chart",
    "contenders",
    "copied_per_us",
    "current_conditions",
    "decode_claims",
    "device_name",
    "draw",
    "gated_claims",
    "gated_problems",
    "grouped_claims",
    "grouped_problems",
    "measure",
    "packed_claims",
    "packed_problems",
    "quick",
    "random_gemms",
    "ratios",
    "require_gpu",
    "roofs",
    "row_claims",
    "row_problems",
    "scaled_claims",
    "scaled_problems",
    "spine",
    "spine_claims",
    "suite",
    "transformation_ms",
]
