"""Post-compile correction: the descriptor with the registers and instructions that ptxas made.

The model estimates both. How many registers ptxas takes, and how many multiply-adds then wait for a
register bank, no formula tells: with three slots one tile took 220 registers and 148 of 1024
multiply-adds wait, with four 255 and 37 (3x3 filters in fp32, 128x128x8, H100: 243 and 215 us).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ..cost.descriptor import ThreadBudget, Work
from ..cost.predict import Prediction
from ..instructions.dtypes import element_bytes
from ..instructions.wgmma_shapes import WARPGROUP
from ..machine import WARP, Machine
from ..machine.constant import chosen, constant, documented, measured
from ..plan import MatmulPlan
from ..toolchain.machine_code import BANKED, LoopCode
from ..values.facts import LoopInfo, MatmulInfo
from .depth import TOLERANCE, taken

COMPILE_MARGIN: Final = constant(
    "COMPILE_MARGIN",
    0.35,
    "1",
    "relative time by which a depth may be predicted to be slower than the best and is compiled "
    "all the same",
    formula="compiled where us <= best * (1 + COMPILE_MARGIN)",
    source=measured(
        "H100, 64x128x64 with two slots: 128 registers where 152 are estimated, four CTAs an SM "
        "instead of three",
        "18 % less time",
    ),
    date="2026-11-22",
)

WHOLE_ITERATIONS: Final = constant(
    "WHOLE_ITERATIONS",
    0.1,
    "1",
    "relative difference up to which a loop's multiplications are those of whole iterations",
    formula="abs(counted / each / whole - 1) <= WHOLE_ITERATIONS",
    source=chosen("a count between two whole numbers of iterations is that of another loop"),
    date="2026-11-22",
)

_SHAPE: Final = re.compile(r"\.m(\d+)n(\d+)k(\d+)\.")
PACKED_MACS: Final = constant(
    "PACKED_MACS",
    2,
    "1",
    "multiply-adds of one instruction that adds in 16 bits",
    formula="instructions = m * n * k / (threads * PACKED_MACS)",
    source=documented("PTX ISA, fma.rn.f16x2"),
    date="2026-11-22",
)


@dataclass(frozen=True, slots=True)
class AsBuilt:
    """What ptxas made of a kernel; numbers but the first are of one warp and one iteration."""

    registers: int
    """Registers of a thread."""
    instructions: float = 0.0
    """Instructions; 0 where the loop was not found in machine code."""
    conflicts: float = 0.0
    """Instructions that wait for a register bank."""
    spills: float = 0.0
    """Instructions that move what did not fit the registers."""


def read_loop(
    registers: int, code: LoopCode | None, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> AsBuilt:
    """What one iteration of ``loop`` takes of ``code``, which has one iteration or several.

    The multiplications tell how many. Where they are not those of whole iterations, only registers
    are known.
    """
    each = _multiplies(loop, matmuls)
    if code is None or not each:
        return AsBuilt(registers)
    times = (code.tensor or code.multiplies) / each
    whole = round(times)
    if whole < 1 or abs(times / whole - 1) > WHOLE_ITERATIONS:
        return AsBuilt(registers)
    return AsBuilt(
        registers, code.instructions / whole, code.conflicts / whole, code.spills / whole
    )


def as_built(work: Work, found: AsBuilt, machine: Machine) -> Work:
    """``work`` with what ``found`` says in place of the estimates, at the depth that was compiled.

    For kernels without a producer warp: that one's roles set their registers themselves.
    """
    work = replace(work, threads=ThreadBudget(work.threads.count, found.registers))
    if not found.instructions:
        return work
    each = work.threads.count / WARP / machine.issue_per_cycle
    conflicts = found.conflicts if machine.capability >= BANKED else 0.0
    usage = replace(work.usage, issue=(found.instructions + conflicts) * each)
    if usage.fma:
        usage = replace(usage, fma=usage.fma + conflicts * each)
    # What was spilled is in L1, as far as shared memory is.
    first = work.fragments.first + found.spills * machine.shared_latency
    return replace(work, usage=usage, fragments=replace(work.fragments, first=first))


def worth_building(options: Iterable[Prediction]) -> tuple[Prediction, ...]:
    """The depths of one loop that may turn out to be the best once they are compiled."""
    found = tuple(options)
    best = min((option.us for option in found), default=0.0)
    return tuple(option for option in found if option.us <= best * (1 + COMPILE_MARGIN))


def best_built(before: Iterable[Prediction], after: Iterable[Prediction]) -> Prediction | None:
    """The depth to take of those that were compiled, predicted ``before`` and ``after``.

    None: compiling corrects no prediction by more than ``TOLERANCE``, and the choice stands.
    """
    estimates = {option.depth: option.us for option in before}
    options = sorted(after, key=lambda option: option.depth)
    moved = (abs(option.us / estimates[option.depth] - 1) for option in options)
    return taken(options) if max(moved, default=0.0) > TOLERANCE else None


def _multiplies(loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Multiply instructions of a warp, or of a warpgroup, in one iteration of ``loop``."""
    plans = {plan.op: plan for plan in matmuls}
    found = [op for op in loop.ops if isinstance(op, MatmulInfo) and op.op in plans]
    return sum(_of_matmul(op, plans[op.op]) for op in found)


def _of_matmul(op: MatmulInfo, plan: MatmulPlan) -> float:
    macs = op.m * op.n * op.k
    warps = plan.warps[0] * plan.warps[1]
    shape = _SHAPE.search(plan.instruction)
    if shape is None:
        packed = PACKED_MACS if element_bytes(op.acc_dtype) == 2 else 1
        return macs / (warps * WARP * packed)
    m, n, k = map(int, shape.groups())
    groups = warps * WARP // WARPGROUP if plan.instruction.startswith("wgmma") else warps
    return macs / (groups * m * n * k)
