"""The ops of a pipelined body, with latency and occupancy of each, for the modulo scheduler.

Ops are named by the passes: a copy by its own name, ``X.load`` and ``X.store`` for its halves
through registers, ``X.wait`` for the wait on asynchronous copies, and ``P.kN.a``, ``P.kN.b``,
``P.kN`` for the fragment loads and the arithmetic of k-step N of a matmul.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple, cast

from ..instructions.table import multiplied_by, rate_of
from ..machine import Machine
from ..mechanisms.layouts import shared_bytes
from ..mechanisms.rates import copy_rate, cta_count, memory_rate
from ..mechanisms.table import moved_by
from ..plan import CopyPlan, KernelPlan, LoopPlan, MatmulPlan, OpKind, OpPlan, Pipe
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .k_tail import marked
from .usage import Usage, of_arithmetic, of_copy, of_fragments, of_statement

_STEP: Final = re.compile(r"(?P<matmul>.+)\.k\d+(?:\.(?P<operand>[ab]))?")


class OpCost(NamedTuple):
    """What one op of one iteration of one CTA costs."""

    pipe: Pipe
    """The pipe of an SM that it keeps busy."""
    latency: int
    """Cycles from its issue until a consumer may start."""
    occupancy: int
    """Cycles that it keeps the pipe busy."""


def op_cost(name: str, info: KernelInfo, plan: KernelPlan, machine: Machine) -> OpCost:
    """The cost of op ``name``; one cycle of the ALU where nothing is known about it."""
    step = _STEP.fullmatch(name)
    if step:
        matmul = _matmul(step["matmul"], info, plan)
        if matmul is not None:
            return _step_cost(*matmul, step["operand"], machine)
    stem, _, half = name.rpartition(".")
    if half == "wait" and stem:
        return OpCost("sync", machine.barrier_cycles, 1)
    if half == "mma_wait" and stem:
        return OpCost("sync", 1, 1)
    copy = _copy(stem if half in ("load", "store") and stem else name, info, plan)
    if copy is not None:
        moved, mapped, loop = copy
        rate = copy_rate(machine, loop, plan.copies, cta_count(info))
        return _copy_cost(moved, mapped, half, rate, machine)
    for loop in info.loops:
        for op in loop.ops:
            if isinstance(op, StatementInfo) and op.op in (name, stem):
                return _statement_cost(op, half, machine, memory_rate(machine, loop))
            if isinstance(op, MatmulInfo) and op.op == name:
                found = _matmul(name, info, plan)
                if found is not None:
                    return _whole_cost(*found, machine)
    return OpCost("alu", 1, 1)


def op_plans(
    loop: LoopInfo, info: KernelInfo, plan: KernelPlan, machine: Machine
) -> tuple[OpPlan, ...]:
    """The ops that a loop's statements become, with their costs, in program order."""
    split = tuple(part for op in loop.ops for part in _streamed(op, plan.loop(loop.name)))
    known = replace(
        info,
        loops=tuple(replace(loop, ops=split) if one is loop else one for one in info.loops),
    )
    ops = [
        OpPlan(name, kind, block, *op_cost(name, known, plan, machine))
        for op in split
        for name, kind, block in _op_names(op, plan)
    ]
    return marked(ops, loop, plan.matmuls)


def _streamed(
    op: CopyInfo | MatmulInfo | StatementInfo, plan: LoopPlan
) -> Iterator[CopyInfo | MatmulInfo | StatementInfo]:
    """``op``, or its load and the rest of it where the load has slots of its own."""
    load = f"{op.op}.load"
    if isinstance(op, StatementInfo) and any(ring.buffer == load for ring in plan.rings):
        yield StatementInfo(load, "load", global_bytes=op.global_bytes, bound=op.bound)
        yield replace(op, global_bytes=0)
    else:
        yield op


def _op_names(
    op: CopyInfo | MatmulInfo | StatementInfo, plan: KernelPlan
) -> Iterator[tuple[str, OpKind, str]]:
    """Name, kind and source block of each op that statement ``op`` becomes."""
    if isinstance(op, StatementInfo):
        yield op.op, cast(OpKind, op.kind), op.op.removesuffix(".load")
    elif isinstance(op, CopyInfo):
        through_registers = any(
            c.op == op.op and moved_by(c).through_registers for c in plan.copies
        )
        if through_registers:
            yield f"{op.op}.load", "load", op.op
            yield f"{op.op}.store", "store", op.op
        else:
            yield op.op, "copy", op.op
    else:
        mapped = next((mapped for mapped in plan.matmuls if mapped.op == op.op), None)
        steps = mapped.steps if mapped is not None else 0
        if mapped is None or not steps or multiplied_by(mapped).warpgroup_wide:
            yield op.op, "mma", op.op
            return
        for step in range(steps):
            yield f"{op.op}.k{step}.a", "load", op.op
            yield f"{op.op}.k{step}.b", "load", op.op
            yield f"{op.op}.k{step}", "mma", op.op


def _matmul(name: str, info: KernelInfo, plan: KernelPlan) -> tuple[MatmulInfo, MatmulPlan] | None:
    """The matmul called ``name``."""
    infos = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    for op in infos:
        if op.op == name:
            for mapped in plan.matmuls:
                if mapped.op == op.op:
                    return op, mapped
    return None


def _copy(
    name: str, info: KernelInfo, plan: KernelPlan
) -> tuple[CopyInfo, CopyPlan, LoopInfo] | None:
    for loop in info.loops:
        for op in loop.ops:
            if isinstance(op, CopyInfo) and op.op == name:
                for mapped in plan.copies:
                    if mapped.op == name:
                        return op, mapped, loop
    return None


def _step_cost(info: MatmulInfo, plan: MatmulPlan, operand: str | None, machine: Machine) -> OpCost:
    if operand is not None:
        cycles = of_fragments(info, plan, machine, operand).lsu / plan.steps
        return OpCost("lsu", machine.shared_latency + _cycles(cycles), _cycles(cycles))
    return _arithmetic_cost(of_arithmetic(info, plan, machine), plan, machine, plan.steps)


def _whole_cost(info: MatmulInfo, plan: MatmulPlan, machine: Machine) -> OpCost:
    return _arithmetic_cost(of_arithmetic(info, plan, machine), plan, machine, 1)


def _arithmetic_cost(usage: Usage, plan: MatmulPlan, machine: Machine, k_steps: int) -> OpCost:
    """The cost of one of ``k_steps``: ``latency = max(cycles, latency of the instruction)``.

    A warp's accumulators are independent: the next step may start when the pipe is free, or when
    the first accumulator is ready if that is later.
    """
    rate = rate_of(plan, machine)
    if rate is None:
        cycles = _cycles(max(usage.fma, usage.issue) / k_steps)
        return OpCost("fma", max(cycles, machine.fp32_latency), cycles)
    cycles = _cycles(usage.tensor / k_steps)
    return OpCost("tensor", max(cycles, rate.latency), cycles)


def _copy_cost(info: CopyInfo, plan: CopyPlan, half: str, rate: float, machine: Machine) -> OpCost:
    if half == "store":
        cycles = _cycles(shared_bytes(info) / machine.smem_bytes_per_cycle)
        return OpCost("lsu", machine.shared_latency + cycles, cycles)
    cycles = _cycles(of_copy(info, plan, machine, rate).l2)
    return OpCost(moved_by(plan).pipe, machine.global_latency + cycles, cycles)


def _statement_cost(info: StatementInfo, half: str, machine: Machine, rate: float) -> OpCost:
    usage = of_statement(info, machine, rate)
    if info.kind in ("copy", "load") or half == "load":
        cycles = _cycles(usage.l2 if info.global_bytes else usage.lsu)
        if info.global_bytes:
            return OpCost("l2", machine.global_latency + cycles, cycles)
        return OpCost("lsu", machine.shared_latency + cycles, cycles)
    name, busiest = usage.busiest()
    pipe: Pipe = "alu"
    latency = machine.fp32_latency
    if name == "tensor" and busiest > 0:
        pipe, latency = "tensor", max(rate.latency for rate in machine.mmas)
    elif name in ("fma", "issue"):
        pipe = "fma"
    elif name == "sfu":
        pipe, latency = "sfu", machine.sfu_latency
    elif name == "lsu":
        pipe, latency = "lsu", machine.shared_latency
    elif name == "l2":
        pipe = "l2"
    return OpCost(pipe, max(latency, _cycles(busiest)), _cycles(busiest))


def _cycles(value: float) -> int:
    return max(1, round(value))
