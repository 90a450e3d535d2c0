"""Hold what a producer warp's copy is emitted from, and what it becomes.

    A_shared[i, j] = A[m + i, k + j]   =>   what one thread issues for a slot, counted by ``full``

Each mechanism of a producer warp is a function from ``TileFill`` to ``Issued``; ``copies`` calls
the one of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...diagnostics import Reason
from ...errors import LoweringError
from ...plan import CopyPlan
from ..ir.nodes import Buffer, Stmt
from ..ir.patterns import Copy
from .clusters import Cluster
from .layouts import ColumnBlocks
from .tensor_maps import TensorMap


@dataclass(frozen=True)
class TileFill:
    """A tile that a producer warp fills, as ``copy`` says and ``plan`` plans.

    ``stored``: how the tile lies in shared memory. ``full``: the mbarrier that counts the bytes.
    ``ranges``: an analyzer that knows the bounds of every variable outside the copy. ``cluster``:
    of the CTAs that may copy for each other. ``arch``: what the kernel is compiled for.
    """

    copy: Copy
    plan: CopyPlan
    stored: ColumnBlocks
    full: Buffer
    ranges: Any
    arch: str
    cluster: Cluster | None = None

    def refused(self, why: Reason) -> LoweringError:
        """Return the error that its mechanism cannot make the copy."""
        return not_issued(self.plan, why)


@dataclass(frozen=True)
class Issued:
    """What one thread issues to fill a tile.

    ``maps``: the tensor maps that it refers to. ``multicast``: each CTA of the cluster copies a
    part for all.
    """

    stmt: Stmt
    maps: tuple[TensorMap, ...] = ()
    multicast: bool = False


def not_issued(plan: CopyPlan, why: Reason) -> LoweringError:
    """Return the error that the mechanism of ``plan`` cannot make the copy."""
    return LoweringError("mechanism.refused", copy=plan.op, mechanism=plan.mechanism, why=why)
