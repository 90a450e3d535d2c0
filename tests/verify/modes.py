"""Timings of copies and orders of warps for one of many cases: two runs, which vary among them.

Copies land as late as waits allow in each case, under one of two orders; a second run lets them land
at once or at random times. All of them for each case is what ``make verify-all`` does.
"""

from __future__ import annotations

import zlib
from typing import Any


def runs_of(case: object) -> tuple[tuple[str, str], tuple[str, str]]:
    """Timing and order of each run of ``case``, the same whenever it is tested."""
    drawn = zlib.crc32(str(case).encode())
    second = (("early", "round-robin"), ("random", "reversed"))[drawn // 2 % 2]
    return ("late", ("lockstep", "random")[drawn % 2]), second


def modes_of(case: object) -> dict[str, Any]:
    """The same as arguments of ``verify_workload``."""
    timings, orders = zip(*runs_of(case))
    return {"timings": timings, "orders": orders}
