"""Eight 16-bit values of a thread, computed in floats beside constants: nvcc compiles them."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.schedules import GatedGemm, GemmTile, schedule_gemm
from pipeliner.verification.verdict import verify_workload


@pytest.mark.nvcc
def test_a_gated_row_is_computed_in_words() -> None:
    """TVM printed 1.0 as ``make_ulonglong4`` of eight floats, of which CUDA has none."""
    spec = GatedGemm(1, 256, 128, dtype="bfloat16")
    kernel = pipeliner.build(schedule_gemm(spec, GemmTile(8, 64, 64)), "h100")
    assert "make_ulonglong4" not in kernel.cuda
    assert kernel.ptx
    assert verify_workload(kernel, spec, timings=("late",), orders=("random",)).ok
