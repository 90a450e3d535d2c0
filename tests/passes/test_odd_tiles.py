"""An automatic choice never raises: what the model's choice has no room for, another plan has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError

from ..refusals import refused, the
from .odd_tiles import KINDS, Case


def check(case: Case, target: str, **options: Any) -> pipeliner.KernelPlan:
    """Pipeline ``case``, with ``options`` alone asked for, and emulate it against what it means."""
    kernel = pipeliner.build(case.function(), target, **options)
    arrays = case.arrays()
    result = kernel.emulate(*arrays.values(), order="random", timing="late")
    assert not result.hazards, list(map(str, result.hazards))
    for name, want in case.expected(arrays).items():
        np.testing.assert_array_equal(result.outputs[name].astype(np.float64), want, err_msg=name)
    return kernel.plan


@pytest.mark.part(12)
@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beside_a_matmul_is_no_reason_to_refuse_it(kind: str, target: str) -> None:
    plan = check(Case(kind, "float16", (64, 32, 32)), target)
    assert plan.pipelined
    assert all("mma" in matmul.instruction for matmul in plan.matmuls)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("kind", ["condition", "scatter", "row maxima"])
@pytest.mark.part(12)
def test_types_that_other_instructions_multiply(kind: str, dtype: str) -> None:
    check(Case(kind, dtype, (64, 32, 32)), "h100")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.part(6)
def test_a_tile_that_no_instruction_holds_is_shared_out_over_threads(kind: str) -> None:
    plan = check(Case(kind, "float16", (20, 12, 8)), "h100")
    assert plan.threads >= 128
    assert {matmul.instruction for matmul in plan.matmuls} == {"scalar"}
    assert Reason("mapped.shared", buffer="acc") in plan.reasons


@T.prim_func(s_tir=True)
def through_global_memory(
    X: T.Buffer((2, 64, 96), "float32"),
    W: T.Buffer((2, 9, 96), "float32"),
    Y: T.Buffer((2, 64, 96), "float32"),
    Z: T.Buffer((2, 64, 96), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.sblock("cta"):
            for i, j in T.grid(64, 96):
                with T.sblock("first"):
                    Y[bx, i, j] = X[bx, i, j] + T.float32(1)
            for k in T.serial(8):
                with T.sblock("step"):
                    S = T.sblock_alloc_buffer((8, 96), "float32", scope="shared")
                    for i, j in T.grid(8, 96):
                        with T.sblock("S"):
                            S[i, j] = X[bx, k * 8 + i, j]
                    for i, j in T.grid(8, 96):
                        with T.sblock("reversed"):
                            Z[bx, k * 8 + i, j] = Y[bx, 63 - k * 8 - i, 95 - j] + S[i, j]
                    for j in T.serial(96):
                        with T.sblock("chain"):
                            W[bx, k + 1, j] = W[bx, k, 95 - j] + S[0, j]


@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.part(2)
def test_global_memory_of_a_cta_is_ordered_between_its_threads(target: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, (2, n, 96)).astype("float32") for n in (64, 9))
    kernel = pipeliner.build(through_global_memory, target)
    result = kernel.emulate(x, w, np.zeros_like(x), np.zeros_like(x), order="random", timing="late")
    assert not result.hazards
    np.testing.assert_array_equal(result.outputs["Z"], (x + 1)[:, ::-1, ::-1] + x)
    for k in range(8):
        w[:, k + 1] = w[:, k, ::-1] + x[:, k * 8]
    np.testing.assert_array_equal(result.outputs["W"], w)
    assert kernel.cuda.count("__syncthreads()") >= 2


def test_the_plan_says_why_the_first_choice_was_not_taken() -> None:
    plan = check(Case("prologue", "float16", (64, 32, 32)), "h100", instruction="wgmma")
    assert [matmul.instruction for matmul in plan.matmuls] == ["wgmma.m64n32k16.f16.f32"]
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert the("plan.not_taken", plan.reasons)["name"] == "wgmma, tma"


def test_what_is_asked_for_is_still_refused() -> None:
    func = Case("prologue", "float16", (64, 32, 32)).function()
    with refused("role.loop", LoweringError, loop="k0"):
        pipeliner.pipeline(func, "h100", instruction="wgmma", mechanism="tma")
