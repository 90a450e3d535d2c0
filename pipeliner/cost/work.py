"""The descriptor of one loop: ``Work``, from the loop's statements and how they are mapped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..instructions.dtypes import element_bytes
from ..instructions.mapping import second_fragments
from ..machine import Machine
from ..machine.constant import chosen, constant, documented, measured
from ..mechanisms.layouts import shared_bytes
from ..mechanisms.rates import copy_rate, cta_count, is_implicit_gemm, memory_rate
from ..mechanisms.stores import PART_BYTES
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, MatmulPlan
from ..values.facts import PIXEL_VIEWS, CopyInfo, KernelInfo, LoopInfo, MatmulInfo, StatementInfo
from .descriptor import Grid, ResultStores, RingWork, SharedMemory, ThreadBudget, Traffic, Work
from .l1 import lines
from .memory import compulsory_us, split_read_cost
from .timing import copies_of, fragment_timing, load_timing, matmuls_of, wgmma_timing
from .usage import (
    Asking,
    Usage,
    of_arithmetic,
    of_copy,
    of_fragments,
    of_statement,
    rereads_are_free,
)

PRODUCER_CYCLES: Final = constant(
    "PRODUCER_CYCLES",
    40,
    "cycles",
    "what a step costs a producer warp beside its bytes",
    formula="l2 = copied_bytes / rate + PRODUCER_CYCLES, with a producer warp",
    source=measured(
        "H100: 512x768x3072 and 1024x1024x1024 with steps of 64 and 128 along K",
        "between the two: twice the bytes a step is 10 % faster for the one, 10 % slower for the "
        "other",
    ),
    date="2026-11-21",
)

L2_RESIDENT_SHARE: Final = constant(
    "L2_RESIDENT_SHARE",
    4,
    "1",
    "a tensor of at most one part of L2 in so many stays there while others stream through",
    formula="a ring waits for L2 alone where tensor_bytes <= l2_bytes / L2_RESIDENT_SHARE",
    source=chosen("others stream through the rest"),
    date="2026-11-21",
)

L2_REUSES: Final = constant(
    "L2_REUSES",
    64,
    "1",
    "reads of each byte by all CTAs from which on a tensor counts as resident in L2",
    formula="a ring waits for L2 alone where also ctas * trip * slot_bytes >= L2_REUSES * "
    "tensor_bytes",
    source=chosen("one access in 64 goes to memory: the mean latency is that of L2"),
    date="2026-11-21",
)

REGISTER_BYTES: Final = constant(
    "REGISTER_BYTES",
    4,
    "bytes",
    "a register; a narrower element takes one of its own between its load and its store",
    formula="registers = staged_bytes * max(1, REGISTER_BYTES / vector_bytes) / 4 / threads",
    source=documented("PTX ISA, register types"),
    date="2026-11-21",
)


def work_of(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    threads: int,
    registers: int,
    machine: Machine,
    cluster: int = 1,
    parts: int = 0,
) -> Work:
    """The descriptor of ``loop``.

    ``threads``: of a CTA; ``registers``: of a thread, without what the loop's copies keep there;
    ``cluster``: CTAs of a cluster, though fewer may share a copy; ``parts``: those of one that
    put their parts of a tile together.
    """
    rate = memory_rate(machine, loop)
    ctas = cta_count(info)
    moved = copy_rate(machine, loop, copies, ctas)
    running = min(1.0, (ctas or machine.sms) / machine.sms)
    by_producer = have_producer(copies)
    usage, lone = (
        sum(
            _usages(info, loop, copies, matmuls, machine, rate, moved, of_sms),
            Usage(l2=PRODUCER_CYCLES) if by_producer else Usage(),
        )
        for of_sms in (running, 0.0)
    )
    shared = _shared(info, loop, copies, ctas or 0, machine)
    outer = loop.outer or 1
    trip = loop.mean_trip if loop.trip is None else loop.trip
    return Work(
        usage=usage,
        grid=Grid(
            ctas=ctas,
            trip=None if trip is None else trip * outer,
            most=loop.most_trip,
            tiles=outer,
            cluster=max(cluster, parts),
            fills=1 if by_producer else outer,
        ),
        threads=_threads(
            loop, copies, matmuls, threads, registers, 0 if copies else usage.global_bytes
        ),
        shared=shared,
        traffic=_traffic(info, loop, copies, matmuls, rate, ctas or 0, machine, parts),
        loads=load_timing(
            loop, copies, matmuls, synchronised=shared.slot_bytes > 0 and not by_producer
        ),
        fragments=fragment_timing(loop, matmuls, machine),
        wgmma=wgmma_timing(loop, copies, matmuls, machine, rate),
        stores=ResultStores(
            tile_bytes=written(info, loop, parts) or _accumulated(info),
            pushed_bytes=_pushed(info, loop, parts) if parts else 0,
            arithmetic_cycles=_arithmetic(info, loop, machine),
        ),
        lone=lone,
    )


def _threads(
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    threads: int,
    registers: int,
    streamed: int,
) -> ThreadBudget:
    """Registers of a thread; ``streamed``: bytes that statements, not copies, load a step."""
    staged, kept = (
        sum(
            shared_bytes(op) * max(1, REGISTER_BYTES // plan.vector_bytes)
            for op, plan in copies_of(loop, copies)
            if (op.dst_scope == "local" if local else moved_by(plan).through_registers)
        )
        for local in (False, True)
    )
    fragments = (second_fragments(op, plan) for op, plan in matmuls_of(loop, matmuls))
    return ThreadBudget(
        count=threads,
        registers=registers + -(-(staged + kept) // (4 * threads)),
        slot_registers=-(-streamed // (4 * threads)),
        saved_registers=-(-staged // (4 * threads)) + max(fragments, default=0),
    )


def _shared(
    info: KernelInfo, loop: LoopInfo, copies: tuple[CopyPlan, ...], ctas: int, machine: Machine
) -> SharedMemory:
    """Rings of the loop, and what the kernel keeps in shared memory beside them."""
    return SharedMemory(
        slot_bytes=sum(size for _, scope, size in loop.rings if scope.startswith("shared")),
        fixed_bytes=sum(size for _, scope, size in info.accumulators if scope.startswith("shared")),
        rings=_rings(loop, copies, ctas, machine),
        skew=_skew(copies),
    )


def _traffic(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    rate: float,
    ctas: int,
    machine: Machine,
    parts: int,
) -> Traffic:
    copied = list(copies_of(loop, copies))
    read = {op.src: op.src_bytes for op, _ in copied}
    cut = {op.src: op.src_bytes for op, _ in copied if not _whole_rows(op)}
    more = split_read_cost(_splits(info)) * sum(cut.values())
    passing = {op.src: op.src_bytes for op, plan in copied if plan.eviction == "evict_first"}
    stored = ctas * (loop.outer or 1) * written(info, loop, parts)
    return Traffic(
        rate=rate,
        read_bytes=sum(read.values()),
        scattered=2 * _scattered(loop, read, cut) > sum(read.values()),
        asked_bytes=sum(
            shared_bytes(op) // plan.multicast for op, plan in copied if op.dst_scope != "local"
        ),
        memory_us=compulsory_us(sum(read.values()) + more, stored, machine, sum(passing.values())),
        stationary_bytes=sum(_stationary(info, op) for op, _ in matmuls_of(loop, matmuls)),
        l1_lines=sum(lines(op, plan) for op, plan in copied),
        implicit_gemm=is_implicit_gemm(loop, copies),
    )


def _scattered(loop: LoopInfo, read: Mapping[str, int], cut: Mapping[str, int]) -> int:
    """Bytes of operands with K outermost, of those that tiles have pieces of the rows of."""
    outer = {name for op in loop.ops if isinstance(op, MatmulInfo) for name in _k_outermost(op)}
    sources = {op.src for op in loop.ops if isinstance(op, CopyInfo) and op.dst in outer}
    return sum(read[name] for name in sources if name in cut)


def _k_outermost(op: MatmulInfo) -> Iterator[str]:
    if not op.a_k_major:
        yield op.a
    if not op.b_k_major:
        yield op.b


def _whole_rows(copy: CopyInfo) -> bool:
    """Whether its tile has the source's rows from end to end, as a tile of keys has."""
    *outer, along = copy.src_dims or (None,)
    return bool(outer) and along is not None and copy.shape[along] == copy.src_strides[-2]


def _splits(info: KernelInfo) -> int:
    """Parts of K that CTAs have along the grid's first extent; 1: K is not split.

    The last kernel has as many outputs then as each part has elements, but for those past its end,
    where behind a batch it has at least twice as many.
    """
    strides = info.stores[0].dst_strides if info.stores else ()
    if not info.ends_elementwise or len(info.grid) < 2 or len(strides) < 3:
        return 1
    last, part, matrix = info.elementwise[-1], strides[0] or 0, strides[-3] or 1
    if last.ctas is None or last.ctas * last.elements >= 2 * part:
        return 1
    return max(1, (info.grid[0] or 1) // (part // matrix))


def written(info: KernelInfo, loop: LoopInfo, parts: int = 0) -> int:
    """Bytes of a tile of results in global memory; 0: nothing of the loop is stored.

    ``parts``: where the CTAs of a cluster put so many together, those of the outputs, and of what
    else they are computed of, that each of them makes.
    """
    summed = {op.acc: element_bytes(op.acc_dtype) for op in loop.ops if isinstance(op, MatmulInfo)}
    stored: dict[str, float] = {one.acc: element_bytes(one.dtype) for one in info.stores}
    if parts and info.elementwise:
        behind = info.elementwise[-1]
        each = behind.global_bytes // behind.elements - parts * PART_BYTES
        stored = dict.fromkeys(stored, each / parts)
    return sum(
        int(size // summed[name] * stored[name])
        for name, _, size in info.accumulators
        if name in summed and name in stored
    )


def _arithmetic(info: KernelInfo, loop: LoopInfo, machine: Machine) -> float:
    """Cycles in which an SM computes a tile of results from sums of the loop's matmuls.

        sum over the stores of elements * max(transcendentals / sfu_per_cycle,
                                              (flops + transcendentals) / fp32_per_cycle)

    Of silu(x) * y, two functions each: 128x112 takes 1792 cycles, in which no tensor core works
    unless another CTA or, with ping-pong, another group has steps. 60 gated products of 264 along K
    are predicted 14 % too fast without it on an H200.
    """
    summed = {op.acc: op.m * op.n for op in loop.ops if isinstance(op, MatmulInfo)}
    return sum(
        summed[one.acc]
        * max(
            one.transcendentals / machine.sfu_per_cycle,
            (one.flops + one.transcendentals) / machine.fp32_per_cycle,
        )
        for one in info.stores
        if one.acc in summed
    )


def _pushed(info: KernelInfo, loop: LoopInfo, parts: int) -> int:
    """Bytes of a tile that other CTAs of a cluster of ``parts`` own; none of rows past the end."""
    rows = max((op.m for op in loop.ops if isinstance(op, MatmulInfo)), default=1)
    strides = next(store.dst_strides for store in info.stores if store.parts)
    inside = (strides[0] or 0) // (strides[1] or 1)
    return written(info, loop) * min(rows, inside) // rows * (parts - 1) // parts


def _accumulated(info: KernelInfo) -> int:
    """Bytes of a CTA's accumulators in registers, where no store of them is known."""
    kept = sum(size for _, scope, size in info.accumulators if scope == "local")
    return kept * (info.threads or 1)


def _stationary(info: KernelInfo, op: MatmulInfo) -> int:
    """Bytes of the stationary operands of ``op``, which are copied before the loop."""
    return sum(size for name, _, size in info.accumulators if name in op.stationary)


def _rings(
    loop: LoopInfo, copies: tuple[CopyPlan, ...], ctas: int, machine: Machine
) -> tuple[RingWork, ...]:
    """The rings of shared memory, each with the latency of where its tiles come from.

    A ring waits for L2 where its tensor fits there and is read again and again, provided that
    another ring streams: where all tensors are small they come from memory together at the start.
    """
    sizes = {name: size for name, scope, size in loop.rings if scope.startswith("shared")}
    steps = (loop.trip or 0) * (loop.outer or 1)
    resident = {
        op.dst: 0 < op.src_bytes <= machine.l2_bytes / L2_RESIDENT_SHARE
        and ctas * steps * shared_bytes(op) >= L2_REUSES * op.src_bytes
        for op, _ in copies_of(loop, copies)
        if op.dst in sizes
    }
    some = not all(resident.values())
    return tuple(
        RingWork(name, sizes[name], machine.l2_latency if hit and some else machine.global_latency)
        for name in sizes
        for hit in [resident.get(name, False)]
    )


def _skew(copies: tuple[CopyPlan, ...]) -> int | None:
    """Slots by which one ring may usefully exceed the shallowest; None: any number.

    cp.async completes in order: what was issued with the tile that is waited for has landed too,
    whatever its ring holds. TMA's copies complete one by one. A register-staged ring has one tile
    in flight.
    """
    completions = {moved_by(plan).completion for plan in copies}
    if completions == {"mbarrier"}:
        return None
    return 1 if completions == {"group"} else 0


def _usages(
    info: KernelInfo,
    loop: LoopInfo,
    copies: tuple[CopyPlan, ...],
    matmuls: tuple[MatmulPlan, ...],
    machine: Machine,
    rate: float,
    moved: float,
    running: float,
) -> Iterator[Usage]:
    """What each statement asks of the pipes in one iteration, ``running`` of the SMs copying."""
    together = running > 0 and not is_implicit_gemm(loop, copies)
    for copy, plan in copies_of(loop, copies):
        sharing, at_once = _sharing(info, loop, copy, machine)
        asking = Asking(running, sharing, at_once if together else 0.0)
        outside, quotients = _outside(info, loop, copy), _quotients(loop, copy)
        yield of_copy(copy, plan, machine, moved, outside, asking, quotients)
    for op in loop.ops:
        if isinstance(op, StatementInfo):
            yield of_statement(op, machine, rate)
    before = ""
    for matmul, mapping in matmuls_of(loop, matmuls):
        yield of_arithmetic(matmul, mapping, machine)
        if not (matmul.a == before and rereads_are_free(mapping)):
            yield of_fragments(matmul, mapping, machine, "a")
        yield of_fragments(matmul, mapping, machine, "b")
        before = matmul.a


def _sharing(
    info: KernelInfo, loop: LoopInfo, copy: CopyInfo, machine: Machine
) -> tuple[float, float]:
    """CTAs that copy the same tile, and those of a wave, as a mean; 0 where that is not known."""
    tiles = (cta_count(info) or 0) * (loop.outer or 1)
    copied = tiles * (loop.trip or 0) * shared_bytes(copy)
    sharing = copied / copy.src_bytes if copy.src_bytes else 0.0
    at_once = sharing / max(1.0, tiles / machine.sms)
    return min(sharing, machine.sms), min(at_once, machine.sms)


def _outside(info: KernelInfo, loop: LoopInfo, copy: CopyInfo) -> float:
    """Fraction of the rows of a copy's boxes past the operand's end, as a mean over all CTAs."""
    rows, tile = _rows(info, loop, copy), copy.shape[0]
    return 1 - rows / (math.ceil(rows / tile) * tile) if rows else 0.0


def _quotients(loop: LoopInfo, copy: CopyInfo) -> int:
    """Indices of the source that follow by division from one that steps along K.

    Those of a pixel do where K is all pixels, as in the gradient of filters.
    """
    steps_over_pixels = copy.view != "tensor" and any(
        isinstance(op, MatmulInfo) and copy.dst in _k_outermost(op) for op in loop.ops
    )
    return len(copy.src_dims) - 1 if steps_over_pixels else 0


def _rows(info: KernelInfo, loop: LoopInfo, copy: CopyInfo) -> int:
    """Rows of an operand that is read along K; 0 where they are not known.

    Filters have as many as there are columns of results.
    """
    if copy.view in PIXEL_VIEWS or len(copy.shape) < 2 or copy.src_dims[-1] != 1:
        return 0
    if copy.src_dims == (0, 1) and copy.src_strides[0]:
        return copy.src_bytes // element_bytes(copy.dtype) // copy.src_strides[0]
    users = [op for op in loop.ops if isinstance(op, MatmulInfo) and op.b == copy.dst]
    columns = {op.acc for op in users if op.b_k_major}
    stored: Iterable[tuple[int | None, ...]] = (
        store.dst_strides for store in info.stores if store.by_rows and store.acc in columns
    )
    return next((strides[-2] or 0 for strides in stored if len(strides) > 1), 0)
