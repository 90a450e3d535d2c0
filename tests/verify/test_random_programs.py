"""Random programs, pipelined as randomly asked, do what they mean, and nothing is objected to.

Each runs in the emulator, on any trip count, and is compared with what its description means to
numpy. A request may be refused, in one line, but not often; without a request nothing is refused.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings

from .random_strategies import Trial, trials
from .random_trials import outcome

EXAMPLES = 200


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
    assert outcomes["pipelined"] >= 0.8 * outcomes.total(), outcomes
