"""Swapped tiles that leave by way of shared memory, transposed on the way."""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.verification.verdict import verify_workload
from tests.refusals import says

from .modes import modes_of


def kernel_of(spec: Any, tile: Any, store: Any = "tma", **options: Any) -> Kernel:
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    return pipeliner.build(
        schedule(spec, tile), "h100", instruction="wgmma", store=store, **options
    )


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(16, 128, 256), GemmTile(16, 64, 64)),
        (Gemm(48, 256, 192, dtype="bfloat16"), GemmTile(48, 128, 64, persistent=1)),
        # One row of the tile lies outside, and half of the last columns' tile.
        (Gemm(47, 200, 192, dtype="bfloat16"), GemmTile(48, 128, 64, persistent=1)),
        # Half a pair of rows lies outside.
        (Gemm(31, 136, 256, epilogue=("bias", "residual", "relu")), GemmTile(16, 64, 64)),
        (Gemm(100, 136, 256, weights="int8", epilogue=("scale",)), GemmTile(64, 64, 64)),
        (conv2d(2, 8, 10, 64, 64, 3, 3, pad=1, epilogue=("bias",)), ConvTile(48, 64, 64)),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_a_result_with_swap_ab_is_transposed_as_it_is_stored(spec: Any, tile: Any) -> None:
    kernel = kernel_of(spec, tile)
    assert kernel.plan.matmuls[0].swap_ab
    assert [store.mechanism for store in kernel.plan.stores] == ["tma"]
    assert "x4_trans_shared_b16" in kernel.cuda
    verdict = verify_workload(kernel, spec, seed=4, **modes_of(spec))
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_a_small_one_leaves_from_registers_unless_boxes_are_asked_for() -> None:
    kernel = kernel_of(Gemm(16, 128, 256), GemmTile(16, 64, 64), "auto")
    (store,) = kernel.plan.stores
    assert store.mechanism == "direct"
    assert says("store.few", [store.reason])


def test_no_mutant_survives() -> None:
    kernel = kernel_of(Gemm(16, 128, 384), GemmTile(16, 64, 64, persistent=1), depth=3)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)
