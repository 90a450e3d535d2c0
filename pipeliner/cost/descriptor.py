"""One loop of a kernel as numbers: what the formulas of the cost model are about.

``Work`` is made by ``work_of`` from a kernel and its mapping, and read by ``predict``. A value
without a unit in its comment is a plain number. An *iteration* is one step along K of one CTA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..machine import Machine
from .usage import Usage

Depth: TypeAlias = "int | Mapping[str, int]"
"""Slots of every ring, or of each ring of ``Work.shared`` by its buffer."""


@dataclass(frozen=True, slots=True)
class Grid:
    """CTAs of a kernel and the iterations of one of them."""

    ctas: int | None
    """CTAs of the launch; None: known at run time only."""
    trip: float | None
    """Iterations of one CTA, those of all its tiles, as a mean over all CTAs where they differ;
    None: known at run time only."""
    most: float | None = None
    """Iterations of the tile that has most; None: all have as many."""
    tiles: int = 1
    """Output tiles that one CTA computes one after the other (persistent kernel: more than one)."""
    cluster: int = 1
    """CTAs of a cluster."""
    fills: int = 1
    """Times that the loop fills and drains its rings: 1 where a producer warp runs ahead across
    tiles, else once a tile."""


@dataclass(frozen=True, slots=True)
class ThreadBudget:
    """Threads of a CTA and the registers of each."""

    count: int
    """Threads of a CTA, the producer warpgroup included."""
    registers: int
    """Registers of a thread, without those of ``slot_registers``."""
    slot_registers: int = 0
    """Registers of a thread for each slot of a ring that lies in registers."""
    saved_registers: int = 0
    """Registers of a thread that a ring of one slot saves: no fragments are read ahead, and no
    register-staged copy waits."""

    def registers_at(self, depth: int) -> int:
        """Registers of a thread with rings of ``depth`` slots."""
        saved = self.saved_registers if depth == 1 else 0
        return self.registers - saved + depth * self.slot_registers


@dataclass(frozen=True, slots=True)
class RingWork:
    """A ring of shared memory."""

    buffer: str
    slot_bytes: int
    """Bytes of one slot."""
    latency: int
    """Cycles until the first bytes of a load arrive: of memory, or of L2 where every CTA reads the
    same tiles again."""

    def wait(self, latency: float, handshake: int, machine: Machine) -> float:
        """Cycles until the ring's first bytes arrive.

        ``latency``: cycles of a load from memory, ``handshake`` included; a ring that L2 serves
        adds ``handshake`` to its own latency.
        """
        return latency if self.latency == machine.global_latency else self.latency + handshake


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory of a CTA."""

    slot_bytes: int
    """Bytes of one slot of every ring together."""
    fixed_bytes: int = 0
    """Bytes beside the rings: accumulators kept there and boxes that results are staged in."""
    rings: tuple[RingWork, ...] = ()
    """The rings that copies fill."""
    skew: int | None = 0
    """Slots by which one ring may usefully exceed the shallowest: copies by cp.async complete in
    order (1), register-staged ones hold one tile (0), TMA's complete on their own (None: any)."""

    def bytes_at(self, depth: Depth) -> int:
        """Bytes of a CTA with rings of ``depth`` slots."""
        if isinstance(depth, int):
            return self.fixed_bytes + depth * self.slot_bytes
        common = least(depth)
        more = sum((depth[ring.buffer] - common) * ring.slot_bytes for ring in self.rings)
        return self.fixed_bytes + common * self.slot_bytes + more

    def useful(self, ring: RingWork, depth: Mapping[str, int]) -> int:
        """Slots of ``ring`` that let its copies stay in flight."""
        limit = most(depth) if self.skew is None else least(depth) + self.skew
        return min(depth[ring.buffer], limit)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that move between an SM and what lies outside it."""

    rate: float
    """Bytes a cycle that reach one SM from L2, or from memory where nothing is read again."""
    read_bytes: int = 0
    """Bytes of global memory that all CTAs together read, each counted once (compulsory)."""
    scattered: bool = False
    """Most of them are of operands with K outermost, of whose rows a tile has a piece."""
    asked_bytes: int = 0
    """Bytes that a CTA's copies to shared memory ask for in an iteration: its own part of what the
    CTAs of its cluster share."""
    memory_us: float = 0.0
    """Microseconds in which memory moves the compulsory traffic; 0: it is not known."""
    stationary_bytes: int = 0
    """Bytes of the stationary operand that a CTA loads before the loop."""
    l1_lines: float = 0.0
    """Lines of L1 that the copies of one iteration occupy on their way to shared memory."""
    implicit_gemm: bool = False
    """TMA gathers operand A of an implicit GEMM: each tile begins with pixels that no tile before
    it has read."""


@dataclass(frozen=True, slots=True)
class LoadTiming:
    """How the loop waits for its loads."""

    synchronised: bool = True
    """An iteration has a CTA barrier; without one, mbarriers say what has landed."""
    handshake: int = 0
    """Cycles that a load takes longer than its latency: the full/empty mbarrier pair of a producer
    warp."""
    blocking: bool = False
    """A copy is waited for where it is issued, whatever the depth."""
    register_staged: bool = False
    """Copies go through registers: one tile is in flight, whatever the depth."""
    spread: float = 0.0
    """Fraction of an iteration after which the last of its copies is issued."""
    late: float = 0.0
    """Fraction of an iteration after which consumers release the slots of the iteration before."""
    clustered: bool = False
    """CTAs of a cluster fill each other's slots."""
    produced: bool = False
    """A producer warp issues them, as soon as the consumers have released a slot."""


@dataclass(frozen=True, slots=True)
class FragmentTiming:
    """How operands get from shared memory to registers; all zero where wgmma reads them itself."""

    ahead: float = 0.0
    """Fraction of an iteration by which the next tile's first fragments are read early."""
    first: float = 0.0
    """Cycles of reading a tile's first fragments, exposed where they are not read early."""
    own: float = 0.0
    """Cycles of an iteration's mma.sync on the tensor cores that a CTA's warps have: each partition
    of an SM has its own, and with fewer warps than partitions others idle."""


@dataclass(frozen=True, slots=True)
class WgmmaTiming:
    """The tensor cores' part of an iteration where warpgroups multiply; all zero elsewhere."""

    cycles: float = 0.0
    """Cycles of an iteration that wgmma keeps the tensor cores busy."""
    serial: float = 0.0
    """Cycles of an iteration in which math warps issue copies, then multiply and wait; 0 where a
    producer warp copies and nothing is converted in registers."""
    overlapped: float = 0.0
    """The same where copies have two steps to land, and are issued while wgmma runs."""
    crosses_steps: bool = False
    """A wgmma may still be in flight when the next step starts."""
    chained: bool = False
    """Arithmetic of an iteration waits for its wgmma or mma.sync, or they for that."""
    consumer_groups: int = 1
    """Groups of consumer warpgroups with tiles of their own: 2 with ping-pong."""


@dataclass(frozen=True, slots=True)
class ResultStores:
    """How a CTA stores the results of a tile."""

    tile_bytes: int = 0
    """Bytes of a tile of results in global memory."""
    by_tma: bool = False
    """Results are staged in shared memory and written by TMA."""
    slot_waits: int = 0
    """Staged boxes of a tile that wait until TMA has read the box before from their slot."""
    uncoalesced_cycles: float = 0.0
    """Cycles that an SM takes longer for the uncoalesced stores of one tile."""
    pushed_bytes: int = 0
    """Bytes of a tile that a CTA stores to others of its cluster, which put its parts together."""
    arithmetic_cycles: float = 0.0
    """Cycles in which an SM computes the results of one tile from its sums."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one loop of a kernel does, as numbers."""

    usage: Usage
    """Cycles that one iteration of one CTA keeps each pipe of an SM busy."""
    grid: Grid
    threads: ThreadBudget
    shared: SharedMemory
    traffic: Traffic
    loads: LoadTiming = LoadTiming()
    fragments: FragmentTiming = FragmentTiming()
    wgmma: WgmmaTiming = WgmmaTiming()
    stores: ResultStores = ResultStores()
    lone: Usage | None = None
    """The same as ``usage`` where no other SM asks L2 for anything; None: no different."""

    def of_few(self, running: float) -> Work:
        """What it does in a wave in which the fraction ``running`` of the SMs has a CTA."""
        if self.lone is None:
            return self
        l2 = max(self.lone.l2, self.usage.l2 * running)
        return replace(self, usage=replace(self.usage, l2=l2))

    def smem(self, depth: Depth) -> int:
        """Bytes of shared memory of a CTA with rings of ``depth`` slots."""
        return self.shared.bytes_at(depth)

    def registers_at(self, depth: int) -> int:
        """Registers of a thread with rings of ``depth`` slots."""
        return self.threads.registers_at(depth)


def least(depth: Depth) -> int:
    """Slots of the shallowest ring."""
    return depth if isinstance(depth, int) else min(depth.values())


def most(depth: Depth) -> int:
    """Slots of the deepest ring."""
    return depth if isinstance(depth, int) else max(depth.values())
