"""Random programs, pipelined as randomly asked, do what they mean, and nothing is objected to.

Each runs in the emulator, on any trip count, and is compared with what its description means to
numpy. A request may be refused, in one line, but not often; without a request nothing is refused
but what the requirements of tiles say.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from .random_strategies import Trial, trials
from .random_trials import check_seed, outcome

EXAMPLES = 100
TILES = 12
"""Programs of tiles of each seed."""
ODD = 15
"""Programs of each seed of which nothing is asked, and of which none may be refused."""


def test_random_programs_do_what_they_mean() -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(trials())
    def check(trial: Trial) -> None:
        outcomes[outcome(trial)] += 1

    check()
    assert outcomes.total() >= EXAMPLES
    assert outcomes["pipelined"] >= 0.75 * outcomes.total(), outcomes


@pytest.mark.parametrize("number", range(4))
def test_random_programs_that_bind_no_threads_do_what_they_mean(number: int) -> None:
    outcomes = check_seed(("tiles", number), TILES)
    assert outcomes.total() >= TILES
    assert outcomes["pipelined"] >= outcomes.total() / 3, outcomes


@pytest.mark.parametrize("number", range(2))
def test_random_programs_of_odd_statements_are_never_refused(number: int) -> None:
    outcomes = check_seed(("odd", number), ODD)
    assert outcomes.total() >= ODD
    assert not outcomes["refused"], outcomes
