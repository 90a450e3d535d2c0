"""Bytes: their sums are exact, and are compared as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload

TILE = GemmTile(32, 32, 64)


@pytest.mark.parametrize("dtype", ["int8"])
def test_sums_that_are_stored_as_bytes_keep_their_low_bits(dtype: str) -> None:
    gemm = Gemm(32, 32, 128, dtype=dtype, out=dtype)
    exact = gemm.reference(*gemm.inputs())
    assert abs(exact).max() > np.iinfo(dtype).max
    verdict = verify_workload(pipeliner.build(schedule_gemm(gemm, TILE), "a100"), gemm)
    assert verdict.ok
