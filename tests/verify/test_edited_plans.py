"""Plans edited at random are obeyed and right, or refused in one line."""

from __future__ import annotations

from collections import Counter

import pytest

from .edited_plans import check_seed

SEEDS = (0, 1)


@pytest.mark.deep("tests/passes/test_obeyed.py; with new seeds tests/verify/edited_plans.py")
def test_edited_plans_are_obeyed_or_refused() -> None:
    counts: Counter[str] = sum(map(check_seed, SEEDS), Counter())
    assert counts["obeyed"] >= 2, counts
    assert counts["refused"] >= 20, counts
