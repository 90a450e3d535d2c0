"""What SMs take of a pipelined loop: its steps, by turns, and what stands around them.

The formulas are in ``predict``.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ..machine import Machine
from .descriptor import Depth, Work, least, useful

PASSES: Final = 2
"""What goes by way of shared memory is written there and read."""

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

COLD_TILE: Final = 500
"""Cycles that the next tile's first pixels come late, from memory and for all CTAs at once, behind
the last tile's, which were in L2 by then. Measured on an H100, 224 x 224 x 64: 48 tiles of 256 x 64
an SM took 2900 cycles each beyond their steps, 64 of 192 x 64 2200, ``PIXEL_CYCLES`` among them;
500 to 1000 choose among the candidates of that layer in its log as measured, 2000 does not; of
rn50_1x1_s2 tiles of 128 x 256 take 19.2 us and of 192 x 256, one less for an SM, 20.8."""

TURNS: Final = 3.0
"""Exponent of the norm of what pipes and what loads take of a step where CTAs take turns. Infinite,
if each stalled just when another has work; 3 chooses the depths of nine workloads of the log of an
H100 best, of 2 to 6."""

PACKED: Final = 0.5
"""Of the CTAs of a last wave that is smaller than the GPU, those that find no SM to themselves:
where warps copy for wgmma, CTAs of an SM end together, and the next ones go where several have.
Measured on an H100, 320 CTAs of 128 x 128 x 64 (3 x 3 filters, 32 x 32 x 640): 145 us two by two,
129 one by one, where 56 left alone would take 81; nine kernels of three layers are within 16 %."""

BESIDE_SLOTS: Final = 3
"""From which on copies have two steps to land, and are issued while wgmma runs."""


class Shares(NamedTuple):
    """Of one SM: CTAs at once and in all, steps of each, and cycles of a step on its pipes.

    ``late``: what loads take until they have landed, over T.
    """

    resident: int
    rounds: int
    trip: int
    busy: float
    bubble: float
    lined: float
    hidden: float
    late: float


def on_sms(
    work: Work, machine: Machine, depth: Depth, shares: Shares, latency: float
) -> tuple[float, float]:
    """Cycles that SMs take where loads take ``latency``, and those of a step of one CTA."""
    resident, rounds, trip, busy, bubble, *_ = shares
    entries, waves = work.entries, math.ceil(rounds / resident)
    alone = _alone(work, machine, depth, shares, latency)
    last = busy + bubble + work.first  # of each entry: it waits for no load
    step = _in_turns(busy, alone, resident)
    full, rest = divmod(rounds, resident)
    steps = trip - entries
    cycles = full * resident * (steps * step + entries * _in_turns(busy, last, resident))
    if rest:  # the last wave leaves an SM fewer CTAs to take turns
        crowd = _crowd(work, machine, full * resident, resident, rest)
        fewer = steps * _in_turns(busy, alone, crowd) + entries * _in_turns(busy, last, crowd)
        cycles += crowd * fewer
    cycles += rounds * work.tiles * work.stray
    cycles += (1 + (waves - 1) / resident) * _once(work, machine, resident, latency, step * trip)
    return cycles, step


def _crowd(work: Work, machine: Machine, done: int, resident: int, rest: int) -> float:
    """CTAs of the last wave on the SM that has most, where ``rest`` would be an even share.

    ``done``: CTAs of an SM in the waves before. See ``PACKED``.
    """
    left = 0 if work.ctas is None else work.ctas - done * machine.sms
    copying = work.serial and work.synchronised  # not by a role of its own
    if not copying or not done or not 0 < left < machine.sms:
        return rest
    return rest + PACKED * (min(resident, left) - rest)


def _once(work: Work, machine: Machine, resident: int, latency: float, steps: float) -> float:
    """Cycles of a CTA beside its ``steps``: it fills and drains its rings, and stores tiles."""
    waits = work.waits * BOX_WAIT
    stored = resident * work.store_bytes / machine.dram_bytes_per_cycle
    drain = waits + machine.global_latency + stored * (HALVES if work.stray else 1)
    once = work.entries * (latency + resident * work.usage.l2 + drain)
    if work.held_bytes:
        once += resident * work.held_bytes / work.rate
    if work.tiles > work.entries:
        bytes_ = PASSES * work.store_bytes * (1 if work.staged else STORE_COST)
        between = bytes_ / machine.smem_bytes_per_cycle + waits
        if work.teams > 1:
            # It runs under the steps of the other teams; all wait for a load.
            between = max(0.0, between - (work.teams - 1) * steps / work.tiles)
        between += COLD_TILE if work.gathers else 0
        once += (work.tiles - work.entries) * between
    return once


def _alone(work: Work, machine: Machine, depth: Depth, shares: Shares, latency: float) -> float:
    """Cycles of an iteration of a CTA that has the SM for itself."""
    if isinstance(depth, int):
        alone = _waiting(work, machine, depth, shares, latency)
    else:
        alone = max(
            _waiting(work, machine, useful(work, ring, depth), shares, wait)
            for ring in work.rings
            for wait in [ring.wait(latency, work.passing, machine)]
        )
    if not work.serial:
        return alone
    wgmma = work.serial if least(depth) < BESIDE_SLOTS else work.beside
    return max(alone, wgmma + shares.lined + shares.bubble - shares.hidden)


def _waiting(work: Work, machine: Machine, slots: int, shares: Shares, latency: float) -> float:
    """The same, where it waits for one ring of so many slots."""
    busy, bubble = shares.busy, shares.bubble
    load = (latency + work.usage.l2) * shares.late
    late = load + bubble
    if slots == 1 or work.stalls:
        unseen = late - work.foreseen * load
        return unseen + busy + work.first + (machine.barrier_cycles if work.synchronised else 0)
    late += work.late * busy
    behind = 1 if work.by_registers else slots - 1
    early, shared = (late + work.ahead * busy) / behind, busy + bubble - shares.hidden
    lately, exposed = late / behind, shared + work.first
    ahead = early if early > shared else shared
    not_ahead = lately if lately > exposed else exposed
    return ahead if ahead < not_ahead else not_ahead


def _in_turns(busy: float, alone: float, together: float) -> float:
    """A step of one of ``together`` CTAs, which is ``busy`` and would take ``alone`` by itself."""
    if together <= 1:
        return alone
    return float((busy**TURNS + (alone / together) ** TURNS) ** (1 / TURNS))
