"""Barriers: where they must stand, how few are enough, and where they may not."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner

from ..corpus.annotated import gemm, simt_gemm
from ..corpus.branches import CASES as BRANCHES
from ..corpus.harness import assert_right, run
from ..corpus.loops import CASES as LOOPS
from . import functions, gemms
from .checks import (
    check,
    data,
    gemm_inputs,
    pipelined_loop,
    product,
    right_or_refused,
    shared_allocations,
)


@pytest.mark.parametrize("tiles", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("gap", [1, 2])
def test_f2_short_dynamic_loops_keep_their_barriers(gap: int, tiles: int) -> None:
    """TVM puts no barrier between the prologue's stores and the epilogue's reads when the steady loop
    does not run; ours must order them for every trip count."""
    inputs = {**gemm_inputs(8 * tiles), "n": tiles}
    check(gemms.dynamic_k_gemm([0, 0, gap]), inputs, product(inputs))


def test_f7_ring_of_the_user_is_not_compacted_away() -> None:
    """TVM's compaction makes the indices of a hand-written ring relative to one iteration and loses
    what it carries; ours must be right, or refuse in one line, never silently wrong."""
    inputs = {"A": data(16, 64)}
    truth = {"C": np.concatenate([inputs["A"][:3], inputs["A"][:13]])[:, ::-1]}
    right_or_refused(functions.hand_written_ring, inputs, truth, "'S'")


@pytest.mark.parametrize("name", ["uniform_if", "if_in_body"])
def test_f11_shared_traffic_under_a_uniform_condition(name: str) -> None:
    """TVM stops with "Cannot insert syncs inside condition"; ours must pipeline it, since the whole CTA
    takes the same branch."""
    case = next(case for case in BRANCHES if case.name == name)
    for n in (0, 1, 41, 64):
        inputs = {**case.inputs(np.random.default_rng(0)), "n": n}
        check(case.build(), inputs, case.reference(inputs))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
def test_condition_loaded_from_a_buffer(arch: str) -> None:
    """Peers crash on a loop guarded by a loaded value; ours must see that it is the same in every thread
    of the CTA."""
    inputs = {
        "A": data(16, 64),
        "keep": (np.arange(16) % 3).astype("int32"),
        "C": np.zeros((16, 64), "float32"),
    }
    truth = {"C": np.where(inputs["keep"][:, None] > 0, inputs["A"][:, ::-1], 0).astype("float32")}
    check(functions.loaded_condition, inputs, truth, target=arch)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_trip_count_loaded_from_a_buffer_in_a_loop(depth: int) -> None:
    """Indices of the last iteration then hold a loaded value: barriers are placed all the same."""
    trips = np.array([0, 5], "int32")
    inputs = {"A": data(2, 8, 64), "trips": trips}
    sums = [2 * inputs["A"][bx, :count].sum(0) for bx, count in enumerate(trips)]
    truth = {"C": np.stack(sums)[:, ::-1].copy()}
    plan = check(functions.counted_rows, inputs, truth, depth=depth)
    assert plan.pipelined


@pytest.mark.parametrize("gap", [2, 3])
def test_f16_one_barrier_in_a_steady_iteration(gap: int) -> None:
    """TVM puts two barriers into every asynchronous iteration; one is enough, and ours must emit it
    alone."""
    inputs = gemm_inputs(128)
    func = simt_gemm([0, 0, gap], [0, 1, 2], [0], func=gemm(32, 128))
    plan = check(func, inputs, product(inputs))
    assert plan.sync.barriers_in_steady == 1
    fast = pipeliner.pipeline(func, "sm_80")
    executed = run(fast, inputs, product(inputs)).total("barriers")
    assert 16 <= executed <= 18  # 16 iterations


def test_f16_one_barrier_when_the_library_chooses() -> None:
    """As above without annotations."""
    inputs = gemm_inputs(128)
    func = simt_gemm([], [], func=gemm(32, 128))
    plan = check(func, inputs, product(inputs), mechanism="cp_async")
    assert pipelined_loop(plan).stages >= 2
    assert plan.sync.barriers_in_steady == 1


def test_f26_arena_is_laid_out_before_barriers_are_placed() -> None:
    """TVM merges shared buffers after it has placed barriers, so that reuse races; ours must hand over
    one arena of the planned size and leave nothing to merge."""
    case = next(case for case in LOOPS if case.name == "siblings")
    inputs = case.inputs(np.random.default_rng(0))
    truth = case.reference(inputs)
    fast = pipeliner.pipeline(case.build(), "sm_80")
    plan = pipeliner.plan_of(fast)
    assert shared_allocations(pipeliner.build(fast).lowered) == [("shared.dyn", plan.smem.bytes)]
    assert_right(run(fast, inputs, truth), truth)
