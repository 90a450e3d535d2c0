"""Cycles that a matmul keeps each pipe of an SM busy in an iteration: operands, products, sums."""

from __future__ import annotations

import math
from typing import Final

from ...instructions.dtypes import element_bytes
from ...instructions.simt import simt_shared_cycles
from ...instructions.table import multiplied_by, rate_of
from ...instructions.wgmma_shapes import ROWS
from ...machine import WARP, Machine
from ...machine.constant import constant, counted, documented, measured
from ...plan import MatmulPlan
from ...values.facts import MatmulInfo
from .pipes import Usage

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
