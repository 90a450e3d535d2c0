"""A lower bound of what a kernel is predicted to take, before anything of it is mapped.

    us     = start_us + norm((rounds * trip * busy + once) / clock, memory) + elementwise kernels
    busy   = norm(arithmetic, lsu, l2) (+ RESTART_CYCLES where the GPU has no TMA)
    once   = latency + global_latency + (2 * sqrt(rounds) - 1) * (l2 + stored)
    memory = compulsory + EXPOSED_LATENCIES * global_latency

``once`` is the prologue and the epilogue of a CTA, ``stored`` the cycles of its results: an SM with
``CTAs`` at once in ``waves`` pays ``CTAs + waves - 1`` of them, of which that is the least.

Each term is one of ``predict``'s at the least that any mapping, mechanism and depth come to. A tile
whose bound lies above the time of another one needs no plan.
"""

from __future__ import annotations

import math

from ..cost.busy import OVERLAP_NORM, RESTART_CYCLES
from ..cost.memory import EXPOSED_LATENCIES, compulsory_us
from ..cost.predict import ASSUMED_TRIP
from ..cost.usage import PIPE_NORM, Usage
from ..cost.work import written
from ..instructions.dtypes import element_bytes
from ..instructions.wgmma_shapes import ROWS
from ..machine import Machine
from ..mechanisms.layouts import shared_bytes
from ..mechanisms.rates import TMA_RATE, cta_count, memory_rate
from ..plan.request import Request
from ..values.elements import element, multiplied_as
from ..values.facts import CopyInfo, KernelInfo, LoopInfo, MatmulInfo
from .elementwise import elementwise_kernels, elementwise_us


def least_us(info: KernelInfo, machine: Machine, request: Request) -> float:
    """Microseconds below which nothing is predicted for ``info``, rounded or not.

    It is meant for a tile function whose loops are copies and matmuls; other statements count
    nothing.
    """
    by_warpgroup = request.instruction == "wgmma" or any(one.partial_sums for one in info.stores)
    rounds = math.ceil((cta_count(info) or 1) / machine.sms)
    parts = max((store.parts for store in info.stores), default=0)  # a cluster may add them
    others = list(elementwise_kernels(info))
    us = sum(
        elementwise_us(found, machine, behind=behind)
        for found, behind in (others[:-1] if parts else others)
    )
    for loop in info.loops:
        steps = loop.mean_trip if loop.trip is None else loop.trip
        trip = ASSUMED_TRIP if steps is None else steps * (loop.outer or 1)
        usage = _usage(loop, machine, request, by_warpgroup)
        busy = usage.norm(PIPE_NORM) + (0 if machine.has_tma else RESTART_CYCLES)
        stored = written(info, loop, parts) / machine.dram_bytes_per_cycle
        once: float = min(machine.l2_latency, machine.global_latency) + machine.global_latency
        once += (2 * math.sqrt(rounds) - 1) * (usage.l2 + stored)
        on_sms = machine.cycles_to_us(rounds * trip * busy + once)
        memory = _memory_us(info, loop, machine, parts)
        us += machine.start_us
        us += float((on_sms**OVERLAP_NORM + memory**OVERLAP_NORM) ** (1.0 / OVERLAP_NORM))
    return us


def _memory_us(info: KernelInfo, loop: LoopInfo, machine: Machine, parts: int) -> float:
    """Microseconds that memory takes, however many loads are in flight."""
    read = {op.src: op.src_bytes for op in loop.ops if isinstance(op, CopyInfo)}
    ctas = (cta_count(info) or 0) * (loop.outer or 1)
    bytes_ = sum(read.values())
    compulsory = compulsory_us(bytes_, ctas * written(info, loop, parts), machine, passing=bytes_)
    exposed = machine.cycles_to_us(EXPOSED_LATENCIES * machine.global_latency)
    return compulsory + exposed if compulsory else 0.0


def _usage(loop: LoopInfo, machine: Machine, request: Request, by_warpgroup: bool) -> Usage:
    """What copies and matmuls ask of the pipes in one iteration, at the least."""
    rate = memory_rate(machine, loop) * (TMA_RATE if machine.has_tma else 1.0)
    arithmetic = lsu = l2 = 0.0
    before = ""
    for op in loop.ops:
        if isinstance(op, CopyInfo):
            moved = shared_bytes(op)
            sharers = max((1 << ranks.bit_count() for _, ranks in op.multicast), default=1)
            lsu += moved / machine.smem_bytes_per_cycle
            l2 += moved / sharers / rate
        elif isinstance(op, MatmulInfo):
            most = _ops_per_cycle(op, machine, request, by_warpgroup)
            arithmetic += 2 * op.m * op.n * op.k / most
            if request.instruction == "wgmma":
                lsu += _read_by_wgmma(op, again=op.a == before) / machine.smem_bytes_per_cycle
            before = op.a
    return Usage(tensor=arithmetic, lsu=lsu, l2=l2)


def _read_by_wgmma(op: MatmulInfo, *, again: bool) -> float:
    """The fewest bytes of shared memory that wgmma reads in an iteration, A and B swapped or not.

    Each block of 64 rows reads all of the second operand; the first is read once, or in registers,
    and nothing of it counts where the matmul before read it (``again``).
    """
    a, b = op.m * op.k * element_bytes(op.a_dtype), op.n * op.k * element_bytes(op.b_dtype)
    if op.a_dtype != op.b_dtype:
        return float(min(op.m // ROWS * b, op.n // ROWS * a))
    return float(min((0 if again else a) + op.m // ROWS * b, b + op.n // ROWS * a))


def _ops_per_cycle(op: MatmulInfo, machine: Machine, request: Request, by_warpgroup: bool) -> float:
    """The most operations in a cycle of an SM that ``op`` may get."""
    by_cuda_cores = 2 * machine.fp32_per_cycle
    wanted = op.instruction if request.instruction == "auto" else request.instruction
    exact = wanted == "auto" and op.a_dtype == "float32"
    if not by_warpgroup and (wanted == "simt" or exact):
        return by_cuda_cores
    kinds = {multiplied_as(element(one)) for one in (op.a_dtype, op.b_dtype)}
    rates = machine.wgmmas if by_warpgroup else machine.mmas
    return max([by_cuda_cores, *(rate.ops_per_cycle for rate in rates if rate.dtype in kinds)])
