"""Workloads: what is computed, as a plain PrimFunc with no schedule in it.

A workload is a value: sizes, types and layouts. ``function()`` gives its TensorIR, ``reference()``
what it must compute, so that whoever schedules or checks it needs nothing else.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from .attention import ATTENTION_DTYPES, ATTENTION_LAYOUTS, Attention
from .base.dtypes import DTYPES, Types, numpy_dtype
from .contraction import (
    GATED,
    INSTRUCTION,
    MATMUL,
    PARTIAL,
    PARTS,
    SECOND,
    STORE,
    SUMS,
    Contraction,
    Operand,
)
from .conv import Conv, conv, conv1d, conv2d, conv3d
from .folded import best_phases, can_fold
from .gemm import LAYOUTS, GatedGemm, Gemm
from .input_grad import ConvInputGrad
from .scaled import SCALE_BLOCK, SCALED_DTYPES, SCALES, ScaledGemm
from .splitting import MAX_SPLITS, PART, reduction_tiles, split
from .weight_grad import ConvWeightGrad
from .windows import GROUP, PIXELS

Convolution: TypeAlias = "Conv | ConvInputGrad | ConvWeightGrad"

LoopWorkload: TypeAlias = "Attention | ScaledGemm"
"""A workload of several operations a loop, which is no contraction: its schedule is its own."""

LOOPS: Final = (Attention, ScaledGemm)
"""The classes of those."""

Spec: TypeAlias = "Gemm | Convolution | LoopWorkload"
"""Any workload: it has a name and a title, types, shapes, inputs and what it must compute."""

__all__ = [
    "ATTENTION_DTYPES",
    "ATTENTION_LAYOUTS",
    "DTYPES",
    "GATED",
    "GROUP",
    "INSTRUCTION",
    "LAYOUTS",
    "LOOPS",
    "MATMUL",
    "MAX_SPLITS",
    "PART",
    "PARTIAL",
    "PARTS",
    "PIXELS",
    "SCALED_DTYPES",
    "SCALES",
    "SCALE_BLOCK",
    "SECOND",
    "STORE",
    "SUMS",
    "Attention",
    "Contraction",
    "Conv",
    "ConvInputGrad",
    "ConvWeightGrad",
    "Convolution",
    "GatedGemm",
    "Gemm",
    "LoopWorkload",
    "Operand",
    "ScaledGemm",
    "Spec",
    "Types",
    "best_phases",
    "can_fold",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "numpy_dtype",
    "reduction_tiles",
    "split",
]
