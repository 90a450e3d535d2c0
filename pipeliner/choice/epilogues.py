"""How a pipelined loop drains: overrunning loads peeled, guarded, or clamped to the last tile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..diagnostics import Reason
from ..errors import PlanError
from ..machine.constant import constant, measured
from ..mechanisms.copies import of_pixels
from ..mechanisms.table import have_producer, moved_by
from ..plan import CopyPlan, Epilogue
from ..plan.request import Request
from ..values.facts import CopyInfo, LoopInfo
from .depth import DepthChoice
from .mapped import LoopWork

CLAMP_TRIPS: Final = constant(
    "CLAMP_TRIPS",
    8,
    "1",
    "iterations for each overrunning load from which on those are clamped to the last tile; a "
    "shorter loop guards them",
    formula="clamped where trip >= CLAMP_TRIPS * (depth - 1)",
    source=measured(
        "H100, 33 products by cp.async with 2 to 4 slots of that length",
        "a guard costs 2 % as a mean, 13 % at most, and saves 3 % at most",
    ),
    date="2026-11-21",
)

IM2COL_CLAMP_TRIPS: Final = constant(
    "IM2COL_CLAMP_TRIPS",
    12,
    "1",
    "CLAMP_TRIPS for implicit GEMM by wgmma; by mma.sync overrunning loads are always guarded",
    formula="clamped where trip >= IM2COL_CLAMP_TRIPS * (depth - 1)",
    source=measured(
        "H100, 3x3 filters: with 64 of them overrunning loads cost 3 to 19 % of loops of nine "
        "steps, 4 % at most of 18; a guard costs 1 to 7 % of 36 and more",
        "mma.sync guarded: 1 to 11 % less with 3 and 4 slots, 2 and 8 % more where channels are no "
        "power of two; fp32: a guard costs 3 % as a mean of 108 kernels, 21 % at most, saves 6 %",
    ),
    date="2026-11-22",
)

CLAMP_REASON: Final = Reason("clamped.taken")
"""Why overrunning loads are clamped to the last tile.

H100, fp16, 128x256x64: 6 % less time at 4096 cubed, 9 % on ragged sizes, where a branch also keeps
masks from being computed early."""


def asked_epilogue(loop: LoopInfo, copies: tuple[CopyPlan, ...], request: Request) -> Epilogue:
    """The epilogue that is asked for; rolled where that is open or nothing can be clamped."""
    if have_producer(copies) and request.epilogue not in ("auto", "rolled"):
        raise PlanError("producer.epilogue", loop=loop.name, epilogue=request.epilogue)
    if is_asynchronous(copies):
        check_clamped(loop, request.epilogue)
    nothing = request.epilogue == "clamped" and not is_asynchronous(copies)
    return "rolled" if request.epilogue == "auto" or nothing else request.epilogue


def check_clamped(loop: LoopInfo, epilogue: str) -> None:
    """PlanError: asynchronous copies of ``loop`` cannot repeat its last tile, as ``epilogue``."""
    if epilogue == "clamped" and loop.overwritten:
        raise PlanError("clamped.overwritten", loop=loop.name, why=loop.overwritten)


def named(copies: Iterable[CopyPlan]) -> tuple[Reason, ...]:
    """``copies`` with their mechanisms, for an error."""
    found = (Reason("clamped.copy", copy=one.op, mechanism=one.mechanism) for one in copies)
    return tuple(found) or (Reason("clamped.none"),)


def is_asynchronous(copies: Iterable[CopyPlan]) -> bool:
    """Whether any copy is by cp.async: only those can be clamped."""
    return any(moved_by(plan).in_groups for plan in copies)


def clamps(one: LoopWork, choice: DepthChoice) -> bool:
    """Whether clamping overrunning loads costs less than guarding them.

    ``trip >= CLAMP_TRIPS * (depth - 1)``, ``IM2COL_CLAMP_TRIPS`` for implicit GEMM by wgmma.
    """
    loop = one.loop
    if not is_asynchronous(one.copies):
        return False
    pixels = any(of_pixels(op) for op in loop.ops if isinstance(op, CopyInfo))
    work = choice.prediction.work
    if pixels and work.usage.tensor and not work.wgmma.cycles:
        return False
    cost = IM2COL_CLAMP_TRIPS if pixels and work.wgmma.cycles else CLAMP_TRIPS
    return loop.trip is None or loop.trip >= cost * (choice.depth - 1)
