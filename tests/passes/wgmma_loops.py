"""GEMMs whose threads copy for wgmma: how they are made, and what a step of theirs does."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest
from tvm import tirx

import pipeliner
from pipeliner.cost.descriptor import least
from pipeliner.cost.predict import CROSS_STEP_DEPTH
from pipeliner.passes.ir import nodes as ir
from pipeliner.plan import KernelPlan
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.values.origin import PHASE

from .tiles import calls

predict_module = importlib.import_module("pipeliner.cost.predict")

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


def keep_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four slots one stays in flight where it may, whatever that is predicted to save."""
    predicted = predict_module._predicted

    def liked(work: Any, machine: Any, depth: Any, in_flight: int) -> Any:
        found = predicted(work, machine, depth, in_flight)
        return found and found._replace(us=found.us / (1 + in_flight))

    def may_stay(work: Any, machine: Any, depth: Any) -> bool:
        return work.wgmma.crosses_steps and least(depth) >= CROSS_STEP_DEPTH

    monkeypatch.setattr(predict_module, "_predicted", liked)
    monkeypatch.setattr(predict_module, "_may_stay", may_stay)


def pipelined(gemm: Gemm = GEMM, **options: Any) -> Any:
    schedule = schedule_gemm(gemm, GemmTile(128, 64, 64))
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
