from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.instructions.dtypes import element_bytes
from pipeliner.machine import A100, H100, H200, T4
from pipeliner.passes.recognise.facts import recognise, with_sharing
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules.choice import default_tile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.compared import compare_tiles
from pipeliner.schedules.gemm import schedule_gemm
from pipeliner.schedules.tile_space import in_raster_groups
from pipeliner.schedules.tiles import GemmTile
from pipeliner.schedules.workloads import DTYPES, LAYOUTS, Gemm
from pipeliner.space.axes import AUTOMATIC_CLUSTERS
from pipeliner.space.ranking import choose
from pipeliner.values.facts import CopyInfo
from tests.refusals import refused

from .test_gemm import CASES, prefix


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        # What was fastest in measurements on an H100, or within 1 % of it.
        (Gemm(4096, 4096, 4096), (128, 256, 64)),
        (Gemm(8192, 8192, 8192), (128, 192, 64)),
        (Gemm(4096, 14336, 4096), (128, 176, 64)),
        (Gemm(2048, 2048, 2048), (128, 256, 64)),
        (Gemm(1024, 1024, 1024), (64, 128, 64)),
        (Gemm(1024, 1000, 2048), (64, 128, 64)),
        (Gemm(512, 3072, 768), (128, 96, 64)),
        (Gemm(512, 768, 3072), (64, 48, 128)),
        (Gemm(4096, 4096, 4096, dtype="fp32"), (128, 256, 8)),
        (Gemm(8192, 8192, 8192, dtype="fp32"), (128, 256, 8)),
        (Gemm(8192, 8192, 8192, dtype="fp32", layout="NN"), (128, 256, 8)),
    ],
)
@pytest.mark.part(6)
def test_the_fastest_measured_tiles_are_found(gemm, tile):
    found = default_tile(gemm, H100)
    assert (found.m, found.n, found.k) == tile


@pytest.mark.part(9)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", [A100, H100, T4], ids=lambda machine: machine.name)
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (16, 512, 1024), (1, 1, 1), (None, 64, 53)])
def test_every_default_tile_maps(dtype, machine, shape):
    if dtype == "tfloat32" and machine is T4:
        pytest.skip("a T4 has no tf32")
    gemm = Gemm(*shape, dtype=dtype)
    if dtype.startswith("float8") and (machine is not H100 or gemm.k % 16):
        with refused("tile.none", WorkloadError, workload=gemm.name, machine=machine.name):
            default_tile(gemm, machine)
        return
    plan = choose(kernel_info(gemm, default_tile(gemm, machine)), machine, Request())
    assert len(plan.matmuls) == 1


def test_a_small_problem_gets_a_tile_that_fills_the_gpu():
    small, large = (default_tile(Gemm(size, size, 1024), H100) for size in (256, 8192))
    assert small.m * small.n < large.m * large.n


def test_no_tile_is_wider_than_the_padded_problem():
    tile = default_tile(Gemm(17, 40, 4096), H100)
    assert tile.m <= 32
    assert tile.n <= 64


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "group"),
    [
        # Whose neighbours read least, as measured: 38.7 us along rows, 22.2 down columns; 14.0 and
        # 15.3; 600 and 434 by groups of 1 and 8.
        (200, 4096, 4096, (64, 128), 2),
        (3341, 512, 1376, (128, 128), 1),
        (1605, 11920, 6888, (208, 192), 8),
        (137, 4096, 4096, (64, 4096), 1),
    ],
)
def test_neighbours_in_a_raster_group_read_little(m, n, k, tile, group):
    what = Gemm(m, n, k).contraction()
    assert in_raster_groups(what, GemmTile(*tile, 64), H100).raster_group == group


def test_rows_that_begin_inside_sectors_are_shared_by_clusters_of_eight() -> None:
    """Measured on an H200: 16.4 us by 128x128 in two parts of K; cuBLASLt 11.5 in such clusters."""
    tile = default_tile(Gemm(1180, 704, 1656), H200)
    assert (tile.raster_group, tile.grid_multiple) == (4, (4, 2))
    assert Candidate(tile).plan(Gemm(1180, 704, 1656), H200).cluster == 8
    aligned = default_tile(Gemm(1180, 704, 1664), H200)
    assert aligned.grid_multiple == (1, 1)


@pytest.mark.parametrize(
    "gemm",
    [
        Gemm(63, 1624, 744, dtype="bfloat16"),  # predicted to be as fast without clusters
        Gemm(248, 7040, 656, layout="TN"),
        Gemm(715, 1800, 3280),
        Gemm(2589, 840, 5592, layout="NN"),
    ],
    ids=str,
)
def test_a_grid_of_whole_clusters_has_clusters(gemm: Gemm) -> None:
    tiles = [one.tile for one in compare_tiles(gemm, H200, within=1.1).whole]
    for tile in (one for one in tiles if one.grid_multiple != (1, 1)):
        assert Candidate(tile, Request(instruction="wgmma")).plan(gemm, H200).cluster > 1


@pytest.mark.parametrize(
    ("gemm", "tiles"),
    [
        (Gemm(7290, 632, 4592), {(288, 128), (304, 128)}),  # 130 and 120 tiles for 132 SMs
        (Gemm(2008, 1208, 5688, layout="NN", dtype="bfloat16"), {(128, 176)}),
        (Gemm(2834, 4720, 840), {(144, 256)}),
    ],
    ids=str,
)
def test_rows_of_many_are_cut_as_fits_the_sms(gemm: Gemm, tiles: set[tuple[int, int]]) -> None:
    """On an H200 62.3 and 64.1 us, 65.4 by 256x160; 45.6, 48.0 by 176x128; 41.3, 48.4 by 256x144."""
    found = default_tile(gemm, H200)
    assert (found.m, found.n) in tiles


def test_rings_leave_room_for_their_mbarriers() -> None:
    """667x7976x272 took 205 us by FMA: five slots and a box of 168 rows are all of an SM's memory."""
    gemm, tile = Gemm(667, 7976, 272, layout="NN"), GemmTile(168, 128, 64, persistent=132)
    plan = pipeliner.build(schedule_gemm(gemm, tile), "h200", prove=False).plan
    assert plan.matmuls[0].instruction.startswith("wgmma")
    assert plan.smem.bytes <= H200.smem_per_cta


@pytest.mark.parametrize(
    ("multiple", "code", "value"),
    [
        (4, "tile.pair", "4"),
        ((4,), "tile.pair", "(4,)"),
        ((1.5, 1), "tile.integer", "1.5"),
        ((0, 1), "tile.least", 0),
    ],
)
def test_what_divides_a_grid_is_a_pair_of_numbers(multiple: Any, code: str, value: Any) -> None:
    with refused(code, WorkloadError, name="grid_multiple", value=value):
        GemmTile(64, 64, 64, grid_multiple=multiple)


def test_a_grid_that_is_known_at_run_time_has_squares_of_tiles():
    what = Gemm(None, 4096, 4096).contraction()
    assert in_raster_groups(what, GemmTile(128, 256, 64), H100).raster_group == 16


@pytest.mark.parametrize("case", CASES)
@pytest.mark.part(2)
def test_the_closed_form_is_what_recognition_finds(case):
    gemm, tile = CASES[case]
    _, kernel = recognise(prefix(schedule_gemm(gemm, tile).mod))
    assert comparable(kernel.info) == comparable(kernel_info(gemm, tile))


@settings(max_examples=8, deadline=None)
@given(
    m=st.integers(1, 100),
    n=st.integers(1, 100),
    k=st.integers(1, 100),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([None, 3]),
    persistent=st.sampled_from([None, 5]),
)
def test_the_closed_form_holds_for_any_extents(m, n, k, dtype, layout, batch, persistent):
    gemm = Gemm(m, n, k, batch=batch, dtype=dtype, layout=layout)
    tile = GemmTile(32, 32, 16, persistent=persistent)
    _, kernel = recognise(prefix(schedule_gemm(gemm, tile).mod))
    assert comparable(kernel.info) == comparable(kernel_info(gemm, tile))


def comparable(info):
    """Without what only one side can know: a symbolic grid, alignment of more than 16 bytes, the
    vectors of elementwise kernels, what is said of the loop over tiles.

    Of a gathered source only the last dimension says something. Rows or columns that are one are no
    dimension of a store.
    """

    def capped(op):
        if not isinstance(op, CopyInfo):
            return op
        aligned = min(op.aligned, 16 // element_bytes(op.dtype))
        if op.src in "AB":
            return replace(op, aligned=aligned, multicast=())
        return replace(op, src_dims=op.src_dims[-1:], aligned=aligned, no_tma="", multicast=())

    loops = tuple(replace(loop, ops=tuple(map(capped, loop.ops))) for loop in info.loops)
    stores = tuple(replace(store, no_tma="") for store in info.stores)
    elementwise = tuple(replace(kernel, vector=1) for kernel in info.elementwise)
    own = {"grid": len(info.grid), "elementwise": elementwise, "declined": ()}
    return replace(info, loops=loops, stores=stores, **own)


@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(512, 256, 64), GemmTile(128, 64, 64)),
        (Gemm(512, 256, 64), GemmTile(128, 64, 64, raster_group=1)),
        (Gemm(512, 192, 64, layout="NN"), GemmTile(128, 64, 64, raster_group=2)),
        (Gemm(384, 256, 64), GemmTile(128, 64, 64)),  # three rows of tiles
        (Gemm(384, 256, 64), GemmTile(128, 64, 64, raster_group=1, persistent=4)),
        (Gemm(500, 200, 64), GemmTile(128, 64, 64, persistent=6)),
        (Gemm(512, 256, 64), GemmTile(128, 64, 64, persistent=3)),
        (Gemm(128, 128, 64), GemmTile(64, 24, 64, raster_group=1)),
        (Gemm(None, 256, 64), GemmTile(128, 64, 64)),
        (Gemm(512, 256, 64, batch=2), GemmTile(128, 64, 64)),
        (Gemm(512, 256, 64, batch=3), GemmTile(128, 64, 64, raster_group=2, persistent=8)),
        (Gemm(384, 64, 64, batch=4), GemmTile(128, 64, 64, raster_group=1, persistent=4)),
        (Gemm(500, 200, 64, batch=3), GemmTile(128, 64, 64, persistent=6)),
        (Gemm(512, 256, 64), GemmTile(128, 64, 64, raster_group=2)),  # two rows, two columns
        (Gemm(512, 256, 64), GemmTile(128, 64, 64, raster_group=2, persistent=8)),
        (Gemm(512, 192, 64), GemmTile(128, 64, 64, raster_group=2)),  # three columns
        (Gemm(512, 256, 64), GemmTile(128, 24, 64, raster_group=2)),  # B: fours for two, no four
        (Gemm(768, 256, 64), GemmTile(128, 64, 64, raster_group=6)),
        (Gemm(500, 300, 64), GemmTile(64, 64, 64, raster_group=4, grid_multiple=(4, 2))),
        (Gemm(60, 300, 64), GemmTile(64, 64, 64, grid_multiple=(1, 8))),
        (Gemm(300, 500, 64), GemmTile(64, 128, 64, raster_group=2, grid_multiple=(2, 4))),
    ],
    ids=str,
)
def test_the_closed_form_knows_what_clusters_share(gemm, tile):
    kernel = with_sharing(*recognise(prefix(schedule_gemm(gemm, tile).mod)), AUTOMATIC_CLUSTERS)

    def sharing(info):
        return {op.op: op.multicast for op in info.loops[0].ops if isinstance(op, CopyInfo)}

    assert sharing(kernel.info) == sharing(kernel_info(gemm, tile))


@pytest.mark.parametrize(
    "gemm", [Gemm(48, 2800, 3384, layout="TN"), Gemm(4272, 32, 2912, layout="NN")], ids=str
)
def test_few_columns_with_k_outermost_are_boxes(gemm):
    """A box is worth its requests from a sector a row on: 16 columns."""
    tile = default_tile(gemm, H200)
    assert 16 <= min(tile.m, tile.n) < 64
    plan = choose(kernel_info(gemm, tile), H200, Request())
    assert [copy.mechanism for copy in plan.copies] == ["tma", "tma"]
    assert plan.matmuls[0].instruction.startswith("wgmma")
