"""Every function of the corpus under every pair of options: right in every run, or refused."""

from __future__ import annotations

from collections import Counter

import pytest

from ..corpus.case import Pipelined
from .corpus_requests import DEPTHS, FACTORS, FUNCTIONS, Asked, of_trips, outcome
from .sweep import cover

CASES = cover(FACTORS, lambda asked: asked.is_possible, Asked, tries=20)
DYNAMIC = [name for name, function in FUNCTIONS.items() if of_trips(function, 0) is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_right_or_the_request_is_refused(name: str) -> None:
    cases = [asked for asked in CASES if asked.name == name]
    assert {asked.depth for asked in cases} == set(DEPTHS)
    outcomes = Counter(outcome(asked) for asked in cases)
    if isinstance(FUNCTIONS[name].expect, Pipelined):
        assert outcomes["right"] >= 2, outcomes


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", DYNAMIC)
def test_a_loop_of_any_trip_count_is_right(name: str, depth: int) -> None:
    for trips in range(depth + 3):
        inputs = of_trips(FUNCTIONS[name], trips)
        assert outcome(Asked(name, depth), inputs) == "right"
