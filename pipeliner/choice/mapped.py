"""Map a kernel without its depths: instructions, copy mechanisms, layouts, and ``Work``.

The depth of each loop is an axis that is chosen from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..cost.descriptor import Work
from ..cost.timing import matmuls_of
from ..cost.work import work_of
from ..diagnostics import Reason, replaced
from ..errors import PlanError, TargetError
from ..instructions.accumulators import shared_row_bytes, spread_alike, words_beside
from ..instructions.mapping import map_matmul
from ..instructions.registers import BASE_REGISTERS, IM2COL_REGISTERS, STAGED_COPY_SAVING
from ..instructions.warpgroup_registers import math_warp_registers
from ..instructions.warps import Mapping, warp_layouts
from ..instructions.wgmma import consumer_groups
from ..machine import Machine
from ..machine.constant import chosen, constant
from ..mechanisms.copies import plan_copy
from ..mechanisms.eviction import with_eviction
from ..mechanisms.layouts import laid_out, readers
from ..mechanisms.pinned import kind, pinned_copy, pinned_matmul
from ..mechanisms.roles import producer_threads
from ..mechanisms.stores import (
    BARRIER_BYTES,
    is_by_tma,
    plan_stores,
    slot_waits,
    split_sector_cycles,
    staged_bytes,
    uncoalesced_cycles,
)
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, MatmulPlan, StorePlan
from ..plan.request import Request
from ..values.facts import PIXEL_VIEWS, CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from .depth import DepthAxis
from .rings import most_slots

DEFAULT_THREADS: Final = constant(
    "DEFAULT_THREADS",
    256,
    "threads",
    "threads of a tile function without a matmul: eight warps keep every scheduler busy",
    formula="threads = DEFAULT_THREADS",
    source=chosen("two warps for each of four schedulers"),
    date="2026-11-21",
)


@dataclass(frozen=True, slots=True)
class LoopWork:
    """A candidate loop in its layout, the plans of its copies, and the depths of its rings."""

    loop: LoopInfo
    copies: tuple[CopyPlan, ...]
    depths: DepthAxis

    @property
    def work(self) -> Work:
        """Its descriptor."""
        return self.depths.work


@dataclass(frozen=True, slots=True)
class MappedKernel:
    """A kernel without its depths.

    ``threads``: of a CTA, without a producer warp. ``reasons``: why something could not be mapped.
    ``work_of``: the descriptor of a loop, by its name, were its copies others. ``before``: the
    copies of a producer warp before the loops.
    """

    matmuls: tuple[MatmulPlan, ...]
    stores: tuple[StorePlan, ...]
    loops: tuple[LoopWork, ...]
    threads: int
    reasons: tuple[Reason, ...]
    work_of: Callable[[str, tuple[CopyPlan, ...]], Work]
    before: tuple[CopyPlan, ...] = ()


def map_kernel(info: KernelInfo, machine: Machine, request: Request) -> MappedKernel:
    """Everything of ``info`` that ``request`` and ``machine`` decide before the depth.

    Raises PlanError or TargetError for an instruction or a mechanism that cannot be had.
    """
    matmuls, threads, registers, reasons = _map_matmuls(info, machine, request)
    moved = [
        with_eviction(info, found, _moved(found, matmuls, machine, request), machine)
        for found in info.loops
    ]
    copies = tuple(copy for plans in moved for copy in plans)
    stores = plan_stores(info, matmuls, copies, machine, request)

    def work_of_loop(found: LoopInfo, plans: tuple[CopyPlan, ...]) -> LoopWork:
        return _loop_work(info, found, plans, matmuls, stores, threads, registers, machine, request)

    known = {found.name: found for found in info.loops}
    return MappedKernel(
        matmuls,
        stores,
        tuple(work_of_loop(found, plans) for found, plans in zip(info.loops, moved, strict=True)),
        threads,
        reasons,
        lambda name, plans: work_of_loop(known[name], plans).work,
        _before(info, matmuls, machine, request) if have_producer(copies) else (),
    )


def _before(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], machine: Machine, request: Request
) -> tuple[CopyPlan, ...]:
    """Plans of the copies before the loops whose tiles matmuls in those read."""
    plans: list[CopyPlan] = []
    for copy in info.before:
        loop = next((one for one in info.loops if readers(copy, one, matmuls)), None)
        if loop is not None:
            plans.append(plan_copy(copy, loop, matmuls, machine, pinned_copy(request, copy.op)))
    return tuple(plans)


def _loop_work(
    info: KernelInfo,
    found: LoopInfo,
    plans: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    stores: tuple[StorePlan, ...],
    threads: int,
    registers: int,
    machine: Machine,
    request: Request,
) -> LoopWork:
    """The loop with copies ``plans``; ``registers``: of a thread, as matmuls are mapped."""
    barriers = BARRIER_BYTES if have_producer(plans) else 0
    beside = staged_bytes(stores) + barriers + shared_row_bytes(info, matmuls)
    loop = laid_out(found, plans, machine)
    copying = producer_threads(matmuls) if have_producer(plans) else 0
    most = machine.max_registers_per_thread
    kept = registers
    if not have_producer(plans):
        alone = replace(info, loops=(found,))
        kept = _math_warp_registers(alone, plans, matmuls, registers, most)
    cluster = 1 if request.cluster == "auto" else request.cluster
    parts = max((store.parts for store in stores), default=0)
    work = work_of(info, loop, plans, matmuls, threads + copying, kept, machine, cluster, parts)
    split = split_sector_cycles(info, matmuls, stores)
    work = replace(
        work,
        shared=replace(work.shared, fixed_bytes=work.shared.fixed_bytes + beside),
        stores=replace(
            work.stores,
            by_tma=any(map(is_by_tma, stores)),
            uncoalesced_cycles=uncoalesced_cycles(info, matmuls, stores) + split,
            slot_waits=slot_waits(stores, matmuls),
        ),
        wgmma=replace(
            work.wgmma,
            consumer_groups=consumer_groups(request.consumers) if have_producer(plans) else 1,
        ),
    )
    most_depth = most_slots(loop, plans)
    return LoopWork(
        loop, plans, DepthAxis(work, machine, most_depth, _in_flight(work, found, matmuls, request))
    )


def _in_flight(
    work: Work, loop: LoopInfo, matmuls: tuple[MatmulPlan, ...], request: Request
) -> int | None:
    """How many steps' wgmma shall stay in flight; None: as is predicted to be faster.

    PlanError: none can, in a loop that multiplies.
    """
    if request.in_flight == "auto":
        return None
    if request.in_flight and any(matmuls_of(loop, matmuls)) and not work.wgmma.crosses_steps:
        raise PlanError("in_flight.cannot", loop=loop.name)
    return request.in_flight if work.wgmma.crosses_steps else None


def uses_wgmma(matmuls: tuple[MatmulPlan, ...]) -> bool:
    """Whether warpgroups multiply, by wgmma."""
    return any(plan.instruction.startswith("wgmma") for plan in matmuls)


def _math_warp_registers(
    alone: KernelInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    registers: int,
    most: int,
) -> int:
    """Registers of a math warp's thread that copies too; ``registers``: as mapped.

    ``alone``: the kernel with one loop. ``most``: what there are; ptxas gets by with them where a
    little more would be wanted.
    """
    (loop,) = alone.loops
    gathered = any(bool(op.no_tma) for op in loop.ops if isinstance(op, CopyInfo))
    if not uses_wgmma(matmuls):
        if any(plan.instruction == "simt" for plan in matmuls):
            return min(registers + IM2COL_REGISTERS * gathered, most)
        pixels = any(op.view in PIXEL_VIEWS for op in loop.ops if isinstance(op, CopyInfo))
        staged = any(moved_by(plan).through_registers for plan in copies)
        return registers - STAGED_COPY_SAVING * (
            bool(matmuls) and staged and not gathered and not pixels
        )
    return max(
        math_warp_registers(plan, gathered, words_beside(plan.op, alone)) for plan in matmuls
    )


def _moved(
    loop: LoopInfo, matmuls: tuple[MatmulPlan, ...], machine: Machine, request: Request
) -> tuple[CopyPlan, ...]:
    """The plans of a loop's copies: a producer warp makes all of them, or none."""
    copies = [op for op in loop.ops if isinstance(op, CopyInfo)]
    plans = tuple(
        plan_copy(op, loop, matmuls, machine, pinned_copy(request, op.op)) for op in copies
    )
    others = [plan for plan in plans if not moved_by(plan).by_producer]
    if len(others) in (0, len(plans)):
        return plans
    by_cp_async = replace(request, mechanism="cp_async")
    again = tuple(plan_copy(op, loop, matmuls, machine, by_cp_async) for op in copies)
    why = Reason("mechanism.as_other", copy=others[0].op)
    return tuple(
        replace(new, reason=replaced(new.reason, "request.asked", why))
        if moved_by(old).by_producer
        else old
        for old, new in zip(plans, again)
    )


def _map_matmuls(
    info: KernelInfo, machine: Machine, request: Request
) -> tuple[tuple[MatmulPlan, ...], int, int, tuple[Reason, ...]]:
    """Plans of matmuls, threads of a CTA, registers of a thread, and what was not mapped.

    PlanError: of a function whose threads are ours some matmuls are mapped, and others are not.
    """
    plans: list[MatmulPlan] = []
    reasons: list[Reason] = []
    threads = info.threads or None
    registers = BASE_REGISTERS + info.registers_hint
    matmuls = [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]
    done: dict[str, Mapping | Reason] = {}
    for op in matmuls:
        if op.op not in done:
            beside = {one.op: words_beside(one.op, info) for one in matmuls}
            if request.plan is not None:
                pinned = pinned_matmul(request, op.op)
                done[op.op] = map_matmul(op, machine, pinned, threads, beside[op.op])
            else:
                alike = [one for one in spread_alike(op, info.loops) if one.op not in done]
                rest = [one for one in matmuls if one not in alike and one.op not in done]
                done.update(_map_alike(alike, rest, machine, request, threads, beside))
        mapped = done[op.op]
        if isinstance(mapped, Mapping):
            plans.append(mapped.plan)
            threads, registers = mapped.threads, max(registers, mapped.registers)
        elif plans and not info.threads:
            raise PlanError("mapping.none", op=op.op, why=mapped)
        else:
            reasons.append(Reason("mapping.left_out", op=op.op, why=mapped))
    return (
        tuple(plans),
        threads or (1 if info.unmapped else DEFAULT_THREADS),
        registers,
        tuple(reasons),
    )


def _map_alike(
    ops: Sequence[MatmulInfo],
    rest: Sequence[MatmulInfo],
    machine: Machine,
    request: Request,
    threads: int | None,
    beside: dict[str, int],
) -> dict[str, Mapping | Reason]:
    """Mappings of matmuls whose accumulators one instruction is to spread in one way.

    By the first one's best warps, or by others that suit all of them and by whose threads ``rest``
    can be mapped, too. Where none do, those of the first one's accumulator alone. ``beside``: words
    of other accumulators of the CTA than that of each op.
    """
    first, *others = ops
    mapped = map_matmul(first, machine, request, threads, beside[first.op])
    if isinstance(mapped, Reason) or not (others or rest):
        alike = {op.op: Reason("mapping.as_other", op=first.op) for op in others}
        return {first.op: mapped, **alike}
    own = [op for op in ops if op.acc == first.acc]
    ways = _by_warps(first, mapped, request, threads)
    same = replace(request, instruction=ways[0].instruction)
    for some, asked in ((ops, same), (own, same), (own, request)):
        left = [op for op in (*others, *rest) if op not in some]
        for way in ways:
            found = _mapped_as(some, machine, way, threads, beside)
            if (
                found
                and _mapped_as(left, machine, asked, found[first.op].threads, beside) is not None
            ):
                return dict(found)
    if request.instruction == "auto" and mapped.plan.instruction != "simt":
        by_fma = replace(request, instruction="simt")
        return _map_alike(ops, rest, machine, by_fma, threads, beside)
    return {op.op: map_matmul(op, machine, ways[0], threads, beside[op.op]) for op in own}


def _by_warps(
    op: MatmulInfo, mapped: Mapping, request: Request, threads: int | None
) -> list[Request]:
    """Requests for the instruction and the warps that ``op`` is mapped to, then for other warps."""
    plan = mapped.plan
    asked = replace(request, instruction=kind(plan))
    best = replace(asked, warps=plan.warps)
    if kind(plan) == "simt":
        best = replace(best, thread_tile=plan.thread_tile)
    if request.warps is not None or uses_wgmma((plan,)):
        return [best]
    layouts = sorted(warp_layouts(op, None, threads), key=_warps_sharing_rows)
    return [best, *(replace(asked, warps=layout) for layout in layouts)]


def _mapped_as(
    ops: Sequence[MatmulInfo],
    machine: Machine,
    asked: Request,
    threads: int | None,
    beside: dict[str, int],
) -> dict[str, Mapping] | None:
    """Mappings of all ``ops`` by one number of threads; None: one of them has none."""
    found: dict[str, Mapping] = {}
    for op in ops:
        try:
            mapped = map_matmul(op, machine, asked, threads, beside[op.op])
        except (PlanError, TargetError):
            return None
        if isinstance(mapped, Reason):
            return None
        found[op.op], threads = mapped, mapped.threads
    return found


def _warps_sharing_rows(layout: tuple[int, int]) -> tuple[int, int]:
    """Warps that have a part of each row, which is to be little, and all warps."""
    rows, columns = layout
    return columns, rows * columns
