"""wgmma by warps that copy themselves, without roles: right in every form, and nothing is too much."""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.schedules import schedule_conv
from pipeliner.schedules.tiles import ConvTile
from pipeliner.schedules.workloads import Conv, Gemm, conv2d, numpy_dtype
from pipeliner.verification.verdict import verify_workload

from .modes import modes_of, runs_of
from .test_hopper import ORDERS, TIMINGS, assert_right, kernel_of


@pytest.mark.parametrize(
    ("gemm", "tile", "depth"),
    [
        (Gemm(128, 64, 256), (128, 64, 64), 3),
        (Gemm(128, 64, 64), (128, 64, 64), "auto"),  # one step
        (Gemm(130, 68, 196, layout="NN"), (128, 64, 64), 2),
        (Gemm(256, 128, 256, layout="TN", batch=2), (128, 128, 128), 2),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_a_non_specialised_mainloop_of_wgmma(
    gemm: Gemm, tile: tuple[int, int, int], depth: Any
) -> None:
    kernel = kernel_of(gemm, tile, mechanism="cp_async", depth=depth)
    assert not kernel.plan.roles
    for timing, order in runs_of(gemm):
        assert_right(gemm, kernel, timing=timing, order=order)


KINDS: tuple[dict[str, Any], ...] = (
    {"dtype": "bfloat16", "out": "float32"},
    {"accumulator": "float16"},
    {"dtype": "tf32"},
    {"dtype": "int8"},
    {"dtype": "e4m3"},
    {"weights": "int8"},
)


@pytest.mark.parametrize("number", range(len(KINDS)))
@pytest.mark.part(6)
def test_a_non_specialised_mainloop_of_every_type(number: int) -> None:
    """With one to four slots, more of them than steps among these; operands in registers, too."""
    for depth, steps in ((1, 3), (2, 3), (3, 5), (4, 1)):
        kind = KINDS[number]
        gemm = Gemm(128, 64, 1, **kind)
        k = 128 // numpy_dtype(gemm.storage).itemsize
        gemm = Gemm(128, 64, k * steps, **kind)
        by_lane = "weights" in kind or depth % 2 == 0
        kernel = kernel_of(
            gemm,
            (128, 64, k),
            mechanism="cp_async",
            depth=depth,
            epilogue=("rolled", "clamped", "peeled")[(number + depth) % 3],
            operand="registers" if by_lane else "shared",
        )
        timing, order = TIMINGS[(number + depth) % 3], ORDERS[(number + steps) % 4]
        verdict = verify_workload(kernel, gemm, timings=(timing,), orders=(order,), seed=depth)
        assert verdict.ok, (gemm, depth, verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("conv", "tile"),
    [
        (conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64)),
        (conv2d(1, 9, 9, 64, 64, 3, 3, stride=2, pad=1), ConvTile(64, 64, 32)),
        (conv2d(1, 8, 8, 64, 64, 3, 3, pad=1), ConvTile(48, 64, 64, splits=3)),
        (conv2d(1, 14, 14, 32, 256, 1, 1), ConvTile(192, 256, 32)),
        (conv2d(1, 16, 16, 32, 64, 3, 3, pad=1), ConvTile(240, 64, 32)),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_a_convolution_gathers_for_wgmma(conv: Conv, tile: ConvTile) -> None:
    kernel = pipeliner.build(
        schedule_conv(conv, tile), "h100", instruction="wgmma", mechanism="cp_async"
    )
    assert {copy.mechanism for copy in kernel.plan.copies} == {"cp_async"}
    assert verify_workload(kernel, conv, **modes_of(conv)).ok


def test_no_mutant_of_a_non_specialised_mainloop_survives() -> None:
    gemm = Gemm(128, 64, 384)
    kernel = kernel_of(gemm, (128, 64, 64), mechanism="cp_async", depth=3)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
