"""Tiles whose odd rows are rotated by a chunk: for rows of the source that begin inside sectors."""

from __future__ import annotations

import pytest
from tvm import sym

from pipeliner.passes.copy.layouts import Swizzle, by_rotation, by_row, by_run
from pipeliner.passes.ir.nodes import i32
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm
from tests.refusals import says

from .tiles import byte_addresses, calls, conflicts, evaluate, mapped, ops, run, shared_load

ROWS = range(32)
MATMUL = "matmul_update_o"


def places(swizzle: Swizzle, row: int, chunks: int) -> list[int]:
    """Where each chunk of a row is stored."""
    analyzer = sym.Analyzer()
    at = [swizzle.column(i32(row), i32(8 * c), 8, analyzer) for c in range(chunks)]
    return [int(evaluate(analyzer.simplify(column), {})) // 8 for column in at]


@pytest.mark.parametrize(("base", "chunks"), [("row", 8), ("row", 16), ("run", 8), ("run", 16)])
def test_the_halves_of_a_sector_stay_side_by_side(base: str, chunks: int) -> None:
    swizzle = by_rotation(
        by_row(16 * chunks) if base == "row" else by_run(16 * chunks, 8), 16 * chunks
    )
    for row in ROWS:
        at = places(swizzle, row, chunks)
        assert sorted(at) == list(range(chunks))
        for c in range(row % 2, chunks - 1, 2):  # in odd rows the first half of a sector is odd
            assert at[c] // 2 == at[c + 1] // 2


def test_eight_rows_hit_eight_chunks() -> None:
    swizzle = by_rotation(by_row(128), 128)
    for first in range(0, 32, 8):
        for c in range(8):
            assert len({places(swizzle, first + r, 8)[c] for r in range(8)}) == 8


@pytest.mark.parametrize(
    ("gemm", "layouts"),
    [
        (Gemm(200, 136, 1000), ("rotated-128B", "rotated-128B")),
        (Gemm(200, 136, 992), ("swizzle-128B", "swizzle-128B")),
        (Gemm(200, 136, 1004), ("swizzle-128B", "swizzle-128B")),  # 8 bytes at once
        (Gemm(200, 136, 1000, layout="NN"), ("rotated-128B", "rotated-128B")),
        (Gemm(200, 128, 1000, layout="NN"), ("rotated-128B", "swizzle-128B")),
        (Gemm(200, 136, 1000, dtype="int8"), ("swizzle-128B", "swizzle-128B")),
        (Gemm(200, 136, 1008, dtype="int8"), ("rotated-128B", "rotated-128B")),
        (Gemm(200, 136, 1008, dtype="int8", layout="NN"), ("rotated-128B", "swizzle-64B")),
    ],
)
@pytest.mark.part(2)
def test_only_where_every_other_row_begins_inside_a_sector(
    gemm: Gemm, layouts: tuple[str, str]
) -> None:
    step = 128 if gemm.dtype == "int8" else 64
    _, plan = mapped(gemm, GemmTile(64, 64, step))
    assert tuple(copy.layout for copy in plan.copies) == layouts
    assert all(
        says("layout.rotated", [copy.reason])
        for copy in plan.copies
        if copy.layout == "rotated-128B"
    )
    assert all(copy.cache == "L2" for copy in plan.copies if copy.vector_bytes == 16)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [64, 128])
@pytest.mark.part(2)
def test_neither_ldmatrix_nor_copies_have_bank_conflicts(layout: str, k: int) -> None:
    func, plan = mapped(Gemm(136, 136, 1000, layout=layout), GemmTile(128, 128, k))
    assert {copy.layout for copy in plan.copies} == {"rotated-128B"}
    for operand in "ab":
        for call in calls(ops(func)[f"{MATMUL}.k0.{operand}"], "ldmatrix"):
            assert conflicts(byte_addresses(func, shared_load(call)), 16) == 0
    for name in ("A_pad_shared", "B_pad_shared"):
        for call in calls(ops(func)[name], "ptx.cp_async"):
            assert conflicts(byte_addresses(func, shared_load(call)), 16) == 0


@pytest.mark.part(18)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "k", "size"), [("float16", 64, 8), ("bfloat16", 128, 8), ("tf32", 32, 4)]
)
def test_products_are_right(layout: str, dtype: str, k: int, size: int) -> None:
    odd = 2 * k + size
    run(Gemm(72, 88, odd, dtype=dtype, layout=layout), GemmTile(64, 64, k), depth=2, tolerance=5e-3)
