"""A Hopper GEMM of roles, TMA, mbarriers, wgmma, clusters: right as written, and no mutant lives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from pipeliner.diagnostics import Reason
from pipeliner.emulator import Emulation, emulate

from ..refusals import says, the
from . import mutants
from .hopper_gemm import Form, gemm, product
from .raw import lower

TIMINGS = ("late", "early", "random")
ORDERS = ("lockstep", "round-robin", "reversed", "random")
BASE = Form(cluster=2, depth=2)


@cache
def lowered(form: Form) -> Any:
    return lower(gemm(form))


def run(form: Form, mod: Any = None, **options: Any) -> Emulation:
    return emulate(lowered(form) if mod is None else mod, form.inputs(), **options)


def assert_right(form: Form, **options: Any) -> None:
    result = run(form, **options)
    assert result.hazards == (), "\n".join(map(str, result.hazards))
    a, b, _ = form.inputs()
    np.testing.assert_array_equal(result.outputs["C"], product(a, b))


def kinds(result: Emulation) -> set[str]:
    return {hazard.kind for hazard in result.hazards}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.part(6)
def test_the_product_is_right_in_every_order_and_timing(timing, order):
    assert_right(BASE, timing=timing, order=order, seed=3)


STEPS = (1, 2, 3, 4, 5, 6)
FORMS = [
    Form(k=64 * steps, depth=depth, cluster=cluster)
    for (steps, depth), cluster in zip(
        itertools.product(STEPS, (2, 3, 4)), itertools.cycle((1, 2)), strict=False
    )
]


@pytest.mark.slow
@pytest.mark.part(18)
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_every_trip_count_depth_and_cluster(number):
    timing, order = TIMINGS[number % 3], ORDERS[number % 4]
    assert_right(FORMS[number], timing=timing, order=order, seed=number)


@pytest.mark.parametrize(
    "form",
    [
        Form(m=512, n=96, k=128, cluster=2, ctas=2, depth=3),  # six tiles for one cluster
        Form(m=256, n=96, k=192, cluster=1, ctas=4, depth=2),  # six tiles for four CTAs
        Form(m=256, n=128, k=128, columns=128, cluster=2, depth=2),
    ],
    ids=str,
)
@pytest.mark.part(3)
def test_a_persistent_grid_carries_slots_and_phases_across_tiles(form):
    assert_right(form)


def test_it_counts_what_it_ran():
    steps, ctas, consumers = BASE.k // 64, BASE.ctas, 2
    tiles = BASE.m // 128 * (BASE.n // BASE.columns)
    result = run(BASE)
    assert result.total("bulk_copies") == 2 * steps * tiles
    assert result.total("wgmmas") == 4 * (4 * consumers) * steps * tiles  # by warps
    assert len(result.stats) == ctas


SYNCHRONISING = (
    "mbarrier_init",
    "fence_mbarrier_init",
    "cluster_sync",
    "mbarrier_wait",
    "mbarrier_arrive_expect_tx",
    "mbarrier_arrive_nocount",
    "wgmma_fence",
    "wgmma_commit_group",
    "wgmma_wait_group",
)


def synchronises(name: str) -> bool:
    return name.rpartition(".")[2] in SYNCHRONISING


# The hazard without each synchronising statement, in program order.
WITHOUT = [
    *["mbarrier-uninitialised"] * 4,  # full and empty of two slots
    "mbarrier-uninitialised",  # not visible to the copies
    "mbarrier-uninitialised",  # not ordered before its use
    "write-in-flight",  # wait for an empty slot
    "deadlock",  # no arrival expects the bytes
    "read-before-arrival",  # wait for a full slot
    "missing-wgmma-fence",
    "register-in-flight",  # commit
    "register-in-flight",  # wait
    "deadlock",  # slots are never released
    "exit-before-peer",  # no cluster_sync at the end
]


def test_every_synchronising_statement_has_a_mutant():
    assert len(mutants.names(lowered(BASE), synchronises)) == len(WITHOUT)


@pytest.mark.part(12)
@pytest.mark.slow
@pytest.mark.parametrize("timing", ["late", "early"])
@pytest.mark.parametrize("number", range(len(WITHOUT)))
def test_no_synchronising_statement_can_go(number, timing):
    mutant = mutants.without(lowered(BASE), synchronises, number)
    assert WITHOUT[number] in kinds(run(BASE, mutant, timing=timing))


WRONG = [
    ({"surplus": 16}, "deadlock"),
    ({"surplus": -16}, "deadlock"),
    ({"surplus": -4096}, "deadlock"),  # one of the copies
    ({"full_parity": 1}, "read-before-arrival"),
    ({"empty_parity": 1}, "deadlock"),
    ({"full_slot": 1}, "read-before-arrival"),
    ({"empty_slot": 1}, "phase-aliasing"),
    ({"release_slot": 1}, "phase-aliasing"),
    ({"a_slot": 1}, "read-before-arrival"),
    ({"b_slot": 1}, "read-before-arrival"),
    ({"a_read": 1}, "read-before-arrival"),
    ({"b_read": 1}, "read-before-arrival"),
    ({"full_count": 1}, "deadlock"),
    ({"empty_count": 1}, "deadlock"),
    ({"empty_count": -1}, "write-in-flight"),
    ({"empty_count": -2}, "write-in-flight"),
    ({"mask": 0b01}, "deadlock"),
    ({"mask": 0b10}, "deadlock"),
]


@pytest.mark.slow
@pytest.mark.part(12)
@pytest.mark.parametrize("timing", ["late", "early"])
@pytest.mark.parametrize(("change", "kind"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_no_count_parity_slot_or_mask_can_be_wrong(change, kind, timing):
    assert kind in kinds(run(replace(BASE, **change), timing=timing))


def test_bytes_expected_at_another_slot_are_found():
    form = replace(BASE, expect_slot=1)
    assert {"deadlock"} <= kinds(run(form, timing="late"))
    assert {"phase-aliasing"} <= kinds(run(form, timing="early"))


def test_a_deadlock_says_who_waits_for_what():
    (hazard,) = run(replace(BASE, surplus=16)).hazards
    assert hazard.kind == "deadlock"
    waits = {wait["who"]: wait for wait in hazard.detail["waits"]}
    first = waits["threads 128-383 of CTA (0, 0, 0)"]
    assert first["what"]["parity"] == 0
    assert the("hazard.mbarrier", [first])["buffer"] == "full"
    lacking = the("hazard.phase_lacks", [first])
    assert lacking["nbytes"] == 16
    assert lacking["phase"] == Reason("hazard.phase", phase=0, arrived=1, expected=1)
    assert says("hazard.cluster_barrier", [hazard.detail])
    assert "mbarrier_wait" in hazard.site.statement


def test_a_missing_peer_is_named():
    mutant = mutants.without(lowered(BASE), synchronises, len(WITHOUT) - 1)
    assert says("hazard.peer_exited", [h.detail for h in run(BASE, mutant).hazards])


def test_a_seed_replays_a_random_run():
    mutant = mutants.without(lowered(BASE), synchronises, 8)
    first, again = (run(BASE, mutant, timing="random", order="random", seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.outputs["C"], again.outputs["C"])
    assert list(map(str, first.hazards)) == list(map(str, again.hazards))
