"""Logs of measured candidates, and the model judged by them.

``recorder`` fills a log on a GPU; the H100's comes with the library.
"""

from __future__ import annotations

from .cases import Case, by_workload, cases, noise
from .grid import LIMIT, grid

__all__ = ["LIMIT", "Case", "by_workload", "cases", "grid", "noise"]
