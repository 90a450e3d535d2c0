"""Workloads: what is computed, as a plain PrimFunc with no schedule in it.

A workload is a value: sizes, types and layouts. ``function()`` gives its TensorIR, ``reference()``
what it must compute, so that whoever schedules or checks it needs nothing else.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .base.dtypes import DTYPES, Types, numpy_dtype
from .base.operand import Axis, Coordinates, Operand
from .contraction import (
    GATED,
    INSTRUCTION,
    MATMUL,
    SECOND,
    STORE,
    SUMS,
    WORKSPACES,
    Contraction,
)
from .conv import Conv, conv, conv1d, conv2d, conv3d
from .folded import best_phases, can_fold
from .fused.attention import ATTENTION_DTYPES, ATTENTION_LAYOUTS, Attention
from .fused.back_to_back import CHAINED_COLUMNS, BackToBackGemm
from .fused.grouped import GROUPED_DTYPES, MOST_EXPERTS, OFFSETS, GroupedGemm
from .fused.packed import IN_WORD, PACKED_DTYPES, SCALE_GROUP, WORD_TYPE, PackedGemm
from .fused.rows import EPSILON, ROW_DTYPES, STATISTICS, RowGemm, Statistic
from .fused.scaled import SCALE_BLOCK, SCALED_DTYPES, SCALES, ScaledGemm
from .gemm import LAYOUTS, GatedGemm, Gemm
from .input_grad import ConvInputGrad
from .padded import begins_inside_vectors
from .phases import has_phases
from .splitting import MAX_SPLITS, PART, reduction_tiles, split
from .weight_grad import ConvWeightGrad
from .weight_runs import has_short_rows
from .windows import GROUP, PIXELS

Convolution: TypeAlias = "Conv | ConvInputGrad | ConvWeightGrad"

ProductWorkload: TypeAlias = "RowGemm | ScaledGemm | GroupedGemm | PackedGemm"
"""One product in a loop over K: with arithmetic on rows, rows in groups, or packed weights."""

PRODUCTS: Final = (RowGemm, ScaledGemm, GroupedGemm, PackedGemm)
"""The classes of those."""

LoopWorkload: TypeAlias = "Attention | BackToBackGemm | ProductWorkload"
"""A workload of several operations a loop, which is no contraction: its schedule is its own."""

LOOPS: Final = (Attention, BackToBackGemm, *PRODUCTS)
"""The classes of those."""

Spec: TypeAlias = "Gemm | Convolution | LoopWorkload"
"""Any workload: it has a name and a title, types, shapes, inputs and what it must compute."""


def results_of(spec: Spec) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and type of each result of a workload, in order."""
    if isinstance(spec, RowGemm):
        return spec.results
    return ((spec.shapes()[-1], spec.out),)


def each_of(made: Any) -> tuple[Any, ...]:
    """What a workload says of each result: of several a tuple, of one that alone."""
    return made if isinstance(made, tuple) else (made,)


__all__ = [
    "ATTENTION_DTYPES",
    "ATTENTION_LAYOUTS",
    "CHAINED_COLUMNS",
    "DTYPES",
    "EPSILON",
    "GATED",
    "GROUP",
    "GROUPED_DTYPES",
    "INSTRUCTION",
    "IN_WORD",
    "LAYOUTS",
    "LOOPS",
    "MATMUL",
    "MAX_SPLITS",
    "MOST_EXPERTS",
    "OFFSETS",
    "PACKED_DTYPES",
    "PART",
    "PIXELS",
    "PRODUCTS",
    "ROW_DTYPES",
    "SCALED_DTYPES",
    "SCALES",
    "SCALE_BLOCK",
    "SCALE_GROUP",
    "SECOND",
    "STATISTICS",
    "STORE",
    "SUMS",
    "WORD_TYPE",
    "WORKSPACES",
    "Attention",
    "Axis",
    "BackToBackGemm",
    "Contraction",
    "Conv",
    "ConvInputGrad",
    "ConvWeightGrad",
    "Convolution",
    "Coordinates",
    "GatedGemm",
    "Gemm",
    "GroupedGemm",
    "LoopWorkload",
    "Operand",
    "PackedGemm",
    "ProductWorkload",
    "RowGemm",
    "ScaledGemm",
    "Spec",
    "Statistic",
    "Types",
    "begins_inside_vectors",
    "best_phases",
    "can_fold",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "each_of",
    "has_phases",
    "has_short_rows",
    "numpy_dtype",
    "reduction_tiles",
    "results_of",
    "split",
]
