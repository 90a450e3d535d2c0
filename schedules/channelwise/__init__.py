"""Sums over no channels: depthwise convolutions and their gradients, each thread on its own."""

from .cut import (
    DepthwiseSpec,
    RegionCut,
    fits,
    has_planes,
    has_regions,
    is_depthwise,
    regions_alike,
)
from .planes import schedule_planes
from .regions import schedule_regions
from .sums import Channelwise, channelwise
from .tile import depthwise_tile, depthwise_tiles, threads_alike
from .weights import (
    has_weight_regions,
    schedule_weights,
    weights_alike,
    weights_tile,
    weights_tiles,
)

__all__ = [
    "Channelwise",
    "DepthwiseSpec",
    "RegionCut",
    "channelwise",
    "depthwise_tile",
    "depthwise_tiles",
    "fits",
    "has_planes",
    "has_regions",
    "has_weight_regions",
    "is_depthwise",
    "regions_alike",
    "schedule_planes",
    "schedule_regions",
    "schedule_weights",
    "threads_alike",
    "weights_alike",
    "weights_tile",
    "weights_tiles",
]
