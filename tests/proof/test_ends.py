"""Kernels whose text was made for one trip count: read for others, where that is right."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tvm import tirx

from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove
from pipeliner.proof.reading.ends import near_end

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
    found = proof_of(fixed(24, unwaited=lambda i, n: EQ(i, n - 9)))
    assert found.refuted is not None
    trips = [(trip.loop, trip.count) for trip in found.refuted.trips]
    assert trips in ([("i", 24)], [])  # of its own trip count


def test_a_long_loop_need_not_be_run_to_its_end() -> None:
    found = proof_of(fixed(1 << 20), seconds=8.0)
    assert found.ok
    assert [(loop.least, loop.only, loop.by_end) for loop in found.loops] == [(3, "", True)]


def test_what_is_near_an_end() -> None:
    i, j, named = (tirx.Var(name, "int32") for name in ("i", "j", "named"))
    loops, values = {i: (7, 24), j: (9, 0)}, {named: i * 2 + 1}
    assert near_end(i < 21, loops, values) == (i, 1)
    assert near_end(tirx.LE(22, i), loops, values) == (i, -1)
    assert near_end(EQ(named, 45), loops, values) == (i, 2)
    assert near_end(i + i % 2 < 21, loops, values) == (i, 1)
    assert near_end(tirx.floordiv(i, 4) < 5, loops, values) == (i, Fraction(1, 4))
    for other in (i < 3, i < 30, j < 21, i + j < 21, i % 9 < 21):
        assert near_end(other, loops, values) is None


def test_an_end_that_is_compared_by_fractions_is_not_read() -> None:
    """The last three of 24 iterations clear a slot that is free; by fours, the last one of any six."""

    def last(i: Any, n: int) -> Any:
        return tirx.And(EQ(tirx.floordiv(i, 4), n // 4 - 1), i >= n - 3)

    (loop,) = proof_of(fixed(24, clears=last, slot=lambda i, n: (i + 3) % 4)).loops
    assert (loop.only, loop.by_end) == ("24", False)
    (loop,) = proof_of(
        fixed(24, clears=lambda i, n: i >= n - 3, slot=lambda i, n: (i + 3) % 4)
    ).loops
    assert (loop.only, loop.by_end) == ("", True)


def test_an_end_at_which_slots_stay_is_not_read() -> None:
    """The slot of row min(i + 3, 23) is cleared of what is read of it only behind the loop."""
    found = proof_of(
        fixed(24, clears=lambda i, n: i > n - 2, slot=lambda i, n: (tirx.min(i + 2, n - 1) + 3) % 4)
    )
    assert found.ok
    assert [(loop.only, loop.by_end) for loop in found.loops] == [("24", False)]


def test_what_comes_to_grow_like_a_variable_is_the_same_with_its_own_trip_count() -> None:
    func = fixed(24, unwaited=lambda i, n: tirx.max(i, 23) + i % 2 < 22)
    found = proof_of(func)
    assert found.ok
    assert not any(loop.only for loop in found.loops)
