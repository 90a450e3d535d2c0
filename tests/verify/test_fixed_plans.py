"""A dozen of the fixed plans give the CUDA that they gave; a comparison sees what it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .fixed_plans import (
    GOOD,
    OTHER_CUDA,
    OTHER_PLAN,
    OTHERWISE,
    Fixed,
    first_difference,
    fixed,
    made,
    outcome,
    spread,
)
from .plan_cases import PlanCase

KEPT = fixed()
DOZEN = spread(KEPT, 12, seed=0)


@pytest.mark.part(2)
@pytest.mark.parametrize("kept", DOZEN, ids=lambda kept: str(kept.case))
def test_a_plan_gives_the_cuda_that_it_gave(kept: Fixed) -> None:
    """Where the change is wanted: ``python -m tests.verify.fixed_plans --update``."""
    assert outcome(kept) in GOOD


def test_no_kernel_is_kept_twice() -> None:
    assert len({kept.cuda for kept in KEPT}) == len({kept.case for kept in KEPT}) == len(KEPT)


def test_what_became_of_a_kernel_is_told_apart() -> None:
    text = "sm_80 gemm 32x32x96 | 32x32x32 | instruction=mma depth=%d"
    kept, other = (made(PlanCase(text % depth)) for depth in (2, 3))
    assert outcome(replace(kept, plan=other.plan)) == OTHER_PLAN
    assert outcome(replace(kept, cuda=other.cuda)) == OTHER_CUDA
    assert outcome(replace(kept, plan=other.plan, cuda=other.cuda)) == OTHERWISE


def test_the_first_line_that_differs() -> None:
    assert first_difference("a\nb\nc", "a\nx\ny") == "line 2\n-b\n+x"
    assert first_difference("a", "a\nb") == "line 2\n-(ends)\n+b"
