"""Random programs with arrays of 2^31 elements and more do what they mean."""

from __future__ import annotations

from pipeliner.plan.request import Request

from .random_strategies import Trial
from .random_trials import KINDS, check_seed, outcome
from .wide_programs import WideProgram

PROGRAMS = 25


def test_random_programs_with_large_arrays_do_what_they_mean() -> None:
    outcomes = check_seed(("wide", 0), PROGRAMS)
    assert outcomes.total() >= PROGRAMS
    assert outcomes["pipelined"] >= 0.25 * outcomes.total(), outcomes


def test_a_guarded_copy_from_a_place_beyond_32_bits_is_made() -> None:
    """A condition that bounds no index: the vector moves to the start, in the index's own type."""
    program = WideProgram(
        form="flat",
        dtype="int32",
        threads=32,
        ctas=4194311,
        width=4096,
        step=512,
        trips="n",
        shared=True,
        streams=False,
        guard=1,
        cta=125,
    )
    trial = Trial(program, Request(depth=3), "sm_90", "random", "random", n=8, m=12)
    assert outcome(trial, KINDS["wide"]) == "pipelined"
