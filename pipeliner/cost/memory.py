"""How long memory takes beside what an SM does: its rate, and Little's law for what is in flight.

    delivered = (read + driven out of L2) / rate
    waited    = loaded latency * iterations of all CTAs / iterations in flight
    time      = hypot(delivered, waited) + the first load + the last store

What an iteration copies is in flight together, whatever part of it L2 already has: 64 CTAs of 128 x
128 and 256 of 64 x 64 read the same matrix in the same time, at each depth (``decode128`` of the
log of an H100: 119.9, 82.8 and 73.8 us with 2, 3 and 4 slots; 110.9, 77.8 and 68.1).

What waits in registers is one tile, which a step waits for whatever the depth: how late it comes is
part of what SMs take (``loading``), and nothing is ``waited`` for beside that.
"""

from __future__ import annotations

import math
from typing import Final

from ..machine import Machine
from .descriptor import Depth, Work, useful

LOADED_LATENCY_US: Final = 1.0
"""Of memory that delivers all it can; with little in flight it takes what one load takes. Fitted
with ``DIRTY`` to the 98 candidates of ``decode128`` in the log of an H100, on tensor cores and not
by way of registers: they are predicted within 9 % (root of the mean square)."""

DIRTY: Final = 0.65
"""Of the lines of L2, those that another kernel wrote and that are not yet written back: what comes
in drives them out. Fitted as ``LOADED_LATENCY_US``: 134 MB take 64 us, which is 2.1 TB/s of the 3.0
that memory delivers where L2 is clean."""

UNCOVERED: Final = 2
"""Latencies under which nothing else is in flight: of the first load and of the last store."""

BUSY_SLOT: Final = 0.5
"""Of a step, while the slot that it reads is not being filled."""


def delivered_us(read: int, written: int, machine: Machine) -> float:
    """Microseconds of memory for what a kernel reads and writes, each byte once.

    What is written stays in L2, and drives out as much: first what another kernel left there to be
    written, then its own.
    """
    moved = read + written
    if not read:
        return 0.0
    first = min(moved, machine.l2_bytes)
    driven_out = DIRTY * first + (moved - first) * written / moved
    return (read + driven_out) / machine.dram_bytes_per_second * 1e6


def memory_us(work: Work, machine: Machine, running: int, depth: Depth, us: float) -> float:
    """Microseconds that memory takes for ``running`` CTAs at once with rings of ``depth`` slots.

    ``us``: what their SMs take. The busier memory is meanwhile, the later a load comes.
    """
    delivered, ahead = work.delivered, machine.global_latency / (machine.clock_ghz * 1e3)
    if not delivered:
        return 0.0
    if work.ctas is None or work.trip is None or work.by_registers:
        return delivered + UNCOVERED * ahead
    latency = ahead + loading(work, machine, us) / (machine.clock_ghz * 1e3)
    waited = latency * work.ctas * work.trip / (running * _in_flight(work, depth))
    return math.hypot(delivered, waited) + UNCOVERED * ahead


def loading(work: Work, machine: Machine, us: float) -> float:
    """Cycles that a load takes longer for what else memory delivers to a kernel of ``us``."""
    loaded = LOADED_LATENCY_US * machine.clock_ghz * 1e3 - machine.global_latency
    return max(0.0, loaded) * min(1.0, work.delivered / us)


def _in_flight(work: Work, depth: Depth) -> float:
    """Iterations of a CTA whose loads are under way: all slots but what is read meanwhile.

    A lone slot is being filled all the time where memory is what bounds a step.
    """
    if depth == 1:
        return 1.0
    if isinstance(depth, int):
        return depth - BUSY_SLOT
    loading = sum((useful(work, ring, depth) - BUSY_SLOT) * ring.slot_bytes for ring in work.rings)
    return loading / work.slot_bytes
