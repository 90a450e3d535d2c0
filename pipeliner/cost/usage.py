"""Cycles that one statement of a loop's body keeps each pipe of an SM busy, in one iteration.

    tensor   2 * m * n * k / ops_per_cycle                        mma.sync and wgmma
    fma      m * n * k / fp32_per_cycle                           multiply-adds by CUDA cores
    sfu      transcendental functions / sfu_per_cycle
    lsu      bytes through shared memory / smem_bytes_per_cycle   or accesses to global memory
    l2       bytes from outside the SM / rate
    issue    warp instructions / issue_per_cycle                  of whatever pipe

An iteration takes at least the cycles of the busiest pipe: the roofline of the SM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ..instructions.dtypes import LINE_BYTES, element_bytes
from ..instructions.simt import simt_shared_cycles
from ..instructions.table import multiplied_by, rate_of
from ..instructions.wgmma_shapes import ROWS
from ..machine import WARP, Machine
from ..machine.constant import constant, counted, documented, fitted, measured
from ..mechanisms.layouts import boxed_bytes, shared_bytes
from ..mechanisms.table import moved_by
from ..mechanisms.tma import lines_of_row, requests_of_row, sectors_of_row
from ..plan import CopyPlan, MatmulPlan
from ..values.facts import PIXEL_VIEWS, CopyInfo, MatmulInfo, StatementInfo

PIPES: Final = ("tensor", "fma", "sfu", "lsu", "l2", "issue")

PIPE_WORDS: Final = {
    "tensor": "tensor cores",
    "fma": "FMA pipe",
    "sfu": "special functions",
    "lsu": "shared memory",
    "l2": "L2 or memory bandwidth",
    "issue": "instruction issue",
}

PIPE_NORM: Final = constant(
    "PIPE_NORM",
    8.0,
    "1",
    "exponent of the norm that combines the pipes of an SM",
    formula="norm = (sum of pipe ^ PIPE_NORM) ^ (1 / PIPE_NORM)",
    source=fitted(
        "H100, 4096x4096x4096 fp16 by mma.sync",
        "474 and 495 thousand cycles with 128x256x64 and 128x128x64 are met",
    ),
    date="2026-11-22",
)

BANKED_REGISTERS: Final = constant(
    "BANKED_REGISTERS",
    176,
    "registers",
    "a thread's accumulators and two sets of operands up to which ptxas keeps the three registers "
    "that a multiply-add reads out of one of the two banks",
    formula="issue * (1 + BANK_STALLS) where accumulators + operands > BANKED_REGISTERS",
    source=counted(
        "SASS for an H100: multiply-adds that read one bank, of 20 thread tiles (banks: Jia et "
        "al., arXiv 1804.06826, 3.5)",
        "up to 4 % with eight shapes of up to 8x16 a thread, 9 to 15 % with eight of twelve larger",
    ),
    date="2026-11-21",
)

BANK_STALLS: Final = constant(
    "BANK_STALLS",
    0.1,
    "1",
    "issue slots that a multiply-add loses to bank conflicts beyond BANKED_REGISTERS",
    formula="issue * (1 + BANK_STALLS)",
    source=measured(
        "H100, ncu: an instruction takes 1.29 issue slots with 10x16 a thread, 1.19 with 8x16"
    ),
    date="2026-11-21",
)

ACCESS_WORDS: Final = constant(
    "ACCESS_WORDS",
    4,
    "elements",
    "the most of a thread's fragment that one load brings, where K is one element a step",
    formula="loads = thread_tile / gcd(thread_tile, ACCESS_WORDS)",
    source=documented("PTX ISA, ld.shared.v4"),
    date="2026-11-22",
)

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

CONVERT_INSTRUCTIONS: Final = constant(
    "CONVERT_INSTRUCTIONS",
    6,
    "instructions",
    "warp instructions for two values of each lane that are dequantised in registers: a load, four "
    "to widen them (to float16 a shift, two LOP3 and HADD2; to bfloat16 two PRMT, two I2F and a "
    "PRMT), and a share of an address",
    formula="issue = pairs * CONVERT_INSTRUCTIONS / issue_per_cycle",
    source=counted("SASS for sm_90a by nvcc 13.0, tile 64x16x128"),
    date="2026-11-22",
)

CONVERT_LOAD_INSTRUCTIONS: Final = constant(
    "CONVERT_LOAD_INSTRUCTIONS",
    2,
    "instructions",
    "those of CONVERT_INSTRUCTIONS for the load and its address, which ldmatrix shares among four "
    "pairs where K is outermost",
    formula="issue = pairs * (CONVERT_INSTRUCTIONS - CONVERT_LOAD_INSTRUCTIONS) / issue_per_cycle",
    source=counted("SASS for sm_90a by nvcc 13.0, tile 64x16x128"),
    date="2026-11-22",
)

PAIR: Final = constant(
    "PAIR",
    2,
    "elements",
    "values of a lane that are converted at once",
    formula="pairs = elements / (PAIR * 32)",
    source=documented("PTX ISA, packed half-precision instructions"),
    date="2026-11-22",
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Cycles of each pipe, and bytes from outside the SM. Sums of usages are usages."""

    tensor: float = 0.0
    """Cycles of the tensor cores."""
    fma: float = 0.0
    """Cycles of the FMA pipe."""
    sfu: float = 0.0
    """Cycles of the special function units."""
    lsu: float = 0.0
    """Cycles of the load and store units and of shared memory."""
    l2: float = 0.0
    """Cycles until what comes from outside the SM has arrived at its rate."""
    issue: float = 0.0
    """Cycles of the four warp schedulers together."""
    global_bytes: int = 0
    """Bytes from outside the SM."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tensor + other.tensor,
            self.fma + other.fma,
            self.sfu + other.sfu,
            self.lsu + other.lsu,
            self.l2 + other.l2,
            self.issue + other.issue,
            self.global_bytes + other.global_bytes,
        )

    @property
    def cycles(self) -> tuple[float, ...]:
        """Cycles of each pipe, in the order of ``PIPES``."""
        return (self.tensor, self.fma, self.sfu, self.lsu, self.l2, self.issue)

    @property
    def compute(self) -> float:
        """Cycles that arithmetic alone takes."""
        return max(self.tensor, self.fma, self.sfu)

    def busiest(self) -> tuple[str, float]:
        """The pipe that bounds an iteration from below, and its cycles (II)."""
        cycles = self.cycles
        most = max(cycles)
        return PIPES[cycles.index(most)], most

    def norm(self, exponent: float, *, tensor: bool = True) -> float:
        """``(sum over the pipes of cycles ^ exponent) ^ (1 / exponent)``: at least ``II``.

        ``tensor``: the tensor cores are among the pipes.
        """
        total = (
            (self.tensor**exponent if tensor else 0.0)
            + self.fma**exponent
            + self.sfu**exponent
            + self.lsu**exponent
            + self.l2**exponent
            + self.issue**exponent
        )
        return float(total ** (1.0 / exponent))


def of_copy(
    copy: CopyInfo,
    plan: CopyPlan,
    machine: Machine,
    rate: float,
    outside: float = 0.0,
    sharing: float = 0.0,
    running: float = 1.0,
) -> Usage:
    """Cycles of a tile copy from global memory.

    ``rate``: bytes a cycle that arrive, see ``copy_rate``. ``outside``: fraction of the rows of its
    boxes past the tensor's end. ``sharing``: SMs that copy the same at once. ``running``: fraction
    of the SMs that copy at all.

        TMA           l2 = max(bytes * requests_of_row, arriving) / rate + rows * (outside, ...)
        cp.async      lsu = max(bytes / 128, accesses, lines);  issue = 2 * accesses / 4
        by registers  lsu = max(bytes / 128, 2 * accesses);     issue = 3 * accesses / 4
    """
    moved, by = shared_bytes(copy), moved_by(plan)
    if by.by_producer:
        moved = boxed_bytes(copy, plan)
        own = moved // plan.multicast
        rows = own / min(LINE_BYTES, moved / copy.elements * copy.shape[-1])
        gathered = IM2COL_LINE_CYCLES if plan.view in PIXEL_VIEWS else 0.0
        crowded = sharing / CROWDED_ROWS_PER_CYCLE if _share_lines(copy) else 0.0
        extra = outside * ZERO_FILL_LINE_CYCLES + gathered + crowded
        return Usage(
            lsu=moved / machine.smem_bytes_per_cycle,
            l2=_delivered(own * _asked(copy, running), moved, plan) / rate + rows * extra,
            global_bytes=own,
        )
    accesses = moved / plan.vector_bytes / WARP
    # The load and store units take one access of a warp in a cycle, however narrow it is, and a
    # line, or a part of one, in a cycle: of 27 pairs of convolution tiles on an H100, 26 took 2 to
    # 32 % longer with rows of 64 bytes than with 128.
    # cp.async is one instruction; through registers it is a load and a store. Either needs about
    # one more to step its address.
    each = 1 if by.in_groups else 2
    served = accesses * each / machine.accesses_per_cycle
    if by.in_groups:
        served = max(served, _lines(copy) * moved / min(LINE_BYTES, _run_bytes(copy)))
    masks = MASK_INSTRUCTIONS if copy.no_tma and copy.masked else 0
    to_shared = moved / machine.smem_bytes_per_cycle if copy.dst_scope != "local" else 0.0
    return Usage(
        lsu=max(to_shared, served),
        l2=moved / rate * (COALESCED if sharing >= machine.sms else 1),
        issue=accesses * (each + 1 + masks) / machine.issue_per_cycle,
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
    if copy.view in PIXEL_VIEWS or None in copy.src_dims:
        return 1.0
    return lines_of_row(copy)


def _run_bytes(copy: CopyInfo) -> int:
    """Bytes of the tile that are contiguous in memory; a row of it where nothing is known."""
    walker = copy.src_dims[-1]
    return copy.shape[-1 if walker is None else walker] * element_bytes(copy.dtype)


def of_fragments(info: MatmulInfo, plan: MatmulPlan, machine: Machine, operand: str) -> Usage:
    """Cycles of reading operand ``a`` or ``b`` from shared memory, all k-steps of an iteration.

        wgmma      lsu = times * extent * k * size / 128    read by the tensor cores
        mma.sync   lsu = warps * warp_extent * k * size / 128;  issue = lsu_bytes / 512 / 4
        simt       lsu = warps * k * size / 4 * simt_shared_cycles

    ``times``: for the first operand, warpgroups along the other dimension; for the second, blocks
    of 64 rows of the first.
    """
    warps = plan.warps[0] * plan.warps[1]
    at = 0 if operand == "a" else 1
    if at == 0 and plan.operand == "computed":
        return Usage()
    size = element_bytes(info.a_dtype if operand == "a" else info.b_dtype)
    operands = multiplied_by(plan).operands
    if operands == "descriptor":
        # The first operand is A unless A and B are swapped.
        first = (operand == "a") != plan.swap_ab
        extent, other = (info.m, info.n) if operand == "a" else (info.n, info.m)
        times = plan.warps[1 - at] if first else other // ROWS
        cycles = times * extent * info.k * size / machine.smem_bytes_per_cycle
        if first and info.a_dtype != info.b_dtype:
            words = times * extent * info.k / (PAIR * WARP)
            each = CONVERT_INSTRUCTIONS
            if plan.transposed:
                each -= CONVERT_LOAD_INSTRUCTIONS
            read = cycles if plan.transposed else words
            return Usage(lsu=read, issue=words * each / machine.issue_per_cycle)
        return Usage(lsu=cycles)
    if operands == "vectors":
        own = plan.thread_tile[at]
        cycles = simt_shared_cycles(plan.warp_tile, plan.thread_tile, plan.k_step, at)
        cycles *= warps * info.k * size / 4
        wide = plan.k_step if plan.k_step > 1 else math.gcd(own, ACCESS_WORDS)
        instructions = own * plan.k_step / wide * plan.steps * warps
    else:
        bytes_read = warps * plan.warp_tile[at] * info.k * size
        cycles = bytes_read / machine.smem_bytes_per_cycle
        instructions = bytes_read / (16 * WARP)
    return Usage(lsu=cycles, issue=instructions / machine.issue_per_cycle)


def rereads_are_free(plan: MatmulPlan) -> bool:
    """Whether reading A costs a matmul nothing where the one before it has just read the same.

    So it is where A is wgmma's first operand. Measured on an H200: of 61 pairs of tiles of
    silu(A B1) * (A B2) that differ by 2 % or more, 54 are ranked rightly so, 43 if A is counted
    twice; 512x14336x4096 takes 161.9 us in 128x112 and 174.1 in 128x160, predicted 149 and 151,
    else 161 and 158.
    """
    return multiplied_by(plan).operands == "descriptor" and not plan.swap_ab


def of_arithmetic(info: MatmulInfo, plan: MatmulPlan, machine: Machine) -> Usage:
    """Cycles of the multiply-adds of all k-steps of a mapped matmul.

        tensor cores  tensor = 2 * m * n * k / ops_per_cycle;  issue = instructions / 4
        threads       fma = m * n * k / fp32_per_cycle;        issue = m * n * k / 32 / 4

    Promoted sums are added by CUDA cores; operands of another type than the sums are converted.
    """
    macs = info.m * info.n * info.k
    if multiplied_by(plan).thread_tile:
        instructions = macs / WARP
        if info.a_dtype != info.acc_dtype:  # each operand is converted once for each use
            rows, columns = plan.thread_tile
            instructions *= 1 + (rows + columns) / (rows * columns)
        if _operand_registers(info, plan) > BANKED_REGISTERS:
            instructions *= 1 + BANK_STALLS
        return Usage(
            fma=macs / machine.fp32_per_cycle, issue=instructions / machine.issue_per_cycle
        )
    rate = rate_of(plan, machine)
    if rate is None:
        return Usage(fma=macs / machine.fp32_per_cycle)
    m, n, k = rate.shape
    added = macs / plan.promoted if plan.promoted else 0
    return Usage(
        tensor=2 * macs / rate.ops_per_cycle,
        fma=added / machine.fp32_per_cycle,
        issue=(macs / (m * n * k) + added / WARP) / machine.issue_per_cycle,
    )


def _operand_registers(info: MatmulInfo, plan: MatmulPlan) -> int:
    """Registers of a thread that multiplies: accumulators, operands of this k-step and the next."""
    rows, columns = plan.thread_tile
    steps = 2 if plan.steps > 1 else 1
    operands = steps * (rows + columns) * plan.k_step
    return (
        rows * columns * element_bytes(info.acc_dtype) + operands * element_bytes(info.a_dtype)
    ) // 4


def of_statement(info: StatementInfo, machine: Machine, rate: float) -> Usage:
    """Cycles of any other statement, from the bytes and operations that were counted in it."""
    rates = [mma.ops_per_cycle for mma in machine.mmas if mma.dtype == "float16"]
    words = (info.global_bytes + info.shared_bytes) / 4
    operations = info.flops / 2 + info.transcendentals + words
    return Usage(
        tensor=info.tensor_flops / rates[0] if rates else 0.0,
        fma=info.flops / 2 / machine.fp32_per_cycle,
        sfu=info.transcendentals / machine.sfu_per_cycle,
        lsu=info.shared_bytes / machine.smem_bytes_per_cycle,
        l2=info.global_bytes / rate,
        issue=operations / WARP / machine.issue_per_cycle,
        global_bytes=info.global_bytes,
    )
