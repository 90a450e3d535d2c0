"""The un-pipelined schedules of convolutions and their gradients."""

from __future__ import annotations

from typing import Any

from .matmul import schedule_contraction
from .tiles import ConvTile
from .workloads import Convolution


def schedule_conv(conv: Convolution, tile: ConvTile) -> Any:
    """``conv`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc."""
    return schedule_contraction(conv.contraction(tile.fold), tile)
