"""Which CTAs stand for others, and what decides the way of a thread."""

from __future__ import annotations

import pipeliner
from pipeliner.proof.prove import prove

from ..corpus.branches import CASES as BRANCHES
from ..corpus.case import Case


def branch(name: str) -> Case:
    return next(case for case in BRANCHES if case.name == name)


def test_trip_counts_by_the_number_of_the_cta_are_those_of_ctas_like_it() -> None:
    """The first CTA makes one step, for which alone it is right, and all others make more."""
    case = branch("triangular")
    found = prove(pipeliner.build(case.build(), case.arch).lowered)
    assert found.ok
    (kernel,) = found.kernels
    assert [(loop.least, loop.only) for loop in kernel.loops] == [(1, "")]
    assert kernel.beyond is None
    assert not any(reason.has("proof.of_ctas") for reason in found.assumptions)


def test_data_that_decides_is_said_and_nothing_is_proved() -> None:
    case = branch("data_dependent_if")
    found = prove(pipeliner.build(case.build(), case.arch).lowered)
    assert not found.ok
    assert found.refuted is None
    (kernel,) = found.kernels
    assert kernel.data
    assert kernel.interleavings.has("proof.order_matters")


def test_a_symbolic_extent_tells_ctas_apart() -> None:
    """Those whose tiles lie below n work; which these are is seen of 49 values, and one of all more."""
    case = branch("uniform_if")
    lowered = pipeliner.build(case.build(), case.arch).lowered
    (found,) = prove(lowered).kernels
    assert [(one.name, one.least, one.only) for one in found.values] == [("n", 0, "")]
    assert [(loop.least, loop.only, loop.by_end) for loop in found.loops] == [(3, "", True)]
    assert "for every value of n from 0 on; every trip count of k from 3 on" in str(found.statement)
    (given,) = prove(lowered, extents={"n": 9}).kernels
    assert given.ok
    assert not given.values
