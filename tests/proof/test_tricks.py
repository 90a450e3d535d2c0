"""What a proof must not overlook: programs wrong in one run alone, each with a twin that is right."""

from __future__ import annotations

from typing import Any

import pytest

from pipeliner.proof.proof import KernelProof
from pipeliner.proof.prove import prove

from ..emulator.raw import lower
from . import tricks


def proof_of(func: Any) -> KernelProof:
    (found,) = prove(lower(func), seconds=600.0).kernels
    return found


def kind(found: KernelProof) -> str:
    assert found.refuted is not None
    return found.refuted.hazard.kind


def test_warps_that_share_a_barrier_may_meet_others() -> None:
    assert proof_of(tricks.pairs(shared=False)).ok
    found = proof_of(tricks.pairs(shared=True))
    assert found.why.has("proof.generations")
    assert found.why["names"] == ("barrier 1",)


def test_a_signal_that_nobody_has_noticed_may_count_twice() -> None:
    right = proof_of(tricks.signals(noticed=True))
    assert right.ok
    assert not any(loop.only for loop in right.loops)
    assert proof_of(tricks.signals(noticed=False)).why.has("proof.generations")


def test_tiles_of_different_steps_are_not_tiles_of_as_many() -> None:
    found = proof_of(tricks.triangle(1, wrong=False))
    assert found.ok
    assert [(loop.name, loop.least, loop.only) for loop in found.loops] == [
        ("t", 0, ""),
        ("k", 1, ""),
    ]
    wrong = proof_of(tricks.triangle(1, wrong=True))
    assert kind(wrong) == "race"
    assert wrong.refuted is not None
    assert dict(wrong.refuted.hazard.site.iteration) == {"t": 2, "k": 2}


def test_a_cta_without_a_step_is_among_those_that_are_launched() -> None:
    right = proof_of(tricks.stepless(1))
    assert right.ok
    assert [loop.least for loop in right.loops] == [1]
    assert kind(proof_of(tricks.stepless(0))) == "race"


def test_a_register_may_hold_the_number_of_the_cta() -> None:
    assert proof_of(tricks.carried(by_cta=False)).ok
    assert proof_of(tricks.carried(by_cta=True)).why.has("proof.uneven_grid_barrier")


@pytest.mark.parametrize(("steps", "wrong"), [(4, False), (5, True), (8, True), (9, False)])
def test_who_comes_late_has_all_its_steps_before_it(steps: int, wrong: bool) -> None:
    found = proof_of(tricks.late(steps))
    assert found.ok is not wrong
    if wrong:
        assert kind(found) == "race"
    else:
        assert found.beyond is not None
        assert found.beyond.trips[0].count == 2


def test_loops_that_a_thread_makes_one_behind_the_other_are_left_open_apart() -> None:
    found = proof_of(tricks.twice(wrong=False))
    assert found.ok
    assert [(loop.least, loop.only) for loop in found.loops] == [(0, ""), (0, "")]
    wrong = proof_of(tricks.twice(wrong=True))
    assert wrong.beyond is not None
    assert (wrong.beyond.trips[0].count, wrong.beyond.hazard.kind) == (0, "race")


def test_ctas_that_are_right_for_their_own_steps_are_not_alike() -> None:
    """The first one is right for all steps, so that those of others do not seem to matter.

    The second one is right for its own two, and no CTA like it makes others.
    """
    right = proof_of(tricks.own_counts(wrong=False))
    assert right.ok
    assert [(loop.least, loop.only) for loop in right.loops] == [(1, "")]
    assert right.beyond is None
    wrong = proof_of(tricks.own_counts(wrong=True))
    assert kind(wrong) == "race"
    assert wrong.refuted is not None
    assert dict(wrong.refuted.hazard.site.iteration) == {"k": 2}


def test_each_launch_of_a_kernel_is_proved() -> None:
    assert proof_of(tricks.launched_again(2)).ok
    assert kind(proof_of(tricks.launched_again(1))) == "race"


def test_ctas_of_a_cluster_that_make_different_steps_make_only_those() -> None:
    right = proof_of(tricks.cluster(even=True))
    assert right.ok
    assert [(loop.least, loop.only) for loop in right.loops] == [(0, "")]
    assert kind(proof_of(tricks.cluster(even=False))) == "deadlock"


def test_a_role_that_has_peeled_a_step_needs_one() -> None:
    right = proof_of(tricks.peeled(3))
    assert right.ok
    assert [(loop.name, loop.least, loop.only) for loop in right.loops] == [("k (+ 1)", 0, "")]
    assert kind(proof_of(tricks.peeled(4))) == "deadlock"


def test_a_cta_that_is_neither_the_first_nor_the_last() -> None:
    assert proof_of(tricks.by_middle(wrong=False)).ok
    assert kind(proof_of(tricks.by_middle(wrong=True))) == "race"
