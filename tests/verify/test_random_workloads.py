"""A few of the workloads that ``python -m tests.verify.random_workloads`` draws."""

from __future__ import annotations

import itertools

import pytest

from .random_workloads import Draw, judged


@pytest.mark.parametrize("seed", range(4))
def test_random_workloads_are_right(seed: int) -> None:
    draw = Draw(seed, 1)
    for spec in itertools.islice(draw.workloads(), 2):
        found = judged(spec, draw.target(spec))
        assert not found.why, found
