"""TVM's pipeline annotations: legal ones obeyed, illegal ones refused with the edge they break."""

from __future__ import annotations

import numpy as np
import pytest

import pipeliner
from pipeliner.errors import ScheduleRefused

from ..corpus.annotated import simt_gemm
from ..refusals import refused
from . import functions, gemms
from .checks import check, data, gemm_inputs, pipelined_loop, product
from .functions import annotate


@pytest.mark.parametrize("gap", [2, 3])
def test_f1_interleaved_producers_wait_for_every_group(gap: int) -> None:
    """TVM commits A and B as one group in the prologue and as two in the loop, so its first waits are
    too weak; ours must group alike everywhere and never read a tile in flight."""
    inputs = gemm_inputs()
    plan = check(simt_gemm([0, 0, gap], [0, 2, 1], [0]), inputs, product(inputs))
    assert pipelined_loop(plan).stages == gap + 1


@pytest.mark.parametrize("start", [0, 1, 2])
def test_f3_p2_opaque_accesses_use_the_slot_of_a_loop_that_starts_late(start: int) -> None:
    """TVM stores to slot (k - min) % n but lets ``access_ptr`` read slot k % n (in its pass alone:
    ``tvm.compile`` makes every loop start at 0 before); ours must index both by the 0-based iteration.
    """
    inputs = {"A": data(8, 8, 8, dtype="float16")}
    truth = {"C": inputs["A"].view("uint32").reshape(8, 32)}
    plan = check(gemms.rows_by_ldmatrix(start), inputs, truth, tolerance=0)
    assert pipelined_loop(plan).ring("S").depth == 3


def test_f4_carried_buffer_is_not_versioned() -> None:
    """TVM gives a loop-carried sum one slot an iteration when a later stage reads it, and loses the
    carry; ours must keep one version, hence refuse the stage gap and name the buffer."""
    with refused("schedule.one_version", ScheduleRefused, buffer="S"):
        pipeliner.pipeline(annotate(functions.carried_sum, [0, 0, 1], [0, 1, 2]), "sm_80")


def test_f4_carried_buffer_stays_right_without_annotation() -> None:
    """As above, left to the library: whatever it chooses, the sum is carried."""
    inputs = {"A": data(16, 16)}
    check(functions.carried_sum, inputs, {"C": 2 * inputs["A"].cumsum(1, dtype="float32")})


def test_f5_buffer_that_outlives_the_loop_is_not_overwritten_early() -> None:
    """TVM runs the producer of an unversioned buffer an iteration ahead of its reader without a word;
    ours must refuse the stage gap and name the buffer."""
    with refused("schedule.one_version", ScheduleRefused, buffer="B"):
        pipeliner.pipeline(annotate(functions.used_after_the_loop, [0, 1], [0, 1]), "sm_80")


def test_f5_buffer_that_outlives_the_loop_is_right_without_annotation() -> None:
    """As above, left to the library: the last tile is still there after the loop."""
    inputs = {"A": data(16, 16)}
    truth = {"C": inputs["A"][::-1].copy(), "last": inputs["A"][::-1, 15].copy()}
    check(functions.used_after_the_loop, inputs, truth)


@pytest.mark.parametrize("stage", [[0, 1, 0, 2], [0, 2, 0, 2]])
def test_f8_a_stranger_between_two_asynchronous_copies(stage: list[int]) -> None:
    """TVM stops in an internal check when a statement of another stage stands between two asynchronous
    ones; ours must pipeline it."""
    inputs = {name: data(16, 16, seed=i) for i, name in enumerate("ABX")}
    truth = {"Y": inputs["X"] + 1, "C": (inputs["A"] + inputs["B"])[::-1].copy()}
    func = annotate(functions.two_copies_and_a_stranger, stage, [0, 1, 2, 3], (0,))
    assert pipelined_loop(check(func, inputs, truth)).stages == 3


def test_f9_asynchronous_stage_need_not_be_the_first() -> None:
    """TVM demands that the asynchronous stage is stage 0; ours must take the frame as relative."""
    inputs = gemm_inputs()
    plan = check(simt_gemm([1, 1, 3], [0, 1, 2], [1]), inputs, product(inputs))
    assert pipelined_loop(plan).stages == 3


def test_f12_body_of_one_statement() -> None:
    """TVM raises on a body that is not a sequence; ours must take it."""
    inputs = {"A": data(16, 16)}
    check(annotate(functions.one_statement, [0], [0]), inputs, {"C": inputs["A"]})


def test_p1_reading_after_the_overwrite_is_refused() -> None:
    """TVM accepts order [1, 0] for a body that reads B and then overwrites it, and emits the overwrite
    first; ours must refuse it, naming the edge."""
    with refused("edge.WAR", ScheduleRefused, buffer="B"):
        pipeliner.pipeline(annotate(functions.read_then_overwrite, [0, 0], [1, 0]), "sm_80")


def test_p1_reading_before_the_overwrite_is_right_without_annotation() -> None:
    """As above, left to the library: each iteration sees what the one before wrote."""
    inputs = {"A": data(16, 16), "first": data(16, seed=1)}
    seen = np.stack([inputs["first"], *inputs["A"][:-1]])
    check(functions.read_then_overwrite, inputs, {"C": seen + 1})


def test_f21_asynchronous_annotation_needs_no_switch() -> None:
    """TVM emits commits and waits around plain copies when ``tirx.use_async_copy`` is off; ours must
    emit the copies that the annotation asks for, with no option set."""
    fast = pipeliner.pipeline(simt_gemm([0, 0, 1], [0, 1, 2], [0]), "sm_80")
    cuda = pipeliner.build(fast).cuda
    assert "cp.async.c" in cuda
    assert "commit_group" in cuda
