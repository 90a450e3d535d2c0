"""A loop's descriptor corrected by what nvcc made of the kernel, once that is compiled.

The model estimates registers and instructions. How many of them ptxas takes, and how many
multiply-adds then wait for a register bank, no formula tells: of one tile with three slots it took
220 registers and 148 of 1024 multiply-adds wait, with four 255 and 37 (3 x 3 filters in fp32, 128 x
128 x 8 for an H100: 243 and 215 us).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from ..kernel import LoopInfo, MatmulInfo
from ..machine import WARP, Machine
from ..plan import MatmulPlan
from .descriptor import Work
from .sizes import element_bytes
from .wgmma import WARPGROUP

_SHAPE: Final = re.compile(r"\.m(\d+)n(\d+)k(\d+)\.")

_PACKED: Final = 2
"""Multiply-adds of one instruction that adds in 16 bits."""


@dataclass(frozen=True, slots=True)
class Built:
    """What ptxas made of a kernel: ``registers`` of a thread, and of one iteration of its loop the
    ``instructions`` of a warp and the ``conflicts``, those that wait for a register bank.

    ``instructions`` is 0 where the loop is not known in machine code.
    """

    registers: int
    instructions: float = 0.0
    conflicts: float = 0.0


def as_built(work: Work, built: Built, machine: Machine) -> Work:
    """``work`` with what ``built`` says in place of what was estimated, at the depth it was built.

    For loops without roles: those set their registers themselves, and copy in a loop of their own.
    """
    work = replace(work, registers=built.registers, slot_registers=0, spared_registers=0)
    if not built.instructions:
        return work
    each = work.threads / WARP / machine.issue_per_cycle
    usage = replace(work.usage, issue=(built.instructions + built.conflicts) * each)
    if usage.fma:
        usage = replace(usage, fma=usage.fma + built.conflicts * each)
    return replace(work, usage=usage)


def multiplies(loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Instructions of a warp, or of a warpgroup, that multiply tiles in one iteration of ``loop``.

    By them the iterations are counted that nvcc put into one of machine code.
    """
    plans = {plan.op: plan for plan in matmuls}
    found = [op for op in loop.ops if isinstance(op, MatmulInfo) and op.op in plans]
    return sum(_multiplies(op, plans[op.op]) for op in found)


def _multiplies(op: MatmulInfo, plan: MatmulPlan) -> float:
    macs = op.m * op.n * op.k
    warps = plan.warps[0] * plan.warps[1]
    if plan.instruction == "simt":
        packed = _PACKED if element_bytes(op.acc_dtype) == 2 else 1
        return macs / (warps * WARP * packed)
    found = _SHAPE.search(plan.instruction)
    assert found is not None, plan.instruction
    m, n, k = map(int, found.groups())
    groups = warps * WARP // WARPGROUP if plan.instruction.startswith("wgmma") else warps
    return macs / (groups * m * n * k)
