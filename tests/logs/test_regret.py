"""Regrets and correlations, on numbers made by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.logs.regret import DRAWN, parts, regret, scores, spearman, summary
from pipeliner.logs.rules import Rule
from pipeliner.records.candidate import Candidate
from pipeliner.records.log import SHIPPED
from pipeliner.schedules import Gemm
from pipeliner.schedules.suites import named, suite

from .made import candidate

SPEC = named("sq1024", "float16")


@dataclass(frozen=True)
class Timed:
    """What a case is to the scores: a name, a time and a prediction."""

    candidate: Candidate
    us: float
    again: float
    predicted: float
    spec: Gemm = SPEC

    @property
    def best_us(self):
        return self.again or self.us

    @property
    def depth(self):
        return self.candidate.request.depth

    @property
    def family(self):
        return self.candidate.family


def timed(key, us, predicted, again=0.0):
    return Timed(candidate(key), us, again, predicted)


FOUND = [
    timed("mma/cp_async 64x64x32 d1", 20.0, 30.0),
    timed("mma/cp_async 64x64x32 d2", 10.0, 12.0, again=11.0),
    timed("mma/cp_async 64x64x32 d4", 12.0, 10.0),
    timed("mma/cp_async 128x64x32 d2", 10.5, 11.0, again=10.0),
    timed("mma/cp_async 128x64x32 d4", 15.0, 20.0),
    timed("simt/cp_async 64x64x8 d2", 90.0, 40.0),
]
DEEPEST = Rule("deepest", lambda family: (max(case.depth for case in family),))
PREDICTED = Rule("predicted", DEEPEST.depths, lambda case: case.predicted, ranks_depths=True)
BLIND = Rule("blind", DEEPEST.depths, lambda case: -case.candidate.tile.m)


def test_a_depth_is_compared_with_the_best_of_its_tile():
    found = scores(FOUND, DEEPEST)
    assert found.depths == pytest.approx((12 / 10, 15 / 10.5))  # simt was measured at one depth
    assert (found.first, found.top, found.correlation) == (None, None, None)


def test_a_choice_is_compared_with_the_best_of_all():
    found = scores(FOUND, PREDICTED)
    assert found.first == pytest.approx(12 / 10)  # timed once: against all that were
    assert found.top == pytest.approx(1.0)
    # Ranks by prediction 5 3 1 2 4 6, by time 5 1 3 2 4 6.
    assert found.correlation == pytest.approx(1 - 6 * (4 + 4) / (6 * 35))


def test_what_was_timed_afresh_is_compared_with_what_was_too():
    assert regret(FOUND[1], FOUND) == pytest.approx(11 / 10)
    assert regret(FOUND[3], FOUND) == 1.0


def test_a_rule_that_is_blind_to_depth_has_one_candidate_a_tile():
    found = scores(FOUND, BLIND)
    assert found.first == pytest.approx(15 / 10)
    assert found.top == pytest.approx(12 / 10)


def test_a_rule_is_asked_only_for_what_it_applies_to():
    simt = replace(BLIND, applies=lambda case: case.candidate.request.instruction == "simt")
    assert scores(FOUND, simt).first == pytest.approx(90 / 10)
    assert scores(FOUND, replace(BLIND, applies=lambda case: False)).first is None


def test_a_summary_has_means_of_ratios_and_the_worst():
    one, other = scores(FOUND, PREDICTED), scores(FOUND[3:], PREDICTED)
    found = summary([one, other])
    assert found.workloads == 2
    assert found.worst_first == max(one.first, other.first)
    assert found.first == pytest.approx((one.first * other.first) ** 0.5)
    assert found.worst_correlation == min(one.correlation, other.correlation)
    assert summary([scores(FOUND, DEEPEST)]).first is None


@given(st.permutations(range(9)))
def test_the_correlation_is_spearmans(order):
    moved = sum((at - value) ** 2 for at, value in enumerate(order))
    assert spearman(range(9), order) == pytest.approx(1 - 6 * moved / (9 * 80))


def test_equals_share_their_rank():
    assert spearman([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(
        spearman([1, 1, 9, 9], [3, 5, 7, 8])
    )
    assert 0.8 < spearman([1, 1, 2, 2], [1, 2, 3, 4]) < 1


def test_halves_are_drawn_the_same_whatever_the_order():
    groups = [(f"w{at}", "float16") for at in range(9)]
    found = parts(groups)
    assert found == parts(groups[::-1])
    assert sorted(found.values()) == ["fitted"] * 4 + ["held_out"] * 5


def test_what_is_added_to_the_log_is_held_out():
    lines = SHIPPED["h100"].read_text().splitlines()
    rows = [line.split(",") for line in lines if line[0] != "#"][1:]
    shipped = {(label, dtype) for label, dtype, *_ in rows}
    before, after = parts(sorted(DRAWN)), parts([*shipped, ("longk", "bfloat16"), ("a", "b")])
    fitted = {group for group, part in before.items() if part == "fitted"}
    assert len(fitted) == 9
    assert {group for group, part in after.items() if part == "fitted"} == fitted
    assert after["a", "b"] == after["longk", "bfloat16"] == "held_out"


def test_workloads_of_neither_suite_are_a_part_of_their_own():
    found = parts([*DRAWN, *((label, "float16") for label in suite("other"))])
    assert {group[0] for group, part in found.items() if part == "other"} == set(suite("other"))
