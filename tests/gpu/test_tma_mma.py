"""GEMMs and convolutions by mma.sync that a producer warp copies for by TMA, on a GPU that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.machine.values import capability_of
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import LAYOUTS
from pipeliner.targets import gpu_arch
from pipeliner.verification.accuracy import poisoned, worst_error

from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

ASKED: Any = {"instruction": "mma", "mechanism": "tma"}


def built(func: Any, **options: Any) -> Kernel:
    """The kernel for the GPU of this machine; skips where that has no TMA."""
    arch = gpu_arch()
    if arch is None or capability_of(arch) < 90:
        pytest.skip(f"TMA needs sm_90, this GPU is {arch}")
    return pipeliner.build(func, **{**ASKED, **options})


def check(workload: Any, kernel: Kernel) -> None:
    inputs, shape = workload.inputs(2), workload.shapes()[2]
    out, again = (poisoned(shape, workload.types.out) for _ in range(2))
    kernel(*inputs, out)
    exact, magnitude = workload.reference(*inputs), workload.magnitude(*inputs)
    assert worst_error(workload, out, exact, magnitude) <= 1
    kernel(*inputs, again)
    np.testing.assert_array_equal(out.view("uint8"), again.view("uint8"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(512, 384, 320), (200, 136, 168)])
def test_every_layout(dtype: str, layout: str, shape: tuple[int, int, int]) -> None:
    gemm = Gemm(*shape, dtype=dtype, layout=layout)
    check(gemm, built(schedule_gemm(gemm, GemmTile(128, 128, 64))))


@pytest.mark.parametrize(("dtype", "k"), [("tfloat32", 32), ("int8", 128)])
def test_every_type(dtype: str, k: int) -> None:
    gemm = Gemm(384, 256, 5 * k, dtype=dtype)
    check(gemm, built(schedule_gemm(gemm, GemmTile(128, 128, k))))


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize("trips", [1, 2, 3, 7])
def test_trips_and_depths(trips: int, depth: int) -> None:
    gemm = Gemm(200, 136, 32 * trips)
    check(gemm, built(schedule_gemm(gemm, GemmTile(64, 64, 32)), depth=depth))


@pytest.mark.parametrize(("warps", "tile"), [((1, 2), 64), ((2, 4), 128), ((4, 4), 128)])
def test_consumers_of_any_number_of_warps(warps: tuple[int, int], tile: int) -> None:
    gemm = Gemm(384, 256, 640)
    check(gemm, built(schedule_gemm(gemm, GemmTile(tile, tile, 64)), warps=warps))


def test_a_persistent_kernel() -> None:
    gemm = Gemm(1000, 520, 200)
    check(gemm, built(schedule_gemm(gemm, GemmTile(64, 64, 64, persistent=5))))


def test_pixels() -> None:
    conv = conv2d(4, 15, 15, 64, 64, 3, 3, pad=1)
    check(conv, built(schedule_conv(conv, ConvTile(64, 64, 64))))


UNDER_THE_SANITIZER = """
from tests.gpu.test_tma_mma import Gemm, GemmTile, built, check, schedule_gemm
for gemm, tile, options in (
    (Gemm(72, 136, 200), GemmTile(64, 64, 32), {}),
    (Gemm(72, 136, 200), GemmTile(64, 64, 32), {"depth": 1}),
    (Gemm(128, 128, 320, dtype="bfloat16", layout="TN"), GemmTile(64, 64, 64), {"depth": 2}),
    (Gemm(200, 136, 168), GemmTile(64, 64, 32, persistent=3), {}),
):
    check(gemm, built(schedule_gemm(gemm, tile), **options))
"""


@pytest.mark.parametrize("tool", ["memcheck", "synccheck", "racecheck"])
def test_the_sanitizer_objects_to_nothing(tool: str) -> None:
    built(schedule_gemm(Gemm(72, 136, 200), GemmTile(64, 64, 32)))  # skips where it cannot run
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)
