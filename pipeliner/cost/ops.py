"""The ops of a pipelined body, with latency and occupancy of each, for the modulo scheduler.

Which ops a statement becomes is said where it is mapped: a matmul in ``instructions/ops.py``, a
copy in ``mechanisms/copies.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple, cast

from ..instructions.ops import matmul_ops
from ..instructions.table import multiplied_by, rate_of
from ..machine import Machine
from ..mechanisms.copies import copy_ops, streamed_ops
from ..mechanisms.layouts import shared_bytes
from ..mechanisms.rates import copy_rate, cta_count, memory_rate
from ..mechanisms.table import moved_by
from ..plan import CopyPlan, KernelPlan, LoopPlan, MatmulPlan, OpKind, OpPlan, Pipe
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from ..values.op import Op
from .k_tail import marked
from .usage import Usage, of_arithmetic, of_copy, of_fragments, of_statement


class OpCost(NamedTuple):
    """What one op of one iteration of one CTA costs; a cycle of the ALU where nothing is known."""

    pipe: Pipe = "alu"
    """The pipe of an SM that it keeps busy."""
    latency: int = 1
    """Cycles from its issue until a consumer may start."""
    occupancy: int = 1
    """Cycles that it keeps the pipe busy."""


_UNKNOWN: Final = OpCost()
"""What a statement costs that has no plan."""


def op_plans(
    loop: LoopInfo, info: KernelInfo, plan: KernelPlan, machine: Machine
) -> tuple[OpPlan, ...]:
    """The ops that a loop's statements become, with their costs, in program order."""
    ops = [
        OpPlan(op, kind, op.statement, *cost)
        for one in loop.ops
        for op, kind, cost in _ops(one, loop, info, plan, machine)
    ]
    return marked(ops, loop, plan.matmuls)


def _ops(
    one: CopyInfo | MatmulInfo | StatementInfo,
    loop: LoopInfo,
    info: KernelInfo,
    plan: KernelPlan,
    machine: Machine,
) -> Iterator[tuple[Op, OpKind, OpCost]]:
    """The ops of one statement of ``loop``: kind and cost of each."""
    if isinstance(one, CopyInfo):
        copy = next((copy for copy in plan.copies if copy.op == one.op), None)
        if copy is None:
            yield Op(one.op), "copy", _UNKNOWN
        else:
            rate = copy_rate(machine, loop, plan.copies, cta_count(info))
            for op in copy_ops(copy):
                kind: OpKind = cast(OpKind, op.part) if op.part != "whole" else "copy"
                yield op, kind, _copy_cost(one, copy, op, rate, machine)
    elif isinstance(one, MatmulInfo):
        matmul = next((matmul for matmul in plan.matmuls if matmul.op == one.op), None)
        if matmul is None:
            yield Op(one.op), "mma", _UNKNOWN
        else:
            for op in matmul_ops(matmul, specialised=bool(plan.roles)):
                yield op, _matmul_kind(op, matmul), _matmul_cost(one, matmul, op, machine)
    else:
        yield from _statement_ops(one, plan.loop(loop.name), machine, memory_rate(machine, loop))


def _statement_ops(
    one: StatementInfo, loop: LoopPlan, machine: Machine, rate: float
) -> Iterator[tuple[Op, OpKind, OpCost]]:
    """The ops of a statement: its load and the rest of it where the load has slots of its own."""
    load, rest = streamed_ops(one.op)
    if any(ring.load == load for ring in loop.rings):
        yield load, "load", _load_cost(one, machine, rate)
        one = replace(one, global_bytes=0)
    yield rest, cast(OpKind, one.kind), _statement_cost(one, machine, rate)


def _matmul_kind(op: Op, plan: MatmulPlan) -> OpKind:
    """What an op of a matmul is to the scheduler: FMAs of threads are like any computation."""
    if op.part == "mma_wait":
        return "mma_wait"
    if op.part in ("a", "b"):
        return "load"
    return "compute" if multiplied_by(plan).thread_tile else "mma"


def _matmul_cost(info: MatmulInfo, plan: MatmulPlan, op: Op, machine: Machine) -> OpCost:
    if op.part == "mma_wait":  # what it waits for has been counted
        return OpCost("sync", 1, 1)
    if op.part in ("a", "b"):
        cycles = _cycles(of_fragments(info, plan, machine, op.part).lsu / plan.steps)
        return OpCost("lsu", machine.shared_latency + cycles, cycles)
    steps = 1 if op.part == "whole" else plan.steps
    return _arithmetic_cost(of_arithmetic(info, plan, machine), plan, machine, steps)


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


def _copy_cost(info: CopyInfo, plan: CopyPlan, op: Op, rate: float, machine: Machine) -> OpCost:
    if op.part == "store":
        cycles = _cycles(shared_bytes(info) / machine.smem_bytes_per_cycle)
        return OpCost("lsu", machine.shared_latency + cycles, cycles)
    cycles = _cycles(of_copy(info, plan, machine, rate).l2)
    own = cycles if op.chunk is None else max(1, cycles // plan.chunks)
    return OpCost(moved_by(plan).pipe, machine.global_latency + cycles, own)


def _load_cost(info: StatementInfo, machine: Machine, rate: float) -> OpCost:
    usage = of_statement(info, machine, rate)
    cycles = _cycles(usage.l2 if info.global_bytes else usage.lsu)
    if info.global_bytes:
        return OpCost("l2", machine.global_latency + cycles, cycles)
    return OpCost("lsu", machine.shared_latency + cycles, cycles)


def _statement_cost(info: StatementInfo, machine: Machine, rate: float) -> OpCost:
    if info.kind in ("copy", "load"):
        return _load_cost(info, machine, rate)
    usage = of_statement(info, machine, rate)
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
