"""How an iteration waits: for its loads, for its fragments, and for the tensor cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ..instructions.table import multiplied_by
from ..instructions.warps import PARTITIONS
from ..machine import Machine
from ..machine.constant import constant, fitted, measured
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, MatmulPlan
from ..values.facts import CopyInfo, LoopInfo, MatmulInfo, StatementInfo
from .descriptor import FragmentTiming, LoadTiming, WgmmaTiming
from .usage import of_arithmetic, of_copy, of_fragments

HANDSHAKE_CYCLES: Final = constant(
    "HANDSHAKE_CYCLES",
    300,
    "cycles",
    "what the full/empty mbarrier pair adds to a load: two mbarriers of 75 each, and the issue of "
    "the boxes (55 more than cp.async's)",
    formula="latency = global_latency + HANDSHAKE_CYCLES",
    source=fitted(
        "logs of an H100 and an H200",
        "the parts are 205, which rank nearly as well; 200 to 400 do",
    ),
    date="2026-11-27",
)

CONVERT_CYCLES: Final = constant(
    "CONVERT_CYCLES",
    70,
    "cycles",
    "time in which a warpgroup loads and converts the operand of a k-step, beside its issue "
    "slots; half of its wgmma runs meanwhile",
    formula="serial = CONVERT_CYCLES * k_steps + issue + tensor / 2",
    source=measured(
        "H100, int8 weights: 128x4096x4096 takes 120, 127, 153 and 171 cycles a k-step with tiles "
        "of 64x64, 128x64, 64x128 and 128x128; 128x8192x8192 136 and 160 with 128x64 and 64x128"
    ),
    date="2026-11-22",
)


def load_timing(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    *,
    synchronised: bool,
) -> LoadTiming:
    """How the loop waits for its loads; ``synchronised``: by a CTA barrier in each iteration."""
    by_producer = have_producer(copies)
    by_warp = [plan for _, plan in matmuls_of(loop, matmuls) if not _is_wide(plan)]
    return LoadTiming(
        synchronised=synchronised,
        handshake=HANDSHAKE_CYCLES if by_producer else 0,
        blocking=any(
            moved_by(plan).blocks and op.dst_scope != "local"
            for op, plan in copies_of(loop, copies)
        ),
        register_staged=_is_register_staged(loop, copies),
        spread=max((_spread(copies, plan) for plan in by_warp), default=0.0),
        late=_late(loop, matmuls) if by_producer else 0.0,
        clustered=any(plan.multicast > 1 for _, plan in copies_of(loop, copies)),
        produced=by_producer,
    )


def _late(loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Fraction of an iteration after which warpgroups release the slots of the one before.

    Once the first wgmma of each accumulator is issued, which are those of a step along K.
    """
    wide = (plan for _, plan in matmuls_of(loop, matmuls) if _is_wide(plan))
    return max((1 / plan.steps for plan in wide), default=0.0)


def fragment_timing(
    loop: LoopInfo, matmuls: tuple[MatmulPlan, ...], machine: Machine
) -> FragmentTiming:
    """How fragments are read; zero for wgmma, whose tensor cores read shared memory themselves."""
    by_warp = [(op, plan) for op, plan in matmuls_of(loop, matmuls) if not _is_wide(plan)]
    return FragmentTiming(
        own=sum(
            of_arithmetic(op, plan, machine).tensor * PARTITIONS / warps
            for op, plan in by_warp
            for warps in [min(PARTITIONS, math.prod(plan.warps))]
        ),
        ahead=max((1 / plan.steps for _, plan in by_warp if plan.steps > 1), default=0.0),
        first=max(
            (
                sum(of_fragments(op, plan, machine, side).lsu for side in "ab") / plan.steps
                for op, plan in by_warp
            ),
            default=0.0,
        ),
    )


def wgmma_timing(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
) -> WgmmaTiming:
    """The tensor cores' part of an iteration; ``rate``: bytes a cycle that reach the SM."""
    serial, overlapped = _serial(loop, copies, matmuls, machine, rate)
    return WgmmaTiming(
        cycles=sum(
            of_arithmetic(op, plan, machine).tensor
            for op, plan in matmuls_of(loop, matmuls)
            if _is_wide(plan)
        ),
        serial=serial,
        overlapped=overlapped,
        crosses_steps=_crosses_steps(loop, copies, matmuls),
        chained=_is_chained(loop, matmuls),
    )


def _is_chained(loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]) -> bool:
    """Whether threads that multiply by tensor cores compute on sums between the matmuls.

    Or on operands, which a matmul waits for. What else reads staged tiles alone waits for no matmul
    of its step, and runs under them.
    """
    by_tensor_core = [multiplied_by(plan).rate is not None for _, plan in matmuls_of(loop, matmuls)]
    between = [op for op in loop.ops if isinstance(op, StatementInfo) and not op.reads]
    computed = [op for op, _ in matmuls_of(loop, matmuls) if op.computed]
    return bool(between or computed) and any(by_tensor_core)


def _is_wide(plan: MatmulPlan) -> bool:
    return multiplied_by(plan).warpgroup_wide


def _is_register_staged(loop: LoopInfo, copies: tuple[CopyPlan, ...]) -> bool:
    """Whether every copy to shared memory goes through registers."""
    shared = [plan for op, plan in copies_of(loop, copies) if op.dst_scope != "local"]
    return bool(shared) and all(moved_by(plan).through_registers for plan in shared)


def _spread(copies: tuple[CopyPlan, ...], matmul: MatmulPlan) -> float:
    """Fraction of an iteration after which the last copy is issued.

    Chunks by cp.async are issued one behind each k-step but the last two:
    ``(min(chunks, k_steps - 2) - 1) / k_steps``. Register-staged copies are issued at once: 64 x 64
    x 8 in fp32 took 923 cycles a step on an H100, alone on an SM, as long as a load and its
    arrival.
    """
    chunks = sum(plan.chunks for plan in copies if moved_by(plan).in_groups)
    return max(0, min(chunks, matmul.steps - 2) - 1) / matmul.steps


def _serial(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
) -> tuple[float, float]:
    """Cycles of the math warps' copies and wgmma, one after the other and overlapped; else zeros.

        serial     = lsu of the copies + max(conversion, tensor)
        overlapped = max(lsu of the copies, max(conversion, tensor))

    With two slots, copies are due in the next step: warps issue them as fast as the load and store
    units take them, then wgmma, and wait for it. On an H100 one CTA an SM with 192x160x64 took 1530
    cycles a step so, 960 of them the tensor cores'. With more slots wgmma is issued first. Sums
    that are promoted are waited for before anything else is issued.
    """
    wide = [(op, plan) for op, plan in matmuls_of(loop, matmuls) if _is_wide(plan)]
    converted = sum(_converting(op, plan, machine) for op, plan in wide)
    copied = list(copies_of(loop, copies))
    if not wide or have_producer(plan for _, plan in copied):
        return converted, converted
    issued = sum(of_copy(op, plan, machine, rate).lsu for op, plan in copied)
    multiplied = max(converted, sum(of_arithmetic(op, plan, machine).tensor for op, plan in wide))
    together = any(plan.promoted for _, plan in wide)
    return issued + multiplied, issued + multiplied if together else max(issued, multiplied)


def _crosses_steps(
    loop: LoopInfo, copies: tuple[CopyPlan, ...], matmuls: tuple[MatmulPlan, ...]
) -> bool:
    """Whether wgmma of one step may be in flight in the next: only its slot waits for it.

    Promoted sums are added in every step, an operand in registers is waited for chunk by chunk, and
    register-staged loads are of one tile whatever the depth: none of them may.
    """
    wide = list(matmuls_of(loop, matmuls))
    copied = list(copies_of(loop, copies))
    return (
        len(wide) == 1
        and len(loop.ops) == len(wide) + len(copied)
        and _is_wide(wide[0][1])
        and wide[0][1].operand == "shared"
        and not wide[0][1].promoted
        and all(moved_by(plan).in_groups for _, plan in copied)
    )


def _converting(op: MatmulInfo, plan: MatmulPlan, machine: Machine) -> float:
    """Cycles of an iteration of a warpgroup that converts an operand; 0 where none is converted.

    ``CONVERT_CYCLES * k_steps + issue slots of the fragments + tensor / 2``.
    """
    if op.a_dtype == op.b_dtype:
        return 0.0
    issued = sum(of_fragments(op, plan, machine, side).issue for side in "ab")
    return CONVERT_CYCLES * plan.steps + issued + of_arithmetic(op, plan, machine).tensor / 2


def matmuls_of(
    loop: LoopInfo, matmuls: tuple[MatmulPlan, ...]
) -> Iterator[tuple[MatmulInfo, MatmulPlan]]:
    """The matmuls of ``loop`` that are mapped, with their plans."""
    by_name = {plan.op: plan for plan in matmuls}
    for op in loop.ops:
        if isinstance(op, MatmulInfo) and op.op in by_name:
            yield op, by_name[op.op]


def copies_of(loop: LoopInfo, plans: tuple[CopyPlan, ...]) -> Iterator[tuple[CopyInfo, CopyPlan]]:
    """The copies of ``loop``, with their plans."""
    by_name = {plan.op: plan for plan in plans}
    for op in loop.ops:
        if isinstance(op, CopyInfo):
            yield op, by_name[op.op]
