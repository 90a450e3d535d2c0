"""Convolutions in numpy: sums over one kernel position at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .conv_shape import ConvShape


def convolve(conv: ConvShape, x: Any, w: Any) -> Any:
    """The sums in the type of ``x`` and ``w``, one kernel position at a time."""
    images, filters = grouped(conv, padded(conv, x), w)
    total: Any = 0
    for at in itertools.product(*map(range, conv.kernel)):
        seen = images[(slice(None), *strided(conv, at))]
        total = total + np.einsum("n...gc,gkc->n...gk", seen, filters[(slice(None),) * 2 + at])
    return from_channels_last(conv, total.reshape(conv.n, *conv.out_size, conv.k))


def padded(conv: ConvShape, x: Any) -> Any:
    """``x`` with channels innermost and zeros around it."""
    last = x if conv.channels_last else np.moveaxis(x, 1, -1)
    return np.pad(last, ((0, 0), *conv.pad, (0, 0)))


def grouped(conv: ConvShape, images: Any, w: Any) -> tuple[Any, Any]:
    """Images as ``[n, *size, g, c]`` and filters as ``[g, k, *kernel, c]``."""
    last = w if conv.channels_last else np.moveaxis(w, 1, -1)
    return (
        images.reshape(*images.shape[:-1], conv.groups, -1),
        last.reshape(conv.groups, -1, *last.shape[1:]),
    )


def strided(conv: ConvShape, at: Sequence[int]) -> tuple[slice, ...]:
    """The part of the padded input that all outputs read at kernel position ``at``."""
    return tuple(
        slice(r * dilation, r * dilation + (p - 1) * stride + 1, stride)
        for r, dilation, stride, p in zip(at, conv.dilation, conv.stride, conv.out_size)
    )


def from_channels_last(conv: ConvShape, y: Any) -> Any:
    """``y`` in the layout of the workload."""
    return y if conv.channels_last else np.moveaxis(y, -1, 1)
