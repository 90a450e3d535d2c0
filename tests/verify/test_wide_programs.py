"""Random programs with arrays of 2^31 elements and more do what they mean."""

from __future__ import annotations

from .random_trials import check_seed

PROGRAMS = 40


def test_random_programs_with_large_arrays_do_what_they_mean() -> None:
    outcomes = check_seed(("wide", 0), PROGRAMS)
    assert outcomes.total() >= PROGRAMS
    assert outcomes["pipelined"] >= 0.25 * outcomes.total(), outcomes
