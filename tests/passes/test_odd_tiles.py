"""An automatic choice never raises: what the model's choice has no room for, another plan has."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import LoweringError

from .odd_tiles import KINDS, Case


def check(case: Case, target: str) -> pipeliner.KernelPlan:
    """Pipeline ``case``, with every choice left open, and emulate it against what it means."""
    kernel = pipeliner.build(case.function(), target)
    arrays = case.arrays()
    result = kernel.emulate(*arrays.values(), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    for name, want in case.expected(arrays).items():
        np.testing.assert_array_equal(result.outputs[name].astype(np.float64), want, err_msg=name)
    return kernel.plan


@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beside_a_matmul_is_no_reason_to_refuse_it(kind: str, target: str) -> None:
    plan = check(Case(kind, "float16", (64, 32, 32)), target)
    assert plan.pipelined
    assert all("mma" in matmul.instruction for matmul in plan.matmuls)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("kind", ["condition", "scatter", "row maxima"])
def test_types_that_other_instructions_multiply(kind: str, dtype: str) -> None:
    check(Case(kind, dtype, (64, 32, 32)), "h100")


@pytest.mark.parametrize("kind", KINDS)
def test_a_tile_that_no_instruction_holds_is_shared_out_over_threads(kind: str) -> None:
    plan = check(Case(kind, "float16", (20, 12, 8)), "h100")
    assert plan.threads >= 128
    assert {matmul.instruction for matmul in plan.matmuls} == {"scalar"}
    assert any(reason.startswith("'acc' lies in shared memory") for reason in plan.reasons)


def test_the_plan_says_why_the_first_choice_was_not_taken() -> None:
    plan = check(Case("prologue", "float16", (64, 32, 32)), "h100")
    assert [matmul.instruction for matmul in plan.matmuls] == ["wgmma.m64n32k16.f16.f32"]
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert any("the plan of least predicted time is not taken: " in r for r in plan.reasons)


def test_what_is_asked_for_is_still_refused() -> None:
    func = Case("prologue", "float16", (64, 32, 32)).function()
    with pytest.raises(LoweringError, match="cannot slice loop 'k0' by role"):
        pipeliner.pipeline(func, "h100", instruction="wgmma", mechanism="tma")
