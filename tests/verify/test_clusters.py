"""Clusters whose CTAs share rows and columns of tiles, and what consumers release to whom."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeliner
from pipeliner import verify
from pipeliner.errors import LoweringError, PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.mechanisms import roles
from pipeliner.passes.specialise import specialised_kernel
from pipeliner.proof.prove import prove
from pipeliner.schedules import ConvTile, Gemm, GemmTile, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Convolution, ConvWeightGrad, conv1d, conv2d
from pipeliner.verification.verdict import verify_workload

from .modes import modes_of
from .proved import assert_right_and_proved

TILE = GemmTile(128, 64, 64, raster_group=2)
"""Two rows of tiles in a raster group: four neighbours are two rows and two columns of tiles."""


def kernel_of(
    gemm: Gemm, cluster: int = 4, persistent: int | None = None, **asked: object
) -> Kernel:
    tile = GemmTile(TILE.m, TILE.n, TILE.k, raster_group=2, persistent=persistent)
    given = {"instruction": "wgmma", "cluster": cluster, "prove": False, **asked}
    return pipeliner.build(schedule_gemm(gemm, tile), "h100", **given)


@pytest.mark.parametrize(
    ("gemm", "ctas"),
    [
        (Gemm(256, 128, 192), None),
        (Gemm(250, 250, 128, dtype="bfloat16"), None),  # tiles beyond the ends
        (Gemm(512, 128, 192, layout="TT"), 4),
        (Gemm(512, 256, 128, layout="NN"), 8),
        (Gemm(256, 256, 64, batch=2), None),
        (Gemm(256, 256, 64, batch=3), 4),
    ],
    ids=str,
)
def test_rows_and_columns_of_a_cluster_share_their_tiles(gemm: Gemm, ctas: int | None) -> None:
    kernel = kernel_of(gemm, persistent=ctas)
    shared = [(copy.multicast, copy.ranks) for copy in kernel.plan.copies]
    assert shared == [(2, 2), (2, 1)]  # A with the other column, B with the other row
    (pair,) = kernel.plan.mbarriers
    assert pair.arrivals == 2 * 3  # two warpgroups of each CTA but the one across
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("gemm", "tile", "shared"),
    [
        (Gemm(104, 512, 128), GemmTile(104, 128, 64, raster_group=1), (2, 1)),
        (Gemm(208, 256, 128), GemmTile(208, 64, 64, raster_group=1), (4, 1)),
        (Gemm(72, 256, 136, dtype="bfloat16"), GemmTile(72, 64, 64, raster_group=1), (2, 1)),
    ],
    ids=str,
)
def test_what_a_cta_copies_for_others_may_begin_inside_a_swizzle(
    gemm: Gemm, tile: GemmTile, shared: tuple[int, int]
) -> None:
    """Which row of a swizzle is which, TMA tells by the address in shared memory."""
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h100", cluster=4, prove=False)
    assert tuple(copy.multicast for copy in kernel.plan.copies) == shared
    assert tile.m // shared[0] % 8 == 4
    assert_right_and_proved(kernel, gemm)


def test_it_is_proved_for_every_number_of_tiles_and_steps() -> None:
    (found,) = prove(kernel_of(Gemm(512, 256, 192), persistent=8, depth=2).lowered).kernels
    assert found.ok, found.statement
    assert "every trip count" in str(found.statement)


def test_no_slot_is_released_to_the_cta_across(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fills none of them, and an arrival there could count in the phase before."""
    for module in (roles, specialised_kernel):
        monkeypatch.setattr(module, "released_to", lambda *_: (0, 1, 2, 3))
    kernel = kernel_of(Gemm(512, 256, 192), persistent=8, depth=2)
    (pair,) = kernel.plan.mbarriers
    assert pair.arrivals == 2 * 4
    (found,) = prove(kernel.lowered).kernels
    assert not found.ok
    assert "another phase" in str(found.statement)


UNLIKE = {"A_shared": 2, "B_shared": 3}
"""Slots: each CTA fills those of A itself, both those of B."""


@pytest.mark.part(2)
@pytest.mark.parametrize("persistent", [None, 2])
@pytest.mark.parametrize("depth", [UNLIKE, {"A_shared": 3, "B_shared": 2}], ids=str)
def test_slots_of_rings_that_differ_are_released_for_themselves(
    depth: dict[str, int], persistent: int | None
) -> None:
    """Released with A's, at the end of a tile those of B could count in the phase before."""
    gemm = Gemm(512, 64, 128)
    kernel = kernel_of(gemm, cluster=2, persistent=persistent, depth=depth)
    arrivals = {pair.rings[0]: pair.arrivals for pair in kernel.plan.mbarriers}
    assert arrivals == {"A_shared": 2, "B_shared": 4}
    assert_right_and_proved(kernel, gemm)


def test_without_that_a_copy_lands_in_a_slot_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 254 x 3600 x 13416 by 128 x 240 was on a GPU before, for an hour."""
    for module in (roles, specialised_kernel):
        monkeypatch.setattr(module, "released_to", lambda *_: (0,))
    (found,) = prove(kernel_of(Gemm(256, 64, 512), cluster=2, depth=UNLIKE).lowered).kernels
    assert not found.ok


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("gemm", "shape", "shared"),
    [
        (Gemm(200, 160, 136), (4, 2), [(2, 4), (4, 3)]),  # the last column and half of a row beyond
        (Gemm(104, 160, 136, layout="TT"), (2, 4), [(4, 6), (2, 1)]),
        (Gemm(60, 400, 136), (1, 8), [(8, 0), (1, 0)]),
        (Gemm(130, 100, 136), (2, 2), [(2, 2), (2, 1)]),
    ],
    ids=str,
)
def test_a_grid_has_whole_clusters_whose_last_tiles_are_beyond_the_end(
    gemm: Gemm, shape: tuple[int, int], shared: list[tuple[int, int]]
) -> None:
    tile = GemmTile(64, 64, 64, raster_group=shape[0], grid_multiple=shape)
    asked = {"instruction": "wgmma", "cluster": shape[0] * shape[1], "prove": False}
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h200", **asked)
    assert [(copy.multicast, copy.ranks) for copy in kernel.plan.copies] == shared
    assert_right_and_proved(kernel, gemm)


@settings(max_examples=4, deadline=None)
@given(
    down=st.sampled_from([1, 2, 4, 6]),
    across=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([1, 2, 4]),
    cluster=st.sampled_from([2, 4, 8]),
    walked=st.booleans(),
    depth=st.sampled_from([1, 2, 3, UNLIKE, {"A_shared": 3, "B_shared": 2}]),
    layout=st.sampled_from(["NT", "TT", "NN"]),
)
def test_any_cluster_is_right_and_proved_or_refused(
    down: int, across: int, group: int, cluster: int, walked: bool, depth: object, layout: str
) -> None:
    gemm = Gemm(64 * down, 48 * across, 192, layout=layout)
    persistent = cluster if walked and down * across > cluster else None
    tile = GemmTile(64, 48, 64, raster_group=group, persistent=persistent)
    asked = {"instruction": "wgmma", "cluster": cluster, "depth": depth, "prove": False}
    try:
        kernel = pipeliner.build(schedule_gemm(gemm, tile), "h100", **asked)
    except (LoweringError, PlanError):  # nothing is shared, or the grid has no whole clusters
        return
    assert_right_and_proved(kernel, gemm)


@pytest.mark.parametrize(
    ("spec", "tile"),
    [
        (
            ConvWeightGrad(conv2d(5, 10, 7, 16, 32, 1, 1)),
            ConvTile(64, 16, 64, raster_group=4, grid_multiple=(2, 2)),
        ),
        (
            conv1d(1, 145, 48, 32, 3),
            ConvTile(192, 32, 32, raster_group=2, grid_multiple=(2, 4)),
        ),
    ],
    ids=str,
)
def test_a_tile_beyond_the_end_is_not_shared_with_one_that_has_the_same_indices(
    spec: Convolution, tile: ConvTile
) -> None:
    """Of one column of tiles indices say no column: only the mask says which tile is zero."""
    options: dict[str, Any] = {"instruction": "wgmma", "cluster": 4, "prove": False}
    kernel = pipeliner.build(schedule_conv(spec, tile), "h100", **options)
    assert max(copy.multicast for copy in kernel.plan.copies) == 2  # not all four
    verdict = verify_workload(kernel, spec, timings=("late",), orders=("random",))
    assert verdict.ok, verdict


def test_a_sample_of_ctas_has_their_clusters() -> None:
    kernel = kernel_of(Gemm(1024, 512, 128), cluster=2)
    assert kernel.plan.cluster == 2
    assert verify(kernel).ok
    some = verify(kernel, blocks=[(17, 0, 0)])
    assert some.ok, some
