"""Bytes a cycle that reach one SM from L2 or from memory."""

from __future__ import annotations

from typing import Final

from ..machine import Machine
from ..machine.constant import chosen, constant, measured
from ..plan import CopyPlan
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .layouts import shared_bytes
from .table import moved_by

TMA_RATE: Final = constant(
    "TMA_RATE",
    1.15,
    "1",
    "bytes a cycle that TMA gets from L2, over what cp.async gets",
    formula="l2 = bytes / (l2_bytes_per_cycle * TMA_RATE); im2col: min(TMA_RATE, sms / ctas)",
    source=measured(
        "H100: 62 bytes a cycle and SM, boxes of 4000x4104x4040 whose rows each lie in two lines"
    ),
    date="2026-11-21",
)

MULTIPLIED_FLOPS_PER_BYTE: Final = constant(
    "MULTIPLIED_FLOPS_PER_BYTE",
    8,
    "operations/byte",
    "operations for each copied byte from which on a loop bound to threads multiplies tiles, "
    "which neighbouring CTAs read from L2",
    formula="rate = l2_bytes_per_cycle where flops > MULTIPLIED_FLOPS_PER_BYTE * copied_bytes",
    source=chosen("a stream does about one operation with a byte, a product tile more than ten"),
    date="2026-11-21",
)


def cta_count(info: KernelInfo) -> int | None:
    """CTAs of the kernel; None: known at run time only."""
    ctas = 1
    for extent in info.grid:
        ctas = 0 if extent is None else ctas * extent
    return ctas or None


def is_implicit_gemm(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> bool:
    """Whether TMA gathers operand A of an implicit GEMM in ``loop``."""
    used = {op.op for op in loop.ops if isinstance(op, CopyInfo)}
    return any(plan.op in used and plan.view != "tensor" for plan in copies)


def copy_rate(
    machine: Machine, loop: LoopInfo, copies: tuple[CopyPlan, ...], ctas: int | None
) -> float:
    """Bytes a cycle that ``copies`` bring one SM in ``loop``.

    ``ctas``: of the grid; None: not known. ``memory_rate``, times ``TMA_RATE`` by TMA. SMs that
    gather an implicit GEMM's operand share what L2 gives in all: ``min(TMA_RATE, sms / ctas)``. On
    an H100, 32x7x7x512 with 512 filters of 3x3: 100 CTAs of 64x128 got 60 bytes a cycle each and
    took 19.8 us; 125 of 64x112, each of which reads less, 23.7.
    """
    rate = memory_rate(machine, loop)
    used = {op.op for op in loop.ops if isinstance(op, CopyInfo)}
    if not any(plan.op in used and moved_by(plan).async_proxy for plan in copies):
        return rate
    if not is_implicit_gemm(loop, copies):
        return rate * TMA_RATE
    busy = min(ctas or machine.sms, machine.sms)
    return rate * min(TMA_RATE, machine.sms / busy)


def memory_rate(machine: Machine, loop: LoopInfo) -> float:
    """Bytes a cycle that reach one SM from outside it: of L2, or its share of memory.

    Tiles that a matmul reads are shared by neighbouring CTAs and come from L2; what streams through
    once comes from memory.
    """
    if any(isinstance(op, MatmulInfo) for op in loop.ops):
        return machine.l2_bytes_per_cycle
    flops = sum(op.flops + op.tensor_flops for op in loop.ops if isinstance(op, StatementInfo))
    copied = sum(shared_bytes(op) for op in loop.ops if isinstance(op, CopyInfo))
    reused = copied > 0 and flops > MULTIPLIED_FLOPS_PER_BYTE * copied
    return machine.l2_bytes_per_cycle if reused else machine.dram_bytes_per_cycle
