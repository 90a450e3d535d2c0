"""What one statement of a loop's body asks of an SM's pipes in one iteration, in cycles.

The pipes: ``tensor``, ``fma`` and ``sfu`` compute; ``lsu`` moves shared memory (128 bytes a cycle);
``l2`` is the SM's share of what comes from outside it; ``issue`` is the instruction slots of the
four warp schedulers, which every instruction takes from whatever pipe it uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ..kernel import PIXEL_VIEWS, CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from ..machine import WARP, Machine
from ..plan import CopyPlan, MatmulPlan
from .copies import shared_bytes
from .mapping import simt_shared_cycles
from .sizes import element_bytes
from .tma import lines_of_row
from .wgmma import ROWS

PIPES: Final = ("tensor", "fma", "sfu", "lsu", "l2", "issue")

PIPE_WORDS: Final = {
    "tensor": "tensor cores",
    "fma": "FMA pipe",
    "sfu": "special functions",
    "lsu": "shared memory",
    "l2": "L2 or memory bandwidth",
    "issue": "instruction issue",
}


LINE: Final = 128
"""Bytes of a line. The load and store units take a line a cycle, or a part of one: of 27 pairs of
convolution tiles on an H100, 26 took 2 to 32 % longer with rows of 64 bytes than with 128."""

BANKED_REGISTERS: Final = 176
"""Of a thread's sums and two sets of operands, up to which ptxas keeps the three registers that a
multiply-add reads out of one of the two banks (Jia et al., Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking, 3.5). In the SASS for an H100 up to 4 % of multiply-adds read
one bank with eight shapes of up to 8 x 16 for a thread, 9 to 15 % with eight of twelve larger ones.
"""

BANK_STALLS: Final = 0.1
"""Issue slots that a multiply-add loses beyond. Counted on an H100 (ncu): with 10 x 16 of a thread
an instruction takes 1.29 slots and waits for dispatch twice as long as with 8 x 16, 1.19 slots."""

ACCESS_WORDS: Final = 4
"""Elements of a thread's share that one load of its fragments brings at most."""

TMA_RATE: Final = 1.15
"""What the tensor memory accelerator gets from L2, of what threads do. Measured on an H100: 62
bytes a cycle and SM, from boxes of 4000 x 4104 x 4040, whose rows each lie in two lines."""


PIXEL_CYCLES: Final = 1.0
"""What a line of pixels, or a part of one, takes more than one of filters. Measured on an H100, 32
x 7 x 7 x 512: 64 pixels by 128 channels took 21.8 us, 128 x 64, which copies as much, 24.9 and,
swapped, 25.9; of 0.7 to 1.6 it ranks 36 pairs of tiles of ten layers best, with ``COLD_TILE``."""

OUTSIDE_CYCLES: Final = 12.0
"""What a line of a box takes that lies past the end of the tensor and is filled with zeros: on an
H100, with 3 x 3 filters on 8 x 64 x 64 x 320, by tiles of 128 x 256, 512 filters take 134 us,
384 and 320, which copy less, 174 and 201; by 128 x 128, 384 take 120 and 320 153: 12 to 16 cycles.
"""

MASKING: Final = 5
"""Instructions of a masked element that is gathered, for its address and its mask, beside those of
an element of a matrix. Counted in the SASS of 3 x 3 filters in fp32 for an H100: 4.9 to 5.8 by
cp.async, 5.1 by way of registers; 1 x 1 filters take as many as a matrix does."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Cycles of each pipe, and bytes from outside the SM. Sums of usages are usages."""

    tensor: float = 0.0
    fma: float = 0.0
    sfu: float = 0.0
    lsu: float = 0.0
    l2: float = 0.0
    issue: float = 0.0
    global_bytes: int = 0

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
        """Those of each pipe, in the order of ``PIPES``."""
        return (self.tensor, self.fma, self.sfu, self.lsu, self.l2, self.issue)

    @property
    def compute(self) -> float:
        """Cycles that arithmetic alone takes."""
        return max(self.tensor, self.fma, self.sfu)

    def busiest(self) -> tuple[str, float]:
        """The pipe that bounds an iteration from below, and its cycles."""
        cycles = self.cycles
        most = max(cycles)
        return PIPES[cycles.index(most)], most

    def norm(self, exponent: float) -> float:
        """All pipes' cycles as one number: the busiest one's, and more as others are busy."""
        total = (
            self.tensor**exponent
            + self.fma**exponent
            + self.sfu**exponent
            + self.lsu**exponent
            + self.l2**exponent
            + self.issue**exponent
        )
        return float(total ** (1.0 / exponent))


def of_copy(
    copy: CopyInfo, plan: CopyPlan, machine: Machine, rate: float, outside: float = 0.0
) -> Usage:
    """A tile copy from global memory that arrives at ``rate`` bytes a cycle, see ``copy_rate``.

    ``outside``: of the rows of its boxes, those that lie past the end of the tensor.
    """
    moved = shared_bytes(copy)
    if plan.mechanism == "tma":
        own = moved // plan.shared
        rows = own / min(LINE, copy.shape[-1] * element_bytes(copy.dtype))
        extra = outside * OUTSIDE_CYCLES + (PIXEL_CYCLES if plan.view in PIXEL_VIEWS else 0.0)
        return Usage(
            lsu=moved / machine.smem_bytes_per_cycle,
            l2=own * lines_of_row(copy) / rate + rows * extra,
            global_bytes=own,
        )
    accesses = moved / plan.vector_bytes / WARP
    # The load and store units take a warp's access in a cycle, however narrow it is.
    served = accesses * (1 if plan.mechanism == "cp_async" else 2) / machine.accesses_per_cycle
    if plan.mechanism == "cp_async":
        served = max(served, _lines(copy) * moved / min(LINE, _run_bytes(copy)))
    # cp.async is one instruction; through registers it is a load and a store. Either needs about
    # one more to step its address.
    each = 2 if plan.mechanism == "cp_async" else 3
    if copy.no_tma and copy.masked:
        each += MASKING
    to_shared = moved / machine.smem_bytes_per_cycle if copy.dst_scope != "local" else 0.0
    return Usage(
        lsu=max(to_shared, served),
        l2=moved / rate,
        issue=accesses * each / machine.issue_per_cycle,
        global_bytes=moved,
    )


def _lines(copy: CopyInfo) -> float:
    """Lines in which a row lies, a cycle each; 1 where neighbouring rows may share them.

    Measured on an H100, 72 kernels of three products by cp.async, rows of 2064, 4112 and 8208
    bytes: 3 % more time than predicted so as a mean, 19 % with a line for each row.
    """
    if copy.view in PIXEL_VIEWS or None in copy.src_dims:
        return 1.0
    return lines_of_row(copy)


def _run_bytes(copy: CopyInfo) -> int:
    """Of the tile, those that lie together in memory; a row of it where nothing is known."""
    walker = copy.src_dims[-1]
    return copy.shape[-1 if walker is None else walker] * element_bytes(copy.dtype)


CONVERTING: Final = 6
"""Instructions of a warp for two values of each lane that are converted on their way to registers:
to load them, four to widen them (into float16 a shift, two LOP3 and HADD2; into bfloat16 two PRMT,
two I2F and a PRMT), and its share of an address. Counted in what nvcc 13.0 makes of a tile of 64 x
16 x 128 on sm_90a."""

LOADING: Final = 2
"""Of those, what a load and its address take, which ldmatrix shares among four pairs where K is
outermost."""

_PAIR: Final = 2


def of_fragments(info: MatmulInfo, plan: MatmulPlan, machine: Machine, operand: str) -> Usage:
    """Shared memory to registers, or tensor cores: all k-steps of operand ``a`` or ``b``."""
    warps = plan.warps[0] * plan.warps[1]
    at = 0 if operand == "a" else 1
    size = element_bytes(info.a_dtype if operand == "a" else info.b_dtype)
    if plan.instruction.startswith("wgmma"):
        # The tensor cores read the first operand, A unless the tile is swapped, for every warpgroup
        # along the other dimension, and the second for every 64 rows of the first.
        first = (operand == "a") != plan.swapped
        extent, other = (info.m, info.n) if operand == "a" else (info.n, info.m)
        times = plan.warps[1 - at] if first else other // ROWS
        cycles = times * extent * info.k * size / machine.smem_bytes_per_cycle
        if first and info.a_dtype != info.b_dtype:
            words = times * extent * info.k / (_PAIR * WARP)
            each = CONVERTING - LOADING if plan.turned else CONVERTING
            read = cycles if plan.turned else words
            return Usage(lsu=read, issue=words * each / machine.issue_per_cycle)
        return Usage(lsu=cycles)
    if plan.instruction == "simt":
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


def of_arithmetic(info: MatmulInfo, plan: MatmulPlan, machine: Machine) -> Usage:
    """The multiply-adds of all k-steps of a mapped matmul."""
    macs = info.m * info.n * info.k
    if plan.instruction == "simt":
        instructions = macs / WARP
        if info.a_dtype != info.acc_dtype:  # each operand is converted once for each use
            rows, columns = plan.thread_tile
            instructions *= 1 + (rows + columns) / (rows * columns)
        if _operand_registers(info, plan) > BANKED_REGISTERS:
            instructions *= 1 + BANK_STALLS
        return Usage(
            fma=macs / machine.fp32_per_cycle, issue=instructions / machine.issue_per_cycle
        )
    rate = machine.rate(plan.instruction, plan.dtype)
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
    """Registers of a thread that multiplies: sums, and operands of this k-step and the next."""
    rows, columns = plan.thread_tile
    steps = 2 if plan.steps > 1 else 1
    operands = steps * (rows + columns) * plan.k_step
    return (
        rows * columns * element_bytes(info.acc_dtype) + operands * element_bytes(info.a_dtype)
    ) // 4


def of_statement(info: StatementInfo, machine: Machine, rate: float) -> Usage:
    """Any other statement, from what recognition counted in it."""
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


def cta_count(info: KernelInfo) -> int | None:
    """CTAs of the kernel; None: known at run time only."""
    ctas = 1
    for extent in info.grid:
        ctas = 0 if extent is None else ctas * extent
    return ctas or None


def gathers(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> bool:
    """Whether the tensor memory accelerator copies a convolution's pixels in ``loop``."""
    used = {op.op for op in loop.ops if isinstance(op, CopyInfo)}
    return any(plan.op in used and plan.view != "tensor" for plan in copies)


def copy_rate(
    machine: Machine, loop: LoopInfo, copies: tuple[CopyPlan, ...], ctas: int | None
) -> float:
    """Bytes a cycle that ``copies`` bring one SM in ``loop``, of ``ctas`` CTAs (None: not known).

    SMs that gather pixels share what L2 gives in all: ``TMA_RATE`` is for fewer than there are.
    Measured on an H100, 32 x 7 x 7 x 512 pixels with 512 filters of 3 x 3: 100 CTAs of 64 x 128 got
    60 bytes a cycle each and took 19.8 us; 125 of 64 x 112, each of which reads less, 23.7.
    """
    rate = memory_rate(machine, loop)
    used = {op.op for op in loop.ops if isinstance(op, CopyInfo)}
    if not any(plan.op in used and plan.mechanism == "tma" for plan in copies):
        return rate
    if not gathers(loop, copies):
        return rate * TMA_RATE
    busy = min(ctas or machine.sms, machine.sms)
    return rate * min(TMA_RATE, machine.sms / busy)


def memory_rate(machine: Machine, loop: LoopInfo) -> float:
    """Bytes a cycle that reach one SM from outside it in ``loop``.

    Tiles that a matmul reads are shared by neighbouring CTAs and come from L2; what streams through
    once comes from memory. A loop that the schedule bound to threads multiplies tiles when it does
    many operations with each byte it copies.
    """
    if any(isinstance(op, MatmulInfo) for op in loop.ops):
        return machine.l2_bytes_per_cycle
    flops = sum(op.flops + op.tensor_flops for op in loop.ops if isinstance(op, StatementInfo))
    copied = sum(shared_bytes(op) for op in loop.ops if isinstance(op, CopyInfo))
    reused = copied > 0 and flops > 8 * copied
    return machine.l2_bytes_per_cycle if reused else machine.dram_bytes_per_cycle
