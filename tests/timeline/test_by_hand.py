"""Model time of planned loops against times worked out by hand, with A100's barrier of 30 cycles."""

from __future__ import annotations

import dataclasses

from pipeliner.machine import A100
from pipeliner.plan import EdgePlan, LoopPlan, OpPlan, RingPlan
from pipeliner.timeline import Slot, steady, timeline_of, trace
from pipeliner.timeline.slots import slot_spans
from pipeliner.timeline.trace import ARRIVE, BARRIER
from pipeliner.values.op import Op

from .loops import copy_and_compute, kernel


def times(run, op):
    return [(e.start, e.busy, e.end) for e in run.events if e.op == op]


def test_un_pipelined_by_hand():
    """copy 100, barrier 30, compute 50 (in time with the next barrier), barrier 30."""
    run = trace(copy_and_compute(1), 3, A100)
    assert times(run, "S") == [(0, 20, 100), (210, 230, 310), (420, 440, 520)]
    assert times(run, "W") == [(0, 100, 100), (210, 310, 310), (420, 520, 520)]
    assert times(run, BARRIER) == [
        (100, 130, 130),
        *((180, 210, 210), (310, 340, 340)),
        *((390, 420, 420), (520, 550, 550)),
    ]
    assert times(run, ARRIVE) == [(130, 180, 180), (340, 390, 390)]
    assert times(run, "C") == [(130, 180, 180), (340, 390, 390), (550, 600, 600)]
    assert run.cycles == 600
    assert run.parts == {"steady state": (0, 600)}
    pace = steady(copy_and_compute(1), A100)
    assert pace.cycles == 210
    assert {(hold.cause, hold.cycles) for hold in pace.holds} == {
        *(("copy in flight", 100), ("barrier", 60), ("pipe busy", 50)),
    }
    assert pace.exposed == 160


def test_pipelined_by_hand():
    """Two slots: a copy flies while the tile before it is computed on; 130 cycles an iteration."""
    run = trace(copy_and_compute(2), 3, A100)
    # Step 1 waits till 100, copies, meets till 130, computes. Step 2 waits for that copy till 200,
    # meets till 230 (so that slot 0 may be overwritten), copies, computes.
    assert times(run, "S") == [(0, 20, 100), (100, 120, 200), (230, 250, 330)]
    assert times(run, BARRIER) == [(100, 130, 130), (200, 230, 230), (330, 360, 360)]
    assert times(run, "C") == [(130, 180, 180), (230, 280, 280), (360, 410, 410)]
    assert run.parts == {"prologue": (0, 100), "steady state": (100, 360), "epilogue": (360, 410)}
    assert [event.part for event in run.events if event.op == "C"] == [
        *("steady state", "steady state", "epilogue"),
    ]
    assert steady(copy_and_compute(2), A100).cycles == 130


def test_slots_by_hand():
    spans = slot_spans(trace(copy_and_compute(2), 3, A100))
    assert [(s.state, s.iteration, s.start, s.end) for s in spans[Slot("S", 0)]] == [
        *(("filling", 0, 0, 100), ("ready", 0, 100, 130), ("read", 0, 130, 180)),
        *(("empty", None, 180, 230), ("filling", 2, 230, 330), ("ready", 2, 330, 360)),
        ("read", 2, 360, 410),
    ]
    assert [s.state for s in spans[Slot("S", 1)]] == [
        *("empty", "filling", "ready", "read", "empty"),
    ]


def test_a_copy_by_the_threads_themselves_holds_them_up():
    loop = copy_and_compute(1)
    ops = tuple(op for op in loop.ops if op.kind != "wait")
    edges = tuple(edge for edge in loop.edges if "W" not in (edge.src, edge.dst))
    run = trace(dataclasses.replace(loop, ops=ops, edges=edges), 1, A100)
    (copy, *_) = run.events
    assert (copy.end, copy.resume, copy.stall, copy.cause) == (100, 100, 100, "copy in flight")


def test_no_barrier_where_the_kernel_has_none():
    run = trace(copy_and_compute(2), 4, A100, barriers=False)
    assert not [event for event in run.events if event.op == BARRIER]


def test_overrunning_loads_are_clamped_and_drained():
    run = trace(copy_and_compute(2, epilogue="clamped"), 3, A100)
    past = [(event.op, event.iteration) for event in run.events if event.repeats]
    assert past == [(BARRIER, 3), ("S", 3), ("S.drain", 3)]
    assert run.events[-1].end == max(event.end for event in run.events if event.op == "S")
    slot = slot_spans(run)[Slot("S", 1)]
    assert (slot[-1].state, slot[-1].iteration) == ("filling", 3)
    rolled = trace(copy_and_compute(2, epilogue="rolled"), 3, A100)
    assert [event.op for event in rolled.events if event.repeats] == [BARRIER]  # behind the guard


def test_an_accumulator_is_passed_on_while_it_is_made():
    """Each multiplication adds to the sum of the one before: it takes the pipe, not the latency."""
    op = OpPlan(Op("M"), "mma", "M", "tensor", 100, 10)
    edges = tuple(EdgePlan("M", "M", kind, "acc", 1) for kind in ("RAW", "WAR", "WAW"))
    loop = LoopPlan("k", "8", True, (op,), edges, ii=10)
    assert steady(loop, A100).cycles == 10
    assert steady(dataclasses.replace(loop, edges=edges[:1]), A100).cycles == 100


def test_threads_meet_before_a_slot_is_written_again():
    op = OpPlan(Op("X"), "store", "X", "lsu", 40, 8)
    ring = RingPlan("S", "shared", 2, 64, ("X",), ())
    loop = LoopPlan("k", "8", True, (op,), (), (ring,), ii=8)
    met = [event.iteration for event in trace(loop, 6, A100).events if event.op == BARRIER]
    assert met == [2, 4]


def test_a_prologue_longer_than_the_loop_issues_nothing_past_the_end():
    ops = tuple(dataclasses.replace(op, stage=3 * op.stage) for op in copy_and_compute(4).ops)
    loop = dataclasses.replace(copy_and_compute(4, epilogue="clamped"), ops=ops)
    copies = [event for event in trace(loop, 1, A100).events if event.op == "S"]
    assert [(event.step, event.iteration, event.repeats) for event in copies] == [
        *((0, 0, False), (3, 3, True)),
    ]


def test_a_long_loop_goes_on_at_its_pace():
    slow, fast = copy_and_compute(1, trip="1000"), copy_and_compute(2, trip="1000")
    found = timeline_of(kernel(fast), kernel(slow, steady_barriers=2), A100)
    assert found.plain.whole == trace(slow, 1000, A100).cycles == 210 * 1000 - 30
    assert found.pipelined.whole == trace(fast, 1000, A100).cycles
    assert found.speedup == found.plain.whole / found.pipelined.whole


def test_an_unknown_trip_count_compares_the_pace():
    slow, fast = copy_and_compute(1, trip="n"), copy_and_compute(2, trip="n")
    found = timeline_of(kernel(fast), kernel(slow), A100)
    assert (found.pipelined.whole, found.plain.whole) == (None, None)
    assert found.speedup == 210 / 130
    assert found.iterations == 6
