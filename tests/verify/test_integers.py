"""Bytes with and without a sign: their sums are exact, whichever instruction multiplies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload

A100, H100 = "a100", "h100"
TILE = GemmTile(32, 32, 64)
WARPGROUPS = GemmTile(64, 64, 128)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("layout", "tile", "target", "instruction", "ptx"),
    [
        ("NT", TILE, A100, "mma", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"),
        ("TN", TILE, A100, "mma", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"),
        ("NT", TILE, A100, "simt", "mad.lo.s32"),
        ("NT", WARPGROUPS, H100, "wgmma", "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8"),
    ],
)
@pytest.mark.part(6)
def test_unsigned_bytes_multiply_over_their_whole_range(
    layout: str, tile: GemmTile, target: str, instruction: Any, ptx: str
) -> None:
    gemm = Gemm(64, 64, 256, dtype="uint8", layout=layout)
    kernel = pipeliner.build(schedule_gemm(gemm, tile), target, instruction=instruction)
    assert kernel.plan.predicted_us is not None
    assert kernel.plan.predicted_us > 0
    assert kernel.ptx is not None
    assert ptx in kernel.ptx
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, shape, dtype=np.uint8) for shape in gemm.shapes()[:2])
    outcome = kernel.emulate(a, b, np.zeros((64, 64), np.int32))
    np.testing.assert_array_equal(outcome.outputs["C"], gemm.reference(a, b))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_that_are_stored_as_bytes_keep_their_low_bits(dtype: str) -> None:
    gemm = Gemm(32, 32, 128, dtype=dtype, out=dtype)
    exact = gemm.reference(*gemm.inputs())
    assert abs(exact).max() > np.iinfo(dtype).max
    verdict = verify_workload(pipeliner.build(schedule_gemm(gemm, TILE), A100), gemm)
    assert verdict.ok


def test_every_defect_of_a_kernel_on_unsigned_bytes_is_found() -> None:
    gemm = Gemm(32, 32, 192, dtype="uint8")
    report = pipeliner.mutate(pipeliner.build(schedule_gemm(gemm, TILE), A100, depth=3))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)
