"""What is proved of rings written by hand, and what is refuted: at which step, by which statements."""

from __future__ import annotations

from typing import Any

import pytest

from pipeliner.diagnostics import Reason
from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove

from ..emulator.raw import lower
from .rings import ring

ENOUGH = 600.0
"""Seconds that no walk here takes, on a machine that does much else."""


def proof_of(**form: Any) -> KernelProof:
    (found,) = prove(lower(ring(**form)), seconds=ENOUGH).kernels
    return found


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_a_ring_is_right_for_every_trip_count(depth: int) -> None:
    found = proof_of(depth=depth)
    assert found.ok
    assert [(loop.name, loop.least, loop.only) for loop in found.loops] == [("k", 0, "")]
    # Slots and two phases, at least: fewer states would not tell them apart.
    assert found.states >= 2 * depth
    assert found.steps == 2 * found.states


def test_a_ring_that_tiles_share_is_right_for_every_number_of_tiles() -> None:
    found = proof_of(depth=2, tiles=4)
    assert found.ok
    assert [(loop.name, loop.least, loop.only) for loop in found.loops] == [
        ("t", 0, ""),
        ("k", 1, ""),
    ]


@pytest.mark.parametrize("tiles", [1, 3])
def test_a_wait_that_is_left_out_at_step_seventeen(tiles: int) -> None:
    """More laps than any small trip count makes."""
    assert proof_of(mistake="seventeen", steps=6, tiles=tiles).ok  # there is no step 17
    found = proof_of(mistake="seventeen", steps=24, tiles=tiles)
    assert found.refuted is not None
    assert found.refuted.hazard.kind == "race"
    assert ("k", 17) in found.refuted.hazard.site.iteration


def test_a_writer_that_does_not_wait_in_the_fifth_lap() -> None:
    found = proof_of(mistake="fifth lap", steps=24)
    assert found.refuted is not None
    assert found.refuted.hazard.site.iteration == (("k", 12),)
    short = proof_of(mistake="fifth lap", steps=6)
    assert short.ok
    assert short.loops[0].only == "6"  # what it makes itself is right,
    assert short.beyond is not None  # but the walk went on to the fifth lap
    assert short.beyond.hazard.site.iteration == (("k", 12),)
    assert short.beyond.trips[0].count == 13


def test_what_is_wrong_for_one_remainder_of_the_trip_count_alone() -> None:
    right = proof_of(mistake="odd", steps=24)
    assert right.ok
    assert right.beyond is not None
    assert right.beyond.trips[0].count == 5  # the first remainder of 2 with a reader to meet
    wrong = proof_of(mistake="odd", steps=23)
    assert wrong.refuted is not None
    assert wrong.refuted.hazard.kind == "write-while-read"


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_phase_that_changes_at_each_step(depth: int) -> None:
    """Parity lost with more than one slot: right with one, which is all that a phase then counts."""
    assert proof_of(mistake="parity", depth=1).ok
    assert proof_of(mistake="parity", depth=depth).refuted is not None


def test_a_slot_that_is_released_before_it_is_read() -> None:
    found = proof_of(mistake="early release")
    assert found.refuted is not None
    hazard = found.refuted.hazard
    assert hazard.kind == "write-while-read"
    assert hazard.other is not None
    assert dict(hazard.site.iteration)["k"] - dict(hazard.other.iteration)["k"] == 3


def test_phases_that_are_no_generations_prove_nothing() -> None:
    """The arrivals of two steps may be counted in one phase, or in two."""
    found = proof_of(mistake="unordered")
    assert not found.ok
    assert found.refuted is None
    assert isinstance(found.why, Reason)
    assert found.why.has("proof.generations")
