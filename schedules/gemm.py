"""The un-pipelined schedule of a GEMM."""

from __future__ import annotations

from typing import Any

from .matmul import schedule_contraction
from .tiles import GemmTile
from .workloads import Gemm


def schedule_gemm(gemm: Gemm, tile: GemmTile, func: Any = None) -> Any:
    """``gemm`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    ``func``: the workload's function with elementwise blocks added after its ``store`` block (an
    epilogue that the workload does not know); default the workload's own.
    """
    return schedule_contraction(gemm.contraction(tile.reordered), tile, func)
