"""Schedule any workload by any tile that fits it."""

from __future__ import annotations

from typing import Any

from ..errors import WorkloadError
from .channelwise import schedule_weights
from .depthwise import schedule_depthwise
from .gemm import schedule_gemm
from .grouped import schedule_groups
from .loops.attention import schedule_attention
from .loops.back_to_back import schedule_back_to_back
from .loops.grouped import schedule_grouped
from .loops.packed import schedule_packed
from .loops.rows import schedule_rows
from .loops.scaled import schedule_scaled
from .matmul import schedule_contraction
from .naive import schedule_naive
from .tiles import (
    AttentionTile,
    ConvTile,
    DepthwiseTile,
    GemmTile,
    GroupTile,
    NaiveTile,
    RowTile,
    Tile,
)
from .workloads import (
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    Convolution,
    ConvWeightGrad,
    Gemm,
    GroupedGemm,
    PackedGemm,
    RowGemm,
    ScaledGemm,
    Spec,
)


def scheduled(spec: Spec, tile: Tile) -> Any:
    """The workload as ``tile`` cuts it; WorkloadError: the tile is another kind's."""
    if isinstance(spec, Attention) and isinstance(tile, AttentionTile):
        return schedule_attention(spec, tile)
    if isinstance(spec, PackedGemm) and isinstance(tile, RowTile):
        return schedule_packed(spec, tile)
    if isinstance(spec, BackToBackGemm) and isinstance(tile, RowTile):
        return schedule_back_to_back(spec, tile)
    if isinstance(tile, RowTile) and tile.splits > 1:
        raise WorkloadError("split.no_matmul", workload=spec.name)
    if isinstance(spec, RowGemm) and isinstance(tile, RowTile):
        return schedule_rows(spec, tile)
    if isinstance(spec, GroupedGemm) and isinstance(tile, RowTile):
        return schedule_grouped(spec, tile)
    if isinstance(spec, ScaledGemm) and isinstance(tile, RowTile):
        return schedule_scaled(spec, tile)
    if isinstance(spec, Gemm) and isinstance(tile, NaiveTile):
        return schedule_naive(spec, tile)
    if isinstance(spec, Gemm) and type(tile) is GemmTile:
        return schedule_gemm(spec, tile)
    if isinstance(tile, (ConvTile, DepthwiseTile, GroupTile)) and isinstance(
        spec, (Conv, ConvInputGrad, ConvWeightGrad)
    ):
        return schedule_conv(spec, tile)
    raise WorkloadError("tile.kind", workload=spec.name, kind=type(tile).__name__)


def schedule_conv(conv: Convolution, tile: ConvTile | DepthwiseTile | GroupTile) -> Any:
    """``conv`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: it cannot be cut as the tile says.
    """
    if isinstance(tile, ConvTile):
        return schedule_contraction(tile.contraction(conv), tile)
    if isinstance(tile, DepthwiseTile) and isinstance(conv, (Conv, ConvInputGrad)):
        return schedule_depthwise(conv, tile)
    if isinstance(tile, DepthwiseTile) and isinstance(conv, ConvWeightGrad):
        return schedule_weights(conv, tile)
    if isinstance(tile, GroupTile) and isinstance(conv, Conv):
        return schedule_groups(conv, tile)
    raise WorkloadError("tile.depthwise", workload=conv.name)
