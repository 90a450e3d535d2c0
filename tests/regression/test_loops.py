"""Trip counts: dynamic, short, ragged; and what the epilogue costs."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import pipeliner

from . import functions, gemms
from .checks import (
    calls,
    check,
    data,
    gemm_inputs,
    pipelined_loop,
    product,
    right_or_refused,
    wait_counts,
)


@pytest.mark.parametrize("mechanism", ["cp_async", "register"])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 9])
def test_trip_counts_below_the_depth(rows: int, mechanism: str) -> None:
    """Peers hang or read unwritten slots when a loop is shorter than its ring; ours must be right from
    0 iterations up."""
    inputs = {"A": data(rows, 64), "n": rows}
    truth = {"C": inputs["A"][:, ::-1].copy()}
    plan = check(functions.reversed_rows, inputs, truth, depth=4, mechanism=mechanism)
    assert pipelined_loop(plan).ring("S").depth == 4


@pytest.mark.parametrize("k", [1, 7, 8, 61])
def test_f13_dynamic_k_that_is_not_a_multiple_of_the_tile(k: int) -> None:
    """TVM cannot compile a dynamic K that its tile does not divide ("Can only handle constant size stack
    allocation"); ours must be right, or say in one line what to pad."""
    inputs = {**gemm_inputs(k), "n": k}
    func = gemms.dynamic_k_gemm([], multiple=1)
    right_or_refused(func, inputs, product(inputs), "[AB]_shared")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_a_statement_that_takes_no_time(arch: str) -> None:
    """The cost model has a pipe for it, also on a GPU whose tensor cores it knows nothing of."""
    inputs = {"A": data(8, 64)}
    truth = {"C": np.where(np.arange(64) < 40, inputs["A"], 0).astype("float32")}
    check(functions.reset_in_each_row, inputs, truth, target=arch)


def test_f18_epilogue_does_not_multiply_the_compute() -> None:
    """TVM unrolls one copy of the compute for each drained stage: four times the mma at four stages;
    ours must not hold more of them than the unpipelined kernel."""

    def instructions(depth: int) -> int:
        fast = pipeliner.pipeline(gemms.mma_gemm(), "sm_80", depth=depth)
        return len(calls(pipeliner.build(fast).lowered, "mma"))

    assert instructions(4) <= instructions(1)


def test_f25_dynamic_loops_wait_for_no_more_than_they_need() -> None:
    """TVM's epilogue waits fall back to ``wait_group 0`` when the trip count is dynamic; ours must keep
    the steady count in every step of a rolled epilogue."""
    func = gemms.dynamic_k_gemm([])
    fast = pipeliner.pipeline(func, "sm_80", depth=4, mechanism="cp_async", epilogue="rolled")
    counts = wait_counts(pipeliner.build(fast).lowered)
    assert counts
    assert all(count is not None and count > 0 for count in counts), counts


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.usefixtures("intrinsics")  # CUDA's printer asks for the index map of mma_store
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_f23_warp_fragments_stay_in_registers() -> None:
    """TVM rewrites only the first warp-scope buffer of a sequence and leaves the others 32 times too
    large; in ours nothing may end on the stack."""
    fast = pipeliner.pipeline(gemms.mma_gemm(), "sm_80", depth=3)
    used = pipeliner.build(fast).resources
    assert (used.stack, used.spill_stores, used.spill_loads) == (0, 0, 0)
