"""Which tile to take: the least predicted time among tiles, forms and split-K."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, overload

from ..errors import WorkloadError
from ..machine import Machine
from ..plan.request import AccumulateAsked, Instruction
from .channelwise import depthwise_tile, is_depthwise, weights_tile
from .compared import SAME_TIME, SAME_WAVE, WORTH_A_PLAN, compare_loops, compare_tiles
from .grouped import faster_groups
from .loops.attention_best import best_attention
from .tile_space import (
    contraction_of,
    in_raster_groups,
)
from .tiles import (
    AttentionTile,
    ChosenTile,
    ConvTile,
    DepthwiseTile,
    GemmTile,
    GroupTile,
    LoopTile,
    RowTile,
)
from .workloads import (
    LOOPS,
    PRODUCTS,
    Attention,
    Conv,
    ConvInputGrad,
    Convolution,
    ConvWeightGrad,
    Gemm,
    LoopWorkload,
    PackedGemm,
    ProductWorkload,
    Spec,
)

BY_WARPS: Final = ("auto", "mma")
"""What may be asked for where warps multiply."""


@overload
def default_tile(
    workload: Gemm,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> GemmTile: ...


@overload
def default_tile(
    workload: Convolution,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> ConvTile | DepthwiseTile | GroupTile: ...


@overload
def default_tile(
    workload: Attention,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> AttentionTile: ...


@overload
def default_tile(
    workload: ProductWorkload,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> RowTile: ...


@overload
def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = ...,
    splits: int | None = ...,
    accumulate: AccumulateAsked = ...,
) -> ChosenTile: ...


def default_tile(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
    accumulate: AccumulateAsked = "auto",
) -> ChosenTile:
    """The tile with the least predicted time on ``machine``.

    ``instruction``: what is to multiply it. ``splits``: of the reduction (split-K); None: more than
    one where whole tiles would leave SMs idle and that costs more than to add partial sums.
    ``accumulate``: how products of fp8 are to be summed. A depthwise
    convolution with channels innermost and its gradients get a tile that is no matmul's, one of
    small groups a tile of rows where that is faster. Raises WorkloadError when
    no tile of this workload can be mapped there, or what kept the last one from ``instruction``.
    """
    return next(ranked_tiles(workload, machine, instruction, splits, accumulate))[0]


def ranked_tiles(
    workload: Spec,
    machine: Machine,
    instruction: Instruction = "auto",
    splits: int | None = None,
    accumulate: AccumulateAsked = "auto",
) -> Iterator[tuple[ChosenTile, float]]:
    """The tiles of ``default_tile``, best first, each with its predicted microseconds.

    Each is the one to take were those before it none. 0: no time is predicted of it. Raises what
    ``default_tile`` raises.
    """
    depthwise = isinstance(workload, (Conv, ConvInputGrad)) and is_depthwise(workload)
    of_weights = isinstance(workload, ConvWeightGrad) and weights_tile(workload, machine)
    by_thread = depthwise or of_weights
    whole = isinstance(workload, PRODUCTS) and not isinstance(workload, PackedGemm)
    if splits not in (None, 1) and (by_thread or whole):
        raise WorkloadError("split.no_matmul", workload=workload.name)
    if isinstance(workload, LOOPS):
        yield from _ranked_loops(workload, machine, instruction, accumulate, splits)
    elif isinstance(workload, (Conv, ConvInputGrad)) and depthwise:
        yield depthwise_tile(workload, machine), 0.0
    elif of_weights:
        yield of_weights, 0.0
    else:
        yield from _ranked_matmuls(workload, machine, instruction, accumulate, splits)


def _ranked_loops(
    workload: LoopWorkload,
    machine: Machine,
    instruction: Instruction,
    accumulate: AccumulateAsked,
    splits: int | None,
) -> Iterator[tuple[LoopTile, float]]:
    times = compare_loops(workload, machine, instruction, accumulate, splits)
    while times:
        best: LoopTile
        if isinstance(workload, Attention):
            best = best_attention(workload, machine, times, (SAME_WAVE, SAME_TIME))
        else:
            best = min(times, key=lambda tile: (times[tile], -tile.m * tile.n))
        yield best, times.pop(best)


def _ranked_matmuls(
    workload: Gemm | Convolution,
    machine: Machine,
    instruction: Instruction,
    accumulate: AccumulateAsked,
    splits: int | None,
) -> Iterator[tuple[GemmTile | GroupTile, float]]:
    known: list[GemmTile] = []
    yielded: set[GemmTile] = set()
    for within in (WORTH_A_PLAN, math.inf):
        found = compare_tiles(workload, machine, instruction, splits, accumulate, within)
        left = found.without(known)
        may_have_rows = splits in (None, 1) and instruction in BY_WARPS and not known
        if isinstance(workload, Conv) and may_have_rows:
            rows = faster_groups(workload, machine, found.best.tile, found.best.us)
            if rows is not None:
                yield rows, 0.0
        while left is not None:
            best = left.best
            known.append(best.tile)
            left = left.without(known)
            tile = best.tile
            if not best.depth:  # else its neighbours were part of the comparison
                tile = in_raster_groups(contraction_of(workload, tile), tile, machine)
            if tile not in yielded:
                yielded.add(tile)
                yield tile, best.us
