"""Time of a pipelined loop in closed form: the one model behind every choice and every number.

    T     = latency of a tile's load + its arrival, from issue to the last byte
    alone = T + busy + first + bubble                                              depth 1
    alone = max(busy + bubble,  (T + (late + ahead) * busy + bubble) / (depth - 1))  reading ahead
    alone = max(busy + bubble + first,  (T + late * busy + bubble) / (depth - 1))    not doing so
    alone = max(alone, serial + bubble)                        wgmma by the warps that copy
    step  = norm(busy, alone / CTAs)                           several CTAs that take turns
    time  = rounds * ((trip - 1) * step + a step that waits for nothing + tiles * stray)
            + (1 + (waves - 1) / CTAs) * (held + entries * (first load + drain)
                                          + (tiles - entries) * between)
    time of memory = bytes / min(its rate, bytes in flight / loaded latency)

A step is one iteration of one CTA; ``alone``, of a CTA that has the SM for itself. Its copy is
issued when the slot is free and waited for ``depth - 1`` iterations later; it stalls once in each,
so that what it does of an iteration behind the wait or before the issue adds to T. With one slot,
everything takes turns. Several CTAs fill each other's stalls as far as pipes allow: a step is
neither shorter than the pipes' cycles nor than what one CTA's own ring needs for it, shared by all
of them. So warps that the hardware switches to and slots of a ring hide the same T together, and
neither counts in full beside the other.

``II`` is the busiest pipe's cycles for an iteration; ``busy`` is a little more, for pipes that are
nearly as busy get in each other's way, and so do warps. ``ahead`` is the part of an iteration by
which fragments of the next tile are read early, so that its load must have landed early; without
it, ``first``, the reading of a tile's first fragments, is exposed. ``late`` is the part of an
iteration after which the last of its copies is issued, where they are spread. ``bubble`` is what a
barrier and its restart cost that no other CTA fills; with one slot there are two barriers.
``held`` is the arrival of what is copied before the loop and stays; ``entries``: a loop that fills
and drains its rings for each tile of a persistent grid does so as often; one that does not has the
results of a tile ``between`` it and the next, and what the next has to wait for; where teams take
tiles by turns, that runs under the steps of the others. CTAs of one SM
fall out of step: after the first wave one's filling and draining runs under the steps of the
others.

``R = T + (1 + ahead + late) * CTAs * II`` is how long a slot is in use, and
``depth = ceil(R / (CTAs * II))`` the least depth at which no step waits for its load: Little's law
for a ring's slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ..machine import Machine
from .occupancy import Occupancy, occupancy
from .usage import PIPE_WORDS, Usage

UNKNOWN_TRIP: Final = 64
"""Iterations assumed where the trip count is symbolic: enough for the steady state to count."""

LOADED_LATENCY_US: Final = 2.5
"""Of memory while all SMs read from it. Measured on an H100 with products of 16 rows by 32 MB of
matrix: 3.3 MB in flight brought 1.4 TB/s, 4.6 MB 1.65 TB/s."""

LOADED: Final = 0.4
"""Of what must be in flight for memory to deliver at its rate, from which on it takes that long: at
the first of these points; with next to nothing in flight it takes what one load takes."""

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

RESTART: Final = 100
"""Cycles behind a barrier in which warps issue copies and addresses and do no arithmetic, and as
many in which other CTAs do. Fitted to nine workloads of the log of an H100, with what an SM gets
from L2; 75 to 130 choose as well among 111 tiles of 11 layers measured apart."""

TURNS: Final = 3.0
"""Exponent of the norm of what pipes and what loads take of a step where CTAs take turns. Infinite,
if each stalled just when another has work; 3 chooses the depths of nine workloads of the log of an
H100 best, of 2 to 6."""

FIRST_TOUCH: Final = 0.4
"""Of the steps of all waves but the first, those that wait for memory: the first wave reads what
nobody has read, later ones find most of it in L2. Measured on an H100 as ``TURNS``: loads take 450
cycles, and 670 in a kernel of one wave."""

LONG_US: Final = 300
"""From which on a kernel of tensor cores runs at the clock that its power leaves."""

SPARED: Final = 0.93
"""What teams that take turns then need of the time predicted by cycles. Measured on an H100, of the
time of the best tile that warpgroups share: 0.965 to 0.985 where cycles alone say 1.03, at 8192
cubed; 0.966 and 1.04 (4096 x 14336 x 4096), 0.96 and 1.02 (8192 x 8192 x 2048), 1.03 and 1.10
(4096 x 4096 x 14336); but 0.947 and 0.952 at 8192 x 8192 x 1024, which takes 183 us, and 1.05 to
1.08 and 1.09 at 4096 cubed."""

CONTENTION: Final = 8.0
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
    ``ahead``, ``first``, ``late``: see the module. ``read_bytes``: of what all CTAs together read,
    once, ``written_bytes``: of what they write; 0: not known. ``staged``: results are written by
    another engine; ``waits``: boxes of a tile for which one before must have left. ``stray``:
    cycles that an SM takes to store a tile whose neighbours lie apart. ``gathers``: each tile reads
    pixels that none before it has read.
    ``serial``: cycles of an iteration under which nothing else of the CTA runs, where warps copy
    and then wait for the tensor cores. ``rings``: of what copies fill, apart; ``lead``: slots more
    than the shallowest of them has that let a copy stay longer in flight, None for any number.
    ``passing``: cycles that a slot's way to another role and back adds to a load.
    ``spared_registers``: fewer registers of a thread with one slot, where nothing is read ahead and
    nothing waits in registers. ``streams``: what is read comes from memory in every step.
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
    rings: tuple[RingWork, ...] = ()
    lead: int | None = 0
    passing: int = 0
    spared_registers: int = 0
    streams: bool = False
    stalls: bool = False
    teams: int = 1
    foreseen: float = 0.0
    written_bytes: int = 0

    def smem(self, depth: Depth) -> int:
        """Shared memory of a CTA with rings of ``depth`` slots, in bytes."""
        least = _least(depth)
        if isinstance(depth, int):
            return self.fixed_smem + least * self.slot_bytes
        more = sum((depth[ring.buffer] - least) * ring.slot_bytes for ring in self.rings)
        return self.fixed_smem + least * self.slot_bytes + more

    def registers_at(self, depth: int) -> int:
        """Registers of a thread with ``depth`` slots of what waits in registers."""
        spared = self.spared_registers if depth == 1 else 0
        return self.registers - spared + depth * self.slot_registers


class Prediction(NamedTuple):
    """What ``predict`` computed, in cycles unless named otherwise. See the module's formulas.

    ``load``: T, of which ``latency`` passes before the first bytes arrive. ``iterations``: of one
    SM, on average.
    """

    depth: int
    resident: int
    occupancy: Occupancy
    latency: float
    load: float
    step: float
    us: float
    cycles: float
    iterations: float
    work: Work

    @property
    def ii(self) -> float:
        """Cycles of the busiest pipe for an iteration."""
        return self.work.usage.busiest()[1]

    @property
    def limiter(self) -> str:
        """The busiest pipe, in words."""
        return PIPE_WORDS[self.work.usage.busiest()[0]]

    @property
    def response(self) -> float:
        """R, how long a slot is in use."""
        return self.load + (self.resident + self.work.ahead + self.work.late) * self.ii

    @property
    def law(self) -> int:
        """The depth that hides R: ``ceil(R / (CTAs * II))``."""
        return math.ceil(self.response / (self.resident * self.ii)) if self.ii else 1

    @property
    def roofline(self) -> float:
        """Share of the time that arithmetic alone would take."""
        return self.iterations * self.work.usage.compute / self.cycles


def predict(work: Work, machine: Machine, depth: Depth) -> Prediction | None:
    """Time of ``work`` with rings of ``depth`` slots; None when one CTA does not fit an SM.

    Where rings differ, the one that hides the least of what it waits for sets the step.
    """
    most = _most(depth)
    smem, registers = work.smem(depth), work.registers_at(most)
    if smem > machine.smem_per_cta or registers > machine.max_registers_per_thread:
        return None
    fit = occupancy(machine, work.threads, registers, smem)
    if fit.ctas == 0:
        return None
    rounds = fit.ctas if work.ctas is None else math.ceil(work.ctas / machine.sms)
    resident = min(fit.ctas, rounds)
    waves = math.ceil(rounds / resident)
    trip = UNKNOWN_TRIP if work.trip is None else work.trip

    usage, entries = work.usage, work.entries
    busy = usage.norm(CONTENTION)
    bubble = 0
    if work.synchronised:
        busy += RESTART
        bubble = machine.barrier_cycles + machine.shared_latency + RESTART
    latency = _latency(work, machine, waves)
    alone = _alone(work, machine, depth, busy, bubble, latency)
    last = busy + bubble + work.first  # of each entry: it waits for no load
    step = _in_turns(busy, alone, resident)
    full, rest = divmod(rounds, resident)
    steps = trip - entries
    cycles = full * resident * (steps * step + entries * _in_turns(busy, last, resident))
    if rest:  # the last wave leaves an SM fewer CTAs to take turns
        fewer = steps * _in_turns(busy, alone, rest) + entries * _in_turns(busy, last, rest)
        cycles += rest * fewer
    cycles += rounds * work.tiles * work.stray
    cycles += (1 + (waves - 1) / resident) * _once(work, machine, resident, latency, step * trip)
    us = machine.cycles_to_us(cycles)
    us *= SPARED if work.teams > 1 and us > LONG_US else 1.0
    running = machine.sms * resident
    if work.ctas is not None and work.ctas < running:
        running = work.ctas
    memory = _memory_us(work, machine, running, depth)
    return Prediction(
        most,
        resident,
        fit,
        latency,
        latency + usage.l2,
        step,
        (us**CONTENTION + memory**CONTENTION) ** (1.0 / CONTENTION) if memory else us,
        cycles,
        (rounds if work.ctas is None else work.ctas / machine.sms) * trip,
        work,
    )


def _once(work: Work, machine: Machine, resident: int, latency: float, steps: float) -> float:
    """Cycles of a CTA beside its ``steps``: it fills and drains its rings, and stores tiles."""
    waits = work.waits * BOX_WAIT
    stored = resident * work.store_bytes / machine.dram_bytes_per_cycle
    drain = waits + machine.global_latency + stored * (HALVES if work.stray else 1)
    once = work.entries * (latency + resident * work.usage.l2 + drain)
    if work.held_bytes:
        once += resident * work.held_bytes / work.rate
    if work.tiles > work.entries:
        bytes_ = work.store_bytes * (1 if work.staged else STORE_COST)
        between = bytes_ / machine.smem_bytes_per_cycle + waits
        if work.teams > 1:
            # It runs under the steps of the other teams; all wait for a load.
            between = max(0.0, between - (work.teams - 1) * steps / work.tiles)
        between += COLD_TILE if work.gathers else 0
        once += (work.tiles - work.entries) * between
    return once


def _latency(work: Work, machine: Machine, waves: int) -> float:
    """Cycles until the first bytes of a load arrive, as a mean over all steps of all waves."""
    cold = 1.0 if work.streams else FIRST_TOUCH + (1 - FIRST_TOUCH) / waves
    near, far = machine.l2_latency, machine.global_latency
    return (near + cold * (far - near) if near < far else far) + work.passing


def _alone(
    work: Work, machine: Machine, depth: Depth, busy: float, bubble: float, latency: float
) -> float:
    """Cycles of an iteration of a CTA that has the SM for itself."""
    if isinstance(depth, int):
        alone = _waiting(work, machine, depth, busy, bubble, latency)
    else:
        alone = max(
            _waiting(work, machine, _useful(work, ring, depth), busy, bubble, wait)
            for ring in work.rings
            for wait in [ring.wait(latency, work.passing, machine)]
        )
    return max(alone, work.serial + bubble) if work.serial else alone


def _waiting(
    work: Work, machine: Machine, slots: int, busy: float, bubble: float, latency: float
) -> float:
    """The same, where it waits for one ring of so many slots."""
    late = latency + work.usage.l2 + bubble
    if slots == 1 or work.stalls:
        unseen = late - work.foreseen * (latency + work.usage.l2)
        return unseen + busy + work.first + (machine.barrier_cycles if work.synchronised else 0)
    late += work.late * busy
    return min(
        max(busy + bubble, (late + work.ahead * busy) / (slots - 1)),
        max(busy + bubble + work.first, late / (slots - 1)),
    )


def _least(depth: Depth) -> int:
    return depth if isinstance(depth, int) else min(depth.values())


def _most(depth: Depth) -> int:
    return depth if isinstance(depth, int) else max(depth.values())


def _useful(work: Work, ring: RingWork, depth: Mapping[str, int]) -> int:
    """Slots of ``ring`` that let its copies stay in flight."""
    most = _most(depth) if work.lead is None else _least(depth) + work.lead
    return min(depth[ring.buffer], most)


def _in_turns(busy: float, alone: float, together: int) -> float:
    """A step of one of ``together`` CTAs, which is ``busy`` and would take ``alone`` by itself."""
    if together == 1:
        return alone
    return float((busy**TURNS + (alone / together) ** TURNS) ** (1 / TURNS))


def _memory_us(work: Work, machine: Machine, running: int, depth: Depth) -> float:
    """How long memory takes to deliver what is read, by ``running`` CTAs with ``depth`` slots.

    A slot is being filled for half of a step, the others all the time, and so is a lone slot where
    memory is what bounds a step. The more is in flight, the longer it takes. What is written passes
    beside that, at memory's own rate.
    """
    if not work.read_bytes or not work.usage.global_bytes:
        return 0.0
    if isinstance(depth, int):
        loading = (depth - 0.5 if depth > 1 else 1) * work.usage.global_bytes
    else:
        loading = sum((_useful(work, ring, depth) - 0.5) * ring.slot_bytes for ring in work.rings)
    in_flight = running * loading
    rate = machine.dram_bytes_per_second / 1e6
    latency, loaded = LOADED_LATENCY_US, in_flight / (LOADED * LOADED_LATENCY_US * rate)
    if loaded < 1.0:
        alone = machine.cycles_to_us(machine.global_latency)
        latency = alone + (LOADED_LATENCY_US - alone) * loaded
    return work.read_bytes / min(rate, in_flight / latency) + work.written_bytes / rate
