"""Tensor core mapping: right for every type and layout, and no bank conflict where none is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tvm import tirx

from pipeliner.errors import LoweringError
from pipeliner.passes.ir.nodes import walk
from pipeliner.passes.map.instructions import map_tiles
from pipeliner.passes.recognise.facts import recognise
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm

from ..refusals import refused
from .lowering_tools import prepared
from .tiles import byte_addresses, calls, conflicts, mapped, ops, run, scheduled, shared_load

MATMUL = "matmul_update_o"


@pytest.mark.part(27)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "accumulator", "k"),
    [
        ("float16", "", 32),
        ("float16", "float16", 32),
        ("bfloat16", "", 32),
        ("tfloat32", "", 16),
        ("int8", "", 64),
    ],
)
def test_every_type_and_layout(dtype: str, accumulator: str, k: int, layout: str) -> None:
    gemm = Gemm(128, 64, 2 * k, dtype=dtype, accumulator=accumulator, layout=layout)
    run(gemm, GemmTile(64, 64, k), depth=1, tolerance=5e-3)


@pytest.mark.parametrize("layout", ["NT", "TN"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 8, 16), (48, 40, 48), (32, 24, 80), (128, 96, 32), (64, 32, 16)]
)
@pytest.mark.part(6)
def test_tiles_of_odd_shape(m: int, n: int, k: int, layout: str) -> None:
    run(Gemm(m, n, 2 * k, layout=layout), GemmTile(m, n, k), depth=1)


@pytest.mark.parametrize("warps", [(1, 1), (4, 1), (1, 4), (2, 2)])
@pytest.mark.part(2)
def test_warps_are_the_ones_asked_for(warps: tuple[int, int]) -> None:
    gemm, tile = Gemm(64, 64, 64), GemmTile(64, 64, 32, warps=warps)
    _, plan = mapped(gemm, tile)
    assert plan.matmuls[0].warps == warps
    assert plan.threads == 32 * warps[0] * warps[1]
    run(gemm, tile, depth=1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [16, 32, 48, 64, 128])
@pytest.mark.part(2)
def test_ldmatrix_has_no_bank_conflicts(layout: str, k: int) -> None:
    func, _ = mapped(Gemm(128, 128, 128, layout=layout), GemmTile(128, 128, k))
    for operand in "ab":
        for call in calls(ops(func)[f"{MATMUL}.k0.{operand}"], "ldmatrix"):
            assert conflicts(byte_addresses(func, shared_load(call)), 16) == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [16, 32, 64])
def test_copies_have_no_bank_conflicts(layout: str, k: int) -> None:
    func, _ = mapped(Gemm(128, 128, 128, layout=layout), GemmTile(128, 128, k))
    for name in ("A_shared", "B_shared"):
        (call,) = calls(ops(func)[name], "ptx.cp_async")
        assert conflicts(byte_addresses(func, shared_load(call)), 16) == 0


def test_words_of_tf32_have_no_bank_conflicts() -> None:
    func, _ = mapped(Gemm(128, 128, 64, dtype="tf32", layout="TN"), GemmTile(128, 128, 16))
    for operand in "ab":
        stores: list[Any] = []
        walk(ops(func)[f"{MATMUL}.k0.{operand}"], tirx.BufferStore, stores.append)
        for store in stores:
            assert conflicts(byte_addresses(func, shared_load(store.value)), 4) == 0


def test_k_steps_are_ops_with_registers_of_their_own() -> None:
    func, plan = mapped(Gemm(64, 64, 64), GemmTile(64, 64, 64))
    assert plan.matmuls[0].steps == 4
    names = [name for name in ops(func) if name.startswith(MATMUL)]
    assert names == [f"{MATMUL}.k{step}{part}" for step in range(4) for part in (".a", ".b", "")]


def test_a_plan_that_does_not_cover_the_tile_is_refused() -> None:
    func, kernel = recognise(prepared(scheduled(Gemm(64, 64, 64), GemmTile(64, 64, 32))))
    _, plan = mapped(Gemm(64, 64, 64), GemmTile(64, 64, 32))
    short = replace(plan.matmuls[0], warp_tile=(16, 16))
    with refused("matmul.multiples", LoweringError, dimension="M", extent=64, covered=32):
        map_tiles(func, kernel, replace(plan, matmuls=(short,)))
