"""Gradients of weights with few input channels: N counts a run of a kernel row's weights.

    plain    for r, s:  dW[:, r, s, :] = dY^T X[.., r, s, :]     # 3 channels of 8 or 16 columns
    runs     for r:     dW[:, r, :, :] = dY^T X[.., r, :, :]     # S * C neighbours of an image row

What the outputs of one pixel read of an image row lies in one piece, where channels are innermost.
So the same matmul has S times as many columns and as many times fewer batches, each of which reads
dY from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...machine import VECTOR_BYTES
from .base.dtypes import numpy_dtype
from .base.operand import Coordinates, Element, Operand
from .contraction import Contraction
from .conv_shape import ConvShape
from .folded import can_fold, unfolded
from .windows import filter_indices, image_shape, is_masked, kernel_axes, position, seen, windows


def has_short_rows(conv: ConvShape) -> bool:
    """Whether a kernel row's weights are one run, and one position's too few for a wide copy."""
    return can_fold(conv) and conv.c * numpy_dtype(conv.storage).itemsize < VECTOR_BYTES


def by_runs(
    conv: ConvShape, what: Contraction, pixel: Callable[[Coordinates], tuple[Any, list[Any]]]
) -> Contraction:
    """``what``, a gradient of weights by positions, over runs; ``pixel``: its image and place."""
    step, before = conv.stride[-1] * conv.c, conv.pad[-1][0] * conv.c
    length, width = conv.kernel[-1] * conv.c, conv.size[-1] * conv.c
    last = (conv.out_size[-1] - 1) * step - before + length - 1

    def source(at: Coordinates) -> Element:
        image, places = pixel(at)
        found, conditions = windows(conv, places[:-1], position(conv, at)[:-1])
        flat = places[-1] * step - before + at["sc"]
        if before:
            conditions.append(flat >= 0)
        if last >= width:
            conditions.append(flat < width)
        return [image, *found, *unfolded(flat, before, conv.c)], conditions

    def place(at: Coordinates) -> list[Any]:
        *outer, _ = position(conv, at)
        return list(filter_indices(conv, at["m"], [*outer, at["sc"] // conv.c], at["sc"] % conv.c))

    pixels = Operand(
        "X",
        image_shape(conv, conv.size, conv.c),
        False,
        source,
        tile="pixels",
        unit=math.gcd(step, before, width),
        masked=is_masked(conv),
        seen=seen(conv),
    )
    return replace(
        what,
        batch_axes=kernel_axes(conv)[:-1],
        n=("sc", length),
        b=pixels,
        place=place,
    )
