"""Random loops that wait for others, and random calls with arrays that overlap."""

from __future__ import annotations

from .random_trials import check_seed

PROGRAMS = 25


def test_loads_stay_below_what_waits_for_others() -> None:
    outcomes = check_seed(("order", 0), PROGRAMS)
    assert outcomes.total() >= PROGRAMS
    assert min(outcomes["pipelined"], outcomes["declined"]) >= 0.1 * PROGRAMS, outcomes


def test_overlapping_arguments_are_refused_or_harmless() -> None:
    outcomes = check_seed(("arguments", 0), PROGRAMS)
    assert outcomes.total() >= PROGRAMS
    assert min(outcomes["pipelined"], outcomes["call refused"]) >= 0.1 * PROGRAMS, outcomes
