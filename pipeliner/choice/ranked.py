"""The plans of one kernel in the order in which they are tried: the model's choice, then others.

A plan that the passes cannot keep is refused, and the next one is made only then. Every plan
honours all that is asked for. Where nothing is, the last one holds any tile function: it needs no
instruction and no register tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine import WARP, Machine
from ..machine.constant import constant, derived
from ..mechanisms.copies import plan_copy
from ..mechanisms.elementwise import plan_elementwise
from ..mechanisms.launch import plan_launch
from ..plan import SCALAR, CopyPlan, KernelPlan, LoopPlan, MatmulPlan, SmemPlan
from ..plan.request import Request
from ..values.facts import CopyInfo, KernelInfo, MatmulInfo
from .alone import unpipelined
from .choose import choose, planned
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


_NAMES: Final = {"auto": "another instruction than wgmma"}
"""The names of instructions that are asked for, where they differ from the request."""


@dataclass(frozen=True)
class PlanCandidate:
    """One way to make a kernel; ``make`` returns its plan, or raises where it is ruled out."""

    name: str
    make: Callable[[], KernelPlan]


def ranked(
    info: KernelInfo, machine: Machine, request: Request, *, accelerated: bool
) -> Iterator[PlanCandidate]:
    """The plans that ``request`` leaves open, best first. ``accelerated``: as for ``choose``."""

    def chosen(asked: Request) -> Callable[[], KernelPlan]:
        return lambda: choose(info, machine, asked, accelerated=accelerated)

    def without_wgmma(asked: Request) -> Callable[[], KernelPlan]:
        return lambda: planned(info, machine, asked)

    alone = info.independent > 1 and is_free(info, request)
    if alone:
        yield PlanCandidate("nests shared out", lambda: shared_out(info, machine, request))
    yield PlanCandidate("the plan of least predicted time", chosen(request))
    if _may_copy_for_wgmma(info, machine, request):
        asked = replace(request, instruction="wgmma", mechanism="cp_async")
        yield PlanCandidate("wgmma with copies by cp_async", chosen(asked))
    for name, asked in _plain(info, request):
        yield PlanCandidate(name, without_wgmma(asked))
    if is_free(info, request) and not alone:
        yield PlanCandidate("no instruction", lambda: shared_out(info, machine, request))


def is_free(info: KernelInfo, request: Request) -> bool:
    """Whether a kernel without instructions and rings has all that is asked for."""
    loops = any(loop.annotated or (loop.depth or 1) > 1 for loop in info.loops)
    hints = any(op.instruction != "auto" or op.warps or op.thread_tile for op in _matmuls(info))
    depth = "auto" if request.depth == 1 else request.depth
    return not loops and not hints and replace(request, depth=depth, pdl="auto") == Request()


def _may_copy_for_wgmma(info: KernelInfo, machine: Machine, request: Request) -> bool:
    """Whether wgmma whose math warps issue cp.async is possible."""
    asked = (request.mechanism, request.roles, request.cluster, request.consumers, request.store)
    wgmma = bool(machine.wgmmas) and request.instruction in ("auto", "wgmma")
    return wgmma and bool(_matmuls(info)) and asked == ("auto",) * len(asked)


def _plain(info: KernelInfo, request: Request) -> Iterator[tuple[str, Request]]:
    """The requests to try beside wgmma: instructions of a warp or a thread, then no ring."""
    if _needs_wgmma(request):
        return
    ways = [request]
    matmuls = _matmuls(info)
    free = request.instruction == "auto" and all(op.instruction == "auto" for op in matmuls)
    if free and matmuls:
        ways = [request, replace(request, instruction="simt")]
    for way in ways:
        yield _NAMES.get(way.instruction, way.instruction), way
    for way in ways if request.depth == "auto" else ():
        name = _NAMES.get(way.instruction, way.instruction)
        yield f"{name} with one slot", replace(way, depth=1)


def _needs_wgmma(request: Request) -> bool:
    """Whether something is asked for that no other instruction has."""
    return (
        request.instruction == "wgmma"
        or request.mechanism == "tma"
        or request.store == "tma"
        or request.roles not in ("auto", 0)
        or request.cluster not in ("auto", 1)
        or request.consumers != "auto"
        or request.operand == "registers"
        or request.accumulate == "promoted"
        or request.atomic_reduction
    )


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
        elementwise=tuple(plan_elementwise(found, machine) for found in info.elementwise),
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
