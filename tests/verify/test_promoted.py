"""Sums of fp8 promoted to float32 in each step: right in every form, and nothing is too much."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError, TargetError
from pipeliner.kernel.compiled import Kernel
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .hopper_loops import COLUMNS, ROWS, counted
from .modes import modes_of
from .mutation_kernels import killer

FP8 = Gemm(128, 64, 384, dtype="e4m3")


def kernel_of(gemm: Gemm, tile: GemmTile, **options: Any) -> Kernel:
    asked = {"instruction": "wgmma", "accumulate": "promoted", **options}
    return pipeliner.build(schedule_gemm(gemm, tile), "h100", **asked)


@pytest.mark.parametrize(
    ("gemm", "tile", "options"),
    [
        (FP8, GemmTile(128, 64, 128), {}),
        (Gemm(128, 64, 128, dtype="e5m2"), GemmTile(128, 64, 128), {}),  # one step
        (Gemm(256, 64, 256, dtype="e4m3"), GemmTile(256, 64, 64), {"warps": (4, 1)}),  # four blocks
        (Gemm(128, 256, 256, dtype="e4m3"), GemmTile(128, 256, 128), {}),
        (Gemm(100, 72, 272, dtype="e5m2", out="float16"), GemmTile(64, 64, 128, persistent=2), {}),
        (Gemm(256, 64, 384, dtype="e4m3"), GemmTile(128, 64, 128), {"cluster": 2, "depth": 2}),
        (Gemm(16, 128, 256, dtype="e4m3"), GemmTile(16, 64, 128), {}),  # swap A/B
        (Gemm(200, 136, 256, dtype="e4m3"), GemmTile(128, 64, 128), {"mechanism": "cp_async"}),
        (Gemm(256, 64, 256, dtype="e4m3"), GemmTile(128, 64, 128), {"operand": "registers"}),
        (
            Gemm(256, 128, 256, dtype="e4m3"),
            GemmTile(64, 64, 128, persistent=3),
            {"consumers": "ping-pong"},
        ),
    ],
    ids=str,
)
@pytest.mark.part(6)
def test_sums_of_one_step_are_added_in_float32(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = kernel_of(gemm, tile, **options)
    assert [matmul.promoted for matmul in kernel.plan.matmuls] == [tile.k]
    verdict = verify_workload(kernel, gemm, seed=4, **modes_of(gemm))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.part(2)
def test_a_trip_count_known_at_run_time(steps: int) -> None:
    kernel = pipeliner.build(
        counted("float8_e4m3fn", 128), "h100", instruction="wgmma", accumulate="promoted"
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, 1024)).astype("float32") for rows in (ROWS, COLUMNS))
    narrow = [x.astype(ml_dtypes.float8_e4m3fn) for x in (a, b)]
    result = kernel.emulate(*narrow, np.full((ROWS, COLUMNS), np.nan, np.float32), steps)
    assert not result.hazards, "\n".join(map(str, result.hazards))
    want = a[:, : 128 * steps] @ b[:, : 128 * steps].T
    np.testing.assert_array_equal(result.outputs["C"], want)


def test_a_convolution_too() -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1, dtype="e4m3")
    kernel = pipeliner.build(
        schedule_conv(conv, ConvTile(64, 64, 64)),
        "h100",
        instruction="wgmma",
        accumulate="promoted",
    )
    verdict = verify_workload(kernel, conv, seed=4)
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.part(3)
@pytest.mark.parametrize("options", [{}, {"operand": "registers"}, {"mechanism": "cp_async"}])
def test_no_mutant_survives(options: dict[str, Any]) -> None:
    gemm = Gemm(128, 64, 768, dtype="e4m3")
    report = pipeliner.mutate(kernel_of(gemm, GemmTile(128, 64, 128), depth=3, **options))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)
    assert "register-in-flight" in {killer(fate) for fate in report.fates}


@pytest.mark.deep("tests/verify/test_fixed_plans.py has such a plan")
def test_the_plan_says_so_and_is_obeyed_again() -> None:
    tile = GemmTile(128, 64, 128)
    kernel = kernel_of(FP8, tile)
    text = " ".join(kernel.plan.explain().split())
    assert "accumulated in float32, sums of 128 promoted" in text
    assert "threads add the sum of each 128 products to them, as asked for, in float32" in text
    plan = KernelPlan.from_json(kernel.plan.to_json())
    assert pipeliner.build(schedule_gemm(FP8, tile), "h100", plan=plan).cuda == kernel.cuda


@pytest.mark.parametrize("accumulate", ["auto", "fast"])
@pytest.mark.part(2)
def test_tensor_cores_sum_all_unless_that_is_asked_for(accumulate: Any) -> None:
    kernel = kernel_of(FP8, GemmTile(128, 64, 128), accumulate=accumulate)
    assert [matmul.promoted for matmul in kernel.plan.matmuls] == [0]
    assert "partial" not in kernel.cuda


def test_what_is_not_cut_is_not_promoted() -> None:
    nothing = "wgmma.nothing_to_promote"
    with refused(nothing, PlanError, dtype="float16"):
        kernel_of(Gemm(128, 64, 256), GemmTile(128, 64, 64))
    with refused(nothing, PlanError, dtype="float16"):
        kernel_of(Gemm(128, 64, 256), GemmTile(128, 64, 64), instruction="mma")
    with refused("mapping.promoted", PlanError, why=Reason("mapping.ask")):
        kernel_of(FP8, GemmTile(128, 64, 128), instruction="simt")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"accumulate": "promoted"}, "mapping.promoted"),
        ({"operand": "registers"}, "mapping.operand"),
        ({"roles": 2}, "mapping.roles"),
    ],
)
def test_wgmma_is_not_advised_where_there_is_none(asked: dict[str, Any], code: str) -> None:
    scheduled = schedule_gemm(FP8, GemmTile(128, 64, 128))
    why = Reason("mapping.needs_sm_90a", machine="A100 SXM4", arch="sm_80")
    with refused(code, TargetError, why=why):
        pipeliner.build(scheduled, "a100", **asked)


@pytest.mark.parametrize("accumulate", ["slow", 2])
def test_nonsense_is_refused_by_name(accumulate: Any) -> None:
    with refused("request.choice", PlanError, option="accumulate", value=repr(accumulate)):
        Request(accumulate=accumulate)


def test_a_step_and_its_sums_want_registers() -> None:
    gemm = Gemm(128, 256, 256, dtype="e4m3")
    with refused("wgmma.split", PlanError, tile=(128, 256)):
        kernel_of(gemm, GemmTile(128, 256, 128), warps=(8, 1))


@pytest.mark.nvcc
@pytest.mark.deep("test_sums_of_one_step_are_added_in_float32")
def test_a_step_is_multiplied_waited_for_and_added() -> None:
    """Four instructions, of which the first one writes, then an addition for each accumulator."""
    gemm = Gemm(256, 192, 1024, dtype="e4m3")
    kernel = kernel_of(gemm, GemmTile(128, 192, 128, persistent=1))
    assert kernel.resources.spills == 0
    lines = [line.split("*/")[-1].split(";")[0].split() for line in kernel.sass.splitlines()
             if "*/" in line]  # fmt: skip
    at = [n for n, line in enumerate(lines) if line and line[0].startswith("QGMMA")]
    assert len(at) == 4
    assert "RZ," in lines[at[0]]
    assert not any("RZ," in lines[n] for n in at[1:])
    rest = [line[0] for line in lines[at[-1] :] if line]
    end = next(n for n, name in enumerate(rest) if name == "BRA")
    assert sum(name.startswith("FADD") for name in rest[:end]) == 96
    assert sum(name == "WARPGROUP.DEPBAR.LE" for name in rest[:end]) == 1
