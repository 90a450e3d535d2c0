"""Choose the instruction of a matmul tile: wgmma, mma.sync or the FMA pipe (simt).

``passes/matmul/matmuls.py`` carries it out. What each instruction requires, and how it is shared
out, stands in a file of its own: ``wgmma``, ``mma_sync``, ``simt``.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics import Reason
from ..errors import PlanError, TargetError
from ..machine import Machine, MmaRate
from ..plan import MatmulPlan
from ..plan.request import Request
from ..values.elements import element
from ..values.facts import MatmulInfo
from . import mma_sync, simt
from .mma_sync import map_mma_sync, mma_rate
from .simt import map_simt
from .table import multiplied_by
from .warps import Mapping
from .wgmma import consumer_groups, map_wgmma, nothing_to_promote

TENSOR: Final = "tensor"
"""The annotation of a schedule that wants tensor cores, by whichever instruction."""


def map_matmul(
    info: MatmulInfo,
    machine: Machine,
    request: Request,
    threads: int | None = None,
    beside: int = 0,
) -> Mapping | Reason:
    """How ``info`` maps to threads, or why it cannot be mapped.

    ``threads``: those of the CTA where something else has fixed them. ``beside``: words of other
    accumulators that the CTA keeps meanwhile. An instruction that the request or the schedule asks
    for is used or raises: TargetError when the GPU or the types lack it, PlanError when the tile,
    the warps or the thread tile do not fit.
    """
    wanted = request.instruction if request.instruction != "auto" else info.instruction
    wanted = "mma" if wanted == TENSOR else wanted
    warps = request.warps or info.warps
    thread_tile = request.thread_tile or info.thread_tile
    if wanted in ("mma", "wgmma") and request.thread_tile is not None:
        asked = request.thread_tile
        raise PlanError("mapping.thread_tile", op=info.op, instruction=wanted, tile=asked)
    if wanted == "wgmma":
        return _map_wgmma(info, machine, warps, request, beside)
    _refuse_without_wgmma(info, machine, request)
    if wanted == "auto" and thread_tile is not None:
        wanted = "simt"
    rate = mma_rate(info, machine)
    # fp32 keeps its precision unless somebody asks for tf32.
    exact = wanted == "auto" and info.a_dtype == "float32"
    if isinstance(rate, MmaRate) and wanted != "simt" and not exact:
        source = request.operand
        mapped = map_mma_sync(info, machine, rate, warps, threads, beside, operand=source)
        if isinstance(mapped, Mapping) or wanted == "mma":
            return _granted(mapped, info, wanted == "mma" or warps is not None)
        why = mapped
    elif wanted == "mma":
        assert isinstance(rate, Reason)
        raise TargetError("mapping.refused", op=info.op, instruction=wanted, why=rate)
    elif wanted == "simt":
        why = Reason("request.asked")
    elif isinstance(rate, Reason):
        why = rate
    else:
        why = Reason("mapping.exact")
    mapped = map_simt(info, machine, warps, thread_tile, threads, why, beside)
    explicit = wanted == "simt" or warps is not None or thread_tile is not None
    return _granted(mapped, info, explicit)


def _refuse_without_wgmma(info: MatmulInfo, machine: Machine, request: Request) -> None:
    """Raise for what is asked of another instruction that only wgmma can do.

    PlanError where the machine has wgmma, TargetError where it does not.
    """
    why = Reason("mapping.ask")
    if not machine.wgmmas:
        why = Reason("mapping.needs_sm_90a", machine=machine.name, arch=machine.arch)
    if request.roles not in ("auto", 0):
        refused = Reason("mapping.roles", groups=request.roles, op=info.op, why=why)
    elif request.operand == "registers":
        refused = Reason("mapping.operand", op=info.op, why=why)
    elif request.accumulate == "promoted":
        refused = Reason("mapping.promoted", op=info.op, why=why)
        if not element(info.b_dtype).low_precision_sums:
            nothing = nothing_to_promote(info)
            raise PlanError("mapping.nothing_promoted", op=info.op, why=nothing)
    else:
        return
    raise (PlanError if machine.wgmmas else TargetError)(refused)


def _map_wgmma(
    info: MatmulInfo,
    machine: Machine,
    warps: tuple[int, int] | None,
    request: Request,
    beside: int,
) -> Mapping:
    ping_pong = consumer_groups(request.consumers)
    found = map_wgmma(
        info, machine, warps, request.roles, ping_pong, request.operand, request.accumulate, beside
    )
    if isinstance(found, Reason):
        error = PlanError if machine.wgmmas else TargetError
        raise error("mapping.refused", op=info.op, instruction="wgmma", why=found)
    return Mapping(*found)


def _granted(mapped: Mapping | Reason, info: MatmulInfo, explicit: bool) -> Mapping | Reason:
    if isinstance(mapped, Reason) and explicit:
        raise PlanError("mapping.none", op=info.op, why=mapped)
    return mapped


def second_fragments(info: MatmulInfo, plan: MatmulPlan) -> int:
    """Registers of a thread for the fragments of a k-step that is read ahead."""
    if plan.steps == 1 or multiplied_by(plan).warpgroup_wide:
        return 0
    if multiplied_by(plan).thread_tile:
        return simt.second_fragments(plan)
    return mma_sync.second_fragments(info, plan)
