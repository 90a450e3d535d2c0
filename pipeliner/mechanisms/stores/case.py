"""A store that is to be planned, with all that decides how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...diagnostics import Reason
from ...instructions.table import multiplied_by
from ...machine import Machine
from ...machine.constant import chosen, constant, derived
from ...plan import CopyPlan, MatmulPlan, StoreMechanism, StorePlan
from ...plan.request import Request
from ...values.facts import KernelInfo, MatmulInfo, StoreInfo
from ..table import have_producer
from .sums import stored

LEAST_RING_DEPTH: Final = constant(
    "LEAST_RING_DEPTH",
    3,
    "slots",
    "slots that rings keep beside staged boxes",
    formula="LEAST_RING_DEPTH * slot_bytes + boxes <= shared memory",
    source=chosen("fewer would cost more than direct stores do"),
    date="2026-11-21",
)

BARRIER_BYTES: Final = constant(
    "BARRIER_BYTES",
    1024,
    "bytes",
    "more than the mbarriers of a kernel take",
    formula="room = smem_per_cta - BARRIER_BYTES; smem = ... + BARRIER_BYTES with a producer warp",
    source=derived("8 bytes a mbarrier, two a slot, at most MAX_DEPTH slots a ring"),
    date="2026-11-21",
)


@dataclass(frozen=True, slots=True)
class StoreCase:
    """``store`` of the kernel ``info``, whose matmuls and copies are planned already.

    ``request``: what is asked of it.
    """

    store: StoreInfo
    info: KernelInfo
    matmuls: tuple[MatmulPlan, ...]
    copies: tuple[CopyPlan, ...]
    machine: Machine
    request: Request

    def planned(self, mechanism: StoreMechanism, **decided: Any) -> StorePlan:
        """The plan by ``mechanism``; ``decided``: fields beyond what is stored where."""
        return StorePlan(
            op=self.store.op,
            acc=self.store.acc,
            dst=self.store.dst,
            mechanism=mechanism,
            partial_sums=self.store.partial_sums,
            **decided,
        )

    def by_consumers(self) -> tuple[MatmulInfo, MatmulPlan] | Reason:
        """The matmul whose sums are stored, by warpgroups beside a producer; or why not."""
        found = next(iter(stored(self.store, self.info, self.matmuls)), None)
        if found is None or not have_producer(self.copies):
            return Reason("store.no_producer")
        if not multiplied_by(found[1]).warpgroup_wide:
            return Reason("store.by_warp", instruction=found[1].instruction)
        return found

    def room(self, depth: int) -> int:
        """Bytes of shared memory beside rings of ``depth`` slots."""
        slot = sum(size for loop in self.info.loops for _, _, size in loop.rings)
        return self.machine.smem_per_cta - BARRIER_BYTES - depth * slot
