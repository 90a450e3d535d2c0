"""The plan of a kernel without an instruction: its nests are shared out over threads.

It holds any tile function that binds no threads: it needs no instruction and no register tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine import WARP, Machine
from ..machine.constant import constant, derived
from ..mechanisms.copies import plan_copy
from ..mechanisms.launch import plan_launch
from ..plan import SCALAR, CopyPlan, KernelPlan, LoopPlan, MatmulPlan, SmemPlan
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, MatmulInfo
from .alone import unpipelined
from .elementwise import elementwise_plans
from .mapped import DEFAULT_THREADS

SHARED_OUT_THREADS: Final = constant(
    "SHARED_OUT_THREADS",
    128,
    "threads",
    "the least of a CTA whose nests are shared out: a warp for each scheduler of an SM",
    formula="threads >= SHARED_OUT_THREADS",
    source=derived("four schedulers of an SM, 32 threads a warp"),
    date="2026-11-22",
)


def is_free(info: KernelInfo, request: Request) -> bool:
    """Whether a kernel without instructions and rings has all that is asked for."""
    loops = any(loop.annotated or (loop.depth or 1) > 1 for loop in info.loops)
    hints = any(op.instruction != "auto" or op.warps or op.thread_tile for op in _matmuls(info))
    depth = "auto" if request.depth == 1 else request.depth
    return not loops and not hints and replace(request, depth=depth, pdl="auto") == Request()


def _matmuls(info: KernelInfo) -> list[MatmulInfo]:
    return [op for loop in info.loops for op in loop.ops if isinstance(op, MatmulInfo)]


def shared_out(info: KernelInfo, machine: Machine, request: Request) -> KernelPlan:
    """The plan of any function without threads: its nests are shared out over threads.

    Nothing is copied ahead, and a tile that no instruction holds lies in shared memory.
    """
    if info.threads:
        raise PlanError("shared_out.bound", kernel=info.name)
    why = Reason("shared_out.no_instruction")
    if info.independent:
        why = Reason("shared_out.nests")
    threads = max(SHARED_OUT_THREADS, DEFAULT_THREADS)
    return KernelPlan(
        kernel=info.name,
        target=machine.arch,
        machine=machine.name,
        threads=threads,
        loops=(
            *(LoopPlan(loop.name, loop.trip_text, False, reasons=(why,)) for loop in info.loops),
            *(LoopPlan(name, "", False, reasons=(said,)) for name, said in info.declined),
        ),
        copies=tuple(_plain_copies(info, machine, request)),
        matmuls=tuple(_scalar(op, threads) for op in _matmuls(info)),
        elementwise=elementwise_plans(info, machine),
        launch=plan_launch(info, machine, request),
        smem=SmemPlan(budget=machine.smem_per_cta),
    )


def _plain_copies(info: KernelInfo, machine: Machine, request: Request) -> Iterator[CopyPlan]:
    """The plans of tile copies that are made where they stand."""
    asked = replace(request, mechanism="direct")
    for loop in info.loops:
        copies = [op for op in loop.ops if isinstance(op, CopyInfo)]
        plans = tuple(plan_copy(op, loop, (), machine, asked) for op in copies)
        yield from unpipelined(loop, plans, (), machine)


def _scalar(op: MatmulInfo, threads: int) -> MatmulPlan:
    """The plan of a matmul whose elements threads compute one by one, from shared memory."""
    return MatmulPlan(
        op=op.op,
        m=op.m,
        n=op.n,
        k=op.k,
        dtype=op.a_dtype,
        accumulator=op.acc_dtype,
        instruction=SCALAR,
        warps=(1, threads // WARP),
        warp_tile=(op.m, math.ceil(op.n * WARP / threads)),
        thread_tile=(1, 1),
        k_step=1,
        steps=op.k,
        reason=Reason("shared_out.scalar"),
    )
