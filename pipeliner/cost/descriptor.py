"""One loop of a kernel as numbers: what the model's formulas are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..machine import Machine
from .usage import Usage

Depth: TypeAlias = "int | Mapping[str, int]"
"""Slots of every ring, or of each one of ``Work.rings`` by its buffer."""


@dataclass(frozen=True, slots=True)
class RingWork:
    """A ring of shared memory: bytes of a slot, and cycles until what one is to hold is there.

    ``latency``: of memory, or of L2 where every CTA reads the same again.
    """

    buffer: str
    slot_bytes: int
    latency: int

    def wait(self, latency: float, passing: int, machine: Machine) -> float:
        """Cycles until its bytes arrive; ``latency``, with ``passing``, where from memory."""
        return latency if self.latency == machine.global_latency else self.latency + passing


@dataclass(frozen=True, slots=True)
class Work:
    """What one kernel does, as numbers. All but ``ctas`` are of one CTA.

    ``usage``: pipes of one iteration. ``rate``: bytes a cycle from outside the SM. ``trip`` and
    ``ctas``: None where symbolic. ``slot_bytes``: shared memory of one slot of every ring;
    ``fixed_smem``: the rest. ``slot_registers``: registers of a thread for one slot of what waits
    in registers. ``store_bytes``: written after the loop, ``held_bytes``: read before it.
    ``tiles``: that the CTA computes one after the other, all of their iterations being in ``trip``;
    ``entries``: how often the loop starts anew. ``synchronised``: an iteration has a barrier.
    ``ahead``, ``first``, ``late``: see ``predict``. ``read_bytes``: of what all CTAs together read,
    once; ``delivered``: microseconds in which memory delivers that; 0: not known. ``by_registers``:
    what is in flight waits in registers, one tile. ``staged``: results are written by
    another engine; ``waits``: boxes of a tile for which one before must have left. ``stray``:
    cycles that an SM takes to store a tile whose neighbours lie apart. ``gathers``: each tile reads
    pixels that none before it has read.
    ``serial``: cycles of an iteration under which nothing else of the CTA runs, where warps copy
    and then wait for the tensor cores; ``beside``: the same where copies have two steps to land,
    and are issued while those work; ``runs_on``: those may still work when the next step starts.
    ``rings``: of what copies fill, apart; ``lead``: slots more
    than the shallowest of them has that let a copy stay longer in flight, None for any number.
    ``passing``: cycles that a slot's way to another role and back adds to a load.
    ``spared_registers``: fewer registers of a thread with one slot, where nothing is read ahead and
    nothing waits in registers. ``streams``: what is read comes from memory in every step.
    ``tensor``: cycles of an iteration in which warpgroups multiply. ``lines``: of L1, that an
    iteration's copies take on their way.
    ``stalls``: a copy is waited for where it is made, whatever the depth. ``teams``: of warpgroups
    that take whole tiles by turns. ``foreseen``: of the loads with one slot, those that nvcc makes
    a step ahead.
    """

    usage: Usage
    rate: float
    trip: int | None
    ctas: int | None
    threads: int
    registers: int
    slot_bytes: int
    fixed_smem: int = 0
    slot_registers: int = 0
    store_bytes: int = 0
    held_bytes: int = 0
    entries: int = 1
    synchronised: bool = True
    ahead: float = 0.0
    first: float = 0.0
    late: float = 0.0
    read_bytes: int = 0
    tiles: int = 1
    staged: bool = False
    waits: int = 0
    gathers: bool = False
    stray: float = 0.0
    serial: float = 0.0
    beside: float = 0.0
    rings: tuple[RingWork, ...] = ()
    lead: int | None = 0
    passing: int = 0
    spared_registers: int = 0
    streams: bool = False
    stalls: bool = False
    teams: int = 1
    foreseen: float = 0.0
    delivered: float = 0.0
    by_registers: bool = False
    tensor: float = 0.0
    lines: float = 0.0
    runs_on: bool = False

    def smem(self, depth: Depth) -> int:
        """Shared memory of a CTA with rings of ``depth`` slots, in bytes."""
        if isinstance(depth, int):
            return self.fixed_smem + depth * self.slot_bytes
        common = least(depth)
        more = sum((depth[ring.buffer] - common) * ring.slot_bytes for ring in self.rings)
        return self.fixed_smem + common * self.slot_bytes + more

    def registers_at(self, depth: int) -> int:
        """Registers of a thread with ``depth`` slots of what waits in registers."""
        spared = self.spared_registers if depth == 1 else 0
        return self.registers - spared + depth * self.slot_registers


def least(depth: Depth) -> int:
    """Slots of the shallowest ring."""
    return depth if isinstance(depth, int) else min(depth.values())


def most(depth: Depth) -> int:
    """Slots of the deepest ring."""
    return depth if isinstance(depth, int) else max(depth.values())


def useful(work: Work, ring: RingWork, depth: Mapping[str, int]) -> int:
    """Slots of ``ring`` that let its copies stay in flight."""
    limit = most(depth) if work.lead is None else least(depth) + work.lead
    return min(depth[ring.buffer], limit)
