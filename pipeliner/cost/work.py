"""One loop of a kernel as the numbers that the model works with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from ..kernel import PIXEL_VIEWS, CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from ..machine import Machine
from ..plan import CopyPlan, MatmulPlan
from .copies import of_pixels, shared_bytes
from .descriptor import RingWork, Work
from .l1 import lines
from .mapping import second_fragments
from .memory import delivered_us
from .sizes import element_bytes
from .usage import (
    Usage,
    copy_rate,
    cta_count,
    gathers,
    memory_rate,
    of_arithmetic,
    of_copy,
    of_fragments,
    of_statement,
)

CHANNEL_CYCLES: Final = 40
"""What a step costs the role that copies, beside its bytes. Between two measurements on an H100: at
512 x 768 x 3072 steps of twice the bytes are 10 % faster, at 1024 cubed 10 % slower."""

L2_SHARE: Final = 4
"""A tensor of at most that part of L2 stays there while others stream through."""

REUSES: Final = 64
"""Of a tensor by all CTAs, from which on they wait for L2: one access in as many goes on."""

CHANNEL_LATENCY: Final = 480
"""Cycles that a slot's way to the role that copies and back adds to a load: two mbarriers of 75
each, the issue of boxes, 55 more than cp.async's, and a slot that is given back one step late.
Fitted to nine workloads of the log of an H100."""

PIXEL_LATENCY: Final = 200
"""Cycles that pixels come later than a matrix: which they are is worked out from the step, where
they lie and whether they are padding. Fitted to the half of the log of an H100 that may be fitted
to, of 0, 100, 200, 300 and 450: its depths are within 0.9 % of the best with 200, 1.1 % with 0.
"""

SHORT_STEPS: Final = 2
"""K-steps of a tile up to which nvcc unrolls the loop over tiles that has no ring."""

UNROLLED: Final = 0.25
"""Of the loads of a loop that is unrolled by two, those that land while a step before them runs:
half of them are made a step ahead. Fitted to nine workloads of the log of an H100."""

CONVERTED: Final = 70
"""Cycles in which a warpgroup loads the operand of a k-step and converts it, beside what issuing
that takes; half of its wgmma runs under it. Measured on an H100 with weights of int8, 128 x 4096 x
4096: k-steps take 120 and 127 cycles with 64 x 64 and 128 x 64 of tile, 153 and 171 with 64 x 128
and 128 x 128, which two warpgroups share; 128 x 8192 x 8192: 136 with 128 x 64, 160 with 64 x 128.
"""

REGISTER_BYTES: Final = 4
"""A narrower element takes a register too between its load and its store."""


def work_of(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    threads: int,
    registers: int,
    machine: Machine,
) -> Work:
    """The descriptor of one loop of a kernel, from its statements and how they are mapped."""
    rate = memory_rate(machine, loop)
    ctas = cta_count(info)
    moved = copy_rate(machine, loop, copies, ctas)
    usage = sum(_usages(info, loop, copies, matmuls, machine, rate, moved), Usage())
    by_role = any(plan.mechanism == "tma" for plan in copies)
    if by_role:
        usage = usage + Usage(l2=CHANNEL_CYCLES)
    shared = sum(size for _, scope, size in loop.rings if scope.startswith("shared"))
    staged, kept = (
        sum(
            shared_bytes(op) * max(1, REGISTER_BYTES // plan.vector_bytes)
            for op, plan in _copies(loop, copies)
            if (op.dst_scope == "local" if local else plan.mechanism == "register")
        )
        for local in (False, True)
    )
    read = sum({op.src: op.src_bytes for op, _ in _copies(loop, copies)}.values())
    streamed = 0 if copies else usage.global_bytes
    outer = loop.outer or 1
    mapped = list(_mapped(loop, matmuls))
    serial, beside = _serial(loop, copies, matmuls, machine, rate)
    # Tensor cores that read shared memory by themselves leave no fragments to wait for.
    loaded = [(op, plan) for op, plan in mapped if not plan.instruction.startswith("wgmma")]
    return Work(
        usage=usage,
        rate=rate,
        trip=None if loop.trip is None else loop.trip * outer,
        ctas=ctas,
        threads=threads,
        registers=registers + -(-(staged + kept) // (4 * threads)),
        slot_bytes=shared,
        fixed_smem=sum(size for _, scope, size in info.accumulators if scope.startswith("shared")),
        slot_registers=-(-streamed // (4 * threads)),
        store_bytes=_written(info, loop) or _accumulated(info),
        held_bytes=sum(_held(info, op) for op, _ in mapped),
        entries=1 if by_role else outer,
        synchronised=shared > 0 and not by_role,
        ahead=max((1 / plan.steps for _, plan in loaded if plan.steps > 1), default=0.0),
        first=max(
            (
                sum(of_fragments(op, plan, machine, side).lsu for side in "ab") / plan.steps
                for op, plan in loaded
            ),
            default=0.0,
        ),
        late=max((_late(copies, plan) for _, plan in loaded), default=0.0),
        tiles=outer,
        gathers=gathers(loop, copies),
        serial=serial,
        beside=beside,
        rings=_rings(loop, copies, ctas or 0, machine),
        lead=_lead(copies),
        read_bytes=read,
        passing=CHANNEL_LATENCY if by_role else _looking_up(loop, copies, matmuls),
        spared_registers=-(-staged // (4 * threads))
        + max((second_fragments(op, plan) for op, plan in mapped), default=0),
        streams=rate <= machine.dram_bytes_per_cycle,
        foreseen=_foreseen(copies, [plan.steps for _, plan in loaded]),
        stalls=any(
            plan.mechanism == "direct" and op.dst_scope != "local"
            for op, plan in _copies(loop, copies)
        ),
        by_registers=_by_registers(loop, copies),
        tensor=sum(
            of_arithmetic(op, plan, machine).tensor
            for op, plan in mapped
            if plan.instruction.startswith("wgmma")
        ),
        lines=sum(lines(op, plan) for op, plan in _copies(loop, copies)),
        runs_on=_runs_on(loop, copies, matmuls),
        delivered=delivered_us(read, (ctas or 0) * outer * _written(info, loop), machine),
    )


def _by_registers(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> bool:
    """Whether all that is in flight to shared memory waits in registers."""
    shared = [plan for op, plan in _copies(loop, copies) if op.dst_scope != "local"]
    return bool(shared) and all(plan.mechanism == "register" for plan in shared)


def _looking_up(
    loop: LoopInfo, copies: tuple[CopyPlan, ...], matmuls: tuple[MatmulPlan, ...]
) -> int:
    """Cycles until addresses of pixels are known that cp.async copies for tensor cores."""
    tensor = any(plan.instruction != "simt" for plan in matmuls)
    pixels = any(
        of_pixels(op) and plan.mechanism == "cp_async" for op, plan in _copies(loop, copies)
    )
    return PIXEL_LATENCY if pixels and tensor else 0


def _foreseen(copies: Iterable[CopyPlan], steps: list[int]) -> float:
    """Of the loads to registers with one slot, those that nvcc makes a step ahead.

    It unrolls such a loop by two or four where a step is short, and moves loads that nothing may
    write over the barriers before them. Seen in the SASS for sm_90a: tiles of 16 x 64 x 32 and 128
    x 64 x 32, two k-steps, are unrolled, 64 x 64 x 64 is not.
    """
    by_threads = all(plan.mechanism == "register" for plan in copies)
    return UNROLLED if steps and by_threads and max(steps) <= SHORT_STEPS else 0.0


def _written(info: KernelInfo, loop: LoopInfo) -> int:
    """Bytes of memory that a tile of the results takes, once it is stored."""
    held = {op.acc: element_bytes(op.acc_dtype) for op in loop.ops if isinstance(op, MatmulInfo)}
    stored = {store.acc: element_bytes(store.dtype) for store in info.stores}
    return sum(
        size // held[name] * stored[name]
        for name, _, size in info.accumulators
        if name in held and name in stored
    )


def _accumulated(info: KernelInfo) -> int:
    """Bytes of a CTA's sums, where nothing says what becomes of them."""
    kept = sum(size for _, scope, size in info.accumulators if scope == "local")
    return kept * (info.threads or 1)


def _held(info: KernelInfo, op: MatmulInfo) -> int:
    """Bytes of the operands of ``op`` that are copied before the loop."""
    return sum(size for name, _, size in info.accumulators if name in op.held)


def _rings(
    loop: LoopInfo, copies: tuple[CopyPlan, ...], ctas: int, machine: Machine
) -> tuple[RingWork, ...]:
    """The rings of shared memory.

    Those whose tensor L2 holds, and is asked for again and again, wait for L2 alone, provided that
    others do not: where all are small they come from memory together, at the start.
    """
    sizes = {name: size for name, scope, size in loop.rings if scope.startswith("shared")}
    steps = (loop.trip or 0) * (loop.outer or 1)
    near = {
        op.dst: 0 < op.src_bytes <= machine.l2_bytes / L2_SHARE
        and ctas * steps * shared_bytes(op) >= REUSES * op.src_bytes
        for op, _ in _copies(loop, copies)
        if op.dst in sizes
    }
    some = not all(near.values())
    return tuple(
        RingWork(name, sizes[name], machine.l2_latency if hit and some else machine.global_latency)
        for name in sizes
        for hit in [near.get(name, False)]
    )


def _lead(copies: tuple[CopyPlan, ...]) -> int | None:
    """Slots by which one ring may usefully exceed another.

    cp.async completes in order: what was issued with the tile that is waited for has landed too,
    whatever its ring holds. Boxes complete each by itself. What waits in registers has one tile.
    """
    mechanisms = {plan.mechanism for plan in copies}
    if mechanisms == {"tma"}:
        return None
    return 1 if mechanisms == {"cp_async"} else 0


def _serial(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
) -> tuple[float, float]:
    """What warps that use wgmma do in a step, one after the other and side by side; else 0.

    Where copies are due in the next step, warps issue them as fast as the load and store units take
    them, then the instruction, and wait for it: on an H100 one CTA an SM with tiles of 192x160x64
    took 1530 cycles a step so, of which 960 are the tensor cores'. Where they have two steps to
    land, the instruction comes first. Those that convert an operand, see ``CONVERTED``.
    """
    wide = [
        (op, plan) for op, plan in _mapped(loop, matmuls) if plan.instruction.startswith("wgmma")
    ]
    converted = sum(_converting(op, plan, machine) for op, plan in wide)
    copied = list(_copies(loop, copies))
    if not wide or any(plan.mechanism == "tma" for _, plan in copied):
        return converted, converted
    issued = sum(of_copy(op, plan, machine, rate).lsu for op, plan in copied)
    multiplied = max(converted, sum(of_arithmetic(op, plan, machine).tensor for op, plan in wide))
    # What is promoted is waited for, part by part, before anything else is issued.
    together = any(plan.promoted for _, plan in wide)
    return issued + multiplied, issued + multiplied if together else max(issued, multiplied)


def _runs_on(loop: LoopInfo, copies: tuple[CopyPlan, ...], matmuls: tuple[MatmulPlan, ...]) -> bool:
    """Whether wgmma of one step may still run in the next: nothing but its slot waits for it.

    What is promoted is added up in every step, and an operand in registers is waited for part by
    part. Loads that wait in registers are of one tile, whatever the depth.
    """
    wide = list(_mapped(loop, matmuls))
    copied = list(_copies(loop, copies))
    return (
        len(wide) == 1
        and len(loop.ops) == len(wide) + len(copied)
        and wide[0][1].instruction.startswith("wgmma")
        and wide[0][1].operand == "shared"
        and not wide[0][1].promoted
        and all(plan.mechanism == "cp_async" for _, plan in copied)
    )


def _converting(op: MatmulInfo, plan: MatmulPlan, machine: Machine) -> float:
    """Cycles of an iteration of a warpgroup that converts an operand; 0 where none is converted."""
    if op.a_dtype == op.b_dtype:
        return 0.0
    issued = sum(of_fragments(op, plan, machine, side).issue for side in "ab")
    return CONVERTED * plan.steps + issued + of_arithmetic(op, plan, machine).tensor / 2


def _late(copies: tuple[CopyPlan, ...], matmul: MatmulPlan) -> float:
    """When the last copy of an iteration is issued: one behind another over all k-steps but two.

    Copies by cp.async are spread so. What goes through registers does not wait for that: 64 x 64 x
    8 in fp32 took 923 cycles a step on an H100, alone on an SM, as long as a load and its arrival.
    """
    issued = sum(plan.parts for plan in copies if plan.mechanism == "cp_async")
    return max(0, min(issued, matmul.steps - 2) - 1) / matmul.steps


def _usages(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
    moved: float,
) -> Iterator[Usage]:
    for copy, plan in _copies(loop, copies):
        yield of_copy(copy, plan, machine, moved, _outside(info, loop, copy))
    for op in loop.ops:
        if isinstance(op, StatementInfo):
            yield of_statement(op, machine, rate)
    for matmul, mapping in _mapped(loop, matmuls):
        yield of_arithmetic(matmul, mapping, machine)
        yield of_fragments(matmul, mapping, machine, "a")
        yield of_fragments(matmul, mapping, machine, "b")


def _outside(info: KernelInfo, loop: LoopInfo, copy: CopyInfo) -> float:
    """Of the rows of a copy's boxes, those past the operand's last: a mean over all CTAs."""
    rows, tile = _rows(info, loop, copy), copy.shape[0]
    return 1 - rows / (math.ceil(rows / tile) * tile) if rows else 0.0


def _rows(info: KernelInfo, loop: LoopInfo, copy: CopyInfo) -> int:
    """Rows of an operand that K walks along; 0 where they are not known.

    Filters have as many as there are columns of results.
    """
    if copy.view in PIXEL_VIEWS or len(copy.shape) < 2 or copy.src_dims[-1] != 1:
        return 0
    if copy.src_dims == (0, 1) and copy.src_strides[0]:
        return copy.src_bytes // element_bytes(copy.dtype) // copy.src_strides[0]
    if not any(isinstance(op, MatmulInfo) and op.b == copy.dst for op in loop.ops):
        return 0
    stored = (store.dst_strides for store in info.stores if store.by_rows)
    return next((strides[-2] or 0 for strides in stored if len(strides) > 1), 0)


def _mapped(
    loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> Iterator[tuple[MatmulInfo, MatmulPlan]]:
    by_name = {plan.op: plan for plan in matmuls}
    for op in loop.ops:
        if isinstance(op, MatmulInfo) and op.op in by_name:
            yield op, by_name[op.op]


def _copies(loop: LoopInfo, plans: tuple[CopyPlan, ...]) -> Iterator[tuple[CopyInfo, CopyPlan]]:
    by_name = {plan.op: plan for plan in plans}
    for op in loop.ops:
        if isinstance(op, CopyInfo):
            yield op, by_name[op.op]
