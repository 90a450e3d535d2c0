"""What memory and the units see of threads that run: their group, its CTA and its cluster.

The engine has them (``ThreadGroup``, ``Cta``, ``Cluster``); what is not named here is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...diagnostics import Why
from ..base.clocks import Clocks
from ..base.report import HazardKind
from .grid import Block, Grid
from .scoped import Scoped
from .shadow import Shadow
from .shared_window import SharedWindow

Array = np.ndarray[Any, Any]
Mask = Array | None


class ClusterState(Protocol):
    """Of a cluster of CTAs."""

    moves_data: bool
    """Whether bytes are moved; if not, every copy between memories is of its whole box."""

    changes: int
    """Counts what may let a waiting thread go on."""

    @property
    def index(self) -> int:
        """Its number in the grid."""

    @property
    def threads(self) -> int:
        """Threads of one CTA."""

    @property
    def timing(self) -> str:
        """When asynchronous work is done: one of ``TIMINGS``."""

    @property
    def rng(self) -> np.random.Generator:
        """What random timing goes by."""

    @property
    def clocks(self) -> Clocks:
        """What each of its threads knows of the others' past."""

    @property
    def grid(self) -> Grid:
        """The launch."""

    @property
    def scoped(self) -> Scoped:
        """What its threads know of other clusters."""

    @property
    def log(self) -> list[tuple[int, ...]]:
        """The statement of each event."""

    @property
    def waited(self) -> list[tuple[int, int]]:
        """Thread and event of each wait for the preceding kernel, in order."""

    @property
    def ctas(self) -> Sequence[CtaState]:
        """By rank."""

    def cta_of(self, thread: int) -> CtaState:
        """The CTA of a thread."""


class CtaState(Protocol):
    """Of a CTA."""

    @property
    def cluster(self) -> ClusterState:
        """The cluster that it belongs to."""

    @property
    def rank(self) -> int:
        """Its number in the cluster."""

    @property
    def block(self) -> Block:
        """Its place in the grid, blockIdx (x, y, z)."""

    @property
    def alone(self) -> bool:
        """Whether it is its whole cluster."""

    @property
    def threads(self) -> int:
        """How many it has."""

    @property
    def first(self) -> int:
        """The number of its first thread in the cluster."""

    @property
    def unwaited(self) -> Array:
        """Which of its threads have not waited for the preceding kernel, but must."""

    @property
    def window(self) -> SharedWindow:
        """Its shared memory."""

    @property
    def shadow(self) -> Shadow:
        """Who wrote and who read that."""

    @property
    def granule(self) -> int:
        """Bytes of one record of ``shadow``."""

    def granules(self, start: int, nbytes: int) -> Array:
        """Shadow granules of a range of bytes."""

    def buffer_at(self, offset: int) -> str:
        """Name of the allocation that holds a byte of the window."""

    def local(self, thread: int) -> int:
        """Number of a thread in its own CTA."""

    def add_hazard(self, kind: HazardKind, event: int, **details: Any) -> None:
        """Report a hazard of the statement of an event."""


class GroupState(Protocol):
    """Of a lockstep thread group."""

    @property
    def cta(self) -> CtaState:
        """The CTA that it belongs to."""

    @property
    def n(self) -> int:
        """Threads, and rows of every array of registers."""

    @property
    def tids(self) -> Array:
        """Their numbers in the cluster."""

    @property
    def tx(self) -> Array:
        """Their threadIdx.x."""

    @property
    def at(self) -> tuple[int, ...]:
        """The present statement and its loop variables."""

    @property
    def event(self) -> int:
        """The number of its execution."""

    @property
    def registers(self) -> list[Array]:
        """Bytes of each local buffer."""

    @property
    def views(self) -> list[Any]:
        """The local buffers, as ``LocalView``."""

    @property
    def waited(self) -> Array:
        """By thread, the event of the last wgmma that was waited for."""

    @property
    def registers_fenced(self) -> Array:
        """By thread, the event of the last wgmma.fence."""

    def active(self, mask: Mask) -> Array:
        """Numbers of the threads under a mask."""

    def warps(self, mask: Mask, what: str) -> Mask:
        """The mask of a warp-collective instruction, whose warps must be whole."""

    def count(self, name: str, amount: int = 1) -> None:
        """Count an operation."""

    def touch_global(self, buffer: str, mask: Mask) -> None:
        """Check that threads about to access global memory have waited, if they must."""

    def hazard(
        self,
        kind: HazardKind,
        buffer: str = "",
        offset: int = -1,
        mask: Mask = None,
        *,
        thread: int | None = None,
        detail: Why = "",
    ) -> None:
        """Report a hazard of the present statement."""
