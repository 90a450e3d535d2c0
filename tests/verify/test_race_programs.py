"""Random programs that share global memory: the emulator objects to those that race, and no other."""

from __future__ import annotations

from .random_trials import RACES, check_seed

PROGRAMS = 30


def test_what_races_is_objected_to_and_nothing_else() -> None:
    outcomes = check_seed((RACES, 0), PROGRAMS)
    assert outcomes.total() >= PROGRAMS
    assert min(outcomes["race"], outcomes["ordered"]) >= 0.2 * PROGRAMS, outcomes
