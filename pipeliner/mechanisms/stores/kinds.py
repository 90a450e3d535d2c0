"""The ways in which results reach global memory, by name, and what tells them apart."""

from __future__ import annotations

from typing import Final

from ...plan import StorePlan
from ...plan.kinds import StoreKind

DIRECT_STORE: Final = StoreKind("direct", staged=False)
STAGED_STORE: Final = StoreKind("tma", staged=True, moves_boxes=True)
COALESCED_STORE: Final = StoreKind("coalesced", staged=True)
CLUSTER_STORE: Final = StoreKind("cluster", staged=False, in_cluster=True)
STORES: Final = {
    one.name: one for one in (DIRECT_STORE, STAGED_STORE, COALESCED_STORE, CLUSTER_STORE)
}


def is_staged(plan: StorePlan) -> bool:
    """Whether the store goes through shared memory."""
    return STORES[plan.mechanism].staged


def is_in_cluster(plan: StorePlan) -> bool:
    """Whether the CTAs of a cluster put the parts of the tile together."""
    return STORES[plan.mechanism].in_cluster


def is_by_tma(plan: StorePlan) -> bool:
    """Whether TMA writes boxes of the tile from shared memory."""
    return STORES[plan.mechanism].moves_boxes
