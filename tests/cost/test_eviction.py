"""Which operands are evict-first: large ones that nothing reads again."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import tvm

from pipeliner import build, pipeline
from pipeliner.choice.alone import unpipelined
from pipeliner.errors import PlanError
from pipeliner.machine import A100, H100, H200, T4, Machine
from pipeliner.passes.lower import preparation
from pipeliner.passes.pipeline import recognised_info
from pipeliner.plan import CopyPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, default_tile, schedule_gemm
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.ranking import choose
from pipeliner.toolchain.nvcc import find_tool
from pipeliner.values.facts import CopyInfo, KernelInfo
from tests.refusals import refused, says

SMALL = GemmTile(16, 64, 64)

CASES: list[tuple[Gemm, GemmTile | None, Machine, str]] = [
    (Gemm(16, 4096, 4096), None, H100, "B"),
    (Gemm(16, 4096, 4096), None, A100, ""),  # by cp.async
    (Gemm(64, 8192, 4096), GemmTile(64, 64, 64, splits=2), H100, "B"),
    (Gemm(128, 8192, 8192), None, H100, "B"),  # two rows of tiles, in one wave
    (Gemm(256, 256, 65536), None, H100, "AB"),
    (Gemm(4096, 64, 8192), GemmTile(64, 64, 64), H100, "A"),
    (Gemm(16, 8192, 4096, batch=2), GemmTile(16, 64, 64), H100, "B"),
    # read again later, by the CTAs of another wave
    (Gemm(32, 16384, 4096), SMALL, H100, ""),
    (Gemm(128, 8192, 8192), GemmTile(64, 64, 64), H100, ""),
    (Gemm(128, 8192, 8192), GemmTile(64, 64, 64, persistent=128), H100, ""),
    # read by too many at once
    (Gemm(128, 2048, 8192), GemmTile(16, 128, 64), H100, ""),
    # a tile of it each, in as many waves as it takes
    (Gemm(16, 16384, 4096), SMALL, H100, "B"),
    (Gemm(16, 16384, 4096), GemmTile(16, 64, 64, persistent=132), H100, "B"),
    # as large as what L2 keeps
    (Gemm(16, 1600, 4096), SMALL, H100, ""),
    (Gemm(16, 1664, 4096), SMALL, H100, "B"),
    # so much larger that all of L2 is driven out whatever it is told
    (Gemm(16, 16384, 8192), SMALL, H100, ""),
    (Gemm(16, 16384, 4096), SMALL, H200, "B"),
    (Gemm(16, 16384, 5120), SMALL, H200, ""),
    # squares
    (Gemm(4096, 4096, 4096), None, H100, ""),
    (Gemm(8192, 8192, 8192), None, A100, ""),
    (Gemm(1024, 1024, 1024), None, H100, ""),
    # not asynchronous, or known at run time only
    (Gemm(16, 4096, 4096), SMALL, T4, ""),
    (Gemm(None, 4096, 4096), SMALL, H100, ""),
]


def evicted(copies: tuple[CopyPlan, ...]) -> str:
    return "".join(sorted(copy.src for copy in copies if copy.eviction == "evict_first"))


@pytest.mark.parametrize(("gemm", "tile", "machine", "wanted"), CASES, ids=str)
@pytest.mark.part(6)
def test_what_is_read_once_is_let_go_of(
    gemm: Gemm, tile: GemmTile | None, machine: Machine, wanted: str
) -> None:
    plan = choose(kernel_info(gemm, tile or default_tile(gemm, machine)), machine, Request())
    assert evicted(plan.copies) == wanted
    for copy in plan.copies:
        said = says("eviction.once", [copy.reason]) or says("eviction.one_wave", [copy.reason])
        assert said == (copy.eviction == "evict_first")


def test_what_is_too_large_says_so() -> None:
    plan = choose(kernel_info(Gemm(16, 16384, 8192), SMALL), H100, Request(mechanism="tma"))
    said = {copy.src: says("eviction.too_large", [copy.reason]) for copy in plan.copies}
    assert said == {"A": False, "B": True}


def found_in(gemm: Gemm, tile: GemmTile, machine: Machine) -> KernelInfo:
    """What recognition finds in the scheduled IR."""
    module = tvm.transform.Sequential(preparation())(schedule_gemm(gemm, tile).mod)
    (func,) = module.functions.values()
    return recognised_info(func, machine, Request())


@pytest.mark.slow
@pytest.mark.parametrize(("gemm", "tile", "machine", "wanted"), CASES, ids=str)
@pytest.mark.part(6)
def test_the_closed_form_tells_it_as_the_kernel_does(
    gemm: Gemm, tile: GemmTile | None, machine: Machine, wanted: str
) -> None:
    tile = tile or default_tile(gemm, machine)
    copies = choose(found_in(gemm, tile, machine), machine, Request()).copies
    assert evicted(copies) == wanted


def with_copies(info: KernelInfo, **changes: Any) -> KernelInfo:
    """``info`` with every copy of it changed."""

    def changed(op: Any) -> Any:
        return replace(op, **changes) if isinstance(op, CopyInfo) else op

    loops = [replace(loop, ops=tuple(map(changed, loop.ops))) for loop in info.loops]
    return replace(info, loops=tuple(loops))


def test_boxes_alone_are_counted() -> None:
    info = kernel_info(Gemm(16, 4096, 4096), SMALL)
    assert evicted(choose(info, H100, Request()).copies) == "B"
    assert evicted(choose(with_copies(info, no_tma="a gather"), H100, Request()).copies) == ""
    assert evicted(choose(with_copies(info, src_bytes=0), H100, Request()).copies) == ""


def test_a_copy_through_registers_says_nothing_to_l2() -> None:
    info, mma = kernel_info(Gemm(16, 4096, 4096), SMALL), Request(instruction="mma")
    assert evicted(choose(info, H100, replace(mma, mechanism="register")).copies) == ""
    plan = choose(info, H100, mma)
    left_alone = unpipelined(info.loops[0], plan.copies, plan.matmuls, H100)
    assert {copy.mechanism for copy in left_alone} == {"register"}
    assert evicted(left_alone) == ""


def test_sharing_ctas_read_once() -> None:
    gemm = Gemm(128, 16384, 4096)
    info = kernel_info(gemm, GemmTile(64, 64, 64))
    assert evicted(choose(info, H100, Request(cluster=1)).copies) == ""
    assert evicted(choose(info, H100, Request(cluster=2)).copies) == "B"


def test_an_edited_plan_is_checked() -> None:

    schedule = schedule_gemm(Gemm(16, 64, 64), SMALL)
    plan = choose(kernel_info(Gemm(16, 64, 64), SMALL), T4, Request())
    edited = replace(plan, copies=tuple(replace(c, eviction="evict_first") for c in plan.copies))
    with refused("eviction.refused", PlanError, copy="A_shared", mechanism="register"):
        pipeline(schedule, "t4", plan=edited)


@pytest.mark.parametrize("stride", [1, 2])
def test_pixels_that_windows_see_unevenly_stay(stride: int) -> None:
    """A 1x1 window reads every pixel once, or with steps of 2 a quarter of them, four times."""
    conv = conv2d(32, 56, 56, 256, 512, 1, 1, stride=stride)
    plan = choose(kernel_info(conv, ConvTile(128, 128, 64)), H100, Request(instruction="wgmma"))
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert evicted(plan.copies) == ""


@pytest.mark.parametrize(
    ("instruction", "mechanism", "eviction"),
    [
        ("wgmma", "cp_async", "evict_normal"),
        ("wgmma", "tma", "evict_first"),
        ("mma", "cp_async", "evict_normal"),
    ],
)
def test_cp_async_is_told_nothing(instruction, mechanism, eviction):
    request = Request(instruction=instruction, mechanism=mechanism, depth=4)
    info = kernel_info(Gemm(256, 256, 65536), GemmTile(128, 128, 64))
    plan = choose(info, H100, request)
    assert {copy.eviction for copy in plan.copies} == {eviction}


@pytest.mark.nvcc
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="needs nvdisasm")
@pytest.mark.parametrize("instruction", ["mma", "wgmma"])
@pytest.mark.deep("tests/passes/test_eviction.py")
def test_no_copy_reads_registers_that_nothing_set(instruction):
    """Descriptors are pairs of uniform registers, from an even one; an odd one never ran."""
    gemm, tile = (
        (Gemm(16, 8192, 4096), SMALL)
        if instruction == "mma"
        else (Gemm(256, 256, 65536), GemmTile(128, 128, 64))
    )
    request = {"instruction": instruction, "mechanism": "cp_async", "depth": 4}
    sass = build(schedule_gemm(gemm, tile), "sm_90a", **request).sass
    found = [int(at) for at in re.findall(r"LDGSTS.*desc\[UR(\d+)\]", sass)]
    assert found
    assert all(at % 2 == 0 for at in found)
