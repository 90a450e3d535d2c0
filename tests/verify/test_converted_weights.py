"""Weights of int8 that wgmma multiplies as operands in registers: converted exactly, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeliner
from pipeliner.cost.usage.matmuls import CONVERT_INSTRUCTIONS, CONVERT_LOAD_INSTRUCTIONS
from pipeliner.errors import PlanError, WorkloadError
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.workloads import numpy_dtype
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

from .modes import modes_of
from .test_wgmma_registers import kernel_of

WEIGHTS = [
    (Gemm(16, 128, 256, weights="int8"), GemmTile(16, 64, 64), {}),
    (Gemm(16, 128, 256, dtype="bfloat16", weights="int8"), GemmTile(16, 64, 128), {}),
    (Gemm(128, 128, 256, weights="int8", epilogue=("scale", "bias")), GemmTile(128, 128, 64), {}),
    (Gemm(128, 256, 512, layout="TT", weights="int8"), GemmTile(128, 128, 128, persistent=1), {}),
    (Gemm(100, 136, 272, out="float32", weights="int8"), GemmTile(64, 64, 64), {}),
    (Gemm(64, 64, 240, weights="int8"), GemmTile(64, 64, 32), {"mechanism": "cp_async"}),
    (Gemm(16, 128, 512, weights="int8"), GemmTile(16, 64, 64, splits=2), {"reduction": "atomic"}),
    (Gemm(64, 128, 256, weights="int8"), GemmTile(64, 128, 64), {"warps": (1, 4)}),
    # With K outermost.
    (Gemm(16, 128, 256, layout="NN", weights="int8"), GemmTile(16, 64, 64), {}),
    (Gemm(47, 144, 256, dtype="bf16", layout="NN", weights="int8"), GemmTile(48, 64, 64), {}),
    (Gemm(128, 256, 512, layout="TN", weights="int8"), GemmTile(128, 128, 128, persistent=1), {}),
    (Gemm(64, 128, 240, layout="NN", weights="int8"), GemmTile(64, 64, 16), {"depth": 2}),
    (
        Gemm(64, 64, 256, layout="NN", weights="int8", epilogue=("scale",)),
        GemmTile(64, 64, 64),
        {"mechanism": "cp_async"},
    ),
]


@pytest.mark.parametrize(("gemm", "tile", "options"), WEIGHTS, ids=str)
@pytest.mark.part(8)
def test_weights_are_converted_on_their_way(
    gemm: Gemm, tile: GemmTile, options: dict[str, Any]
) -> None:
    kernel = kernel_of(gemm, tile, **{"operand": "auto", **options})
    (matmul,) = kernel.plan.matmuls
    assert (matmul.operand, matmul.swap_ab) == ("registers", True)
    text = " ".join(kernel.plan.explain().split())
    assert f"converted on its way from int8 to {gemm.dtype}" in text
    verdict = verify_workload(kernel, gemm, seed=4, **modes_of(gemm))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize("layout", ["NT", "NN"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.part(2)
def test_every_weight_is_converted_exactly(dtype: str, layout: str) -> None:
    """Each of the 256 bytes times one, at each place that a lane holds."""
    gemm = Gemm(16, 256, 64, dtype=dtype, layout=layout, out="float32", weights="int8")
    kernel = kernel_of(gemm, GemmTile(16, 64, 64), operand="auto")
    places = np.arange(256)[:, None] + np.arange(64)[None, :]
    b = (places % 256 - 128).astype("int8")
    for k in range(0, 64, 16):
        a = np.zeros((16, 64), numpy_dtype(dtype))
        a[np.arange(16), k + np.arange(16)] = 1
        stored = b if layout == "NT" else np.ascontiguousarray(b.T)
        result = kernel.emulate(a, stored, np.full((16, 256), np.nan, "float32"))
        assert not result.hazards
        np.testing.assert_array_equal(result.outputs["C"], b[:, k : k + 16].T.astype("float32"))


@pytest.mark.parametrize("layout", ["NT", "NN"])
@pytest.mark.deep(
    "tests/verify/test_wgmma_registers.py::test_no_mutant_of_a_transposed_operand_survives"
)
def test_no_mutant_of_converted_weights_survives(layout: str) -> None:
    gemm = Gemm(16, 64, 384, layout=layout, weights="int8")
    report = pipeliner.mutate(kernel_of(gemm, GemmTile(16, 64, 64), operand="auto", depth=3))
    assert report.ok, "\n".join(str(fate.mutant) for fate in report.unexplained)


def test_converted_weights_are_chosen_by_themselves_and_go_without_tensor_cores_elsewhere() -> None:
    kernel = pipeliner.build(Gemm(16, 4096, 4096, weights="int8"), "h100")
    assert kernel.plan.matmuls[0].instruction.startswith("wgmma.m64n16k16.f16")
    gemm = Gemm(16, 128, 256, weights="int8")
    plain = pipeliner.build(gemm, "a100")
    assert plain.plan.matmuls[0].instruction == "simt"
    verdict = verify_workload(plain, gemm, seed=4)
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.parametrize(
    ("gemm", "options", "why"),
    [
        (
            Gemm(16, 128, 256, weights="int8"),
            {"operand": "shared"},
            ("wgmma.mixed_shared", {"a_dtype": "float16", "b_dtype": "int8"}),
        ),
        (
            Gemm(20, 128, 256, weights="int8"),
            {},
            ("mapping.multiple", {"tile": (64, 20, 64), "m": 64, "n": 8, "k": 16}),
        ),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_converted_are_refused(
    gemm: Gemm, options: dict[str, Any], why: tuple[str, dict[str, Any]]
) -> None:
    with refused(why[0], PlanError, **why[1]):
        kernel_of(gemm, GemmTile(gemm.m or 0, 64, 64), **{"operand": "auto", **options})


def test_rows_of_bytes_that_no_swizzle_covers_are_refused() -> None:
    with refused("wgmma.row", PlanError, buffer="B_shared", nbytes=48, multiple=32):
        kernel_of(Gemm(16, 64, 240, weights="int8"), GemmTile(16, 64, 48), operand="auto")


@pytest.mark.parametrize(("dtype", "weights"), [("float32", "int8"), ("float16", "float8_e4m3fn")])
def test_other_weights_are_refused(dtype: str, weights: str) -> None:
    with refused("gemm.weights", WorkloadError, dtype=dtype, weights=weights):
        Gemm(16, 64, 64, dtype=dtype, weights=weights)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("layout", "loads", "each"),
    [
        ("NT", ("LDS.U16", 4), CONVERT_INSTRUCTIONS),
        ("NN", ("LDSM", 1), CONVERT_INSTRUCTIONS - CONVERT_LOAD_INSTRUCTIONS),
    ],
)
@pytest.mark.parametrize(("dtype", "widest"), [("float16", "HADD2"), ("bfloat16", "I2F")])
@pytest.mark.deep("the CUDA is that of test_fixed_plans.py")
def test_what_the_model_charges_for_a_conversion_is_what_is_compiled(
    dtype: str, widest: str, layout: str, loads: tuple[str, int], each: int
) -> None:
    """Instructions between two wgmmas of a step, without what is not done for a conversion."""
    gemm = Gemm(16, 64, 512, dtype=dtype, layout=layout, weights="int8")
    tile = GemmTile(16, 64, 128)
    lines = [line.split("*/")[-1].split(";")[0].split() for line in
             kernel_of(gemm, tile, operand="auto").sass.splitlines() if "*/" in line]  # fmt: skip
    names = [line[-1 if len(line) == 1 else 0] for line in lines if line]
    at = [n for n, name in enumerate(names) if name.startswith("HGMMA")]
    step = names[at[2] + 1 : at[3]]
    assert sum(name.startswith(loads[0]) for name in step) == loads[1]
    assert any(name.startswith(widest) for name in step)
    own = [name for name in step if not name.startswith(("WARPGROUP", "U", "R2UR", "HGMMA"))]
    assert 4 * (each - 2) <= len(own) <= 4 * (each + 3)
