"""Cycles that a copy from global memory keeps each pipe of an SM busy, in one iteration."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ...instructions.dtypes import LINE_BYTES, element_bytes
from ...machine import WARP, Machine
from ...machine.constant import constant, counted, fitted, measured
from ...mechanisms.copies import of_pixels
from ...mechanisms.layouts import shared_bytes
from ...mechanisms.table import moved_by
from ...mechanisms.tma import lines_of_row, requests_of_row, sectors_of_row
from ...plan import CopyPlan
from ...values.facts import PIXEL_VIEWS, CopyInfo
from .pipes import PIPE_NORM, Usage

COALESCED: Final = constant(
    "COALESCED",
    0.5,
    "1",
    "what a byte that all SMs copy at once, by cp.async, costs each of them of one that it copies "
    "alone: on its way to L2 their requests are put together",
    formula="l2 = bytes * COALESCED / rate, with as many CTAs that copy the same as SMs",
    source=fitted(
        "H200, 336 kernels of six convolutions",
        "mean error 8.6 % and best first for four of the six, 9.6 % and three without it: 64 "
        "pixels by 64 filters are predicted 20 % too slow then, 256 by 64 2 % too fast; 0.4 to "
        "0.7 do as well. Nsight Compute's documentation calls the unit L2 request coalescer",
    ),
    date="2026-11-28",
)

IM2COL_LINE_CYCLES: Final = constant(
    "IM2COL_LINE_CYCLES",
    1.0,
    "cycles",
    "what a line of im2col's operand A, or a part of one, takes longer than a line of filters",
    formula="l2 = lines / rate + rows * IM2COL_LINE_CYCLES",
    source=measured(
        "H100, 32x7x7x512: 64 pixels by 128 channels 21.8 us, 128x64, which copies as much, 24.9 "
        "and, by swap A/B, 25.9",
        "0.7 to 1.6 rank 36 pairs of tiles of ten layers best, with COLD_TILE_CYCLES",
    ),
    date="2026-11-22",
)

ZERO_FILL_LINE_CYCLES: Final = constant(
    "ZERO_FILL_LINE_CYCLES",
    4.0,
    "cycles",
    "what a line of a TMA box takes that lies past the tensor's end and is filled with zeros",
    formula="l2 = ... + rows * outside * ZERO_FILL_LINE_CYCLES",
    source=fitted(
        "log of an H100, 3x3 filters, 8x64x64x320: by 128x256 512 filters take 134 us, 384 and "
        "320, which copy less, 174 and 201; and an H200, 672x1504x1624 by 128x96, an eighth of "
        "whose rows lie outside: 845 cycles a step, 906 without these lines",
        "0 ranks the layers wrongly, 12 the products; 4 to 8 neither",
    ),
    date="2026-11-27",
)

CROWDED_ROWS_PER_CYCLE: Final = constant(
    "CROWDED_ROWS_PER_CYCLE",
    12,
    "rows/cycle",
    "rows of TMA boxes that L2 serves where several lie in a line, which many CTAs want",
    formula="l2 = ... + rows * CTAs that share the tile / CROWDED_ROWS_PER_CYCLE, rows shorter "
    "than a line",
    source=measured(
        "H200, boxes of 64 rows that 132 CTAs read together, a row of 16 bytes every 16 11.7 a "
        "cycle, 48 of 48 13.2; by 66 CTAs, or a row a line, nothing",
        "8x7192x536 with A transposed: 113 CTAs of 16x64 take 10.8 us by TMA, 7.9 by cp.async",
    ),
    date="2026-11-27",
)

HOT_LINE_CTAS: Final = constant(
    "HOT_LINE_CTAS",
    140,
    "CTAs",
    "CTAs that ask L2 for the same line at once, with which each of its requests takes a cycle "
    "more: a slice of L2 answers them one by one, while others have nothing to do",
    formula="l2 = ... + rows * requests_of_row * (CTAs that copy the same at once / HOT_LINE_CTAS) "
    "^ 2",
    source=fitted(
        "H200, 1,478 kernels of 55 drawn products",
        "first choice 1.052 without, 1.039 to 1.040 with 110 to 160; 110x13360x3400 by 128x112 "
        "takes 39.8 us where all CTAs ask for A, 36.1, 31.9 and 29.9 in clusters of 2, 4 and 8 "
        "that ask once; 104x16192x1056 20.1 by 128x128, 17.5 by 64x256, whose rows half of them "
        "want. Not of an implicit GEMM: 146 such kernels of the H100's log are 14.5 % off with it, "
        "13.4 without. Choices of the logs of an H100 and an H200 are the same with and without",
    ),
    date="2026-11-29",
)

SHARED_ARRIVAL: Final = constant(
    "SHARED_ARRIVAL",
    0.85,
    "1",
    "what a byte that another CTA of the cluster asked for counts as it arrives, over one's own",
    formula="arriving = bytes / multicast * (1 + SHARED_ARRIVAL * (multicast - 1))",
    source=fitted(
        "H200, 2,880 kernels of 210 drawn products",
        "those in clusters of four and eight from 18 us on are predicted 3 to 7 % too slow with 1; "
        "0.7 to 1 choose as well",
    ),
    date="2026-11-28",
)

TMA_WRITE_COST: Final = constant(
    "TMA_WRITE_COST",
    0.5,
    "1",
    "what a byte that TMA writes to shared memory takes of its time, over one that wgmma reads",
    formula="lsu = TMA_WRITE_COST * bytes / smem_bytes_per_cycle, TMA",
    source=measured(
        "H200, ncu, steps of 64 of 524x2184x6256: 88x128 in pairs takes 440 cycles, in which 39 KB "
        "are read and 28 KB written; 96x128 in fours 445 for 41 and 29; 128x144 of 496x4264x8192 "
        "630 for 54 and 41",
        "523, 548 and 740 if each byte took as long; 0.4 to 0.6 choose as well among 1,900 kernels "
        "of 55 products, and as before on the logs of an H100 and an H200",
    ),
    date="2026-11-30",
)

LOAD_CYCLES: Final = constant(
    "LOAD_CYCLES",
    2,
    "cycles",
    "time of the load and store units for a warp's load from global memory, however narrow",
    formula="lsu = accesses * (LOAD_CYCLES + 1), through registers",
    source=fitted(
        "H200, 7 kernels of 3 products whose operands both begin anywhere, 2 bytes a lane",
        "10 % too fast, 23 % with one cycle, 2 % too slow with three; H100 log: fp32, 4 bytes a "
        "lane, is ranked worse by three",
    ),
    date="2026-11-29",
)

CP_ASYNC_CYCLES: Final = constant(
    "CP_ASYNC_CYCLES",
    4,
    "cycles",
    "time of the load and store units for a warp's cp.async, however narrow: that of the widest, "
    "which are 512 bytes",
    formula="lsu = accesses * CP_ASYNC_CYCLES, cp.async",
    source=measured(
        "H200, 12 kernels by wgmma and 11 by mma.sync of products of rows of 4-byte multiples",
        "2 % too slow with 4 in either, 19 and 17 % too fast with one; with 8 bytes a lane no "
        "difference, whose lines take as long",
    ),
    date="2026-11-29",
)

MASK_INSTRUCTIONS: Final = constant(
    "MASK_INSTRUCTIONS",
    5,
    "instructions",
    "address and mask of an im2col element that a non-specialised mainloop copies",
    formula="issue = accesses * (2 or 3 + MASK_INSTRUCTIONS) / issue_per_cycle",
    source=counted(
        "SASS of 3x3 filters in fp32 for an H100",
        "4.9 to 5.8 by cp.async, 5.1 register-staged; 0 with 1x1 filters",
    ),
    date="2026-11-22",
)


QUOTIENT_INSTRUCTIONS: Final = constant(
    "QUOTIENT_INSTRUCTIONS",
    8,
    "instructions",
    "an index of the source that an access finds anew in each step, as quotient or rest of one "
    "that steps along K, and whether it lies inside",
    formula="issue = accesses * (2 or 3 + QUOTIENT_INSTRUCTIONS * quotients) / issue_per_cycle",
    source=counted(
        "SASS for sm_90a by nvcc 13.0: a step of the gradient of 1x1 filters, whose pixels have "
        "three such",
        "378 instructions of a warp with 10 accesses a thread by wgmma, 382 with 11 by mma.sync, "
        "where 123 to 163 are those of convolutions",
    ),
    date="2026-12-01",
)


class Asking(NamedTuple):
    """Who asks L2 beside a CTA: for something, for the same some time, for the same at once."""

    running: float = 1.0
    """Fraction of the SMs that copy at all."""
    sharing: float = 0.0
    """CTAs that copy the same, one for each SM at most."""
    at_once: float = 0.0
    """Those of a wave, where they go along K together; none of an implicit GEMM."""


_OTHERS: Final = Asking()
"""All SMs copy, each something else."""


def of_copy(
    copy: CopyInfo,
    plan: CopyPlan,
    machine: Machine,
    rate: float,
    outside: float = 0.0,
    asking: Asking = _OTHERS,
    quotients: int = 0,
) -> Usage:
    """Cycles of a tile copy from global memory.

    ``rate``: bytes a cycle that arrive, see ``copy_rate``. ``outside``: fraction of the rows of its
    boxes past the tensor's end. ``asking``: who copies beside. ``quotients``: indices of the source
    that follow by division from one that steps along K.

        TMA           l2 = max(bytes * requests_of_row, arriving) / rate
                           + rows * (outside, crowded, requests_of_row * hot)
                      lsu = TMA_WRITE_COST * bytes / 128
        cp.async      lsu = max(bytes / 128, 4 * accesses, lines);  issue = 2 * accesses / 4
        by registers  lsu = max(bytes / 128, 3 * accesses);         issue = 3 * accesses / 4
    """
    moved, by = shared_bytes(copy), moved_by(plan)
    if by.by_producer:
        own = moved // plan.multicast
        boxes = math.ceil(copy.shape[-1] * element_bytes(copy.dtype) / LINE_BYTES)
        rows = boxes * copy.elements // copy.shape[-1] / plan.multicast
        gathered = IM2COL_LINE_CYCLES if plan.view in PIXEL_VIEWS else 0.0
        crowded = asking.sharing / CROWDED_ROWS_PER_CYCLE if _share_lines(copy) else 0.0
        hot = requests_of_row(copy) * (asking.at_once / HOT_LINE_CTAS) ** 2
        extra = outside * ZERO_FILL_LINE_CYCLES + gathered + max(crowded, hot)
        return Usage(
            lsu=TMA_WRITE_COST * moved / machine.smem_bytes_per_cycle,
            l2=_delivered(own * _asked(copy, asking.running), moved, plan) / rate + rows * extra,
            global_bytes=own,
        )
    accesses = moved / plan.vector_bytes / WARP
    # The load and store units take a line, or a part of one, in a cycle: of 27 pairs of convolution
    # tiles on an H100, 26 took 2 to 32 % longer with rows of 64 bytes than with 128.
    # cp.async is one instruction; through registers it is a load and a store. Either needs about
    # one more to step its address.
    each = 1 if by.in_groups else 2
    taken = CP_ASYNC_CYCLES if by.in_groups else LOAD_CYCLES + 1
    served = accesses * taken / machine.accesses_per_cycle
    if by.in_groups:
        served = max(served, _lines(copy) * moved / min(LINE_BYTES, _run_bytes(copy)))
    found = QUOTIENT_INSTRUCTIONS * quotients
    if copy.no_tma and copy.masked:
        found += MASK_INSTRUCTIONS
    to_shared = moved / machine.smem_bytes_per_cycle if copy.dst_scope != "local" else 0.0
    return Usage(
        lsu=max(to_shared, served),
        l2=moved / rate * (COALESCED if asking.sharing >= machine.sms else 1),
        issue=accesses * (each + 1 + found) / machine.issue_per_cycle,
        global_bytes=moved,
    )


def _asked(copy: CopyInfo, running: float) -> float:
    """What a row of a TMA box counts for: its sectors, or its requests to an L2 that all SMs ask.

    Measured on an H200: 66x2464x1624 by 72x64, whose rows begin inside sectors, takes 39 CTAs 10.7
    us; with two requests a row 14.7 are predicted, as if others waited for L2, too.
    """
    return max(sectors_of_row(copy), requests_of_row(copy) * running)


def _delivered(asked: float, arriving: float, plan: CopyPlan) -> float:
    """Bytes that a copy counts for: what it asks of L2, and what arrives, as others asked, too.

    ``(asked ^ PIPE_NORM + (arriving * counted) ^ PIPE_NORM) ^ (1 / PIPE_NORM)`` where others ask:
    both go on side by side. 1280x768x1656 by 64x128, whose rows begin inside sectors, takes 13.2 us
    in pairs, 12.4 in two rows by two columns and 12.1 in four by two on an H200, which ask for
    1.25, 0.94 and 0.62 times what arrives.
    """
    if plan.multicast == 1:
        return asked
    own = arriving / plan.multicast
    counted = own + SHARED_ARRIVAL * (arriving - own)
    return float((asked**PIPE_NORM + counted**PIPE_NORM) ** (1 / PIPE_NORM))


def _share_lines(copy: CopyInfo) -> bool:
    """Whether several rows of the boxes lie in a line: the tensor's own are shorter."""
    strides = [stride for stride in copy.src_strides[:-1] if stride]
    return len(strides) == 1 and strides[0] * element_bytes(copy.dtype) < LINE_BYTES


def _lines(copy: CopyInfo) -> float:
    """Lines in which a row of the tile lies, a cycle each; 1 where neighbouring rows share lines.

    Measured on an H100, 72 kernels of three products by cp.async, rows of 2064, 4112 and 8208
    bytes: 3 % more time than predicted so as a mean, 19 % with a line for each row.
    """
    if of_pixels(copy):
        return 1.0
    return lines_of_row(copy)


def _run_bytes(copy: CopyInfo) -> int:
    """Bytes of the tile that are contiguous in memory; a row of it where nothing is known."""
    walker = copy.src_dims[-1]
    return copy.shape[-1 if walker is None else walker] * element_bytes(copy.dtype)
