"""Clusters whose CTAs share rows and columns of tiles, and what consumers release to whom."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner import verify
from pipeliner.kernel.compiled import Kernel
from pipeliner.mechanisms import roles
from pipeliner.passes.specialise import specialised_kernel
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload

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
        (Gemm(500, 250, 128, dtype="bfloat16"), None),  # tiles beyond the ends
        (Gemm(512, 128, 192, layout="TT"), 4),
        (Gemm(512, 256, 128, layout="NN"), 8),
        (Gemm(256, 256, 64, batch=2), None),
    ],
    ids=str,
)
def test_rows_and_columns_of_a_cluster_share_their_tiles(gemm: Gemm, ctas: int | None) -> None:
    kernel = kernel_of(gemm, persistent=ctas)
    shared = [(copy.multicast, copy.ranks) for copy in kernel.plan.copies]
    assert shared == [(2, 2), (2, 1)]  # A with the other column, B with the other row
    (pair,) = kernel.plan.mbarriers
    assert pair.arrivals == 2 * 3  # two warpgroups of each CTA but the one across
    verdict = verify_workload(kernel, gemm)
    assert verdict.ok, verdict


def test_it_is_proved_for_every_number_of_tiles_and_steps() -> None:
    (found,) = prove(kernel_of(Gemm(512, 256, 192), persistent=8).lowered).kernels
    assert found.ok, found.statement
    assert "every trip count" in str(found.statement)


def test_no_slot_is_released_to_the_cta_across(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fills none of them, and an arrival there could count in the phase before."""
    for module in (roles, specialised_kernel):
        monkeypatch.setattr(module, "released_to", lambda *_: (0, 1, 2, 3))
    kernel = kernel_of(Gemm(512, 256, 192), persistent=8)
    (pair,) = kernel.plan.mbarriers
    assert pair.arrivals == 2 * 4
    (found,) = prove(kernel.lowered).kernels
    assert not found.ok
    assert "another phase" in str(found.statement)


UNLIKE = {"A_shared": 2, "B_shared": 3}
"""Slots: those of B are released with A's, which each CTA fills itself."""


def test_slots_that_others_fill_are_released_to_them_with_the_shallower_ring() -> None:
    gemm = Gemm(256, 64, 512)
    kernel = kernel_of(gemm, cluster=2, depth=UNLIKE)
    assert [copy.multicast for copy in kernel.plan.copies] == [1, 2]
    assert [(pair.empty != "", pair.arrivals) for pair in kernel.plan.mbarriers] == [
        (True, 4),
        (False, 0),
    ]
    assert verify_workload(kernel, gemm).ok
    (found,) = prove(kernel.lowered).kernels
    assert found.ok, found.statement


def test_without_that_a_copy_lands_in_a_slot_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it was for an hour: 254 x 3600 x 13416 by 128 x 240 was wrong on a GPU."""
    for module in (roles, specialised_kernel):
        monkeypatch.setattr(module, "released_to", lambda *_: (0,))
    (found,) = prove(kernel_of(Gemm(256, 64, 512), cluster=2, depth=UNLIKE).lowered).kernels
    assert not found.ok


def test_a_sample_of_ctas_has_their_clusters() -> None:
    kernel = kernel_of(Gemm(1024, 512, 128), cluster=2)
    assert kernel.plan.cluster == 2
    assert verify(kernel).ok
    some = verify(kernel, blocks=[(17, 0, 0)])
    assert some.ok, some
