"""Map a matmul tile to mma.sync: types, warp tiles, registers.

``passes/matmul/mma_sync.py`` emits it.

A larger warp tile reads each operand from shared memory less often. Registers bound it: a warp
holds its accumulators, and two sets of fragments so that the next k-step's loads run under this
one's arithmetic. Where something is computed of rows, or of the sums another matmul reads, a warp
that has whole rows and one set is better than one that has parts of rows, which warps would pass to
each other through shared memory.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from ..diagnostics import Reason
from ..machine import WARP, Machine, MmaRate
from ..plan import MatmulPlan
from ..plan.kinds import MatmulInstruction
from ..plan.request import OperandAsked
from ..values.elements import element, multiplied_as
from ..values.facts import MatmulInfo
from .dtypes import element_bytes
from .registers import MANY_ACCUMULATORS, OVERHEAD_REGISTERS
from .warps import PARTITIONS, Mapping, asked_warps, warp_layouts, with_asked

_PAIRED: Final = element_bytes("float16")
"""Of values of which two share a register as two sums lie side by side in a lane."""

MMA: Final = MatmulInstruction("mma", "ldmatrix", Machine.mma, skips_k_tail=True)


def mma_rate(info: MatmulInfo, machine: Machine) -> MmaRate | Reason:
    """The tensor core instruction for the operands' type, or why there is none."""
    if info.a_dtype != info.b_dtype:
        return Reason("mapping.dtypes", a_dtype=info.a_dtype, b_dtype=info.b_dtype)
    dtype = multiplied_as(element(info.a_dtype))
    rate = machine.mma(dtype)
    if rate is None:
        return Reason("mapping.no_mma", machine=machine.name, arch=machine.arch, dtype=dtype)
    if info.acc_dtype not in element(info.a_dtype).sums:
        return Reason("mapping.accumulator", dtype=dtype, accumulator=info.acc_dtype)
    m, n, k = rate.shape
    if info.m % m or info.n % n or info.k % k:
        return Reason("mapping.multiple", tile=(info.m, info.n, info.k), m=m, n=n, k=k)
    return rate


def map_mma_sync(
    info: MatmulInfo,
    machine: Machine,
    rate: MmaRate,
    warps: tuple[int, int] | None,
    threads: int | None,
    beside: int = 0,
    operand: OperandAsked = "auto",
) -> Mapping | Reason:
    """The warps that read operands least often, or why none fit.

    ``beside``: words of other accumulators of the CTA. ``operand``: where the first operand is to
    be read from.
    """
    m, n, k = rate.shape
    best: tuple[tuple[float, ...], tuple[int, int], int] | None = None
    most = min(PARTITIONS, (info.m // m) * (info.n // n))
    for layout in warp_layouts(info, warps, threads):
        rows, columns = info.m // layout[0], info.n // layout[1]
        if info.m % layout[0] or info.n % layout[1] or rows % m or columns % n:
            continue
        others = beside // (math.prod(layout) * WARP)
        computed = operand != "shared" and _reads_where_computed(info, layout)
        of_warp = partial(_mma_registers, info, rate, rows, columns, others, computed=computed)
        fitting = (
            (sets, registers)
            for sets in _sets_of_fragments(info)
            if (registers := of_warp(sets)) <= machine.max_registers_per_thread
        )
        sets, registers = next(fitting, (0, 0))
        if not sets:
            continue
        count = layout[0] * layout[1]
        score = (
            float(info.by_rows and layout[1] > 1),  # a row that several warps share
            -float(sets),
            float(max(0, most - count)),  # warp schedulers without a warp idle
            float(columns % (2 * n) != 0),  # ldmatrix.x4 fills two B fragments at once
            float(count * (rows + columns)),  # operand rows read from shared memory
            float(abs(rows - columns)),
        )
        if best is None or score < best[0]:
            best = (score, layout, registers)
    if best is None:
        tile = (info.m, info.n, info.k)
        registers = machine.max_registers_per_thread
        why = Reason("mapping.mma_split", tile=tile, m=m, n=n, k=k, registers=registers)
        return with_asked(why, *asked_warps(warps))
    _, layout, registers = best
    rows, columns = info.m // layout[0], info.n // layout[1]
    types = f"{element(info.a_dtype).operand}.{element(info.acc_dtype).ptx}"
    plan = MatmulPlan(
        op=info.op,
        m=info.m,
        n=info.n,
        k=info.k,
        dtype=rate.dtype,
        accumulator=info.acc_dtype,
        instruction=f"mma.m{m}n{n}k{k}.{types}",
        warps=layout,
        warp_tile=(rows, columns),
        thread_tile=(0, 0),
        k_step=k,
        steps=info.k // k,
        reason=_reason(rate, machine, (rows, columns), registers),
        operand="computed"
        if operand != "shared" and _reads_where_computed(info, layout)
        else "shared",
    )
    return Mapping(plan, layout[0] * layout[1] * WARP, registers)


def _sets_of_fragments(info: MatmulInfo) -> tuple[int, ...]:
    """Sets of fragments that a warp may hold at most, the preferred one first."""
    return (2, 1) if info.by_rows or info.computed else (2,)


def _reads_where_computed(info: MatmulInfo, layout: tuple[int, int]) -> bool:
    """Whether operand A is computed in registers, of rows that each warp has whole.

    Pairs of 16-bit values are words: of sums of 16 columns those of one k-step.
    """
    whole = layout[1] == 1 and element_bytes(info.a_dtype) == _PAIRED
    return info.computed == (info.a,) and whole


def _reason(rate: MmaRate, machine: Machine, tile: tuple[int, int], registers: int) -> Reason:
    """Why mma.sync computes it, and what the GPU has beside that no plan uses."""
    why = Reason(
        "mapping.mma",
        machine=machine.name,
        ops=rate.ops_per_cycle,
        fma=2 * machine.fp32_per_cycle,
        tile=tile,
        registers=registers,
        most=machine.max_registers_per_thread,
    )
    if not machine.has_tma or machine.wgmmas:
        return why
    if machine.has_tcgen05:
        return Reason("mapping.unused_tcgen05", why=why, arch=machine.arch)
    return Reason("mapping.no_warpgroups", why=why, arch=machine.arch)


def _mma_registers(
    info: MatmulInfo,
    rate: MmaRate,
    rows: int,
    columns: int,
    others: int,
    sets: int,
    *,
    computed: bool,
) -> int:
    """Registers of a thread: accumulators + one or two sets of fragments + OVERHEAD_REGISTERS.

    ``others``: registers of other accumulators. ``sets``: at most. ``computed``: operand A takes
    the place of those.
    """
    bits = 8 * element_bytes(info.a_dtype)
    accumulator_bits = 16 if info.acc_dtype == "float16" else 32
    lanes = 32 * WARP
    accumulators = rows * columns * accumulator_bits // lanes + others
    sets = min(sets, 2 if _keeps_second(info.k // rate.k, accumulators) else 1)
    left = 0 if computed else sets * rows * rate.k * bits // lanes
    right = sets * columns * rate.k * bits // lanes
    return accumulators + left + right + OVERHEAD_REGISTERS


def _keeps_second(steps: int, sums: int) -> bool:
    """Whether a thread holds fragments of two k-steps; ``sums``: registers of its accumulators.

    With more than two k-steps; of two ptxas keeps both only beside ``MANY_ACCUMULATORS``.
    """
    return steps > 2 or (steps == 2 and sums >= MANY_ACCUMULATORS)


def second_fragments(info: MatmulInfo, plan: MatmulPlan) -> int:
    """Registers of a thread for the fragments of a k-step that is read ahead."""
    sums = math.prod(plan.warp_tile) * element_bytes(info.acc_dtype) // (4 * WARP)
    if not _keeps_second(plan.steps, sums):
        return 0
    return sum(plan.warp_tile) * plan.k_step * element_bytes(info.a_dtype) // (4 * WARP)
