"""Tiles with more rows than a TMA box has, which are several boxes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeliner.errors import PlanError
from pipeliner.passes.copy.boxes import Boxes
from pipeliner.passes.copy.tma import row_parts
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.verification.verdict import verify_workload

from .modes import modes_of
from .test_spare_columns import kernel_of


@pytest.mark.parametrize(
    ("gemm", "tile", "asked"),
    [
        (Gemm(600, 256, 192), GemmTile(288, 128, 64), {}),
        (Gemm(600, 256, 192), GemmTile(264, 128, 64), {}),  # the second begins inside a swizzle
        (Gemm(256, 600, 192, dtype="bfloat16"), GemmTile(128, 288, 64), {}),
        (Gemm(300, 800, 128), GemmTile(64, 384, 64), {}),
        (Gemm(600, 256, 128), GemmTile(288, 64, 64, raster_group=2), {"cluster": 2}),
    ],
    ids=str,
)
def test_more_rows_than_a_box_has_are_several_boxes(
    gemm: Gemm, tile: GemmTile, asked: dict[str, object]
) -> None:
    kernel = kernel_of(gemm, tile, **asked)
    assert {copy.mechanism for copy in kernel.plan.copies} == {"tma"}
    assert "2 boxes" in " ".join(str(copy.reason) for copy in kernel.plan.copies)
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


def test_rows_that_are_no_boxes_alike_are_refused() -> None:
    gemm, tile = Gemm(128, 1040, 192), GemmTile(64, 520, 64)  # three boxes, of no equal rows
    with pytest.raises(PlanError, match="520"):
        kernel_of(gemm, tile, mechanism="tma")


@pytest.mark.parametrize("cluster", [1, 2])
def test_chunks_of_a_cluster_are_boxes_alike(cluster: int) -> None:
    """528 rows are three boxes of 176; a half of them is two of 132."""
    gemm = Gemm(256, 1056, 128)
    kernel = kernel_of(gemm, GemmTile(64, 528, 64, raster_group=2), cluster=cluster)
    assert [copy.multicast for copy in kernel.plan.copies] == [1, cluster]
    assert verify_workload(kernel, gemm).ok


def test_rows_in_several_dimensions_are_one_box() -> None:
    """Three times 128 rows are no two boxes of 192: half of three is none."""
    of_heads = SimpleNamespace(shape=(3, 128, 64))
    source = Boxes((3, 1024, 64), (), None, (3, 128), rows=0)
    assert row_parts(of_heads, source) == 1
    assert row_parts(SimpleNamespace(shape=(384, 64)), source) == 2
