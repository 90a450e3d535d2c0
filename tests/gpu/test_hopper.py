"""GEMMs by TMA, wgmma and roles on a GPU that has them: right, repeatable, and sanitized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.schedules.workloads import LAYOUTS
from pipeliner.targets import gpu_arch
from pipeliner.verification.accuracy import poisoned, worst_error

from .planted import CROSSING, whole, wrong_runs
from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu


def run(gemm: Gemm, tile: GemmTile, m: int | None = None, **options: Any) -> Any:
    """The kernel, its operands and its result; skips where there is no Hopper GPU."""
    if not str(gpu_arch()).startswith("sm_90"):
        pytest.skip(f"wgmma needs sm_90, this GPU is {gpu_arch()}")
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h100", instruction="wgmma", **options)
    inputs = gemm.inputs(2, m)
    out = poisoned(gemm.shapes(m)[2], gemm.out)
    kernel(*inputs, out)
    return kernel, inputs, out


def check(gemm: Gemm, tile: GemmTile, m: int | None = None, **options: Any) -> None:
    kernel, inputs, out = run(gemm, tile, m, **options)
    exact, magnitude = gemm.reference(*inputs), gemm.magnitude(*inputs)
    assert worst_error(gemm, out, exact, magnitude) <= 1
    again = poisoned(out.shape, gemm.out)
    kernel(*inputs, again)
    np.testing.assert_array_equal(out.view("uint8"), again.view("uint8"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(512, 384, 320), (200, 136, 168)])
def test_every_layout(dtype: str, layout: str, shape: tuple[int, int, int]) -> None:
    check(Gemm(*shape, dtype=dtype, layout=layout), GemmTile(128, 128, 64))


@pytest.mark.parametrize(
    ("dtype", "k"), [("tfloat32", 32), ("int8", 128), ("e4m3", 128), ("e5m2", 128)]
)
def test_every_type(dtype: str, k: int) -> None:
    check(Gemm(384, 256, 5 * k, dtype=dtype), GemmTile(128, 128, k))


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (Gemm(384, 256, 640, dtype="e4m3"), GemmTile(128, 128, 128), {}),
        (Gemm(512, 384, 1024, dtype="e5m2"), GemmTile(128, 192, 128, persistent=4), {"cluster": 2}),
        (Gemm(512, 256, 1024, dtype="e4m3"), GemmTile(256, 128, 128), {"warps": (8, 1)}),
        (Gemm(512, 512, 1024, dtype="e4m3"), GemmTile(128, 256, 128, persistent=3), {}),
        (Gemm(256, 256, 512, dtype="e4m3"), GemmTile(128, 128, 128), {"operand": "registers"}),
        (
            Gemm(1024, 768, 512, dtype="e4m3"),
            GemmTile(128, 128, 128, persistent=6),
            {"consumers": "ping-pong"},
        ),
    ],
    ids=str,
)
def test_promoted_sums(gemm: Gemm, tile: GemmTile, options: dict[str, Any]) -> None:
    check(gemm, tile, accumulate="promoted", **options)


def test_promoted_sums_are_nearer_to_the_exact_ones() -> None:
    gemm, tile = Gemm(256, 256, 8192, dtype="e4m3", out="float32"), GemmTile(128, 128, 128)
    worst = {}
    for accumulate in ("fast", "promoted"):
        _, inputs, out = run(gemm, tile, accumulate=accumulate)
        exact, magnitude = gemm.reference(*inputs), gemm.magnitude(*inputs)
        assert worst_error(gemm, out, exact, magnitude) <= 1
        worst[accumulate] = worst_error(gemm, out, exact, magnitude, run=tile.k)
    assert worst["promoted"] <= 1 < worst["fast"]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_every_depth_and_trip_count(steps: int, depth: int) -> None:
    check(Gemm(256, 256, 64 * steps), GemmTile(128, 256, 64), depth=depth)


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (Gemm(1024, 1024, 256), GemmTile(128, 256, 64, persistent=12), {}),
        (Gemm(1024, 1000, 256), GemmTile(128, 128, 64, persistent=30), {"store": "tma"}),
        (Gemm(1024, 1024, 512), GemmTile(128, 256, 64), {"cluster": 2}),
        (
            Gemm(1024, 1024, 512),
            GemmTile(128, 128, 64, persistent=16),
            {"cluster": 2, "store": "tma"},
        ),
        (Gemm(1000, 904, 520), GemmTile(256, 128, 64, persistent=8), {"cluster": 2}),
        (Gemm(16, 512, 1024), GemmTile(16, 64, 64), {}),
        (Gemm(256, 256, 8192), GemmTile(64, 128, 64, splits=8), {}),
        (Gemm(130, 72, 136, batch=3, layout="NN"), GemmTile(128, 64, 64), {}),
        (Gemm(256, 256, 300), GemmTile(128, 128, 64), {}),  # rows of 600 bytes: by cp.async
        (Gemm(256, 256, 256), GemmTile(128, 128, 64), {"store": "direct"}),
        (Gemm(300, 264, 200, dtype="bfloat16"), GemmTile(128, 64, 64), {"store": "tma"}),
        (Gemm(256, 128, 192, batch=2), GemmTile(128, 128, 64), {"store": "tma"}),
        (
            Gemm(256, 256, 512, dtype="e4m3"),
            GemmTile(128, 128, 128, persistent=2),
            {"store": "tma"},
        ),
        # The last column block has room to spare: of B, of A as columns, of both, in clusters.
        (Gemm(500, 656, 328, layout="NN"), GemmTile(128, 160, 64), {}),
        (Gemm(504, 640, 328, layout="TN", dtype="bfloat16"), GemmTile(168, 128, 64), {}),
        (Gemm(1008, 1136, 456, layout="TN"), GemmTile(128, 176, 64), {"cluster": 4}),
        (Gemm(1000, 560, 264, layout="NN"), GemmTile(256, 112, 64, persistent=5), {}),
        (Gemm(300, 200, 2000, layout="NN"), GemmTile(64, 136, 64, splits=4), {}),
        # What a CTA copies for its cluster begins in the middle of a swizzle.
        (Gemm(416, 1024, 520), GemmTile(208, 128, 64, raster_group=1), {"cluster": 4}),
        (Gemm(500, 640, 264, dtype="bf16"), GemmTile(72, 64, 64, raster_group=1), {"cluster": 2}),
        (Gemm(500, 504, 200), GemmTile(120, 128, 64, raster_group=1), {"cluster": 2}),
        (Gemm(500, 504, 200), GemmTile(120, 128, 32, raster_group=1), {"cluster": 2}),
        (Gemm(500, 504, 208), GemmTile(120, 128, 16, raster_group=1), {"cluster": 2}),
        # More rows of a tile than a box has: two warpgroups side by side multiply its columns.
        (Gemm(1100, 500, 328), GemmTile(288, 128, 64), {}),
        (Gemm(1100, 500, 328), GemmTile(264, 128, 64), {}),
        (Gemm(256, 1060, 328), GemmTile(64, 528, 64, raster_group=2), {"cluster": 2}),
        (Gemm(500, 1200, 392, dtype="bfloat16"), GemmTile(128, 384, 64, persistent=7), {}),
    ],
    ids=str,
)
def test_every_form(gemm: Gemm, tile: GemmTile, options: dict[str, Any]) -> None:
    check(gemm, tile, **options)


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (Gemm(512, 384, 320), GemmTile(128, 128, 64), {"operand": "registers"}),
        (Gemm(1024, 1000, 512), GemmTile(128, 256, 64, persistent=8), {"operand": "registers"}),
        (Gemm(512, 384, 320, layout="TN"), GemmTile(128, 128, 64), {"operand": "registers"}),
        (Gemm(16, 512, 1024), GemmTile(16, 64, 64), {"operand": "registers"}),
        (Gemm(256, 256, 512, dtype="int8"), GemmTile(128, 128, 128), {"operand": "registers"}),
        (Gemm(256, 256, 512, dtype="e4m3"), GemmTile(128, 128, 128), {"operand": "registers"}),
        (Gemm(256, 256, 256, dtype="tf32"), GemmTile(128, 128, 32), {"operand": "registers"}),
        (Gemm(512, 128, 512), GemmTile(128, 128, 64), {"operand": "registers", "cluster": 2}),
        (Gemm(512, 256, 1024, dtype="e4m3", layout="TT"), GemmTile(128, 256, 128), {}),
        (Gemm(200, 264, 528, dtype="e5m2", layout="NN"), GemmTile(64, 128, 128, persistent=3), {}),
        (Gemm(256, 256, 512, dtype="int8", layout="TT"), GemmTile(128, 128, 128), {}),
        (Gemm(256, 256, 512, dtype="int8", layout="NN"), GemmTile(128, 128, 64), {"cluster": 2}),
        (Gemm(256, 256, 256, dtype="tf32", layout="TT"), GemmTile(128, 128, 32, persistent=3), {}),
        (Gemm(200, 264, 300, dtype="tf32", layout="NN"), GemmTile(128, 128, 32), {}),
        (
            Gemm(512, 256, 1024, dtype="e4m3", layout="TT"),
            GemmTile(128, 128, 128),
            {"accumulate": "promoted"},
        ),
        (Gemm(16, 512, 1024, weights="int8"), GemmTile(16, 64, 128), {}),
        (Gemm(47, 528, 1024, layout="NN", weights="int8"), GemmTile(48, 64, 128), {}),
        (
            Gemm(256, 512, 1024, dtype="bf16", layout="NN", weights="int8"),
            GemmTile(128, 128, 64),
            {},
        ),
        (Gemm(256, 512, 1024, weights="int8"), GemmTile(128, 256, 64, persistent=3), {}),
        (Gemm(200, 520, 1040, dtype="bf16", weights="int8"), GemmTile(64, 128, 64), {}),
    ],
    ids=str,
)
def test_the_first_operand_in_registers(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    check(gemm, tile, **options)


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(16, 512, 1024), GemmTile(16, 64, 64)),
        (Gemm(47, 520, 1024, dtype="bfloat16"), GemmTile(48, 128, 64, persistent=2)),
        (Gemm(256, 512, 1024, weights="int8"), GemmTile(128, 256, 64, persistent=3)),
    ],
    ids=str,
)
def test_results_with_swap_ab_leave_transposed(gemm: Gemm, tile: GemmTile) -> None:
    check(gemm, tile, store="tma")


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (Gemm(576, 128, 320), GemmTile(64, 64, 64, persistent=2), {}),
        (Gemm(1000, 904, 520), GemmTile(128, 128, 64, persistent=12), {"depth": 3}),
        (Gemm(1024, 1024, 64), GemmTile(64, 256, 64, persistent=7), {}),  # one step a tile
        (Gemm(1024, 768, 512), GemmTile(128, 128, 64, persistent=6), {"cluster": 2}),
        (Gemm(1024, 1152, 448, dtype="bfloat16"), GemmTile(128, 192, 64, persistent=5), {}),
        (Gemm(1152, 1024, 448), GemmTile(192, 128, 64, persistent=5), {"store": "direct"}),
    ],
    ids=str,
)
def test_ping_pong(gemm: Gemm, tile: GemmTile, options: dict[str, Any]) -> None:
    check(gemm, tile, consumers="ping-pong", **options)


@pytest.mark.parametrize("rows", [1, 64, 200, 1000])
def test_rows_known_at_run_time(rows: int) -> None:
    check(Gemm(None, 256, 320), GemmTile(128, 128, 64), rows)


UNDER_THE_SANITIZER = """
from tests.gpu.test_hopper import Gemm, GemmTile, run
run(Gemm(256, 256, 320), GemmTile(128, 128, 64))
run(Gemm(200, 136, 168), GemmTile(128, 128, 64, persistent=2), store="tma")
run(Gemm(512, 256, 256), GemmTile(128, 128, 64, persistent=4), cluster=2)
run(Gemm(256, 256, 320), GemmTile(128, 128, 64), operand="registers")
run(Gemm(16, 256, 512, weights="int8"), GemmTile(16, 64, 128))
run(Gemm(200, 136, 400, dtype="e4m3", layout="TT"), GemmTile(64, 64, 128), accumulate="promoted")
run(Gemm(200, 136, 168, dtype="tf32", layout="NN"), GemmTile(128, 64, 32, persistent=2))
run(Gemm(576, 128, 320), GemmTile(64, 64, 64, persistent=2), consumers="ping-pong")
run(Gemm(200, 264, 168, layout="TN"), GemmTile(64, 176, 64), cluster=2)
run(Gemm(200, 152, 168, layout="NN"), GemmTile(64, 72, 64))
run(Gemm(416, 256, 136), GemmTile(208, 64, 64, raster_group=1), cluster=4)
run(Gemm(264, 128, 136), GemmTile(264, 64, 64))
"""


@pytest.mark.parametrize("tool", ["memcheck", "synccheck", "racecheck"])
def test_the_sanitizer_objects_to_nothing(tool: str) -> None:
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)


@pytest.mark.parametrize("name", CROSSING)
def test_kernels_that_cross_proxies_are_right_run_after_run(name: str) -> None:
    if not str(gpu_arch()).startswith("sm_90"):
        pytest.skip(f"wgmma needs sm_90, this GPU is {gpu_arch()}")
    assert wrong_runs(whole(name, "sm_90a"), name, 50) == 0
