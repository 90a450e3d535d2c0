"""wgmma with its first operand in registers: right in every form, and nothing in it is too much."""

from __future__ import annotations

from typing import Any

import pytest

import pipeliner
from pipeliner.compiled import Kernel
from pipeliner.errors import PlanError
from pipeliner.plan import KernelPlan
from pipeliner.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.verification import verify_workload

from .test_hopper import ORDERS, TIMINGS


def kernel_of(gemm: Gemm, tile: GemmTile, **options: Any) -> Kernel:
    asked = {"instruction": "wgmma", "operand": "registers", **options}
    return pipeliner.build(schedule_gemm(gemm, tile), "h100", **asked)


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (Gemm(128, 64, 256), GemmTile(64, 64, 64), {}),
        (Gemm(128, 64, 64), GemmTile(64, 64, 64), {}),  # one step
        (Gemm(128, 64, 96), GemmTile(64, 64, 16), {}),  # of one k each
        (Gemm(128, 128, 256, layout="TN"), GemmTile(128, 64, 64), {}),  # transposed on the way
        (Gemm(128, 128, 256, layout="NN"), GemmTile(128, 64, 64), {"depth": 1}),
        (Gemm(16, 128, 256), GemmTile(16, 64, 64), {}),  # swapped: B
        (Gemm(128, 64, 256, dtype="int8"), GemmTile(64, 64, 64), {}),
        (Gemm(128, 64, 256, dtype="e4m3"), GemmTile(128, 64, 128), {}),
        (Gemm(128, 64, 192, dtype="tf32"), GemmTile(128, 64, 32), {}),
        (Gemm(128, 64, 256, accumulator="float16"), GemmTile(64, 64, 64), {}),
        (Gemm(256, 128, 256, dtype="bfloat16"), GemmTile(128, 128, 64), {"warps": (4, 1)}),
        (Gemm(128, 256, 256), GemmTile(64, 256, 64), {"warps": (4, 2)}),
        (Gemm(256, 64, 384), GemmTile(128, 64, 64), {"cluster": 2}),
        (Gemm(128, 64, 384), GemmTile(128, 64, 64), {"mechanism": "cp_async"}),
        (Gemm(200, 136, 328), GemmTile(128, 64, 64, ctas=2), {"depth": 2}),
        (Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=2), {"parts": "reduce_add"}),
    ],
    ids=str,
)
def test_the_first_operand_by_way_of_registers(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = kernel_of(gemm, tile, **options)
    (matmul,) = kernel.plan.matmuls
    assert matmul.operand == "registers"
    assert "ldmatrix" in kernel.cuda
    verdict = verify_workload(kernel, gemm, seed=4, timings=TIMINGS, orders=ORDERS)
    assert verdict.ok, (verdict.worst, verdict.hazards)


def test_a_convolution_too() -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1)
    kernel = pipeliner.build(
        schedule_conv(conv, ConvTile(64, 64, 64)), "h100", instruction="wgmma", operand="registers"
    )
    verdict = verify_workload(kernel, conv, seed=4)
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize("options", [{}, {"cluster": 2}, {"mechanism": "cp_async"}], ids=str)
def test_no_mutant_survives(options: dict[str, Any]) -> None:
    rows = 256 if "cluster" in options else 128
    kernel = kernel_of(Gemm(rows, 64, 384), GemmTile(128, 64, 64), depth=3, **options)
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)
    found = {fate.killed_by.split(" ")[0] for fate in report.fates}
    assert {"register-in-flight", "missing-wgmma-fence"} <= found


def test_lanes_that_read_a_slot_say_so_for_their_warp_behind_a_fence() -> None:
    kernel = kernel_of(Gemm(128, 64, 384), GemmTile(128, 64, 64), depth=3)
    (channel,) = kernel.plan.channels
    assert channel.releases == 8
    assert "its lanes read the slot" in channel.reason
    report = pipeliner.mutate(kernel)
    dead = {(fate.mutant.what.split(" ")[0], fate.killed_by.split(" ")[0]) for fate in report.fates}
    assert ("fence_proxy", "missing-proxy-fence") in dead
    assert ("cuda.warp_sync", "write-while-read") in dead


def test_the_plan_says_so_and_is_obeyed_again() -> None:
    gemm, tile = Gemm(128, 64, 256), GemmTile(64, 64, 64)
    kernel = kernel_of(gemm, tile)
    text = " ".join(kernel.plan.explain().split())
    assert "the first operand from 16 registers a thread, as asked for, each step's own" in text
    plan = KernelPlan.from_json(kernel.plan.to_json())
    assert pipeliner.build(schedule_gemm(gemm, tile), "h100", plan=plan).cuda == kernel.cuda


def test_operands_stay_in_shared_memory_unless_registers_are_asked_for() -> None:
    for operand in ("auto", "shared"):
        kernel = kernel_of(Gemm(128, 64, 256), GemmTile(64, 64, 64), operand=operand)
        assert [matmul.operand for matmul in kernel.plan.matmuls] == ["shared"]
        assert "ldmatrix" not in kernel.cuda


@pytest.mark.parametrize("instruction", ["mma", "simt"])
def test_other_instructions_have_no_such_choice(instruction: Any) -> None:
    with pytest.raises(PlanError, match="registers for wgmma: ask for instruction 'wgmma'"):
        kernel_of(Gemm(128, 64, 256), GemmTile(64, 64, 64), instruction=instruction)


def test_registers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PlanError, match="whose accumulators fit their registers"):
        kernel_of(Gemm(256, 256, 256), GemmTile(128, 256, 64), warps=(4, 1))


def test_a_wrong_word_is_refused() -> None:
    with pytest.raises(PlanError, match="expected operand to be one of auto, shared, registers"):
        Request(operand="global")  # type: ignore[arg-type]
