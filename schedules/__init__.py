"""Workloads and their un-pipelined schedules.

``Gemm`` or ``conv2d`` says what is computed, ``GemmTile`` or ``ConvTile`` how it is tiled,
``schedule_gemm`` or ``schedule_conv`` gives the schedule.
"""

from __future__ import annotations

from .attention import schedule_attention
from .choice import default_tile
from .gemm import schedule_gemm
from .naive import schedule_naive
from .scheduled import schedule_conv
from .tiles import AttentionTile, ConvTile, DepthwiseTile, GemmTile, NaiveTile
from .workloads import (
    Attention,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    conv1d,
    conv2d,
    conv3d,
)

__all__ = [
    "Attention",
    "AttentionTile",
    "Conv",
    "ConvInputGrad",
    "ConvTile",
    "ConvWeightGrad",
    "DepthwiseTile",
    "GatedGemm",
    "Gemm",
    "GemmTile",
    "NaiveTile",
    "conv1d",
    "conv2d",
    "conv3d",
    "default_tile",
    "schedule_attention",
    "schedule_conv",
    "schedule_gemm",
    "schedule_naive",
]
