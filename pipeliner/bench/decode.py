"""Attention of few queries beside what a copy reaches: the bytes of keys and values a second.

    rate = bytes of Q, K, V and O / us        claim = rate / rate of a copy of a GiB

Memory bounds it, so the rate of multiplications says nothing; of a copy, both what it reads and
what it writes counts. A copy of few bytes is slower than a large one, as attention of few keys is:
beside the claim stands how fast a copy of as many bytes is. Before each run the L2 cache is filled
by reading: attention writes next to nothing, and would else write what the flush left there.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Final

from ..measuring import READ, flushing, require_gpu, timed
from ..records.record import OURS
from ..schedules import Attention
from ..schedules.workloads import Spec
from .results import Claim, Report
from .roofs import moved

LARGE: Final = 2 << 30
"""Bytes that a copy reads and writes which is large beside any cache."""

COPIES: Final = 9

_FLOOR: Final = 0.70
_GOAL: Final = 0.85


@functools.cache
def copied_per_us(transfer: int = LARGE) -> float:
    """Bytes that a copy in the memory of the GPU reads and writes a microsecond, the median.

    ``transfer``: how many one copy reads and writes in all.
    """
    torch = require_gpu()
    source, out = (torch.empty(transfer // 2, dtype=torch.int8, device="cuda") for _ in range(2))
    copy = functools.partial(out.copy_, source)
    took = timed(torch, [copy] * COPIES, flushing(torch, READ))
    return transfer / statistics.median(took)


def decode_claims(
    report: Report, specs: Mapping[str, Spec], copied: Callable[[int], float]
) -> list[Claim]:
    """Our rate over a large copy's, of each problem that was measured.

    ``copied``: bytes in a microsecond by a copy that moves so many.
    """
    claims: list[Claim] = []
    for label, spec in specs.items():
        ours = report.find(label, OURS)
        if ours is not None and isinstance(spec, Attention):
            size = int(moved(spec))
            rate, large, alike = size / ours.us, copied(LARGE), copied(size)
            name = (
                f"{label}: {rate * 1e-6:.2f} TB/s over a large copy's {large * 1e-6:.2f} "
                f"({rate / alike:.2f} of {alike * 1e-6:.2f}, a copy's of as many bytes)"
            )
            claims.append(Claim(name, rate / large, _FLOOR, _GOAL))
    return claims
