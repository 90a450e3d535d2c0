"""GEMMs whose threads copy for wgmma: how they are made, and what a step of theirs does."""

from __future__ import annotations

import itertools
from typing import Any

from tvm import tirx

import pipeliner
from pipeliner.cost.predict import CROSS_STEP_DEPTH
from pipeliner.passes.ir import nodes as ir
from pipeliner.plan import KernelPlan
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.origin import PHASE

from .tiles import calls

GEMM = Gemm(128, 64, 384)
COPIES = ["A_shared", "B_shared"]
MMA, DONE = "matmul_update_o", "matmul_update_o.mma_wait"
KNOWN = {
    "cp_async_wait_group": "wait",
    "fence_proxy": "fence",
    "storage_sync": "barrier",
    "wgmma_commit_group": "wgmma",
    "cp_async_c": "copy",
    "wgmma_wait_group": "mma_wait",
}
"""What orders or moves anything in a step, by what the names of operators hold."""


def pipelined(gemm: Gemm = GEMM, **options: Any) -> Any:
    """A kernel in which a wgmma stays in flight where it may."""
    schedule = schedule_gemm(gemm, GemmTile(128, 64, 64))
    depth = options.get("depth", 0)
    slots = min(depth.values()) if isinstance(depth, dict) else depth
    if slots >= CROSS_STEP_DEPTH and options.get("operand") != "registers":
        options.setdefault("in_flight", 1)
    return pipeliner.pipeline(schedule, "h100", instruction="wgmma", **options)


def order_of(plan: KernelPlan) -> list[str]:
    (loop,) = plan.loops
    return [op.name for op in sorted(loop.ops, key=lambda op: op.order) if op.kind != "wait"]


def step_of(func: Any) -> list[str]:
    """What a step of the steady loop does, in the order in which it was emitted."""
    loops: list[Any] = []
    ir.walk(func.body, tirx.For, loops.append)
    (loop,) = [loop for loop in loops if PHASE in loop.annotations]
    names = [str(getattr(call.op, "name", "")) for call in calls(loop.body, "")]
    found = [short for name in names for part, short in KNOWN.items() if part in name]
    found = [short for short, _ in itertools.groupby(found)]
    return found[:-1] if found[-1] == "copy" else found  # their commit


def planned(plan: KernelPlan) -> Any:
    """The kernel of ``GEMM`` with a plan that was made before."""
    return pipeliner.pipeline(schedule_gemm(GEMM, GemmTile(128, 64, 64)), "h100", plan=plan)


def waits_of(func: Any) -> tuple[list[int], list[int]]:
    """What is left in flight by the waits for wgmma in the steady loop, and by those behind it."""
    loops: list[Any] = []
    ir.walk(func.body, tirx.For, loops.append)
    (loop,) = [loop for loop in loops if PHASE in loop.annotations]
    inside, every = (
        [int(call.args[0]) for call in calls(part, "wgmma_wait_group")]
        for part in (loop.body, func.body)
    )
    return inside, every[len(inside) :]
