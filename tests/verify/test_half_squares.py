"""Results of whole eights, no whole sixteens, that leave by way of shared memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeliner
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload

from .modes import modes_of
from .proved import assert_right_and_proved


def kernel_of(gemm: Gemm, tile: GemmTile, **asked: object) -> Kernel:
    given = {"instruction": "wgmma", "store": "tma", "prove": False, **asked}
    return pipeliner.build(schedule_gemm(gemm, tile), "h200", **given)


@pytest.mark.parametrize(
    ("gemm", "tile", "asked", "box"),
    [
        (Gemm(200, 136, 128), GemmTile(104, 128, 64), {}, (104, 64)),  # swap A/B
        (
            Gemm(70, 100, 128, dtype="bfloat16"),
            GemmTile(72, 64, 64),
            {"store": "coalesced"},
            (72, 64),
        ),
        (Gemm(130, 216, 128), GemmTile(128, 104, 64), {}, (64, 64)),  # the last box has 40 columns
        (Gemm(64, 33, 128), GemmTile(64, 24, 64), {"store": "coalesced"}, (64, 24)),
        (
            Gemm(24, 64, 256, out="float32"),
            GemmTile(24, 64, 64, splits=2),
            {"reduction": "atomic"},
            (24, 32),
        ),
    ],
    ids=str,
)
def test_the_last_eight_are_half_a_square(
    gemm: Gemm, tile: GemmTile, asked: dict[str, object], box: tuple[int, int]
) -> None:
    kernel = kernel_of(gemm, tile, **asked)
    assert [store.box for store in kernel.plan.stores] == [box]
    if gemm.dtype == "float16" and tile.splits == 1:
        assert "stmatrix_sync_aligned_m8n8_x2" in kernel.cuda
    assert_right_and_proved(kernel, gemm)


def test_no_mutant_survives() -> None:
    kernel = kernel_of(Gemm(24, 128, 256), GemmTile(24, 64, 64, persistent=1), depth=2)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)


@settings(max_examples=8, deadline=None)
@given(
    eights=st.integers(1, 14),
    swap_ab=st.booleans(),
    beyond=st.integers(-7, 40),
    store=st.sampled_from(["tma", "coalesced"]),
)
def test_any_eights_are_right(eights: int, swap_ab: bool, beyond: int, store: str) -> None:
    cut, pitch = eights * 8, 8 if store == "tma" else 1
    if swap_ab:
        gemm, tile = Gemm(max(1, cut + beyond), 72, 64), GemmTile(cut, 64, 64)
    else:
        columns = -(-max(1, cut + beyond) // pitch) * pitch
        gemm, tile = Gemm(72, columns, 64), GemmTile(64, cut, 64)
    kernel = kernel_of(gemm, tile, store=store)
    assert [one.mechanism for one in kernel.plan.stores] == [store]
    verdict = verify_workload(kernel, gemm, **modes_of(gemm))
    assert verdict.ok, verdict
