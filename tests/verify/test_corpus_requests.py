"""Every function of the corpus under every pair of options: right in every run, or refused."""

from __future__ import annotations

from collections import Counter

import pytest

from ..corpus.case import Pipelined
from .corpus_requests import (
    DEPTHS,
    FACTORS,
    FUNCTIONS,
    Asked,
    annotated_depths,
    of_trips,
    outcome,
)
from .sweep import cover

CASES = cover(FACTORS, lambda asked: asked.is_possible, Asked, tries=20)
ANNOTATED = ["ms_matmul_async", "annotated_two_stages", "annotated_two_levels"]
DYNAMIC = [name for name, function in FUNCTIONS.items() if of_trips(function, 0) is not None]


@pytest.mark.part(32)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_right_or_the_request_is_refused(name: str) -> None:
    cases = [asked for asked in CASES if asked.name == name]
    assert {asked.depth for asked in cases} == set(DEPTHS)
    outcomes = Counter(outcome(asked) for asked in cases)
    if isinstance(FUNCTIONS[name].expect, Pipelined) and not annotated_depths(name):
        assert outcomes["right"] >= 2, outcomes


@pytest.mark.parametrize("name", ANNOTATED)
@pytest.mark.part(3)
def test_a_depth_beside_annotated_stages_is_had_or_refused(name: str) -> None:
    own = annotated_depths(name)
    for depth in DEPTHS:
        assert outcome(Asked(name, depth)) == ("right" if own == {depth} else "refused"), depth


@pytest.mark.part(18)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", DYNAMIC)
def test_a_loop_of_any_trip_count_is_right(name: str, depth: int) -> None:
    expected = "right" if annotated_depths(name) in (set(), {depth}) else "refused"
    for trips in range(depth + 3):
        inputs = of_trips(FUNCTIONS[name], trips)
        assert outcome(Asked(name, depth), inputs) == expected
