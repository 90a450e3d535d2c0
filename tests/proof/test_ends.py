"""Kernels whose text was made for one trip count: read for others, where that is right."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove

from ..emulator.raw import lower
from .extents import fixed

EQ = tirx.EQ


def proof_of(func: Any, seconds: float = 600.0) -> KernelProof:
    (found,) = prove(lower(func), seconds=seconds).kernels
    return found


@pytest.mark.parametrize("steps", [8, 24])
def test_a_text_for_one_trip_count_is_read_for_others(steps: int) -> None:
    found = proof_of(fixed(steps))
    assert found.ok
    assert [(loop.least, loop.only, loop.by_end) for loop in found.loops] == [(3, "", True)]
    assert "constants near its end read as so far from it" in str(found.statement)


def test_a_text_that_is_right_for_its_own_trip_count_alone() -> None:
    """The last iteration clears slot 1: that of row 21, where there are 22 rows and not 24."""
    found = proof_of(
        fixed(24, clears=lambda i, n: EQ(i, n - 1), slot=lambda i, n: tirx.const(1, "int32"))
    )
    assert found.ok
    assert [(loop.only, loop.by_end) for loop in found.loops] == [("24", False)]
    wrong = proof_of(
        fixed(22, clears=lambda i, n: EQ(i, n - 1), slot=lambda i, n: tirx.const(1, "int32"))
    )
    assert wrong.refuted is not None
    assert dict(wrong.refuted.hazard.site.iteration)["i"] == 21


def test_a_wait_that_is_left_out_before_the_end() -> None:
    found = proof_of(fixed(24, unasked=lambda i, n: EQ(i, n - 9)))
    assert found.refuted is not None
    trips = [(trip.loop, trip.count) for trip in found.refuted.trips]
    assert trips in ([("i", 24)], [])  # of its own trip count


def test_a_long_loop_need_not_be_run_to_its_end() -> None:
    found = proof_of(fixed(1 << 20), seconds=8.0)
    assert found.ok
    assert [(loop.least, loop.only, loop.by_end) for loop in found.loops] == [(3, "", True)]
