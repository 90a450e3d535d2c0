"""Cycles that the SMs take for a pipelined loop: its steps, and what stands around them.

    T     = latency + l2 (+ CLUSTER_RELEASE_CYCLES * log2(CTAs) in clusters)
    alone = T + bubble + busy + first + barrier_cycles                             depth 1
    alone = min(max(shared, (T + bubble + (spread + ahead) * busy) / (depth - 1)),
                max(shared + first, (T + bubble + spread * busy) / (depth - 1)))   depth > 1
    alone = max(alone, serial or overlapped + L1 wait + bubble - hidden)           math warps copy
    step  = (busy ^ OVERLAP_NORM + (alone / CTAs) ^ OVERLAP_NORM) ^ (1 / OVERLAP_NORM)

with ``shared = busy + bubble - hidden`` (and MBARRIER_CYCLES where warps read fragments that TMA
has brought), and ``spread`` of TMA's copies how late consumers release slots; ``step = alone`` with
one CTA an SM. ``alone`` is a step of a CTA that has the SM for itself: it stalls once in each step,
so that whatever it does behind the wait or before the issue of its copy adds to T. Fragments of the
next tile are read early where that is faster. Several CTAs fill each other's stalls as far as pipes
allow.

    cycles = (waves - 1) * CTAs * ((trip - fills) * step + fills * last)
           + rest * ((trip - fills) * step' + fills * last')           the last wave
           + rounds * tiles * uncoalesced           of the last tile alone with ping-pong
           + (1 + (waves - 1) * stalled) * once

``last`` is a step that waits for no load, ``step'`` one with ``rest`` CTAs where the fraction of
the SMs runs that has one: few ask little of L2, so that each waits for its own bytes alone.
``rounds`` CTAs of an SM in all are ``waves`` of ``CTAs`` at once. Of a chain of matmuls, each of
which waits for what is computed of the one before, the last step has no other to run beside:

    last  = max(busy, tensor + sfu + fma + issue + CHAIN_CYCLES) + bubble + first

``trip`` is the mean over the CTAs, and at least ``most / rounds``: no SM is done before the CTA
that has most. ``once`` is what a CTA takes beside its steps:

    once = fills * (latency + CTAs * (l2 + arithmetic) + drain) + CTAs * stationary_bytes / rate
         + (tiles - fills) * between
    drain   = slot_waits * STORE_SLOT_CYCLES + global_latency
            + CTAs * tile_bytes / dram_bytes_per_cycle
    between = STAGED_STORE_PASSES * tile_bytes * (1 by TMA, else DIRECT_STORE_COST)
              / smem_bytes_per_cycle + slot_waits * STORE_SLOT_CYCLES + arithmetic
              + uncoalesced - (groups - 1) * steps of a tile (ping-pong, at least 0)
              + COLD_TILE_CYCLES (im2col)

CTAs of an SM fall out of step: after the first wave one's prologue and epilogue run under the steps
of the others, which lose what one CTA fewer does less, each once a wave:

    stalled = CTAs * (1 - step / step with one CTA fewer)    1 with one CTA; 0 where pipes are full
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ..machine import Machine
from ..machine.constant import constant, derived, fitted, measured
from .busy import OVERLAP_NORM, alone_chain, busy_and_bubble
from .descriptor import Depth, RingWork, Work, least
from .memory import pushed_cycles

STAGED_STORE_PASSES: Final = constant(
    "STAGED_STORE_PASSES",
    2,
    "1",
    "times that results staged in shared memory cross it: they are written and read",
    formula="between = STAGED_STORE_PASSES * tile_bytes / smem_bytes_per_cycle",
    source=derived("stmatrix writes them, TMA reads them"),
    date="2026-11-21",
)

DIRECT_STORE_COST: Final = constant(
    "DIRECT_STORE_COST",
    2,
    "1",
    "cost of stores from registers between two tiles of a CTA, over that of staged ones",
    formula="between = STAGED_STORE_PASSES * tile_bytes * DIRECT_STORE_COST / ...",
    source=measured("H100, 4096 cubed, four tiles a CTA: 190.4 and 188.4 us"),
    date="2026-11-21",
)

CLUSTER_RELEASE_CYCLES: Final = constant(
    "CLUSTER_RELEASE_CYCLES",
    250,
    "cycles",
    "what a slot is in use for longer, each time that the CTAs are doubled of which the last "
    "releases it to all, across the network between SMs",
    formula="T = latency + l2 + CLUSTER_RELEASE_CYCLES * log2(CTAs of a cluster)",
    source=fitted(
        "H200, 3,709 kernels of 241 drawn products",
        "63 pairs in clusters of four and eight that differ in this alone take 5.4 % more with 4 "
        "slots of 128 along K than with 8 of 64, 1.7 % without it; first choice 1.0391, 1.0418 "
        "without",
    ),
    date="2026-11-28",
)

STORE_SLOT_CYCLES: Final = constant(
    "STORE_SLOT_CYCLES",
    300,
    "cycles",
    "time until a staging slot can be filled again: TMA reads it, between two barriers",
    formula="drain, between = ... + slot_waits * STORE_SLOT_CYCLES",
    source=measured(
        "H100, 32x7x7x512: 64x112 in 7 boxes through one slot 23.7 us, 64x128 in 2 boxes through "
        "two 19.8",
        "200 to 500 tell them apart",
    ),
    date="2026-11-21",
)

COLD_TILE_CYCLES: Final = constant(
    "COLD_TILE_CYCLES",
    500,
    "cycles",
    "time that the first pixels of a CTA's next tile come late: from memory and for all CTAs at "
    "once, where the tile before read from L2",
    formula="between = ... + COLD_TILE_CYCLES, implicit GEMM by TMA",
    source=measured(
        "H100, 224x224x64: 48 tiles of 256x64 an SM took 2900 cycles each beyond their steps, 64 "
        "of 192x64 2200, IM2COL_LINE_CYCLES among them; rn50_1x1_s2: 19.2 us by 128x256, 20.8 by "
        "192x256, one tile fewer an SM",
        "500 to 1000 choose among the candidates as measured, 2000 does not",
    ),
    date="2026-11-22",
)

OVERLAP_DEPTH: Final = constant(
    "OVERLAP_DEPTH",
    3,
    "slots",
    "depth from which on copies have two steps to land, and are issued while wgmma runs",
    formula="alone >= serial + bubble where depth < OVERLAP_DEPTH, else overlapped + bubble",
    source=derived("one slot is read, one has landed by the next step, one is being filled"),
    date="2026-11-22",
)


MBARRIER_CYCLES: Final = constant(
    "MBARRIER_CYCLES",
    120,
    "cycles",
    "what it takes a warp to find that a tile has landed, before it reads fragments of it",
    formula="shared = busy + bubble - hidden + MBARRIER_CYCLES, mma.sync behind a producer warp",
    source=fitted(
        "H200, 3,372 kernels of 101 drawn workloads",
        "first choice 1.038 with 120, 1.037 with 160 and 220, 1.039 with 75; 96 of them below 20 "
        "us, by mma.sync behind a producer warp, are 4 % too fast, 6 with 75, 3 with 160",
    ),
    date="2026-12-01",
)


class Shares(NamedTuple):
    """One SM's CTAs, their steps, and the cycles of a step that no depth changes."""

    resident: int
    """CTAs at once."""
    rounds: int
    """CTAs one after the other, all waves together."""
    trip: float
    """Iterations of a CTA, as a mean."""
    busy: float
    """Cycles of a step that keep the pipes busy."""
    bubble: float
    """Cycles of a barrier and its restart that no pipe works in."""
    hidden: float
    """Cycles of ``bubble`` that a wgmma in flight covers."""
    last: float = 1.0
    """Fraction of the SMs that have a CTA of the last wave."""


def on_sms(
    work: Work, machine: Machine, depth: Depth, shares: Shares, latency: float
) -> tuple[float, float, float]:
    """Cycles of the SMs for the kernel, of an SM for one step of one CTA, and beside all steps.

    ``latency``: cycles until the first bytes of a load arrive.
    """
    resident, rounds, trip, busy, *_ = shares
    waves = math.ceil(rounds / resident)
    alone = _alone(work, machine, depth, shares, latency)
    step = _interleaved(busy, alone, resident)
    cycles = (waves - 1) * _wave(work, shares, alone, resident)
    in_last = rounds - (waves - 1) * resident
    if shares.last < 1.0:
        few = work.of_few(shares.last)
        shares = shares._replace(busy=busy_and_bubble(few, machine, in_last)[0])
        alone = _alone(few, machine, depth, shares, latency)
    cycles += _wave(work, shares, alone, in_last)
    in_turn = work.grid.fills if work.wgmma.consumer_groups > 1 else work.grid.tiles
    beside = rounds * in_turn * work.stores.uncoalesced_cycles
    stalled = resident * (1 - step / _norm(busy, alone, resident - 1)) if resident > 1 else 1
    beside += (1 + (waves - 1) * stalled) * _once(work, machine, resident, latency, step * trip)
    return cycles + beside, step, beside


def _wave(work: Work, shares: Shares, alone: float, ctas: int) -> float:
    """Cycles of the steps of ``ctas`` CTAs of an SM at once, each of ``alone`` cycles by itself."""
    busy, fills = shares.busy, work.grid.fills
    last = max(busy, alone_chain(work)) + shares.bubble + work.fragments.first
    steps = (shares.trip - fills) * _interleaved(busy, alone, ctas)
    return ctas * (steps + fills * _interleaved(busy, last, ctas))


def _once(work: Work, machine: Machine, resident: int, latency: float, steps: float) -> float:
    """Cycles of a CTA beside its ``steps`` (cycles): prologue, epilogue, and between two tiles."""
    grid, stores = work.grid, work.stores
    waits = stores.slot_waits * STORE_SLOT_CYCLES
    stored = resident * stores.tile_bytes / machine.dram_bytes_per_cycle
    drain = waits + machine.global_latency + stored
    once = grid.fills * (latency + resident * work.usage.l2 + drain)
    once += grid.fills * tail_cycles(work, resident)
    if work.traffic.stationary_bytes:
        once += resident * work.traffic.stationary_bytes / work.traffic.rate
    if grid.tiles > grid.fills:
        bytes_ = STAGED_STORE_PASSES * stores.tile_bytes
        bytes_ *= 1 if stores.by_tma else DIRECT_STORE_COST
        between = bytes_ / machine.smem_bytes_per_cycle + waits + stores.arithmetic_cycles
        groups = work.wgmma.consumer_groups
        if groups > 1:  # it runs under the steps of the other groups
            between += stores.uncoalesced_cycles
            between = max(0.0, between - (groups - 1) * steps / grid.tiles)
        between += COLD_TILE_CYCLES if work.traffic.implicit_gemm else 0
        once += (grid.tiles - grid.fills) * between
    return once


def tail_cycles(work: Work, resident: int) -> float:
    """Cycles of ``resident`` CTAs behind their last step, before their results are stored."""
    return pushed_cycles(work, resident) + resident * work.stores.arithmetic_cycles


def _alone(work: Work, machine: Machine, depth: Depth, shares: Shares, latency: float) -> float:
    """Cycles of an iteration of a CTA that has the SM for itself."""
    if isinstance(depth, int):
        alone = _waiting(work, machine, depth, shares, latency)
    else:
        alone = max(
            _waiting(work, machine, work.shared.useful(ring, depth), shares, wait)
            for ring in work.shared.rings
            for wait in [_wait(work, ring, machine, latency)]
        )
    alone = max(alone, work.fragments.own + shares.bubble)
    if not work.wgmma.serial:
        return alone
    wgmma = work.wgmma.serial if least(depth) < OVERLAP_DEPTH else work.wgmma.overlapped
    return max(alone, wgmma + shares.bubble - shares.hidden)


def _wait(work: Work, ring: RingWork, machine: Machine, latency: float) -> float:
    """Cycles until the first bytes of a ring's load arrive: in order, behind all before them."""
    own = ring.wait(latency, work.loads.handshake, machine)
    return own if work.shared.skew is None else max(own, latency)


def _waiting(work: Work, machine: Machine, slots: int, shares: Shares, latency: float) -> float:
    """Cycles of the same where it waits for one ring of ``slots`` slots."""
    busy, bubble, loads = shares.busy, shares.bubble, work.loads
    landed = latency + work.usage.l2 + bubble
    if loads.clustered:
        landed += CLUSTER_RELEASE_CYCLES * math.log2(work.grid.cluster)
    first = work.fragments.first
    if slots == 1 or loads.blocking:
        return landed + busy + first + (machine.barrier_cycles if loads.synchronised else 0)
    landed += (loads.spread + loads.late) * busy
    behind = 1 if loads.register_staged else slots - 1
    shared = busy + bubble - shares.hidden
    if loads.produced and first:  # by warps, each of which then waits for its fragments
        shared += MBARRIER_CYCLES
    reading_early = max(shared, (landed + work.fragments.ahead * busy) / behind)
    reading_late = max(shared + first, landed / behind)
    return min(reading_early, reading_late)


def _interleaved(busy: float, alone: float, ctas: float) -> float:
    """Cycles of an SM for a step of one of ``ctas`` CTAs that interleave on it.

    ``(busy ^ OVERLAP_NORM + (alone / ctas) ^ OVERLAP_NORM) ^ (1 / OVERLAP_NORM)``.
    """
    return alone if ctas <= 1 else _norm(busy, alone, ctas)


def _norm(busy: float, alone: float, ctas: float) -> float:
    norm = OVERLAP_NORM
    return float((busy**norm + (alone / ctas) ** norm) ** (1 / norm))
