"""A few of the trials that ``python -m tests.verify.random_attention`` makes."""

from __future__ import annotations

import random

import pytest

from .random_attention import drawn, judged


@pytest.mark.parametrize("seed", range(3))
def test_random_attention_is_right(seed: int) -> None:
    trial = drawn(random.Random(seed))
    outcome = judged(trial, seed)
    assert not outcome.wrong, (trial, outcome)
