"""Split-K on a GPU: right, the same bits in every run, and stationary filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import (
    ConvTile,
    ConvWeightGrad,
    Gemm,
    GemmTile,
    conv2d,
    schedule_conv,
    schedule_gemm,
)
from pipeliner.targets import gpu_arch
from pipeliner.verification.accuracy import poisoned, worst_error

from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

CONV = conv2d(2, 14, 14, 64, 64, 3, 3, pad=1, epilogue=("bias", "residual", "relu"))


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(256, 256, 4096), GemmTile(128, 128, 64, splits=16)),
        (Gemm(200, 136, 1000, layout="NN"), GemmTile(64, 64, 32, splits=7)),
        (Gemm(128, 128, 1024, dtype="fp32"), GemmTile(64, 64, 8, splits=5)),
        (Gemm(128, 128, 1024, dtype="int8"), GemmTile(64, 64, 64, splits=4)),
        (CONV, ConvTile(64, 64, 32, splits=4)),
        (CONV, ConvTile(64, 64, 32, stationary=True)),
        (CONV, ConvTile(64, 64, 32, stationary=True, persistent=3)),
        (ConvWeightGrad(conv2d(4, 14, 14, 64, 64, 3, 3, pad=1)), ConvTile(64, 64, 32, splits=8)),
        # Pixels of 16 of 64 channels that a column block has room for.
        (ConvWeightGrad(conv2d(4, 14, 14, 80, 128, 3, 3, pad=1)), ConvTile(128, 80, 64, splits=2)),
        (conv2d(4, 12, 12, 64, 64, 1, 1, layout="NCHW"), ConvTile(64, 64, 32, by_image=True)),
    ],
    ids=str,
)
def test_kernels_are_right_and_deterministic(spec: Any, tile: Any) -> None:
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    kernel = pipeliner.build(pipeliner.pipeline(schedule(spec, tile)))
    inputs = spec.inputs(1)
    runs = [poisoned(spec.shapes()[-1], spec.out) for _ in range(3)]
    for out in runs:
        kernel(*inputs, out)
    assert worst_error(spec, runs[0], spec.reference(*inputs), spec.magnitude(*inputs)) <= 1
    for again in runs[1:]:
        np.testing.assert_array_equal(runs[0].view(np.uint8), again.view(np.uint8))


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (Gemm(256, 256, 4096), GemmTile(128, 128, 64, splits=16)),
        (Gemm(16, 512, 2048), GemmTile(16, 128, 64, splits=4)),
        (Gemm(16, 512, 2048, dtype="bfloat16", out="float32"), GemmTile(16, 128, 64, splits=4)),
        (Gemm(200, 136, 1024, epilogue=("bias", "residual")), GemmTile(128, 64, 64, splits=7)),
        (Gemm(256, 256, 1024, out="float32"), GemmTile(128, 64, 64, splits=4, persistent=3)),
        (Gemm(128, 128, 1024, dtype="int8"), GemmTile(64, 64, 64, splits=4)),
        (conv2d(2, 14, 14, 64, 64, 3, 3, pad=1), ConvTile(64, 64, 64, splits=3)),
    ],
    ids=str,
)
def test_parts_that_memory_adds_are_all_there(spec: Any, tile: Any) -> None:
    schedule = schedule_gemm if isinstance(spec, Gemm) else schedule_conv
    kernel = pipeliner.build(schedule(spec, tile), reduction="atomic")
    inputs = spec.inputs(1)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)
    for _ in range(3):
        out = poisoned(spec.shapes()[-1], spec.out)
        kernel(*inputs, out)
        assert worst_error(spec, out, exact, magnitude, tile.splits) <= 1


TOGETHER = [
    (Gemm(64, 256, 4096), GemmTile(64, 64, 64, splits=8), {}),
    (Gemm(5, 392, 1072, dtype="bfloat16"), GemmTile(8, 64, 64, splits=4), {}),
    (Gemm(100, 200, 1000, layout="NN"), GemmTile(40, 64, 64, splits=2), {}),
    (Gemm(130, 136, 768, epilogue=("bias", "residual")), GemmTile(128, 64, 64, splits=4), {}),
    (Gemm(40, 192, 1920, out="float32"), GemmTile(48, 64, 64, splits=6), {}),
    (Gemm(64, 128, 1024, dtype="int8"), GemmTile(64, 64, 64, splits=2), {}),
    (Gemm(2, 384, 2240), GemmTile(8, 64, 64, splits=8), {"pdl": True}),
]


def is_hopper() -> bool:
    return str(gpu_arch()).startswith("sm_90")


@pytest.mark.parametrize(("spec", "tile", "options"), TOGETHER, ids=str)
def test_clusters_put_parts_together(spec: Any, tile: Any, options: dict[str, Any]) -> None:
    if not is_hopper():
        pytest.skip("clusters that wgmma adds up in need sm_90")
    asked = {"instruction": "wgmma", "store": "cluster", **options}
    kernel = pipeliner.build(schedule_gemm(spec, tile), **asked)
    assert kernel.plan.stores[0].parts == tile.splits
    inputs = spec.inputs(1)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)
    runs = [poisoned(spec.shapes()[-1], spec.out) for _ in range(5)]
    for out in runs:
        kernel(*inputs, out)
        assert worst_error(spec, out, exact, magnitude) <= 1
        np.testing.assert_array_equal(runs[0].view(np.uint8), out.view(np.uint8))


TOGETHER_UNDER_THE_SANITIZER = """
import pipeliner
from pipeliner.verification.accuracy import poisoned
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
for gemm, tile in (
    (Gemm(64, 128, 1024), GemmTile(64, 64, 64, splits=4)),
    (Gemm(5, 136, 1000, dtype="bfloat16"), GemmTile(8, 64, 64, splits=8)),
):
    kernel = pipeliner.build(schedule_gemm(gemm, tile), instruction="wgmma", store="cluster")
    kernel(*gemm.inputs(1), poisoned(gemm.shapes()[-1], gemm.out))
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_the_sanitizer_objects_to_no_cluster(tool: str) -> None:
    if not is_hopper():
        pytest.skip("clusters that wgmma adds up in need sm_90")
    assert_accepted(tool, "-c", TOGETHER_UNDER_THE_SANITIZER)


UNDER_THE_SANITIZER = """
import pipeliner
from pipeliner.verification.accuracy import poisoned
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
for gemm, tile in (
    (Gemm(256, 256, 1024), GemmTile(128, 128, 64, splits=4)),
    (Gemm(16, 256, 1024, out="float32"), GemmTile(16, 128, 64, splits=4)),
):
    kernel = pipeliner.build(schedule_gemm(gemm, tile), reduction="atomic")
    kernel(*gemm.inputs(1), poisoned(gemm.shapes()[-1], gemm.out))
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_objects_to_no_addition(tool: str) -> None:
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)
