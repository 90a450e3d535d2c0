"""Operands of wgmma with K outermost whose last column block has room to spare."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.instructions import wgmma
from pipeliner.kernel.compiled import Kernel
from pipeliner.machine import H100
from pipeliner.schedules import (
    Attention,
    ConvTile,
    ConvWeightGrad,
    Gemm,
    GemmTile,
    conv2d,
    default_tile,
    schedule_conv,
    schedule_gemm,
)
from pipeliner.schedules.scheduled import scheduled
from pipeliner.verification.verdict import verify_workload

from .modes import modes_of
from .proved import assert_right_and_proved


def kernel_of(gemm: Gemm, tile: GemmTile, **asked: object) -> Kernel:
    given = {"instruction": "wgmma", "prove": False, **asked}
    return pipeliner.build(schedule_gemm(gemm, tile), "h100", **given)


@pytest.mark.parametrize(
    ("gemm", "tile", "boxes", "room"),
    [
        (Gemm(192, 320, 192, layout="TN"), GemmTile(128, 160, 64), 3, 128 + 192),
        (Gemm(200, 312, 200, layout="TN"), GemmTile(168, 64, 64), 1, 192 + 64),  # A and B swapped
        (Gemm(200, 312, 200, layout="NN"), GemmTile(64, 136, 64), 3, 64 + 192),
        (Gemm(70, 56, 104, layout="NN", dtype="bfloat16"), GemmTile(64, 56, 64), 1, 64 + 64),
        (Gemm(70, 24, 104, layout="NN"), GemmTile(64, 24, 64), 1, 64 + 32),
        (Gemm(70, 8, 104, layout="NN"), GemmTile(64, 8, 64), 1, 64 + 16),
    ],
    ids=str,
)
def test_boxes_bring_the_tile_alone(gemm: Gemm, tile: GemmTile, boxes: int, room: int) -> None:
    """Into blocks with ``room`` for more columns, 64 steps of K of two bytes each."""
    kernel = kernel_of(gemm, tile)
    assert {copy.mechanism for copy in kernel.plan.copies} == {"tma"}
    (pair,), (loop,) = kernel.plan.mbarriers, kernel.plan.loops
    assert pair.bytes == (tile.m + tile.n) * 128
    assert sum(ring.slot_bytes for ring in loop.rings) == room * 128
    reasons = " ".join(str(copy.reason) for copy in kernel.plan.copies)
    assert boxes == 1 or f"{boxes} boxes" in reasons
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


def test_what_lies_beside_the_tile_may_be_another_one_s() -> None:
    """Boxes of the first tile end inside a block, those of the second begin with one."""
    kernel = kernel_of(Gemm(64, 320, 256, layout="NN"), GemmTile(64, 160, 64), depth=3)
    assert_right_and_proved(kernel, Gemm(64, 320, 256, layout="NN"))


@pytest.mark.parametrize("mechanism", ["tma", "cp_async"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_in_clusters_and_by_threads(mechanism: str, cluster: int) -> None:
    gemm = Gemm(512, 336, 200, layout="NN")
    if mechanism == "cp_async" and cluster > 1:
        with pytest.raises(PlanError, match="cluster"):
            kernel_of(gemm, GemmTile(128, 168, 64), mechanism=mechanism, cluster=cluster)
        return
    kernel = kernel_of(gemm, GemmTile(128, 168, 64), mechanism=mechanism, cluster=cluster)
    assert verify_workload(kernel, gemm, **modes_of(mechanism)).ok


def test_warpgroups_side_by_side_begin_with_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two would begin in the middle of one, which no descriptor can name."""
    gemm, tile = Gemm(64, 384, 128, layout="NN"), GemmTile(64, 192, 64)
    with pytest.raises(PlanError, match="the 96 columns of a warpgroup are no multiple of the 64"):
        kernel_of(gemm, tile, warps=(4, 2))
    assert verify_workload(kernel_of(gemm, tile, warps=(4, 3)), gemm).ok
    monkeypatch.setattr(wgmma, "begin_with_blocks", lambda info, groups: True)
    assert not verify_workload(kernel_of(gemm, tile, warps=(4, 2)), gemm).ok


@pytest.mark.parametrize("dim", [96, 80])
def test_heads_of_attention_may_have_any_8_columns(dim: int) -> None:
    """Its values lie with keys outermost; queries and keys lie along what is summed."""
    attention = Attention(1, 2, 130, 200, dim)
    func = scheduled(attention, default_tile(attention, H100))
    kernel = pipeliner.build(func, "h100", prove=False)
    assert all(plan.instruction.startswith("wgmma") for plan in kernel.plan.matmuls)
    layouts = {copy.src: copy.layout for copy in kernel.plan.copies}
    assert layouts["V"] == "swizzle-128B" != layouts["K"]
    verdict = verify_workload(kernel, attention, **modes_of(attention))
    assert verdict.ok, verdict


@settings(max_examples=10, deadline=None)
@given(
    layout=st.sampled_from(["NN", "TN", "TT"]),
    rows=st.integers(1, 17),
    columns=st.integers(1, 17),
    along=st.sampled_from("mn"),
    steps=st.integers(1, 2),
    dtype=st.sampled_from(["float16", "bfloat16"]),
)
def test_drawn_extents(
    layout: str, rows: int, columns: int, along: str, steps: int, dtype: str
) -> None:
    m, n = (8 * rows, 64) if along == "m" else (64, 8 * columns)
    gemm = Gemm(8 * rows + 40, 8 * columns + 24, 64 * steps, layout=layout, dtype=dtype)
    kernel = kernel_of(gemm, GemmTile(m, n, 64))
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict


@pytest.mark.parametrize("channels", [80, 48])
def test_pixels_bring_the_channels_of_the_tile_alone(channels: int) -> None:
    """A gradient of weights has K outermost on both sides; TMA gathers its pixels."""
    spec = ConvWeightGrad(conv2d(2, 14, 14, channels, 64, 3, 3, pad=1))
    tile = ConvTile(64, channels, 64)
    kernel = pipeliner.build(schedule_conv(spec, tile), "h100", prove=False)
    assert [copy.view for copy in kernel.plan.copies] == ["flattened", "im2col"]
    (pair,) = kernel.plan.mbarriers
    assert pair.bytes == (64 + channels) * 64 * 2
    verdict = verify_workload(kernel, spec, **modes_of(spec))
    assert verdict.ok, verdict
