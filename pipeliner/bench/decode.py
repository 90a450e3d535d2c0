"""Attention of few queries beside what a copy reaches: the bytes of keys and values a second.

    rate = bytes of Q, K, V and O / us        claim = rate / rate of a copy of a GiB

Memory bounds it, so the rate of multiplications says nothing; of a copy, both what it reads and
what it writes counts.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping
from typing import Final

from ..instructions.dtypes import element_bytes
from ..measuring import require_gpu
from ..measuring.rounds import FLUSH_BYTES, timed
from ..records.record import OURS
from ..schedules import Attention
from ..schedules.workloads import Spec
from .results import Claim, Report

COPY_BYTES: Final = 1 << 30
"""Of the tensor that is copied: large beside any cache."""

COPIES: Final = 9

_FLOOR: Final = 0.70
_GOAL: Final = 0.85


def copied_per_us() -> float:
    """Bytes that a copy in the memory of the GPU reads and writes a microsecond, the median."""
    torch = require_gpu()
    source, out, flush = (
        torch.empty(count, dtype=torch.int8, device="cuda")
        for count in (COPY_BYTES, COPY_BYTES, FLUSH_BYTES)
    )
    copy = functools.partial(out.copy_, source)
    took = timed(torch, [copy] * COPIES, flush.zero_)
    return 2 * COPY_BYTES / statistics.median(took)


def moved(attention: Attention) -> int:
    """Bytes of Q, K, V and O."""
    elements = sum(math.prod(shape) for shape in attention.shapes())
    return elements * element_bytes(attention.storage)


def decode_claims(report: Report, specs: Mapping[str, Spec], copied: float) -> list[Claim]:
    """Our rate over a copy's, of each problem that was measured; ``copied``: bytes in a us."""
    claims: list[Claim] = []
    for label, spec in specs.items():
        ours = report.find(label, OURS)
        if ours is not None and isinstance(spec, Attention):
            rate = moved(spec) / ours.us
            name = f"{label}: {rate * 1e-6:.2f} TB/s over a copy's {copied * 1e-6:.2f}"
            claims.append(Claim(name, rate / copied, _FLOOR, _GOAL))
    return claims
