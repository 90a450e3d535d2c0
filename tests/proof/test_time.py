"""What is said where there is no time to walk through all states."""

from __future__ import annotations

from pipeliner.proof.prove import prove

from ..emulator.raw import lower
from .rings import ring


def test_without_time_a_kernel_is_proved_for_its_own_trip_counts() -> None:
    (found,) = prove(lower(ring(tiles=2, steps=4)), seconds=0.0).kernels
    assert found.ok
    assert {loop.name: loop.only for loop in found.loops} == {"t": "2", "k": "4"}
    assert found.states == 0
    assert found.narrow.has("proof.seconds")


def test_without_time_a_kernel_is_refuted_for_its_own_trip_counts() -> None:
    (found,) = prove(lower(ring(mistake="seventeen", steps=20)), seconds=0.0).kernels
    assert found.refuted is not None
    (other,) = prove(lower(ring(mistake="seventeen", steps=5)), seconds=0.0).kernels
    assert other.ok


def test_a_proof_is_kept_by_the_lowered_code() -> None:
    first = prove(lower(ring(depth=2)))
    assert prove(lower(ring(depth=2))) is first
    assert prove(lower(ring(depth=3))) is not first
