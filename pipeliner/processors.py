"""How many processors this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """How many processors this process may use: all of the machine where no system call says."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
