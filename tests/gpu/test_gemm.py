"""GEMM kernels on a GPU: against float64, bit for bit on small integers, and under the sanitizer."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.accuracy import poisoned, worst_error

from .sanitizer import assert_accepted

pytestmark = pytest.mark.gpu

SMALL_TILES = {
    "float32": GemmTile(64, 64, 8),
    "tfloat32": GemmTile(64, 64, 32),
    "float16": GemmTile(64, 64, 32),
    "bfloat16": GemmTile(64, 64, 32),
    "int8": GemmTile(64, 64, 64),
}


def check(gemm: Gemm, tile: GemmTile, seed: int = 0, **options: object) -> None:
    kernel = pipeliner.build(pipeliner.pipeline(schedule_gemm(gemm, tile), **options))
    a, b = gemm.inputs(seed)
    c = poisoned(gemm.shapes()[2], gemm.out)
    kernel(a, b, c)
    exact = gemm.reference(a, b)
    magnitude = gemm.reference(abs(a.astype(np.float64)), abs(b.astype(np.float64)))
    assert worst_error(gemm, c, exact, magnitude) <= 1


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", sorted(SMALL_TILES))
@pytest.mark.parametrize("shape", [(256, 192, 320), (200, 136, 168), (67, 61, 59)])
def test_every_type_and_layout(dtype: str, layout: str, shape: tuple[int, int, int]) -> None:
    check(Gemm(*shape, dtype=dtype, layout=layout), SMALL_TILES[dtype])


@pytest.mark.parametrize(
    ("mechanism", "epilogue"),
    [
        ("cp_async", "rolled"),
        ("cp_async", "clamped"),
        ("cp_async", "peeled"),
        ("register", "rolled"),
        ("register", "peeled"),
    ],
)
@pytest.mark.parametrize("k", [32, 64, 96, 160])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_depth_and_trip_count(depth: int, k: int, mechanism: str, epilogue: str) -> None:
    gemm = Gemm(128, 128, k, dtype="float16")
    options = {"depth": depth, "mechanism": mechanism, "epilogue": epilogue}
    check(gemm, SMALL_TILES["float16"], instruction="mma", **options)


def test_batched() -> None:
    check(Gemm(130, 70, 90, batch=3, dtype="bfloat16"), SMALL_TILES["bfloat16"])


def test_the_emulator_agrees_bit_for_bit_on_small_integers() -> None:
    gemm = Gemm(128, 128, 128, dtype="float16")
    func = pipeliner.pipeline(schedule_gemm(gemm, SMALL_TILES["float16"]))
    kernel = pipeliner.build(func)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in gemm.shapes()[:2])
    c = poisoned(gemm.shapes()[2], gemm.out)
    kernel(a, b, c)
    emulated = kernel.emulate(a, b, poisoned(gemm.shapes()[2], gemm.out)).outputs["C"]
    np.testing.assert_array_equal(c.view("uint16"), np.asarray(emulated).view("uint16"))


UNDER_THE_SANITIZER = """
import numpy as np, pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
for dtype, how, tile in (
    ("float16", "mma", GemmTile(64, 64, 32)),
    ("float32", "simt", GemmTile(64, 64, 8)),
):
    for shape in ((128, 128, 160), (100, 72, 88)):
        gemm = Gemm(*shape, dtype=dtype)
        for depth, epilogue in ((1, "rolled"), (2, "rolled"), (3, "rolled"), (3, "clamped")):
            asked = {"depth": depth, "epilogue": epilogue, "instruction": how}
            kernel = pipeliner.build(pipeliner.pipeline(schedule_gemm(gemm, tile), **asked))
            a, b = gemm.inputs()
            kernel(a, b, np.zeros(gemm.shapes()[2], gemm.out))
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_the_sanitizer_objects_to_nothing(tool: str) -> None:
    assert_accepted(tool, "-c", UNDER_THE_SANITIZER)


UNALIGNED_UNDER_THE_SANITIZER = """
import numpy as np, pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.accuracy import poisoned
for columns, store in ((203, "coalesced"), (202, "coalesced"), (204, "coalesced"), (203, "direct")):
    gemm = Gemm(150, columns, 136)
    made = schedule_gemm(gemm, GemmTile(128, 64, 64))
    kernel = pipeliner.build(pipeliner.pipeline(made, store=store))
    assert kernel.plan.stores[0].mechanism == store
    a, b = gemm.inputs()
    kernel(a, b, poisoned(gemm.shapes()[2], gemm.out))
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_accepts_stores_of_rows_that_begin_anywhere(tool: str) -> None:
    assert_accepted(tool, "-c", UNALIGNED_UNDER_THE_SANITIZER)
