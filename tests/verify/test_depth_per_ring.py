"""Rings of one loop with different depths: right in every timing, waiting for no more than needed.

A deeper ring is filled further ahead, so copies of one step belong to different iterations.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import ConvTile, GemmTile, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Gemm, Spec, conv2d
from pipeliner.verification.verdict import verify_workload

from ..regression.checks import wait_counts
from .modes import modes_of

DEPTHS = ((2, 4), (4, 2), (1, 3), (3, 1), (2, 3), (3, 4))

TALL = Gemm(128, 64, 320)
SMALL = conv2d(1, 8, 8, 32, 32, 3, 3, pad=1)
WIDE = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1)

KERNELS: dict[str, tuple[Spec, Any, str, dict[str, Any]]] = {
    "gemm, cp.async": (Gemm(64, 64, 160), GemmTile(32, 32, 32), "a100", {}),
    "gemm, registers": (
        Gemm(64, 64, 160),
        GemmTile(32, 32, 32),
        "a100",
        {"mechanism": "register"},
    ),
    "gemm, simt": (Gemm(32, 32, 48, dtype="fp32"), GemmTile(32, 32, 8), "a100", {}),
    "gemm, tma": (TALL, GemmTile(128, 64, 64), "h100", {"instruction": "wgmma"}),
    "gemm, tma, persistent": (
        Gemm(128, 128, 320),
        GemmTile(64, 64, 64, persistent=2),
        "h100",
        {"instruction": "wgmma"},
    ),
    "gemm, wgmma by cp.async": (
        TALL,
        GemmTile(128, 64, 64),
        "h100",
        {"instruction": "wgmma", "mechanism": "cp_async"},
    ),
    "conv, cp.async": (SMALL, ConvTile(32, 32, 32), "a100", {}),
    "conv, registers": (SMALL, ConvTile(32, 32, 32), "a100", {"mechanism": "register"}),
    "conv, wgmma by cp.async": (
        WIDE,
        ConvTile(64, 64, 64),
        "h100",
        {"instruction": "wgmma", "mechanism": "cp_async"},
    ),
}


def kernel_of(case: str, first: int, second: int) -> tuple[Spec, Kernel]:
    spec, tile, target, options = KERNELS[case]
    schedule = schedule_gemm(spec, tile) if isinstance(spec, Gemm) else schedule_conv(spec, tile)
    names = (
        ("A_shared", "B_shared")
        if isinstance(spec, Gemm)
        else (
            "pixels_shared",
            "filters_shared",
        )
    )
    depth = dict(zip(names, (first, second)))
    kernel = pipeliner.build(schedule, target, depth=depth, **options)
    (loop,) = (loop for loop in kernel.plan.loops if loop.rings)
    assert {name: loop.ring(name).depth for name in names} == depth
    return spec, kernel


@pytest.mark.part(30)
@pytest.mark.parametrize(("case", "depths"), list(itertools.product(KERNELS, DEPTHS)))
def test_every_pair_of_depths_is_right(case: str, depths: tuple[int, int]) -> None:
    spec, kernel = kernel_of(case, *depths)
    verdict = verify_workload(kernel, spec, **modes_of((case, depths)))
    assert verdict.ok, (verdict.worst, [run.hazards for run in verdict.runs])


@pytest.mark.parametrize("depths", [(2, 3), (3, 2), (2, 4)])
@pytest.mark.part(3)
def test_a_wait_leaves_the_deeper_ring_in_flight(depths: tuple[int, int]) -> None:
    """What lands for the next step alone is committed apart, and before what has more time."""
    _, kernel = kernel_of("gemm, wgmma by cp.async", *depths)
    assert wait_counts(kernel.lowered)[0] == 1
    _, equal = kernel_of("gemm, wgmma by cp.async", 2, 2)
    assert wait_counts(equal.lowered)[0] == 0
    (loop,) = kernel.plan.loops
    due = sorted((op for op in loop.ops if op.kind == "copy"), key=lambda op: op.order)
    assert due[0].stage - due[1].stage == abs(depths[0] - depths[1])


@pytest.mark.parametrize("depths", [(2, 4), (4, 2)])
@pytest.mark.deep("test_every_pair_of_depths_is_right")
def test_a_producer_runs_as_far_ahead_as_each_ring_allows(depths: tuple[int, int]) -> None:
    """Its steps are as many more as the deeper ring is ahead of the other."""
    _, kernel = kernel_of("gemm, tma", *depths)
    shallow, deep = kernel.plan.mbarriers
    assert (shallow.depth, deep.depth) == (2, 4)
    assert shallow.arrivals == 2
    assert (deep.empty, deep.arrivals) == ("", 0)  # released together: one wait tells of both
    assert "k_0_1 < 7" in kernel.cuda  # 5 iterations, one ring two ahead of the other
    _, equal = kernel_of("gemm, tma", 3, 3)
    assert "k_0_1 < 5" in equal.cuda


@pytest.mark.parametrize(
    ("case", "depths"),
    [("gemm, cp.async", (2, 3)), ("gemm, tma", (2, 4)), ("conv, wgmma by cp.async", (3, 2))],
)
@pytest.mark.part(3)
def test_no_mutant_survives(case: str, depths: tuple[int, int]) -> None:
    _, kernel = kernel_of(case, *depths)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
    assert {fate.mutant.kind for fate in report.fates} >= {"slot", "wait"}
