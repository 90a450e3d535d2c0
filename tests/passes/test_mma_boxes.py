"""mma.sync on tiles that TMA fills: ldmatrix reads their boxes where they lie, without conflicts."""

from __future__ import annotations

import pytest

from pipeliner.errors import PlanError
from pipeliner.plan.request import Request
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm
from pipeliner.targets import cuda_target

from ..refusals import refused
from .test_mma_sync import MATMUL
from .tiles import byte_offsets, calls, conflicts, mapped, ops, shared_load

BY_TMA = Request(instruction="mma", mechanism="tma")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("k", "swizzle"), [(16, 32), (32, 64), (64, 128), (96, 64)])
@pytest.mark.part(2)
def test_ldmatrix_has_no_bank_conflicts(layout: str, k: int, swizzle: int) -> None:
    gemm, tile = Gemm(128, 128, 192, layout=layout), GemmTile(128, 64, k)
    func, plan = mapped(gemm, tile, BY_TMA, cuda_target("h100"))
    for operand, letter, copy in zip("ab", layout, plan.copies, strict=True):
        k_major = (letter == "N") == (operand == "a")
        assert copy.layout == f"swizzle-{swizzle if k_major else 128}B"
        for call in calls(ops(func)[f"{MATMUL}.k0.{operand}"], "ldmatrix"):
            assert conflicts(byte_offsets(func, shared_load(call)), 16) == 0


@pytest.mark.parametrize("dtype", ["tfloat32", "int8"])
def test_words_are_not_read_from_boxes(dtype: str) -> None:
    gemm = Gemm(128, 128, 128, dtype=dtype, layout="TN")
    nbytes = {"tfloat32": 4, "int8": 1}[dtype]
    with refused("mechanism.by_words", PlanError, op=MATMUL, nbytes=nbytes) as caught:
        mapped(gemm, GemmTile(64, 64, 32), BY_TMA, cuda_target("h100"))
    assert "\n" not in str(caught.value)


def test_a_row_that_no_swizzle_divides_is_refused() -> None:
    gemm = Gemm(128, 128, 128, layout="NN")
    with refused("box.row", PlanError, nbytes=16, multiple=32):
        mapped(gemm, GemmTile(64, 8, 32), BY_TMA, cuda_target("h100"))
