"""What is asked of programs with large arrays, and how they are run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pipeliner.plan.request import Request

from .random_strategies import Trial, runs
from .wide_programs import wide_programs


@st.composite
def wide_trials(draw: Any) -> Trial:
    """A program, a request that most can have, and a run."""
    program = draw(wide_programs())
    request = Request(depth=draw(st.one_of(st.just("auto"), st.integers(1, 4))))
    return draw(runs(program, request, draw(st.sampled_from(["sm_75", "sm_80", "sm_90"])), 1))
