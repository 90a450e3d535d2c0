"""Results whose rows begin anywhere are staged, and written by neighbouring threads."""

from __future__ import annotations

import pytest

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.machine import H200
from pipeliner.plan.request import Request
from pipeliner.records.candidate import Candidate
from pipeliner.schedules import GatedGemm, Gemm, GemmTile, default_tile, schedule_gemm
from tests.refusals import refused
from tests.verify.proved import assert_right_and_proved

SQUARE = GemmTile(64, 64, 64)

CASES = {
    "a row more than a box": (Gemm(100, 77, 64), SQUARE, {}),
    "a narrower last box": (Gemm(100, 333, 128), GemmTile(64, 176, 64), {}),
    "ping-pong": (
        Gemm(64, 99, 64),
        GemmTile(64, 64, 64, persistent=1),
        {"consumers": "ping-pong", "depth": 2},
    ),
    "A and B swapped": (Gemm(30, 333, 128, dtype="bf16"), GemmTile(32, 64, 64), {}),
    "batched": (Gemm(64, 77, 64, batch=3), SQUARE, {}),
    "operands written first": (Gemm(64, 77, 45), GemmTile(64, 64, 64, reordered=True), {}),
    "pairs": (Gemm(64, 78, 64), SQUARE, {}),
    "pairs, A and B swapped": (Gemm(30, 334, 128), GemmTile(32, 64, 64), {}),
    "vectors of four, a narrower last box": (Gemm(64, 332, 128), GemmTile(64, 176, 64), {}),
    "rows that TMA could write": (Gemm(64, 128, 64), SQUARE, {}),
    "epilogue": (Gemm(64, 99, 64, epilogue=("bias", "relu")), SQUARE, {}),
    "gated": (GatedGemm(64, 99, 64), SQUARE, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_element_is_stored_once_inside_the_tensor(case: str) -> None:
    gemm, tile, asked = CASES[case]
    given = {"instruction": "wgmma", "store": "coalesced", "prove": False, **asked}
    kernel = pipeliner.build(schedule_gemm(gemm, tile), "h200", **given)
    (store,) = kernel.plan.stores
    assert (store.mechanism, store.box[1]) == ("coalesced", 64)
    assert "s2g" not in kernel.cuda
    assert_right_and_proved(kernel, gemm)


@pytest.mark.parametrize(
    ("columns", "width", "write"),
    [
        (77, 1, "C_ptr["),
        (78, 2, "*(half2*)(C_ptr"),
        (76, 4, "*(half4*)(C_ptr"),
        (80, 8, "*(uint4*)(C_ptr"),
    ],
)
def test_a_thread_writes_the_widest_vector_that_rows_begin_at(
    columns: int, width: int, write: str
) -> None:
    given = {"instruction": "wgmma", "store": "coalesced", "prove": False}
    cuda = pipeliner.build(schedule_gemm(Gemm(64, columns, 64), SQUARE), "h200", **given).cuda
    written = [line.strip() for line in cuda.splitlines() if "= values_ptr" in line]
    assert len(written) * width == 64 * 64 // 128
    assert all(line.startswith(write) for line in written)


@pytest.mark.parametrize(
    ("columns", "mechanism"),
    [(50257, "coalesced"), (50258, "coalesced"), (50264, "tma")],  # of GPT-2's vocabulary
)
def test_rows_that_begin_inside_vectors_are(columns: int, mechanism: str) -> None:
    gemm = Gemm(4096, columns, 768, dtype="bf16")
    plan = Candidate(default_tile(gemm, H200)).plan(gemm, H200)
    assert [store.mechanism for store in plan.stores] == [mechanism]


@pytest.mark.parametrize(
    ("gemm", "tile", "instruction", "why"),
    [
        (Gemm(64, 99, 256), GemmTile(64, 64, 64, splits=2), "wgmma", "store.dtype"),
        (Gemm(64, 99, 64, out="fp32"), SQUARE, "wgmma", "store.dtype"),
        (Gemm(64, 99, 64), SQUARE, "mma", "store.no_producer"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_where_it_is_asked_for(
    gemm: Gemm, tile: GemmTile, instruction: str, why: str
) -> None:
    asked = Request(instruction=instruction, store="coalesced")
    with refused("store.coalesced", PlanError) as raised:
        Candidate(tile, asked).plan(gemm, H200)
    assert raised.value.reason.why.code == why
