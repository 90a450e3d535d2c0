"""Time that memory takes beside the SMs: its rate, and Little's law for what is in flight.

    compulsory = (read + driven_out) / dram_bytes_per_second
    read       = sum of the operands' bytes, * (1 + SPLIT_READ_COST * log2(splits)) of those whose
                 rows no tile has whole
    driven_out = max(DIRTY_LINES, written / moved) * first + (moved - first) * written / moved
    waited     = loaded_latency * iterations of all CTAs / iterations in flight
    memory     = hypot(compulsory, waited) + waves * EXPOSED_LATENCIES * global_latency

with ``moved = read + written`` and ``first = min(moved - PASSING_SHARE * evict_first, l2_bytes)``.

Where most bytes are of operands with K outermost, of whose rows a tile has a piece, no more than
enough in flight counts: each step reads other rows, and what is further ahead finds none of memory
open.

L2 keeps no more than ``DIRTY_LINES`` of its lines dirty, so that a line that is written has
another written back, and one that is read where it takes a dirty one's place. CTAs of a wave that
have an SM each end before those of the next begin. What they do behind their last step, no memory
hides.

All bytes that an iteration copies are in flight together, whatever part of them L2 already has: 64
CTAs of 128x128 and 256 of 64x64 read the same matrix in the same time at each depth (``decode128``
of the H100 log: 119.9, 82.8 and 73.8 us with 2, 3 and 4 slots; 110.9, 77.8 and 68.1). A
register-staged copy has one tile in flight whatever the depth: its later arrival is part of the
SMs' time (``loading``), and nothing is waited for beside that.
"""

from __future__ import annotations

import math
from typing import Final

from ..machine import Machine
from ..machine.constant import constant, fitted, measured
from .descriptor import Depth, Work

LOADED_LATENCY_US: Final = constant(
    "LOADED_LATENCY_US",
    1.0,
    "us",
    "latency of memory that delivers all it can",
    formula="loaded_latency = global_latency + (LOADED_LATENCY_US - global_latency) * min(1, "
    "compulsory / us)",
    source=fitted(
        "98 candidates of decode128 in the H100 log, on tensor cores and not register-staged",
        "9 % rms; 0.7 to 1.3 choose as well",
    ),
    date="2026-11-22",
)

DIRTY_LINES: Final = constant(
    "DIRTY_LINES",
    0.4,
    "1",
    "fraction of L2's lines that are dirty, at most: another kernel's at first, which what comes "
    "in drives out",
    formula="driven_out = max(DIRTY_LINES, written / moved) * first + (moved - first) * written / "
    "moved",
    source=fitted(
        "H200, 2,280 kernels of 121 workloads, and the log of an H100, with PASSING_SHARE and "
        "EXPOSED_LATENCIES",
        "first choice of 16 drawn products of few rows 1.022, with 0.3 alike, 1.031 with 0.5; of "
        "the others 0.3 to 0.5 choose alike",
    ),
    date="2026-11-30",
)

PASSING_SHARE: Final = constant(
    "PASSING_SHARE",
    0.75,
    "1",
    "part of what is evicted first that drives out no dirty lines: it takes the place of its own",
    formula="first = min(moved - PASSING_SHARE * evict_first_bytes, l2_bytes)",
    source=fitted(
        "as DIRTY_LINES",
        "first choice on the third part of the H100's log 1.012, 1.018 with 0.5; 0.5 to 1 choose "
        "alike on an H200, whose mean error is 4.7 % for 16 drawn products of few rows, 5.2 with "
        "0.5, 5.8 with 1",
    ),
    date="2026-11-30",
)

EXPOSED_LATENCIES: Final = constant(
    "EXPOSED_LATENCIES",
    4,
    "1",
    "latencies of a memory at rest in which a wave begins and ends: of the first load, behind "
    "those of all other CTAs and what they drive out, and of the last store",
    formula="memory = hypot(compulsory, waited) + waves * EXPOSED_LATENCIES * global_latency",
    source=fitted(
        "H200, 541 kernels of 37 products that memory takes most of",
        "1.8 us more than two by least squares; first choice of 16 drawn products of few rows "
        "1.022, 1.028 with 2, 1.031 with 5. By clocks in four kernels of 4 to 8 us, a CTA's first "
        "tile is there 1,610 to 4,540 cycles after it is asked for, 800 to 1,380 where L2 has it",
    ),
    date="2026-11-30",
)


ENOUGH_IN_FLIGHT_US: Final = constant(
    "ENOUGH_IN_FLIGHT_US",
    2.45,
    "us",
    "time in which memory delivers the bytes in flight, each counted once, beyond which a deeper "
    "ring is not compared",
    formula="depth <= ENOUGH_IN_FLIGHT_US * bandwidth / bytes that all CTAs read a step",
    source=measured(
        "H100, 7.4 MB: 256x256x65536 with split-K 16 35.6, 35.1 and 40.6 us with 5, 7 and 9 MB; "
        "128x8192x8192 58.3, 56.4 and 57.8 with 5, 7 and 8",
        "H200, 10.8 MB: 56x14192x5000 by 64x192 46.8, 43.0, 46.1 and 49.9 us with 7, 9, 11 and 13 "
        "MB; 20x6360x7600 by 24x64, 128 along K, 34.8, 32.3, 32.6 and 32.2 with 7, 8, 10 and 11",
    ),
    date="2026-11-29",
)

ENOUGH_SCATTERED_US: Final = constant(
    "ENOUGH_SCATTERED_US",
    2 * LOADED_LATENCY_US,
    "us",
    "the same of operands with K outermost, of whose rows a tile has a piece: nor do more of them "
    "in flight gain anything",
    formula="as ENOUGH_IN_FLIGHT_US; iterations in flight <= ENOUGH_SCATTERED_US * bandwidth / "
    "bytes of one",
    source=measured(
        "H200, 8.8 MB: 9x4768x10592 by 16x64 31.6 and 33.6 us with 7 and 11.5 MB, 30.9, 32.7, "
        "35.1 and 36.0 with 11, 12.5, 14 and 15.6 in clusters; 7x13424x12560 by 8x64 99.4, 100.6, "
        "102.6 and 104.0 with 12, 15, 24 and 29",
        "with K innermost 2x2352x12792 takes 23.3, 23.0 and 23.7 with 7, 9 and 13",
    ),
    date="2026-12-01",
)

CLUSTER_US: Final = constant(
    "CLUSTER_US",
    0.5,
    "us",
    "what CTAs of a cluster take to start together and to wait for each other in the end",
    formula="us = start_us + CLUSTER_US + ..., with copies that are multicast, or parts of tiles "
    "that are put together",
    source=fitted(
        "H200, 1,896 kernels of 71 drawn workloads",
        "mean error 6.4 % with 0.3 to 0.6, 6.7 with 0.9; 125 kernels below 9 us that put parts "
        "together are 4 % too slow with 0.5",
    ),
    date="2026-12-01",
)

MULTICAST_US: Final = constant(
    "MULTICAST_US",
    0.4,
    "us",
    "what it takes more where copies are multicast: no CTA's first tile is there before all of the "
    "cluster have started and asked for their parts of it",
    formula="us = start_us + CLUSTER_US + MULTICAST_US + ..., with copies that are multicast",
    source=fitted(
        "H200, 5,088 kernels of 149 drawn workloads",
        "first choice 1.039 (worst 1.209), best of 8 1.009; 1.041 (1.278) and 1.011 without, 1.039 "
        "(1.239) and 1.010 with 0.7",
    ),
    date="2026-12-01",
)


PUSHED_BYTES_PER_CYCLE: Final = constant(
    "PUSHED_BYTES_PER_CYCLE",
    5,
    "bytes/cycle",
    "of parts of a tile that a CTA stores to others of its cluster, from registers",
    formula="once += resident * bytes / PUSHED_BYTES_PER_CYCLE",
    source=measured(
        "H200, clusters of 2, 4 and 8 that store and add tiles of 4 to 88 KB, 32 bytes a row of a "
        "warp's accumulators",
        "7.3 to 7.9; 5.1 by 150 kernels of 37 products",
    ),
    date="2026-11-28",
)


SPLIT_READ_COST: Final = constant(
    "SPLIT_READ_COST",
    0.05,
    "1",
    "what reading an operand takes memory more, each time that the parts of its K are doubled "
    "which CTAs read at once: rows are read in as many places, but for those that a tile has whole",
    formula="read = bytes * (1 + SPLIT_READ_COST * log2(splits))",
    source=fitted(
        "H200, 541 kernels of 37 products that memory takes most of",
        "0.049 +- 0.005 by least squares; first choice of 16 drawn products of few rows 1.022, "
        "1.041 without, 1.028 with 0.08",
    ),
    date="2026-11-30",
)


def compulsory_us(read: float, written: int, machine: Machine, passing: int = 0) -> float:
    """Microseconds in which memory moves ``read`` and ``written`` bytes, each once.

    ``passing``: of what is read, bytes that L2 is asked to evict first.

    Written bytes stay in L2 and drive out as many; bytes read what another kernel left there dirty,
    and then the kernel's own. 0 where nothing is known of what is read.
    """
    moved = read + written
    if not read:
        return 0.0
    first = min(moved - PASSING_SHARE * passing, machine.l2_bytes)
    share = written / moved
    driven_out = max(DIRTY_LINES, share) * first + (moved - first) * share
    return (read + driven_out) / machine.dram_bytes_per_second * 1e6


def split_read_cost(splits: int) -> float:
    """What memory takes more to read an operand of whose K CTAs read so many splits."""
    return SPLIT_READ_COST * math.log2(splits)


def memory_us(
    work: Work,
    machine: Machine,
    running: int,
    depth: Depth,
    us: float,
    at_most: float = math.inf,
) -> float:
    """Microseconds that memory takes; 0 where the compulsory traffic is not known.

    ``running``: CTAs of all SMs at once. ``us``: time of the SMs; the busier memory is meanwhile,
    the later a load comes. ``at_most``: iterations of a CTA whose loads L1 has room for.
    """
    compulsory, latency = work.traffic.memory_us, machine.global_latency / (machine.clock_ghz * 1e3)
    grid = work.grid
    if not compulsory:
        return 0.0
    if grid.ctas is None or grid.trip is None or work.loads.register_staged:
        return compulsory + EXPOSED_LATENCIES * latency
    loaded = latency + loading(work, machine, us) / (machine.clock_ghz * 1e3)
    beside = running * min(at_most, _in_flight(work, depth))
    if work.traffic.scattered:
        once = work.traffic.read_bytes / (grid.ctas * grid.trip)  # of an iteration, shared or not
        enough = max(running, enough_in_flight(machine, scattered=True) / once)
        beside = min(beside, enough)
    waited = loaded * grid.ctas * grid.trip / beside
    waves = math.ceil(grid.ctas / running) if running <= machine.sms else 1
    return math.hypot(compulsory, waited) + waves * EXPOSED_LATENCIES * latency


def enough_in_flight(machine: Machine, *, scattered: bool = False) -> float:
    """Bytes in flight from memory beyond which more of them gain nothing.

    ``scattered``: mostly pieces of rows, of operands with K outermost.
    """
    us = ENOUGH_SCATTERED_US if scattered else ENOUGH_IN_FLIGHT_US
    return us * 1e-6 * machine.dram_bytes_per_second


def l2_us(work: Work, machine: Machine) -> float:
    """Microseconds in which L2 delivers what all CTAs copy, at best; 0: its rate is not known.

    ``l2_bytes_per_cycle`` bounds one SM, however few are busy: 96 CTAs of 128x192 get 48 bytes a
    cycle each, 132 get 37. What CTAs of a cluster share is delivered once: in eights, 2040x640x5464
    by 112x128 takes 31.8 us on an H200, 592x2824x3208 by 64x240 25.8, and cuBLASLt's kernel of
    1196x1328x11184 by 128x112 55.4, where 35.5, 27.7 and 67.6 are predicted if it counted for each.
    """
    grid, rate = work.grid, machine.l2_bytes_per_second
    if not rate or grid.ctas is None or grid.trip is None:
        return 0.0
    return grid.ctas * grid.trip * work.traffic.asked_bytes / rate * 1e6


def tensor_map_us(work: Work, machine: Machine) -> float:
    """Microseconds in which a producer warp's first box waits for its tensor map: a latency.

    The map comes from memory as the box does, behind it. Measured on an H200, 758 kernels of drawn
    products: by TMA they take 0.5 us more over the prediction without it than by cp.async.
    """
    return machine.global_latency / (machine.clock_ghz * 1e3) if work.loads.produced else 0.0


def pushed_cycles(work: Work, resident: int) -> float:
    """Cycles in which parts of a CTA's tile get to others of its cluster."""
    return resident * work.stores.pushed_bytes / PUSHED_BYTES_PER_CYCLE


def cluster_us(work: Work) -> float:
    """Microseconds in which the CTAs of a cluster start and end together; 0 without one."""
    if work.loads.clustered:
        return CLUSTER_US + MULTICAST_US
    return CLUSTER_US if work.stores.pushed_bytes else 0.0


def loading(work: Work, machine: Machine, us: float) -> float:
    """Cycles that a load takes longer for what else memory delivers to a kernel of ``us``.

    ``max(0, LOADED_LATENCY_US * clock - global_latency) * min(1, compulsory / us)``.
    """
    loaded = LOADED_LATENCY_US * machine.clock_ghz * 1e3 - machine.global_latency
    return max(0.0, loaded) * min(1.0, work.traffic.memory_us / us)


def _in_flight(work: Work, depth: Depth) -> float:
    """Iterations of a CTA whose loads are in flight: all slots that a producer warp fills.

    Math warps issue the next load behind the barrier that they wait at: one fewer. A lone slot is
    being filled all the time where memory bounds a step.
    """
    if depth == 1:
        return 1.0
    waiting = 0 if work.loads.produced else 1
    if isinstance(depth, int):
        return depth - waiting
    loading = sum(work.shared.useful(ring, depth) * ring.slot_bytes for ring in work.shared.rings)
    return max(1.0, loading / work.shared.slot_bytes - waiting)
