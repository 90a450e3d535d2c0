"""wgmma with its first operand in registers: right in every form, and nothing in it is too much."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError
from pipeliner.kernel.compiled import Kernel
from pipeliner.mutation import MutationReport
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, Gemm, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused, says, the

from .modes import modes_of
from .mutation_kernels import killer


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
        (Gemm(16, 128, 256), GemmTile(16, 64, 64), {}),  # swap A/B: B
        (Gemm(128, 64, 256, dtype="int8"), GemmTile(64, 64, 64), {}),
        (Gemm(128, 64, 256, dtype="e4m3"), GemmTile(128, 64, 128), {}),
        (Gemm(128, 64, 192, dtype="tf32"), GemmTile(128, 64, 32), {}),
        (Gemm(128, 64, 256, accumulator="float16"), GemmTile(64, 64, 64), {}),
        (Gemm(256, 128, 256, dtype="bfloat16"), GemmTile(128, 128, 64), {"warps": (4, 1)}),
        (Gemm(128, 256, 256), GemmTile(64, 256, 64), {"warps": (4, 2)}),
        (Gemm(256, 64, 384), GemmTile(128, 64, 64), {"cluster": 2}),
        (Gemm(128, 64, 384), GemmTile(128, 64, 64), {"mechanism": "cp_async"}),
        (Gemm(200, 136, 328), GemmTile(128, 64, 64, persistent=2), {"depth": 2}),
        (Gemm(128, 128, 512), GemmTile(128, 64, 64, splits=2), {"reduction": "atomic"}),
    ],
    ids=str,
)
@pytest.mark.part(8)
def test_the_first_operand_through_registers(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = kernel_of(gemm, tile, **options)
    (matmul,) = kernel.plan.matmuls
    assert matmul.operand == "registers"
    assert "ldmatrix" in kernel.cuda
    verdict = verify_workload(kernel, gemm, seed=4, **modes_of(gemm))
    assert verdict.ok, (verdict.worst, verdict.hazards)


TRANSPOSED = [
    (Gemm(128, 64, 256, dtype="e4m3", layout="TT"), GemmTile(128, 64, 128), {}),
    (Gemm(128, 64, 256, dtype="e5m2", layout="TT", out="float32"), GemmTile(64, 64, 64), {}),
    (Gemm(128, 64, 256, dtype="int8", layout="TT"), GemmTile(64, 64, 64), {}),
    (Gemm(128, 64, 192, dtype="tf32", layout="TT"), GemmTile(128, 64, 32), {}),
    (Gemm(256, 64, 256, dtype="e4m3", layout="TT"), GemmTile(128, 64, 64), {"warps": (4, 1)}),
    (Gemm(112, 136, 272, dtype="e4m3", layout="TT"), GemmTile(64, 64, 128, persistent=2), {}),
    (Gemm(200, 72, 100, dtype="tf32", layout="TT"), GemmTile(128, 64, 32), {"depth": 2}),
    (Gemm(256, 64, 384, dtype="e4m3", layout="TT"), GemmTile(128, 64, 128), {"cluster": 2}),
    (
        Gemm(128, 64, 256, dtype="int8", layout="TT"),
        GemmTile(64, 64, 64),
        {"mechanism": "cp_async"},
    ),
    (
        Gemm(128, 64, 256, dtype="e4m3", layout="TT"),
        GemmTile(128, 64, 128),
        {"accumulate": "promoted"},
    ),
    (
        Gemm(256, 128, 256, dtype="e4m3", layout="TT"),
        GemmTile(64, 128, 128, persistent=2),
        {"consumers": "ping-pong"},
    ),
    # B, and with swap A/B.
    (Gemm(64, 128, 256, dtype="e4m3", layout="NN"), GemmTile(64, 64, 128), {}),
    (Gemm(100, 144, 256, dtype="int8", layout="NN"), GemmTile(64, 64, 64, persistent=2), {}),
    (Gemm(64, 128, 192, dtype="tf32", layout="NN"), GemmTile(64, 128, 32), {}),
    (
        Gemm(48, 128, 256, dtype="e4m3", layout="NN", epilogue=("bias", "relu")),
        GemmTile(48, 64, 128),
        {},
    ),
]


@pytest.mark.parametrize(("gemm", "tile", "options"), TRANSPOSED, ids=str)
@pytest.mark.part(6)
def test_an_operand_with_k_outermost_is_transposed(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = kernel_of(gemm, tile, **{"operand": "auto", **options})
    (matmul,) = kernel.plan.matmuls
    assert (matmul.operand, matmul.swap_ab) == ("registers", gemm.layout == "NN")
    name = "B_" if matmul.swap_ab else "A_"
    assert str(the("wgmma.transposed", [matmul.reason])["operand"]).startswith(name)
    verdict = verify_workload(kernel, gemm, seed=4, **modes_of(gemm))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(("dtype", "k"), [("e4m3", 32), ("tf32", 8)])
def test_every_element_of_a_transposed_operand_is_where_it_belongs(dtype: str, k: int) -> None:
    """Each row has numbers of its own at each k, and B takes one k after the other."""
    gemm = Gemm(64, k, k, dtype=dtype, layout="TT", out="float32")
    kernel = kernel_of(gemm, GemmTile(64, k, k), operand="auto")
    a = (np.arange(k)[:, None] + np.arange(64)[None, :] * 3) % 16
    a, b = (x.astype(numpy_dtype(gemm.storage)) for x in (a, np.eye(k)))
    result = kernel.emulate(a, b, np.full((64, k), np.nan, "float32"))
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["C"], a.T.astype("float32"))


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("gemm", "tile"),
    [
        (Gemm(128, 64, 384, dtype="e4m3", layout="TT"), GemmTile(128, 64, 64)),
        (Gemm(128, 64, 192, dtype="tf32", layout="TT"), GemmTile(128, 64, 32)),
        (Gemm(64, 64, 384, dtype="int8", layout="NN"), GemmTile(64, 64, 64)),
    ],
    ids=str,
)
def test_no_mutant_of_a_transposed_operand_survives(gemm: Gemm, tile: GemmTile) -> None:
    report = pipeliner.mutate(kernel_of(gemm, tile, operand="auto", depth=3))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)


@pytest.mark.parametrize(
    ("gemm", "options", "why"),
    [
        (
            Gemm(128, 64, 256, dtype="e4m3", layout="TT"),
            {"operand": "shared"},
            ("wgmma.k_outermost", {"dtype": "float8_e4m3fn"}),
        ),
        (
            Gemm(128, 64, 256, dtype="int8", layout="TN"),
            {},
            ("wgmma.k_outermost_but", {"operand": "A_shared"}),
        ),
        (
            Gemm(64, 64, 256, dtype="e4m3", layout="NN"),
            {"store": "tma"},
            ("store.pairs", {}),
        ),
        (
            Gemm(64, 72, 256, dtype="e4m3", layout="NN"),
            {},
            ("mapping.multiple", {"tile": (72, 64, 64), "m": 64, "n": 8, "k": 32}),
        ),
    ],
    ids=str,
)
def test_what_cannot_be_transposed_is_refused(
    gemm: Gemm, options: dict[str, Any], why: tuple[str, dict[str, Any]]
) -> None:
    tile = GemmTile(64, 72 if gemm.n == 72 else 64, 64)
    with refused(why[0], PlanError, **why[1]):
        kernel_of(gemm, tile, **{"operand": "auto", **options})


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("gemm", "k", "wanted"),
    [
        (Gemm(256, 256, 1024, dtype="e4m3", layout="TT"), 128, {"LDSM": 1, "PRMT": 4}),
        (Gemm(256, 256, 1024, dtype="int8", layout="NN"), 128, {"LDSM": 1, "PRMT": 4}),
        (Gemm(256, 256, 1024, dtype="tf32", layout="TT"), 32, {"LDS.64": 2, "SEL": 4}),
    ],
    ids=str,
)
@pytest.mark.deep("tests/verify/test_wgmma_registers.py::test_the_first_operand_through_registers")
def test_a_transposed_step_takes_few_instructions(
    gemm: Gemm, k: int, wanted: dict[str, int]
) -> None:
    kernel = kernel_of(gemm, GemmTile(128, 128, k), operand="auto")
    code = _code(kernel)
    at = [n for n, line in enumerate(code) if "GMMA" in line]
    step = code[at[1] + 1 : at[2]]
    for name, count in wanted.items():
        assert sum(name in line for line in step) == count
    assert kernel.resources.spills == 0
    assert _waits(kernel) == {"0x0": 1, "0x3": 4}


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.deep("tests/test_wgmma_warnings.py")
def test_wgmmas_do_not_wait_for_what_is_converted_behind_the_loop(dtype: str) -> None:
    """ptxas has each wait for the one before where it makes conversions between them (C7514)."""
    gemm = Gemm(256, 512, 1024, dtype=dtype, weights="int8")
    kernel = kernel_of(gemm, GemmTile(128, 256, 64, persistent=3), operand="auto")
    assert _waits(kernel) == {"0x0": 1, "0x3": 4}


def _waits(kernel: Kernel) -> Counter[str]:
    """How often so many groups of wgmma may still run."""
    return Counter(line.split()[-1] for line in _code(kernel) if "WARPGROUP.DEPBAR" in line)


def _code(kernel: Kernel) -> list[str]:
    return [line.split("*/")[-1].split(";")[0].strip() for line in kernel.sass.splitlines()]


def test_a_convolution_too() -> None:
    conv = conv2d(1, 8, 8, 64, 64, 3, 3, pad=1)
    kernel = pipeliner.build(
        schedule_conv(conv, ConvTile(64, 64, 64)), "h100", instruction="wgmma", operand="registers"
    )
    verdict = verify_workload(kernel, conv, seed=4)
    assert verdict.ok, (verdict.worst, verdict.hazards)


def report_of(kernel: Kernel) -> MutationReport:
    """The fates of all mutants of a kernel, none of which survives."""
    report = pipeliner.mutate(kernel)
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)
    found = {killer(fate) for fate in report.fates}
    assert {"register-in-flight", "missing-wgmma-fence"} <= found
    return report


@pytest.mark.parametrize("options", [{"cluster": 2}, {"mechanism": "cp_async"}], ids=str)
@pytest.mark.deep("test_no_mutant_of_a_transposed_operand_survives")
def test_no_mutant_survives(options: dict[str, Any]) -> None:
    rows = 256 if "cluster" in options else 128
    report_of(kernel_of(Gemm(rows, 64, 384), GemmTile(128, 64, 64), depth=3, **options))


def test_lanes_that_read_a_slot_say_so_for_their_warp_behind_a_fence() -> None:
    kernel = kernel_of(Gemm(128, 64, 384), GemmTile(128, 64, 64), depth=3)
    (channel,) = kernel.plan.mbarriers
    assert channel.arrivals == 8
    assert says("release.by_warp", [channel.reason])
    report = report_of(kernel)
    dead = {(fate.mutant.what.split(" ")[0], killer(fate)) for fate in report.fates}
    assert ("fence_proxy", "missing-proxy-fence") in dead
    assert ("cuda.warp_sync", "write-while-read") in dead


@pytest.mark.deep("tests/verify/test_fixed_plans.py has such a plan")
def test_the_plan_says_so_and_is_obeyed_again() -> None:
    gemm, tile = Gemm(128, 64, 256), GemmTile(64, 64, 64)
    kernel = kernel_of(gemm, tile)
    (matmul,) = kernel.plan.matmuls
    assert the("wgmma.register_operand", [matmul.reason])["registers"] == 16
    plan = KernelPlan.from_json(kernel.plan.to_json())
    assert pipeliner.build(schedule_gemm(gemm, tile), "h100", plan=plan).cuda == kernel.cuda


@pytest.mark.deep("test_the_first_operand_through_registers")
def test_operands_stay_in_shared_memory_unless_registers_are_asked_for() -> None:
    for operand in ("auto", "shared"):
        kernel = kernel_of(Gemm(128, 64, 256), GemmTile(64, 64, 64), operand=operand)
        assert [matmul.operand for matmul in kernel.plan.matmuls] == ["shared"]
        assert "ldmatrix" not in kernel.cuda


@pytest.mark.parametrize("instruction", ["mma", "simt"])
def test_other_instructions_have_no_such_choice(instruction: Any) -> None:
    with refused("mapping.operand", PlanError, why=Reason("mapping.ask")):
        kernel_of(Gemm(128, 64, 256), GemmTile(64, 64, 64), instruction=instruction)


def test_registers_that_do_not_fit_are_refused() -> None:
    with refused("wgmma.split", PlanError, tile=(128, 256)):
        kernel_of(Gemm(256, 256, 256), GemmTile(128, 256, 64), warps=(4, 1))


def test_a_wrong_word_is_refused() -> None:
    with refused("request.choice", PlanError, option="operand", value="'global'"):
        Request(operand="global")


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_a_plan_that_rotates_other_rows_is_refused(dtype: str) -> None:
    """Which rows are rotated is the plan's: the lowering follows it, or says what is wrong."""
    gemm, tile = Gemm(128, 128, 256, dtype=dtype, layout="TT"), GemmTile(64, 64, 64)
    plan = kernel_of(gemm, tile).plan
    (matmul,) = plan.matmuls
    assert matmul.transposed is (dtype == "int8")
    wrong = replace(plan, matmuls=(replace(matmul, transposed=not matmul.transposed),))
    field = {"where": "plan.matmuls[0].transposed", "expected": str(matmul.transposed)}
    with refused("difference.value", PlanError, **field):
        pipeliner.build(schedule_gemm(gemm, tile), "h100", plan=wrong)
