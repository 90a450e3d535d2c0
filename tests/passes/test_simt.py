"""SIMT mapping: right for every type and layout, wide conflict-free reads, wide stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tvm import tirx

from pipeliner.errors import LoweringError
from pipeliner.machine import A100
from pipeliner.passes.copy.copies import lower_copies
from pipeliner.passes.ir.nodes import ForKind, TensorLoad, const_int, walk
from pipeliner.passes.map.instructions import map_tiles
from pipeliner.passes.recognise.facts import recognise
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, conv2d, schedule_conv
from pipeliner.schedules.gemm import GemmTile
from pipeliner.schedules.workloads import LAYOUTS, Gemm
from pipeliner.space.ranking import choose

from ..refusals import refused
from .lowering_tools import prepared
from .tiles import (
    byte_addresses,
    byte_offsets,
    calls,
    conflicts,
    mapped,
    ops,
    run,
    scheduled,
    shared_load,
)

MATMUL = "matmul_update_o"
SIMT = Request(instruction="simt")


def vectors(stmt: Any) -> list[tuple[Any, int]]:
    """The vector stores below ``stmt`` and how many elements each moves."""
    found: list[tuple[Any, int]] = []

    def visit(loop: Any) -> None:
        if loop.kind == ForKind.VECTORIZED:
            found.append((loop.body, const_int(loop.extent) or 0))

    walk(stmt, tirx.For, visit)
    return found


@pytest.mark.part(18)
@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_every_type_and_layout(dtype: str, layout: str) -> None:
    gemm = Gemm(64, 128, 32, dtype=dtype, layout=layout)
    tolerance = 1e-6 if dtype == "float32" else 5e-3
    run(gemm, GemmTile(64, 128, 16), depth=1, instruction="simt", tolerance=tolerance)


@pytest.mark.parametrize("thread_tile", [(8, 8), (8, 16), (4, 8), (2, 4), (1, 4), (3, 5)])
@pytest.mark.part(3)
def test_thread_tiles(thread_tile: tuple[int, int]) -> None:
    rows, columns = 8 * thread_tile[0], 4 * thread_tile[1]
    tile = GemmTile(rows, columns, 8, warps=(1, 1), thread_tile=thread_tile)
    run(Gemm(rows, columns, 16, dtype="fp32", layout="NN"), tile, depth=1, tolerance=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "k"), [("float32", 8), ("float32", 32), ("float16", 32)])
@pytest.mark.part(2)
def test_shared_reads_have_no_bank_conflicts(dtype: str, k: int, layout: str) -> None:
    tile = GemmTile(128, 128, k, warps=(2, 4), thread_tile=(8, 8))
    func, _ = mapped(Gemm(128, 128, 64, dtype=dtype, layout=layout), tile, SIMT)
    size = 4 if dtype == "float32" else 2
    for operand in "ab":
        reads = vectors(ops(func)[f"{MATMUL}.k0.{operand}"])
        assert reads
        for store, width in reads:
            assert width == 4
            assert conflicts(byte_addresses(func, store.value), width * size) == 0


@pytest.mark.parametrize("operand", ["A_shared", "B_shared"])
def test_transposing_copies_read_whole_sectors_and_have_no_conflicts(operand: str) -> None:
    func, _ = mapped(Gemm(128, 128, 64, dtype="fp32", layout="NT"), GemmTile(128, 128, 8))
    (call,) = calls(ops(func)[f"{operand}.0"], "ptx.cp_async")
    assert conflicts(byte_addresses(func, shared_load(call)), 4) == 0


def test_a_warp_that_transposes_pixels_reads_four_sectors() -> None:
    """Pixels of a strided convolution lie in no line, their channels do: eight threads take one."""
    conv = conv2d(2, 16, 16, 32, 64, 1, 1, stride=2, dtype="fp32")
    (function,) = schedule_conv(conv, ConvTile(64, 64, 8)).mod.functions.values()
    func, kernel = recognise(prepared(function))
    plan = choose(kernel.info, A100, Request(mechanism="cp_async"))
    func = lower_copies(map_tiles(func, kernel, plan), plan)
    (call,) = calls(ops(func)["pixels_shared.0"], "ptx.cp_async")
    found: list[Any] = []
    walk(call, TensorLoad, found.append)
    (pixel,) = [load for load in found if str(load.source.scope()) == "global"]
    assert len({at // 32 for at in byte_offsets(func, pixel)}) == 4


def test_results_are_stored_four_at_once() -> None:
    tile = GemmTile(128, 128, 8, warps=(2, 4), thread_tile=(8, 8))
    func, _ = mapped(Gemm(128, 128, 64, dtype="fp32", layout="NN"), tile)
    widths = [width for store, width in vectors(func.body) if str(store.buffer.name) == "C"]
    assert widths == [4]


def test_k_steps_are_ops() -> None:
    func, plan = mapped(Gemm(64, 64, 32, dtype="fp32", layout="NN"), GemmTile(64, 64, 8))
    assert plan.matmuls[0].steps == 8
    names = [name for name in ops(func) if name.startswith(MATMUL)]
    assert len(names) == 24


def test_a_thread_tile_that_does_not_fill_the_warp_is_refused() -> None:
    func, kernel = recognise(
        prepared(scheduled(Gemm(64, 64, 32, dtype="fp32"), GemmTile(64, 64, 8)))
    )
    _, plan = mapped(Gemm(64, 64, 32, dtype="fp32"), GemmTile(64, 64, 8))
    wrong = replace(plan.matmuls[0], thread_tile=(1, 1))
    with refused("matmul.lanes", LoweringError, thread_tile=(1, 1)):
        map_tiles(func, kernel, replace(plan, matmuls=(wrong,)))


def test_narrow_copies_are_parts_of_the_step() -> None:
    func, plan = mapped(Gemm(128, 128, 64, dtype="fp32", layout="NT"), GemmTile(128, 128, 8))
    (a, _) = plan.copies
    assert a.chunks > 1
    assert [name for name in ops(func) if name.startswith("A_shared")] == [
        f"A_shared.{part}" for part in range(a.chunks)
    ]


def test_parts_that_do_not_divide_the_rounds_are_refused() -> None:
    func, kernel = recognise(
        prepared(scheduled(Gemm(128, 128, 64, dtype="fp32"), GemmTile(128, 128, 8)))
    )
    _, plan = mapped(Gemm(128, 128, 64, dtype="fp32"), GemmTile(128, 128, 8))
    wrong = replace(plan, copies=tuple(replace(copy, chunks=7) for copy in plan.copies))
    with refused("copy.chunks", LoweringError, copy="A_shared", chunks=7):
        lower_copies(map_tiles(func, kernel, wrong), wrong)
