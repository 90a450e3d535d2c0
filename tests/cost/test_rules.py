"""The rules of thumb of software pipelining fall out of the model.

T_load is how long a tile takes from the issue of its load to the last byte, T_compute how long the
arithmetic on it takes. One slot: they alternate. Two: T = T_first_load + n max(T_load, T_compute),
but that the last step waits for no load.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.choice.depth import DepthAxis, choose_depth
from pipeliner.cost import predict
from pipeliner.cost.descriptor import (
    FragmentTiming,
    Grid,
    LoadTiming,
    SharedMemory,
    ThreadBudget,
    Traffic,
    Work,
)
from pipeliner.cost.usage import Usage
from pipeliner.diagnostics import Reason
from pipeliner.machine import H100
from pipeliner.plan.request import Request
from pipeliner.space.ranking import choose
from tests.refusals import the

from .kernels import gemm

RATE = 64
SHORTEST = H100.global_latency + 1
LONG = 10_000
"""Iterations beside which the first load and the last store do not count."""


def work(load, compute, trip=LONG, **changes):
    """One CTA an SM, whose tile takes ``load`` cycles to arrive and ``compute`` to multiply."""
    transfer = load - H100.global_latency
    values = {
        "ctas": H100.sms,
        "registers": 128,
        "slot_bytes": 16384,
        "synchronised": False,
        "first": 0.0,
    } | changes
    return Work(
        Usage(tensor=compute, l2=transfer, global_bytes=int(transfer * RATE)),
        Grid(values["ctas"], trip),
        ThreadBudget(256, values["registers"]),
        SharedMemory(values["slot_bytes"]),
        Traffic(RATE),
        LoadTiming(synchronised=values["synchronised"]),
        FragmentTiming(first=values["first"]),
    )


def cycles(one, depth, machine=H100):
    found = predict(one, machine, depth)
    assert found is not None
    return (found.us - machine.start_us) * machine.clock_ghz * 1e3


def speedup(one, machine=H100):
    return cycles(one, 1, machine) / cycles(one, 2, machine)


@given(
    load=st.integers(SHORTEST, 900),
    compute=st.integers(500, 4000),
    trip=st.integers(1, 200),
)
def test_two_slots_take_the_first_load_and_the_longer_of_load_and_compute(load, compute, trip):
    rule = load + (trip - 1) * max(load, compute) + compute
    stored = H100.global_latency  # what is stored behind the loop has to arrive too
    assert cycles(work(load, compute, trip), 2) - stored == pytest.approx(rule, rel=0.05)


@given(
    load=st.integers(SHORTEST, 900),
    compute=st.integers(500, 4000),
    trip=st.integers(1, 200),
)
def test_one_slot_takes_load_and_compute_in_turn(load, compute, trip):
    rule = trip * (load + compute)
    assert cycles(work(load, compute, trip), 1) - H100.global_latency == pytest.approx(
        rule, rel=1e-3
    )


@pytest.mark.parametrize(
    ("load", "compute", "factor"),
    [(800, 800, 2.0), (800, 1600, 1.5), (1000, 500, 1.5), (800, 2400, 4 / 3)],
)
def test_overlap_is_worth_the_sum_over_the_longer(load, compute, factor):
    assert factor == (load + compute) / max(load, compute)
    assert speedup(work(load, compute)) == pytest.approx(factor, rel=0.01)


@given(load=st.integers(SHORTEST, 900), compute=st.integers(500, 20000))
def test_overlap_is_never_worth_more_than_two(load, compute):
    assert 1 <= speedup(work(load, compute)) <= 2.0


@given(load=st.integers(SHORTEST, 800), compute=st.integers(50, 4000), depth=st.integers(2, 16))
def test_more_slots_than_littles_law_asks_for_gain_nothing(load, compute, depth):
    one = work(load, compute, slot_bytes=1024)
    law = predict(one, H100, depth).law
    if depth >= law:
        assert cycles(one, depth + 1) == pytest.approx(cycles(one, depth), rel=0.01)


@given(load=st.integers(SHORTEST, 900))
def test_nothing_is_gained_where_compute_far_exceeds_load(load):
    assert speedup(work(load, 100 * load)) == pytest.approx(1, abs=0.011)


@given(load=st.integers(SHORTEST, 900), compute=st.integers(500, 4000))
def test_the_fewer_tiles_the_less_is_gained(load, compute):
    gains = [speedup(work(load, compute, trip=trip)) for trip in (1, 2, 4, 16, LONG)]
    assert gains == sorted(gains)


def test_one_tile_is_not_pipelined():
    plan = choose(gemm(trip=1), H100, Request(instruction="mma"))
    assert not plan.pipelined
    assert plan.loops[0].reasons == (Reason("pipelined.short", trip=1),)


RESIDENT = {
    "synchronised": True,
    "first": 100.0,
    "ctas": 12 * H100.sms,
    "trip": 64,
    "registers": 80,
}
"""Several CTAs an SM, if they fit, of a loop with a barrier."""


def test_nothing_is_gained_where_the_ring_costs_the_ctas_that_hid_the_latency():
    one = work(SHORTEST, 1000, slot_bytes=70 * 1024, **RESIDENT)
    fast = replace(H100, l2_bytes_per_second=0.0)  # L2 keeps up with so large slots
    assert [predict(one, fast, depth).resident for depth in (1, 2)] == [3, 1]
    assert speedup(one, fast) < 1.0
    choice = choose_depth(DepthAxis(one, fast))
    assert choice.depth == 1
    fewer = the("depth.more_fewer_ctas", choice.reasons)
    assert (fewer["left"], fewer["resident"]) == (1, 3)


def test_a_ring_that_costs_no_cta_gains():
    one = work(SHORTEST, 300, slot_bytes=16 * 1024, **RESIDENT)
    assert [predict(one, H100, depth).resident for depth in (1, 2)] == [3, 3]
    assert speedup(one) > 1.05
    assert choose_depth(DepthAxis(one, H100)).depth > 1


def test_ten_thousand_descriptors_are_predicted_in_a_moment():
    """In under 50 ms on an idle core, and in four times that on one that is shared."""
    works = [work(700 + at % 997, 500 + at % 991, trip=1 + at % 64) for at in range(10_000)]

    def taken():
        start = time.process_time()
        for one in works:
            predict(one, H100, 3)
        return time.process_time() - start

    assert min(taken() for _ in range(5)) < 0.2
