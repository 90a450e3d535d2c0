"""Cycles that a step keeps an SM busy: pipes together, a barrier's restart, instruction fetch.

    II     = max over the pipes of their cycles
    norm   = (sum over the pipes of cycles ^ PIPE_NORM) ^ (1 / PIPE_NORM)
    busy   = norm + L1 wait                                          without a CTA barrier
    busy   = norm + L1 wait + RESTART_CYCLES                         with one
    issue  = issue * max(1, fp32_latency * PARTITIONS / warps)       math warps copy, no fp32
    bubble = barrier_cycles + shared_latency + RESTART_CYCLES        with one, else 0
    bubble = ... + slot_bytes / smem_bytes_per_cycle + shared_latency     register-staged copies

    busy   = max(busy, (tensor ^ CHAIN_NORM + sfu ^ CHAIN_NORM + (fma + issue) ^ CHAIN_NORM)
                 ^ (1 / CHAIN_NORM) + CHAIN_CYCLES)                  arithmetic between wgmma
    busy   = max(busy, (tensor + sfu + fma + issue) / warpgroups + CHAIN_CYCLES)    of an SM
    busy   = max(busy, tensor + sfu + fma + issue + 2 * CHAIN_CYCLES) + RESTART_CYCLES
                                                                     with a barrier, too

``busy`` is at least ``II``: pipes that are nearly as busy as the busiest contend for issue slots.
``bubble`` passes with nothing issued unless another CTA of the SM has work.
"""

from __future__ import annotations

from typing import Final

from ..instructions.warps import PARTITIONS
from ..machine import WARP, Machine
from ..machine.constant import constant, documented, fitted, measured
from .descriptor import Work
from .usage import PIPE_NORM

OVERLAP_NORM: Final = constant(
    "OVERLAP_NORM",
    4.0,
    "1",
    "exponent of the norm of what goes on side by side: the pipes of an SM and the loads that its "
    "CTAs wait for, the SMs and memory; infinite if each waited just when the other works",
    formula="step = (busy ^ OVERLAP_NORM + (alone / CTAs) ^ OVERLAP_NORM) ^ (1 / OVERLAP_NORM); us "
    "= start_us + (sm_us ^ OVERLAP_NORM + memory_us ^ OVERLAP_NORM) ^ (1 / OVERLAP_NORM)",
    source=fitted(
        "logs of an H100 and an H200",
        "3 to 6 choose as well; mean error 9.3 and 8.3 % with 3, 9.0 and 8.4 % with 4",
    ),
    date="2026-11-27",
)

RESTART_CYCLES: Final = constant(
    "RESTART_CYCLES",
    100,
    "cycles",
    "time behind a CTA barrier in which warps issue copies and addresses and no arithmetic, and "
    "as long in which other CTAs do",
    formula="busy = norm + RESTART_CYCLES; bubble = ... + RESTART_CYCLES",
    source=fitted(
        "H100 log, nine workloads, together with l2_bytes_per_cycle",
        "75 to 130 choose as well among 111 tiles of 11 layers measured apart",
    ),
    date="2026-11-21",
)

CHAIN_NORM: Final = constant(
    "CHAIN_NORM",
    2.0,
    "1",
    "exponent of the norm that combines the pipes that consumer warpgroups use one after the "
    "other: while one multiplies others exponentiate, if they are not at the same place",
    formula="busy = (tensor ^ CHAIN_NORM + sfu ^ CHAIN_NORM + (fma + issue) ^ CHAIN_NORM) ^ (1 / "
    "CHAIN_NORM) + CHAIN_CYCLES",
    source=fitted(
        "H200, 24 kernels of attention, heads of 64, 128 and 256, full and causal; 2 of "
        "block-scaled fp8",
        "root mean square 6 %, most 13 %; 7 % with 1.5, 8 % with 2.5",
    ),
    date="2026-11-23",
)

CHAIN_CYCLES: Final = constant(
    "CHAIN_CYCLES",
    300,
    "cycles",
    "what a step of such warpgroups takes beside: mbarriers, the first wgmma, shuffles of rows",
    formula="busy = (...) ^ (1 / 2) + CHAIN_CYCLES",
    source=fitted("H200, the 26 kernels of CHAIN_NORM", "7 % with 200 and with 400"),
    date="2026-11-23",
)

CHAIN_TILE_CYCLES: Final = constant(
    "CHAIN_TILE_CYCLES",
    250,
    "cycles",
    "what a step of such warpgroups takes more in a persistent kernel",
    formula="busy = (...) ^ (1 / 2) + CHAIN_CYCLES + CHAIN_TILE_CYCLES",
    source=measured(
        "H200, attention, heads of 128 by 128x128, 132 CTAs beside one for each tile",
        "4k keys 918 and 844 us, 1k keys 243 and 250; heads of 64 with 1k 329 and 349",
    ),
    date="2026-11-23",
)

LONE_WARP_CYCLES: Final = constant(
    "LONE_WARP_CYCLES",
    100,
    "cycles",
    "time of a step in which a scheduler with a single warp issues nothing: that warp waits for "
    "its operands",
    formula="busy + LONE_WARP_CYCLES, for fp32 by FMA with at most a warp for each scheduler",
    source=measured(
        "H100, fp32 products, 1024 along K, one CTA of 128 threads an SM, three slots",
        "129, 127 and 49 cycles with 64x64x8, 128x128x8 and 128x64x8; 0 with two CTAs",
    ),
    date="2026-11-22",
)

INSTRUCTION_CACHE_BYTES: Final = constant(
    "INSTRUCTION_CACHE_BYTES",
    32 * 1024,
    "bytes",
    "instructions of a step that a lone warp still finds an iteration later",
    formula="busy >= body / FETCH_BYTES_PER_CYCLE where body > INSTRUCTION_CACHE_BYTES",
    source=measured(
        "H100, fp32, 128x128 as for LONE_WARP_CYCLES: steps of 8, 12, 16 and 24 along K",
        "18 and 27 KB take 1.4 times their issue slots, 35 and 53 KB 2.0 and 2.6 times",
    ),
    date="2026-11-22",
)

FETCH_BYTES_PER_CYCLE: Final = constant(
    "FETCH_BYTES_PER_CYCLE",
    8,
    "bytes/cycle",
    "instructions that a lone warp fetches where they are not cached: half of one a cycle",
    formula="busy >= body / FETCH_BYTES_PER_CYCLE",
    source=measured("H100, as INSTRUCTION_CACHE_BYTES"),
    date="2026-11-22",
)

INSTRUCTION_BYTES: Final = constant(
    "INSTRUCTION_BYTES",
    16,
    "bytes",
    "an instruction, since Volta",
    formula="body = instructions of a warp * INSTRUCTION_BYTES",
    source=documented("NVIDIA, CUDA binary utilities"),
    date="2026-11-22",
)


def busy_and_bubble(work: Work, machine: Machine, resident: int) -> tuple[float, float]:
    """Cycles of a step that keep the pipes busy, and cycles of its barrier that do not.

    ``resident``: CTAs of an SM at once.
    """
    busy = work.usage.norm(PIPE_NORM, issue=issue_cycles(work, machine, resident))
    if work.wgmma.chained:
        busy = max(busy, _chain_cycles(work, resident))
    if not work.loads.synchronised:
        return busy, 0.0
    busy += RESTART_CYCLES
    bubble: float = machine.barrier_cycles + machine.shared_latency + RESTART_CYCLES
    if work.loads.register_staged:  # what has arrived is stored before the barrier
        bubble += work.shared.slot_bytes / machine.smem_bytes_per_cycle + machine.shared_latency
    if work.usage.fma and resident * work.threads.count <= PARTITIONS * WARP:
        busy = max(busy + LONE_WARP_CYCLES, _fetch_cycles(work, machine))
    return busy, bubble


def issue_cycles(work: Work, machine: Machine, resident: int) -> float:
    """Cycles in which the schedulers issue a step's instructions, however few warps they have.

        issue * max(1, fp32_latency * PARTITIONS / warps of the SM)

    Where math warps copy, most of a step beside its matmuls are addresses, each of which waits for
    the one before; multiply-adds do not. On an H200 the gradient of 56 filters of 1x1 by 16x56 with
    one warp a CTA takes 13.7 us, 8.8 were predicted as if four schedulers shared its instructions;
    with this and QUOTIENT_INSTRUCTIONS mean error and rank correlation of 578 kernels of twelve
    drawn convolutions and gradients are 8.2 % and .77, 8.8 % and .65 without.
    """
    usage, warps = work.usage, resident * work.threads.count / WARP
    if work.loads.produced or usage.fma:
        return usage.issue
    return usage.issue * max(1.0, machine.fp32_latency * PARTITIONS / warps)


def _chain_cycles(work: Work, resident: int) -> float:
    """Cycles of a step whose arithmetic waits for its matmuls, or they for that.

    A warpgroup does one after the other; if it has the SM for itself, nothing runs beside. With it
    191 kernels of attention by TMA, of six drawn workloads, are predicted 7.3 % wrong on an H200,
    10.7 % without: those of 64 rows took 16 % longer, of 1536 causal keys 38 %. With a barrier all
    warps are at the same place, so that none multiplies while others compute, and each of the two
    matmuls starts anew: 60 such kernels are 8 % too fast with CHAIN_CYCLES once, 3 % so.
    """
    usage = work.usage
    # Additions and maxima take an issue slot each, of which ``issue`` counts half.
    pipes = (usage.tensor, usage.sfu, usage.fma + usage.issue)
    if work.loads.synchronised:
        return sum(pipes) + 2 * CHAIN_CYCLES
    beside = CHAIN_CYCLES + (CHAIN_TILE_CYCLES if work.grid.tiles > 1 else 0)
    warpgroups = max(1, (work.threads.count - work.loads.produced) // (PARTITIONS * WARP))
    norm = float(sum(cycles**CHAIN_NORM for cycles in pipes) ** (1 / CHAIN_NORM))
    return max(norm, sum(pipes) / (warpgroups * resident)) + beside


def alone_chain(work: Work) -> float:
    """Cycles of a step of a chain that nothing runs beside; 0 where matmuls do not wait so.

    ``tensor + sfu + fma + issue + CHAIN_CYCLES``: the first matmul of a CTA has no arithmetic
    beside it, and its last arithmetic no matmul.
    """
    usage = work.usage
    if not work.wgmma.chained:
        return 0.0
    return usage.tensor + usage.sfu + usage.fma + usage.issue + CHAIN_CYCLES


def hidden_bubble(work: Work, busy: float, bubble: float) -> float:
    """Cycles of ``bubble`` that pass while a wgmma of the step before is still in flight.

    ``min(bubble, max(0, busy - (norm without tensor + RESTART_CYCLES)))``.
    """
    other = work.usage.norm(PIPE_NORM, tensor=False) + RESTART_CYCLES
    return min(bubble, max(0.0, busy - other))


def _fetch_cycles(work: Work, machine: Machine) -> float:
    """Cycles in which a lone warp fetches the instructions of a step; 0 where they are cached."""
    instructions = work.usage.issue * machine.issue_per_cycle * WARP / work.threads.count
    body = instructions * INSTRUCTION_BYTES
    return body / FETCH_BYTES_PER_CYCLE if body > INSTRUCTION_CACHE_BYTES else 0.0
