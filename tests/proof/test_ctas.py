"""Which CTAs stand for others, and what decides the way of a thread."""

from __future__ import annotations

import pipeliner
from pipeliner.proof.prove import prove

from ..corpus.branches import CASES as BRANCHES
from ..corpus.case import Case


def branch(name: str) -> Case:
    return next(case for case in BRANCHES if case.name == name)


def test_trip_counts_by_the_number_of_the_cta_are_those_of_the_ctas_that_ran() -> None:
    case = branch("triangular")
    found = prove(pipeliner.build(case.build(), case.arch).lowered)
    assert found.ok
    assert any(reason.has("proof.of_ctas") for reason in found.assumptions)


def test_data_that_decides_is_said_and_nothing_is_proved() -> None:
    case = branch("data_dependent_if")
    found = prove(pipeliner.build(case.build(), case.arch).lowered)
    assert not found.ok
    assert found.refuted is None
    (kernel,) = found.kernels
    assert kernel.data
    assert kernel.interleavings.has("proof.order_matters")


def test_a_symbolic_extent_needs_a_value() -> None:
    case = branch("uniform_if")
    lowered = pipeliner.build(case.build(), case.arch).lowered
    why = prove(lowered).kernels[0].why
    assert why.has("proof.extents")
    assert why["names"] == ("n",)
    assert prove(lowered, extents={"n": 9}).ok
