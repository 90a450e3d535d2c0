"""Vectors that TVM cannot print as CUDA: mapping takes narrower ones where tiles are in a workspace."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.schedules import Attention, Gemm, GemmTile, schedule_gemm
from pipeliner.toolchain import nvcc

CASES = {
    "bfloat16 in float32": (Gemm(1024, 1024, 256, dtype="bf16"), GemmTile(512, 1024, 16), "t4"),
    "one byte for all lanes": (
        Gemm(1024, 1024, 256, dtype="uint8", layout="NN"),
        GemmTile(512, 512, 16, splits=4),
        "a100",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_scalar_tiles_in_a_workspace_are_cuda(case):
    gemm, tile, target = CASES[case]
    kernel = pipeliner.build(schedule_gemm(gemm, tile), target, prove=False)
    assert [matmul.instruction for matmul in kernel.plan.matmuls] == ["scalar"]
    assert "_workspace" in kernel.cuda
    if nvcc.is_found():
        assert kernel.all_resources
    else:  # a vector of more than 16 bytes has no constructor of so many numbers
        assert "make_ulonglong4((uint)" not in kernel.cuda


def test_one_float_for_all_lanes_of_narrower_results_is_cuda():
    """Results of 16 bits, eight at once, are divided by a sum of 32 of their row."""
    kernel = pipeliner.build(Attention(1, 2, 100, 77, 64), "t4", prove=False)
    assert "make_ulonglong4(((float*)" not in kernel.cuda
    if nvcc.is_found():
        assert kernel.all_resources
