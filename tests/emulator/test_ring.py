"""A cp.async ring: right as written, and wrong in the expected way with any one sync operation gone."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from pipeliner.emulator import emulate

from . import mutants
from .raw import lower
from .ring import COLUMNS, DEPTH, reversing_ring

STEPS = 8
SYNCHRONISING = ("tvm_storage_sync", "cp_async_wait_group", "cp_async_commit_group")


def synchronises(name: str) -> bool:
    return name.rpartition(".")[2] in SYNCHRONISING


def inputs(steps: int, rows: int | None = None):
    rows = steps if rows is None else rows
    a = np.arange(1, rows * COLUMNS + 1, dtype=np.float32).reshape(rows, COLUMNS)
    return a, np.full((steps, COLUMNS), np.nan, np.float32)


@pytest.mark.parametrize("timing", ["late", "early", "random"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8])
@pytest.mark.part(2)
def test_the_ring_is_right_for_every_timing_and_trip_count(timing, steps):
    a, c = inputs(steps)
    result = emulate(lower(reversing_ring(steps)), [a, c], timing=timing)
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"], a[:, ::-1])
    assert np.isnan(c).all()  # arguments are not written
    assert result.total("barriers") == steps
    assert result.total("copies") == COLUMNS * steps


def test_src_size_zero_reads_nothing_and_fills_with_zeros():
    a, c = inputs(STEPS, rows=5)
    result = emulate(lower(reversing_ring(STEPS, rows=5)), [a, c])
    assert result.hazards == ()
    np.testing.assert_array_equal(result.outputs["C"][:5], a[:, ::-1])
    np.testing.assert_array_equal(result.outputs["C"][5:], 0)


def test_a_wait_that_lets_one_group_too_many_fly_is_caught():
    a, c = inputs(STEPS)
    lowered = lower(reversing_ring(STEPS, wait=DEPTH - 1))
    late = emulate(lowered, [a, c], timing="late")
    assert {h.kind for h in late.hazards} == {"read-before-arrival", "never-waited"}
    assert np.isnan(late.outputs["C"][0]).all()
    early = emulate(lowered, [a, c], timing="early")
    # The copies happened to land: right values, and still the judgement is the same.
    np.testing.assert_array_equal(early.outputs["C"], a[:, ::-1])
    assert {h.kind for h in early.hazards} == {"read-before-arrival", "never-waited"}


def test_a_hazard_names_both_statements_by_origin_and_iteration():
    a, c = inputs(STEPS)
    (hazard, *_) = emulate(lower(reversing_ring(STEPS, wait=DEPTH - 1)), [a, c]).hazards
    assert hazard.site.origin.op == "store"
    assert hazard.site.iteration == (("k", 0),)
    assert hazard.other is not None
    assert hazard.other.origin.op == "load"
    assert hazard.other.iteration == (("p", 0),)
    assert hazard.buffer == "S"
    assert hazard.count > 0


MUTANTS = {
    # program order: commit of the prologue, wait, barrier, commit of the steady loop
    0: {"read-before-arrival"},
    1: {"read-before-arrival"},
    2: {"race"},
    3: {"read-before-arrival"},
}


def test_the_ring_has_four_synchronising_statements():
    assert len(mutants.names(lower(reversing_ring(STEPS)), synchronises)) == len(MUTANTS)


@pytest.mark.parametrize("number", sorted(MUTANTS))
@pytest.mark.parametrize("timing", ["late", "early"])
def test_no_synchronising_statement_can_go(number, timing):
    a, c = inputs(STEPS)
    mutant = mutants.without(lower(reversing_ring(STEPS)), synchronises, number)
    assert {h.kind for h in emulate(mutant, [a, c], timing=timing).hazards} >= MUTANTS[number]


def test_a_weakened_wait_is_caught():
    a, c = inputs(STEPS)
    lowered = lower(reversing_ring(STEPS))
    mutant = mutants.with_argument(
        lowered,
        lambda name: name.endswith("cp_async_wait_group"),
        number=0,
        position=0,
        change=lambda in_flight: tirx.const(int(in_flight.value) + 1, "int32"),
    )
    found = {h.kind for h in emulate(mutant, [a, c]).hazards}
    assert found == {"read-before-arrival", "never-waited"}


@pytest.mark.parametrize("timing", ["late", "early"])
def test_a_ring_of_too_few_slots_is_caught(timing):
    a, c = inputs(STEPS)
    lowered = lower(reversing_ring(STEPS, slots=DEPTH - 1))
    hazards = emulate(lowered, [a, c], timing=timing).hazards
    assert {h.kind for h in hazards} >= {"read-before-arrival"}
    loads = [h for h in hazards if h.kind == "read-before-arrival" and h.site.origin.op == "store"]
    assert loads[0].other is not None


def test_random_timing_is_replayed_by_its_seed():
    a, c = inputs(STEPS)
    lowered = lower(reversing_ring(STEPS, wait=DEPTH - 1))
    first, again = (emulate(lowered, [a, c], timing="random", seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.outputs["C"], again.outputs["C"])
