"""Planned loops and kernels as values, for the tests of timelines."""

from __future__ import annotations

import dataclasses

from pipeliner.machine import A100
from pipeliner.plan import EdgePlan, KernelPlan, LoopPlan, OpPlan, RingPlan, SyncPlan
from pipeliner.values.op import Op


def copy_and_compute(depth: int, *, epilogue: str = "peeled", trip: str = "64") -> LoopPlan:
    """A copy of 100 cycles (20 of its pipe) and a computation of 50 on a ring in shared memory."""
    late = min(depth - 1, 1)
    ops = (
        OpPlan(Op("W"), "wait", "S", "sync", 1, 1, stage=late, order=0),
        OpPlan(Op("S"), "copy", "S", "l2", 100, 20, stage=0, order=1),
        OpPlan(Op("C"), "compute", "C", "fma", 50, 50, stage=late, order=2),
    )
    if not late:
        ops = tuple(dataclasses.replace(op, order=(1, 0, 2)[op.order]) for op in ops)
    edges = (
        EdgePlan("S", "C", "RAW", "S", 0),
        EdgePlan("S", "W", "RAW", "S", 0, "cp_async"),
        EdgePlan("W", "C", "RAW", "S", 0),
    )
    ring = RingPlan("S", "shared", depth, 64, ("S",), ("C",))
    return LoopPlan("k", trip, True, ops, edges, (ring,), ii=50, epilogue=epilogue)


def kernel(*loops: LoopPlan, barriers: int = 2, steady_barriers: int = 1) -> KernelPlan:
    sync = SyncPlan(barriers, steady_barriers)
    return KernelPlan("toy", "sm_80", A100.name, 128, loops, sync=sync)
