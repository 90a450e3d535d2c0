"""What instructions see of the threads that issue them: also the units that they start."""

from __future__ import annotations

from typing import Protocol

from ..memory.state import ClusterState, CtaState, GroupState
from .bulk import BulkCopies
from .clusters import ClusterBarrier, Peers
from .cp_async import CopyEngine
from .mbarrier import Mbarriers
from .warpgroup import MatrixUnits


class IssuingCluster(ClusterState, Protocol):
    """A cluster and its units."""

    @property
    def mbarriers(self) -> Mbarriers:
        """All mbarriers."""

    @property
    def bulk(self) -> BulkCopies:
        """All bulk copies."""

    @property
    def matrix_units(self) -> MatrixUnits:
        """The wgmma operations of all warpgroups."""

    @property
    def peers(self) -> Peers:
        """What its threads touch in each other's CTAs."""

    @property
    def barrier(self) -> ClusterBarrier:
        """The one of barrier.cluster."""


class IssuingCta(CtaState, Protocol):
    """A CTA and its units."""

    @property
    def cluster(self) -> IssuingCluster:
        """The cluster that it belongs to."""

    @property
    def copies(self) -> CopyEngine:
        """All cp.async traffic."""


class IssuingGroup(GroupState, Protocol):
    """A lockstep thread group whose CTA has units."""

    @property
    def cta(self) -> IssuingCta:
        """The CTA that it belongs to."""
