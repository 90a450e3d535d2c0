"""Schedule any workload by any tile that fits it."""

from __future__ import annotations

from typing import Any

from ..errors import WorkloadError
from .depthwise import schedule_depthwise
from .gemm import schedule_gemm
from .loops.attention import schedule_attention
from .loops.rows import schedule_rows
from .loops.scaled import schedule_scaled
from .matmul import schedule_contraction
from .naive import schedule_naive
from .tiles import AttentionTile, ConvTile, DepthwiseTile, GemmTile, NaiveTile, RowTile, Tile
from .workloads import LOOPS, Attention, Conv, Convolution, Gemm, RowGemm, ScaledGemm, Spec


def scheduled(spec: Spec, tile: Tile) -> Any:
    """The workload as ``tile`` cuts it; WorkloadError: the tile is another kind's."""
    if isinstance(spec, Attention) and isinstance(tile, AttentionTile):
        return schedule_attention(spec, tile)
    if isinstance(spec, RowGemm) and isinstance(tile, RowTile):
        return schedule_rows(spec, tile)
    if isinstance(spec, ScaledGemm) and isinstance(tile, RowTile):
        return schedule_scaled(spec, tile)
    if isinstance(spec, Gemm) and isinstance(tile, NaiveTile):
        return schedule_naive(spec, tile)
    if isinstance(spec, Gemm) and type(tile) is GemmTile:
        return schedule_gemm(spec, tile)
    if not isinstance(spec, (Gemm, *LOOPS)) and isinstance(tile, (ConvTile, DepthwiseTile)):
        return schedule_conv(spec, tile)
    raise WorkloadError("tile.kind", workload=spec.name, kind=type(tile).__name__)


def schedule_conv(conv: Convolution, tile: ConvTile | DepthwiseTile) -> Any:
    """``conv`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: it cannot be cut as the tile says.
    """
    if isinstance(tile, ConvTile):
        return schedule_contraction(tile.contraction(conv), tile)
    if not isinstance(conv, Conv):
        raise WorkloadError("tile.depthwise", workload=conv.name)
    return schedule_depthwise(conv, tile)
