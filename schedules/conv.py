"""The un-pipelined schedules of convolutions and their gradients."""

from __future__ import annotations

from typing import Any

from ..errors import WorkloadError
from .depthwise import schedule_depthwise
from .matmul import schedule_contraction
from .tiles import ConvTile, DepthwiseTile
from .workloads import Conv, Convolution


def schedule_conv(conv: Convolution, tile: ConvTile | DepthwiseTile) -> Any:
    """``conv`` tiled by ``tile``, as a TVM schedule whose ``mod`` holds the PrimFunc.

    WorkloadError: it cannot be cut as the tile says.
    """
    if isinstance(tile, ConvTile):
        return schedule_contraction(tile.contraction(conv), tile)
    if not isinstance(conv, Conv):
        raise WorkloadError("tile.depthwise", workload=conv.name)
    return schedule_depthwise(conv, tile)
