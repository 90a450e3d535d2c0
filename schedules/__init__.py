"""Workloads and their un-pipelined schedules.

``Gemm`` says what is computed, ``GemmTile`` how it is tiled, ``schedule_gemm`` gives the schedule.
"""

from __future__ import annotations

from .gemm import schedule_gemm
from .tiles import GemmTile, default_tile
from .workloads import Gemm

__all__ = ["Gemm", "GemmTile", "default_tile", "schedule_gemm"]
