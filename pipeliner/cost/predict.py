"""Time of a pipelined loop in closed form: the one model behind every choice and every number.

    L    = latency of global memory + arrival of the tiles of all resident CTAs + barrier
    R    = L + (1 + ahead + late) * CTAs * II            from a load's issue to its slot's release
    step = max(busy + bubble / CTAs,  L / ((depth - 1 - ahead - late) * CTAs))     reading ahead
    step = max(busy + (bubble + first) / CTAs,  L / ((depth - 1 - late) * CTAs))   not doing so
    step = max(busy + (bubble + first) / CTAs,  L / CTAs + II)                     depth 1
    step = max(step, (serial + bubble) / CTAs)                 wgmma by the warps that copy
    time = rounds * (trip * step + tiles * stray)
           + (1 + (waves - 1) / CTAs) * (held + entries * (first load + drain)
                                         + (tiles - entries) * between)
    time of memory = bytes read at least once / min(its rate, bytes in flight / loaded latency)

A step is one iteration of one CTA, on one SM. ``II`` is the busiest pipe's cycles for it; ``busy``
is a little more, for pipes that are nearly as busy get in each other's way, and so do warps.
``ahead`` is the part of an iteration by which fragments of the next tile are read early, so that
its load must have landed early; without it, ``first``, the reading of a tile's first fragments, is
exposed. ``late`` is the part of an iteration after which the last of its copies is issued, where
they are spread. ``held`` is the arrival of what is copied before the loop and stays; ``entries``: a
loop that fills and drains its rings for each tile of a persistent grid does so as often; one that
does not has the results of a tile ``between`` it and the next, and what the next has to wait for.
``bubble`` is what a barrier and its restart cost that no other CTA fills. CTAs of one SM fall out
of step: after the first wave one's filling and draining runs under the steps of the others.
``depth = ceil(R / (CTAs * II))`` is the least depth at which no step waits for its load: Little's
law for a ring's slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ..machine import Machine
from .occupancy import Occupancy, occupancy
from .usage import PIPE_WORDS, Usage

UNKNOWN_TRIP: Final = 64
"""Iterations assumed where the trip count is symbolic: enough for the steady state to count."""

LOADED_LATENCY_US: Final = 2.5
"""Of memory while all SMs read from it. Measured on an H100 with products of 16 rows by 32 MB of
matrix: 3.3 MB in flight brought 1.4 TB/s, 4.6 MB 1.65 TB/s."""

STORE_COST: Final = 2
"""Of results that go from registers to memory, between two tiles of a CTA, beside what go by way of
shared memory. Measured on an H100 at 4096 cubed: 190.4 and 188.4 us, four tiles a CTA."""

HALVES: Final = 2
"""Writes of a sector where lanes' elements lie apart: eight of them, 16 bytes, go at once. Measured
on an H100, convolutions of 3 x 3: at 32 x 14 x 14 x 256 96 x 128 swapped takes 19.5 us, 192 x 64,
which reads more, 17.2; at 32 x 7 x 7 x 512 112 x 64 swapped takes 27.6, 64 x 112 23.7."""

BOX_WAIT: Final = 300
"""Cycles until a slot can be filled whose box is being written: it is read, between two barriers.
Measured on an H100, at 32 x 7 x 7 x 512: 64 x 112, stored in 7 boxes through one slot, took 23.7
us, 64 x 128, in 2 boxes through two, 19.8; any of 200 to 500 tells them apart."""

COLD_TILE: Final = 2800
"""Cycles that the next tile's first pixels come late, from memory and for all CTAs at once, behind
the last tile's, which were in L2 by then. Measured on an H100, 224 x 224 x 64: 48 tiles of 256 x 64
an SM took 2900 cycles each beyond their steps, 64 of 192 x 64 2200."""

RESTART: Final = 50
"""Cycles behind a barrier in which warps issue copies and addresses and do no arithmetic, and as
many in which other CTAs do. With tiles of 128 x 128 a step of a convolution on an H100 took 250
cycles more than its tensor cores, of K = 32 as of K = 64; of 0 to 400 of either kind, 50 chose best
among 111 tiles of 11 layers and gives 4096 cubed as measured (280 us)."""

CONTENTION: Final = 8
"""Exponent of the norm that combines pipes: 8 gives what two tiles of an mma.sync GEMM took on an
H100, 128x256x64 (474 thousand cycles at 4096 cubed) and 128x128x64 (495 thousand)."""


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


@dataclass(frozen=True, slots=True)
class Work:
    """What one kernel does, as numbers. All but ``ctas`` are of one CTA.

    ``usage``: pipes of one iteration. ``rate``: bytes a cycle from outside the SM. ``trip`` and
    ``ctas``: None where symbolic. ``slot_bytes``: shared memory of one slot of every ring;
    ``fixed_smem``: the rest. ``slot_registers``: registers of a thread for one slot of what waits
    in registers. ``store_bytes``: written after the loop, ``held_bytes``: read before it.
    ``tiles``: that the CTA computes one after the other, all of their iterations being in ``trip``;
    ``entries``: how often the loop starts anew. ``synchronised``: an iteration has a barrier.
    ``ahead``, ``first``, ``late``: see the module. ``read_bytes``: of what all CTAs together read,
    once; 0: not known. ``staged``: results are written by another engine; ``waits``: boxes of a
    tile for which one before must have left. ``stray``: cycles that an SM takes to store a tile
    whose neighbours lie apart. ``gathers``: each tile reads pixels that none before it has read.
    ``serial``: cycles of an iteration under which nothing else of the CTA runs, where warps copy
    and then wait for the tensor cores.
    ``rings``: of what copies fill, apart; ``lead``: slots more than the shallowest of them has that
    let a copy stay longer in flight, None for any number.
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
    rings: tuple[RingWork, ...] = ()
    lead: int | None = 0

    def smem(self, depth: Depth) -> int:
        """Shared memory of a CTA with rings of ``depth`` slots, in bytes."""
        least = _least(depth)
        if isinstance(depth, int):
            return self.fixed_smem + least * self.slot_bytes
        more = sum((depth[ring.buffer] - least) * ring.slot_bytes for ring in self.rings)
        return self.fixed_smem + least * self.slot_bytes + more

    def registers_at(self, depth: int) -> int:
        """Registers of a thread with ``depth`` slots of what waits in registers."""
        return self.registers + depth * self.slot_registers


@dataclass(frozen=True, slots=True)
class Prediction:
    """What ``predict`` computed, in cycles unless named otherwise. See the module's formulas."""

    depth: int
    resident: int
    occupancy: Occupancy
    limiter: str
    ii: float
    latency: float
    response: float
    step: float
    us: float
    roofline: float
    work: Work = field(repr=False)

    @property
    def law(self) -> int:
        """The depth that hides R: ``ceil(R / (CTAs * II))``."""
        return math.ceil(self.response / (self.resident * self.ii)) if self.ii else 1


def predict(work: Work, machine: Machine, depth: Depth) -> Prediction | None:
    """Time of ``work`` with rings of ``depth`` slots; None when one CTA does not fit an SM.

    Where rings differ, the one that hides the least of what it waits for sets the step.
    """
    smem = work.smem(depth)
    registers = work.registers_at(_most(depth))
    if smem > machine.smem_per_cta or registers > machine.max_registers_per_thread:
        return None
    fit = occupancy(machine, work.threads, registers, smem)
    if fit.ctas == 0:
        return None
    rounds = fit.ctas if work.ctas is None else math.ceil(work.ctas / machine.sms)
    resident = min(fit.ctas, rounds)
    waves = math.ceil(rounds / resident)
    trip = UNKNOWN_TRIP if work.trip is None else work.trip

    limiter, ii = work.usage.busiest()
    barrier = machine.barrier_cycles if work.synchronised else 0
    first_load = machine.global_latency + resident * work.usage.global_bytes / work.rate
    latency = first_load + barrier
    bubble = barrier + machine.shared_latency + RESTART if work.synchronised else 0
    busy = work.usage.norm(CONTENTION) + (RESTART if work.synchronised else 0)
    plain = busy + (bubble + work.first) / resident
    step = plain if _least(depth) == 1 else 0.0
    for slots, far in _waits(work, machine, depth):
        arrives = far + latency - machine.global_latency
        early = slots - 1 - work.late  # iterations by which the last copy of a tile is ahead
        if slots == 1:
            step = max(step, arrives / resident + ii)
            continue
        hidden = min(
            max(busy + bubble / resident, arrives / ((early - work.ahead) * resident)),
            max(plain, arrives / (early * resident)),
        )
        step = max(step, hidden)
    step = max(step, (work.serial + bubble) / resident if work.serial else 0.0)
    waits = work.waits * BOX_WAIT
    stored = resident * work.store_bytes / machine.dram_bytes_per_cycle
    stored *= HALVES if work.stray else 1
    drain = waits + machine.global_latency + stored
    held = resident * work.held_bytes / work.rate
    between = work.store_bytes / machine.smem_bytes_per_cycle * (1 if work.staged else STORE_COST)
    between += waits + (COLD_TILE if work.gathers else 0)
    once = held + work.entries * (first_load + drain) + (work.tiles - work.entries) * between
    cycles = rounds * (trip * step + work.tiles * work.stray) + (1 + (waves - 1) / resident) * once
    us = machine.cycles_to_us(cycles)
    running = machine.sms * resident
    running = running if work.ctas is None else min(running, work.ctas)
    memory = _memory_us(work, machine, running, depth)
    ideal = rounds * trip * work.usage.compute
    if work.ctas is not None:
        ideal = work.ctas / machine.sms * trip * work.usage.compute
    return Prediction(
        depth=_most(depth),
        resident=resident,
        occupancy=fit,
        limiter=PIPE_WORDS[limiter],
        ii=ii,
        latency=latency,
        response=latency + (1 + work.ahead + work.late) * resident * ii,
        step=step,
        us=(us**CONTENTION + memory**CONTENTION) ** (1 / CONTENTION),
        roofline=ideal / cycles,
        work=work,
    )


def _least(depth: Depth) -> int:
    return depth if isinstance(depth, int) else min(depth.values())


def _most(depth: Depth) -> int:
    return depth if isinstance(depth, int) else max(depth.values())


def _waits(work: Work, machine: Machine, depth: Depth) -> list[tuple[int, int]]:
    """Slots that let copies stay in flight, and the latency of these, of every ring."""
    if isinstance(depth, int):
        return [(depth, machine.global_latency)]
    return [(_useful(work, ring, depth), ring.latency) for ring in work.rings]


def _useful(work: Work, ring: RingWork, depth: Mapping[str, int]) -> int:
    most = _most(depth) if work.lead is None else _least(depth) + work.lead
    return min(depth[ring.buffer], most)


def _memory_us(work: Work, machine: Machine, running: int, depth: Depth) -> float:
    """How long memory takes to deliver what is read, by ``running`` CTAs with ``depth`` slots.

    A slot is being filled for half of a step, the others all the time. Half of the SMs load memory;
    fewer find it that much faster.
    """
    if isinstance(depth, int):
        loading = (depth - 0.5) * work.usage.global_bytes
    else:
        loading = sum((_useful(work, ring, depth) - 0.5) * ring.slot_bytes for ring in work.rings)
    in_flight = running * loading
    if not work.read_bytes or not in_flight:
        return 0.0
    latency = LOADED_LATENCY_US * min(1.0, 2 * running / machine.sms)
    rate = min(machine.dram_bytes_per_second / 1e6, in_flight / latency)
    return work.read_bytes / rate
