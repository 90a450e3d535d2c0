"""Workloads and their un-pipelined schedules.

``Gemm`` or ``conv2d`` says what is computed, ``GemmTile`` or ``ConvTile`` how it is tiled,
``schedule_gemm`` or ``schedule_conv`` gives the schedule.
"""

from __future__ import annotations

from .choice import default_tile
from .gemm import schedule_gemm
from .loops.attention import schedule_attention
from .loops.back_to_back import schedule_back_to_back
from .loops.grouped import schedule_grouped
from .loops.rows import schedule_rows
from .loops.scaled import schedule_scaled
from .naive import schedule_naive
from .scheduled import schedule_conv
from .tiles import (
    AttentionTile,
    ConvTile,
    DepthwiseTile,
    GemmTile,
    GroupTile,
    NaiveTile,
    RowTile,
)
from .workloads import (
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    GroupedGemm,
    PackedGemm,
    RowGemm,
    ScaledGemm,
    conv1d,
    conv2d,
    conv3d,
)

__all__ = [
    "Attention",
    "AttentionTile",
    "BackToBackGemm",
    "Conv",
    "ConvInputGrad",
    "ConvTile",
    "ConvWeightGrad",
    "DepthwiseTile",
    "GatedGemm",
    "Gemm",
    "GemmTile",
    "GroupTile",
    "GroupedGemm",
    "NaiveTile",
    "PackedGemm",
    "RowGemm",
    "RowTile",
    "ScaledGemm",
    "conv1d",
    "conv2d",
    "conv3d",
    "default_tile",
    "schedule_attention",
    "schedule_back_to_back",
    "schedule_conv",
    "schedule_gemm",
    "schedule_grouped",
    "schedule_naive",
    "schedule_rows",
    "schedule_scaled",
]
