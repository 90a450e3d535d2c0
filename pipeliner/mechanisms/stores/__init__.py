"""How the results of a tile reach global memory, and what that costs."""

from .case import BARRIER_BYTES
from .cycles import split_sector_cycles, uncoalesced_cycles
from .in_cluster import MOST_PARTS, PART_BYTES, PART_PADDING, VECTOR_PARTS, put_together
from .kinds import STORES, is_by_tma, is_in_cluster, is_staged
from .planned import filled_together, plan_stores, slot_waits, staged_bytes

__all__ = [
    "BARRIER_BYTES",
    "MOST_PARTS",
    "PART_BYTES",
    "PART_PADDING",
    "STORES",
    "VECTOR_PARTS",
    "filled_together",
    "is_by_tma",
    "is_in_cluster",
    "is_staged",
    "plan_stores",
    "put_together",
    "slot_waits",
    "split_sector_cycles",
    "staged_bytes",
    "uncoalesced_cycles",
]
