"""Logs of measured candidates, and the model judged by them.

``recorder`` fills a log on a GPU; the H100's comes with the library.
"""

from __future__ import annotations

from .candidates import LIMIT, LogCandidate, candidate, grid
from .entries import SHIPPED, Entry, append, by_workload, noise, read_log

__all__ = [
    "LIMIT",
    "SHIPPED",
    "Entry",
    "LogCandidate",
    "append",
    "by_workload",
    "candidate",
    "grid",
    "noise",
    "read_log",
]
