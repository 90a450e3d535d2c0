"""GEMMs by TMA, wgmma and roles: right in every timing, and no synchronisation is too much."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipeliner
from pipeliner.errors import LoweringError, PlanError
from pipeliner.kernel.building import pipeline_with
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import schedule_gemm
from pipeliner.schedules.tiles import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm, numpy_dtype
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .hopper_loops import COLUMNS, ROWS, counted
from .modes import modes_of, runs_of

TIMINGS = ("late", "early", "random")
ORDERS = ("lockstep", "round-robin", "reversed", "random")


def kernel_of(
    gemm: Gemm, tile: tuple[int, int, int], ctas: int | None = None, **options: Any
) -> Kernel:
    schedule = schedule_gemm(gemm, GemmTile(*tile, persistent=ctas))
    return pipeliner.build(schedule, "h100", instruction="wgmma", **options)


def assert_right(gemm: Gemm, kernel: Kernel, m: int | None = None, **options: Any) -> None:
    """Emulated without a hazard, and equal to the product of small integers."""
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.integers(-3, 4, shape).astype(numpy_dtype(kind))
        for shape, kind in zip(gemm.shapes(m), (gemm.storage, gemm.storage, gemm.out))
    )
    result = kernel.emulate(a, b, c, **options)
    assert not result.hazards, "\n".join(map(str, result.hazards))
    want = gemm.reference(a, b).astype(numpy_dtype(gemm.out))
    np.testing.assert_array_equal(result.outputs["C"], want)


STEPS = (1, 2, 3, 4, 5, 6)


@pytest.mark.part(12)
@pytest.mark.parametrize(("steps", "depth"), list(itertools.product(STEPS, (1, 2, 3, 4))))
def test_every_trip_count_and_depth(steps: int, depth: int) -> None:
    number = steps * 4 + depth
    gemm = Gemm(128, 64, 64 * steps, dtype="bfloat16", out="float32")
    kernel = kernel_of(gemm, (128, 64, 64), depth=depth)
    assert [channel.depth for channel in kernel.plan.mbarriers] == [depth]
    options = {"timing": TIMINGS[number % 3], "order": ORDERS[number % 4], "seed": number}
    assert_right(gemm, kernel, **options)


@pytest.mark.part(12)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [32, 64, 128])
def test_every_layout_and_column_block(dtype: str, layout: str, k: int) -> None:
    gemm = Gemm(128, 128, 2 * k, dtype=dtype, layout=layout, out="float32")
    assert_right(gemm, kernel_of(gemm, (128, 128, k)), timing="early")


@pytest.mark.parametrize(
    ("tile", "warps"),
    [
        ((64, 64, 64), (4, 1)),
        ((128, 64, 64), (8, 1)),
        ((128, 128, 64), (4, 1)),  # two blocks of 64 rows
        ((128, 128, 64), (4, 2)),  # warpgroups side by side
        ((192, 64, 64), (12, 1)),
        ((256, 128, 64), (8, 1)),
        ((128, 256, 64), (8, 1)),
        ((64, 40, 16), (4, 1)),
    ],
)
@pytest.mark.part(3)
def test_every_way_to_cut_the_tile(tile: tuple[int, int, int], warps: tuple[int, int]) -> None:
    gemm = Gemm(tile[0], tile[1], 3 * tile[2], dtype="bfloat16", out="float32")
    kernel = kernel_of(gemm, tile, warps=warps)
    assert kernel.plan.matmuls[0].warps == warps
    assert kernel.plan.threads == 32 * warps[0] * warps[1] + 128
    assert_right(gemm, kernel)


@pytest.mark.parametrize(
    ("gemm", "tile", "ctas", "warps"),
    [
        (Gemm(16, 128, 256), (16, 64, 64), None, None),
        (Gemm(16, 128, 192, layout="NN"), (16, 128, 64), None, None),
        (Gemm(20, 200, 192, dtype="bfloat16"), (24, 128, 64), None, None),
        (Gemm(128, 128, 192, layout="TN"), (128, 64, 64), 1, (1, 4)),
        (Gemm(9, 128, 256, dtype="int8"), (16, 64, 128), None, None),
        (Gemm(9, 128, 256, dtype="uint8"), (16, 64, 128), None, None),
    ],
    ids=str,
)
@pytest.mark.part(2)
def test_a_tile_of_few_rows_takes_swap_ab(
    gemm: Gemm,
    tile: tuple[int, int, int],
    ctas: int | None,
    warps: tuple[int, int] | None,
) -> None:
    kernel = kernel_of(gemm, tile, ctas, warps=warps)
    assert kernel.plan.matmuls[0].swap_ab
    for timing, order in runs_of(gemm):
        assert_right(gemm, kernel, timing=timing, order=order)


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(200, 136, 200, dtype="bfloat16"), (128, 64, 64)),
        (Gemm(65, 72, 24, dtype="float16"), (64, 64, 64)),
        (Gemm(130, 40, 136, batch=2, layout="NN"), (128, 64, 64)),
        (Gemm(128, 64, 192, batch=3), (128, 64, 64)),
    ],
    ids=str,
)
@pytest.mark.part(2)
def test_ragged_and_batched(gemm: Gemm, tile: tuple[int, int, int]) -> None:
    kernel = kernel_of(gemm, tile)
    for timing, order in runs_of(gemm):
        assert_right(gemm, kernel, timing=timing, order=order)


@pytest.mark.parametrize(
    ("gemm", "tile", "ctas", "slots"),
    [
        (Gemm(128, 64, 128), (128, 64, 64), None, 1),
        (Gemm(128, 128, 128), (128, 128, 64), None, 2),
        (Gemm(256, 256, 128, dtype="bfloat16"), (128, 256, 64), 1, 2),  # two tiles of four boxes
        (Gemm(256, 128, 192), (256, 64, 64), 1, 1),  # 128 rows of a warpgroup
        (Gemm(128, 96, 128, batch=2), (128, 96, 64), None, 1),  # three boxes of 64 bytes a row
        (Gemm(200, 136, 128, epilogue=("bias", "relu")), (128, 64, 64), 2, 1),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_results_leave_by_way_of_shared_memory(
    gemm: Gemm, tile: tuple[int, int, int], ctas: int | None, slots: int
) -> None:
    kernel = kernel_of(gemm, tile, ctas)
    (store,) = kernel.plan.stores
    assert (store.mechanism, store.slots) == ("tma", slots)
    assert verify_workload(kernel, gemm, **modes_of(gemm)).ok


def test_results_leave_from_registers_where_that_is_asked_for() -> None:
    gemm = Gemm(200, 136, 128)
    kernel = kernel_of(gemm, (128, 64, 64), 2, store="direct")
    assert [store.mechanism for store in kernel.plan.stores] == ["direct"]
    assert "bulk_group" not in kernel.cuda
    assert_right(gemm, kernel)


@pytest.mark.parametrize(
    "gemm",
    [
        Gemm(100, 136, 128),
        Gemm(200, 40, 128, dtype="bfloat16"),
        Gemm(47, 40, 128, epilogue=("bias", "residual", "relu")),
    ],
    ids=str,
)
@pytest.mark.part(3)
def test_a_box_reaches_as_far_beyond_the_result_as_its_tile(gemm: Gemm) -> None:
    kernel = kernel_of(gemm, (128, 64, 64))
    assert [store.mechanism for store in kernel.plan.stores] == ["tma"]
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_a_box_does_not_end_inside_the_result() -> None:
    some = counted(stored=100)
    with refused("store.part", PlanError, stored=100, whole=128, lines="rows"):
        pipeliner.build(some, "h100", instruction="wgmma", store="tma")
    kernel = pipeliner.build(some, "h100", instruction="wgmma")
    a, b, c = operands("float16", 512)
    result = kernel.emulate(a, b, c, 2)
    assert not result.hazards, "\n".join(map(str, result.hazards))
    want = a[:, :128].astype("float32") @ b[:, :128].astype("float32").T
    want[100:] = np.nan
    np.testing.assert_array_equal(result.outputs["C"], want)


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(128, 64, 256, dtype="float8_e4m3fn"), (128, 64, 128)),
        (Gemm(100, 72, 144, dtype="float8_e5m2", out="float16"), (64, 64, 128)),
        (Gemm(128, 64, 96, dtype="tfloat32"), (128, 64, 32)),
    ],
    ids=str,
)
@pytest.mark.part(3)
def test_what_only_tensor_cores_multiply(gemm: Gemm, tile: tuple[int, int, int]) -> None:
    kernel = pipeliner.build(schedule_gemm(gemm, GemmTile(*tile)), "h100")
    assert kernel.plan.matmuls[0].instruction.startswith("wgmma")
    assert verify_workload(kernel, gemm, **modes_of(gemm)).ok


@pytest.mark.parametrize("m", [1, 100, 128, 257])
@pytest.mark.part(2)
def test_a_symbolic_number_of_rows(m: int) -> None:
    gemm = Gemm(None, 136, 128, dtype="bfloat16")
    kernel = kernel_of(gemm, (128, 64, 64))
    assert [store.mechanism for store in kernel.plan.stores] == ["tma"]
    assert_right(gemm, kernel, m)


@pytest.mark.part(36)
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_a_persistent_grid_carries_slots_and_phases_across_tiles(
    ctas: int, steps: int, depth: int
) -> None:
    number = ctas * 9 + steps * 3 + depth
    gemm = Gemm(200, 136, 64 * steps, dtype="bfloat16")
    kernel = kernel_of(gemm, (128, 64, 64), ctas, depth=depth)
    options = {"timing": TIMINGS[number % 3], "order": ORDERS[number % 4], "seed": number}
    assert_right(gemm, kernel, **options)


@pytest.mark.parametrize(
    ("gemm", "ctas", "options"),
    [
        (Gemm(256, 128, 64, batch=3), 5, {}),  # a step a tile: rings run across batches
        (Gemm(200, 136, 192, batch=4, layout="NN"), 7, {}),
        (Gemm(256, 128, 128, batch=3), 4, {"consumers": "ping-pong"}),
        (Gemm(72, 80, 64, batch=3, dtype="bfloat16", epilogue=("bias", "relu")), 2, {}),
        (Gemm(128, 64, 64, batch=2), 9, {}),  # more CTAs than tiles
    ],
    ids=str,
)
@pytest.mark.part(2)
def test_a_persistent_grid_walks_through_all_of_a_batch(
    gemm: Gemm, ctas: int, options: dict[str, object]
) -> None:
    kernel = kernel_of(gemm, (64, 64, 64), ctas, **options)
    assert "blockIdx.z" not in kernel.cuda
    assert [copy.mechanism for copy in kernel.plan.copies] == ["tma", "tma"]
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


def test_a_stationary_operand_is_one_of_the_batchs() -> None:
    gemm, tile = Gemm(256, 64, 128, batch=3), GemmTile(64, 64, 64, persistent=2, stationary=True)
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h100")
    assert "blockIdx.z" in kernel.cuda
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


@pytest.mark.parametrize("m", [1, 300, 513])
@pytest.mark.part(3)
def test_a_persistent_grid_over_a_symbolic_number_of_rows(m: int) -> None:
    gemm = Gemm(None, 136, 128, dtype="bfloat16")
    assert_right(gemm, kernel_of(gemm, (128, 64, 64), 4), m)


@pytest.mark.parametrize(
    ("columns", "ctas"),
    [(1, 4), (2, 4), (2, 8), (3, 6), (4, 4)],  # whole rows of tiles at once
)
@pytest.mark.part(2)
def test_a_persistent_grid_of_whole_rows_of_tiles_is_copied_by_a_producer(
    columns: int, ctas: int
) -> None:
    """TVM takes their number out of the divisions that guards have: no copy was whole boxes so."""
    gemm = Gemm(None, 64 * columns, 192, dtype="bfloat16")
    kernel = kernel_of(gemm, (64, 64, 64), ctas, prove=False)
    assert [copy.mechanism for copy in kernel.plan.copies] == ["tma", "tma"]
    for m in (1, 64 * ctas // columns, 64 * ctas + 1):
        assert_right(gemm, kernel, m)


@pytest.mark.parametrize(
    ("gemm", "ctas", "cluster"),
    [
        (Gemm(256, 64, 192), None, 2),
        (Gemm(512, 64, 128), None, 4),
        (Gemm(512, 128, 128), 4, 2),  # one tile left over
        (Gemm(400, 136, 128), 2, 2),
        (Gemm(1024, 192, 128), 12, 2),  # raster groups of eight rows of tiles, of 24 tiles
        (Gemm(256, 128, 192, batch=2, layout="NN"), 2, 2),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_clusters_share_what_is_the_same_for_neighbours(
    gemm: Gemm, ctas: int | None, cluster: int
) -> None:
    kernel = kernel_of(gemm, (128, 64, 64), ctas, cluster=cluster, depth=2)
    assert kernel.cuda.count("multicast__cluster(") == 2  # defined and called, for B
    for timing, order in runs_of(gemm):
        assert_right(gemm, kernel, timing=timing, order=order)


def test_a_cluster_is_refused_as_copies_of_boxes_are() -> None:
    """Not as those that no cluster could make, which need less of everything else."""
    gemm = Gemm(384, 128, 128)
    with refused("cluster.nothing_shared", PlanError):
        pipeline_with(schedule_gemm(gemm, GemmTile(128, 64, 64)), "h100", Request(cluster=2))
    with refused("cluster.no_tma", PlanError):
        pipeline_with(schedule_gemm(gemm, GemmTile(128, 64, 64)), "a100", Request(cluster=2))


def test_clusters_that_cannot_share_are_refused() -> None:
    with refused("cluster.nothing_shared", PlanError):
        kernel_of(Gemm(384, 128, 128), (128, 64, 64), 2, cluster=2)  # three rows of tiles
    with refused("cluster.grid", PlanError, extent=3):
        kernel_of(Gemm(384, 64, 128), (128, 64, 64), cluster=2)
    with refused("cluster.trip", LoweringError):
        kernel_of(Gemm(128, 832, 128, layout="TN"), (128, 64, 64), 4, cluster=4)
    with refused("cluster.no_tma", PlanError):
        kernel_of(Gemm(256, 64, 64), (128, 64, 64), cluster=2, mechanism="cp_async")


@pytest.mark.parametrize(
    ("dtype", "accumulator", "k"), [("float16", "float16", 64), ("int8", "int32", 128)]
)
@pytest.mark.part(2)
def test_every_accumulator(dtype: str, accumulator: str, k: int) -> None:
    gemm = Gemm(128, 128, 2 * k, dtype=dtype, accumulator=accumulator)
    kernel = kernel_of(gemm, (128, 128, k))
    assert_right(gemm, kernel)


@pytest.mark.parametrize("epilogue", [("bias", "relu"), ("residual",)])
@pytest.mark.part(2)
def test_an_epilogue_runs_on_the_accumulators(epilogue: tuple[str, ...]) -> None:
    gemm = Gemm(200, 136, 192, epilogue=epilogue)
    kernel = kernel_of(gemm, (128, 64, 64), 2)
    assert verify_workload(kernel, gemm, **modes_of(gemm)).ok


@pytest.fixture(scope="module")
def counted_kernel() -> Kernel:
    return pipeliner.build(counted(), "h100", instruction="wgmma", depth=3)


@pytest.mark.parametrize("steps", range(9))
@pytest.mark.part(2)
def test_a_trip_count_known_at_run_time(counted_kernel: Kernel, steps: int) -> None:
    a, b, c = operands("float16", 512)
    for timing, order in runs_of(steps):
        result = counted_kernel.emulate(a, b, c, steps, timing=timing, order=order)
        assert not result.hazards, "\n".join(map(str, result.hazards))
        want = a[:, : 64 * steps].astype("float32") @ b[:, : 64 * steps].astype("float32").T
        np.testing.assert_array_equal(result.outputs["C"], want)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_operands_of_8_bits(dtype: str) -> None:
    kernel = pipeliner.build(counted(dtype, 128), "h100", instruction="wgmma")
    assert kernel.plan.matmuls[0].instruction.startswith("wgmma.m64n64k32.e")
    a, b, c = operands(dtype, 1024)
    result = kernel.emulate(a, b, c, 3)
    assert not result.hazards, "\n".join(map(str, result.hazards))
    want = a[:, :384].astype("float32") @ b[:, :384].astype("float32").T
    np.testing.assert_array_equal(result.outputs["C"], want)


def operands(dtype: str, k: int) -> tuple[Any, Any, Any]:
    """Small integers, and an output of NaN."""
    rng = np.random.default_rng(0)
    kind = getattr(ml_dtypes, dtype, dtype)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(kind) for rows in (ROWS, COLUMNS))
    return a, b, np.full((ROWS, COLUMNS), np.nan, np.float32)


def test_rings_of_different_depths_have_mbarriers_of_their_own() -> None:
    gemm = Gemm(128, 64, 320, dtype="bfloat16")
    kernel = kernel_of(gemm, (128, 64, 64), depth={"A_shared": 2, "B_shared": 3})
    assert {(c.rings, c.depth) for c in kernel.plan.mbarriers} == {
        (("A_shared",), 2),
        (("B_shared",), 3),
    }
    for timing in TIMINGS:
        assert_right(gemm, kernel, timing=timing)


@pytest.mark.parametrize(
    ("gemm", "ctas", "cluster"),
    [(Gemm(128, 64, 384), None, 1), (Gemm(128, 128, 384), 1, 1), (Gemm(256, 64, 384), None, 2)],
)
@pytest.mark.deep("tests/verify/test_ping_pong.py::test_no_mutant_survives")
def test_no_mutant_survives(gemm: Gemm, ctas: int | None, cluster: int) -> None:
    kernel = kernel_of(gemm, (128, 64, 64), ctas, depth=3, cluster=cluster)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.survivors)
    assert {fate.mutant.kind for fate in report.fates} == {
        "arrival",
        "barrier",
        "commit",
        "fence",
        "slot",
        "wait",
    }
