"""Convolutions of small groups of channels: which are cut into rows, how, and their schedule."""

from .cut import GroupCut, fits, groups_alike, has_group_rows
from .function import schedule_groups
from .tile import faster_groups, group_tile, group_tiles, group_us

__all__ = [
    "GroupCut",
    "faster_groups",
    "fits",
    "group_tile",
    "group_tiles",
    "group_us",
    "groups_alike",
    "has_group_rows",
    "schedule_groups",
]
