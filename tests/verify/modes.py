"""Timings of copies and orders of warps for one of many cases: two runs, which vary among them.

Copies land as late as waits allow in each case, under one of two orders; a second run lets them land
at once or at random times. What all four find of one kernel, ``pipeliner verify`` shows.
"""

from __future__ import annotations

import zlib
from typing import Any


def modes_of(case: object) -> dict[str, Any]:
    """Arguments of ``verify_workload`` for ``case``, the same whenever it is tested."""
    drawn = zlib.crc32(str(case).encode())
    first = ("lockstep", "random")[drawn % 2]
    timing, order = (("early", "round-robin"), ("random", "reversed"))[drawn // 2 % 2]
    return {"timings": ("late", timing), "orders": (first, order)}
