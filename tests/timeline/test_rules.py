"""The rules of the model, checked on random loops apart from what simulates them."""

from __future__ import annotations

import dataclasses
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeliner.machine import A100
from pipeliner.plan import EdgePlan, LoopPlan, OpPlan, RingPlan
from pipeliner.timeline import trace
from pipeliner.timeline.slots import slot_spans
from pipeliner.timeline.trace import BARRIER
from pipeliner.values.op import Op

QUEUED = ("lsu", "l2", "tma")


@st.composite
def loops(draw):
    """Copies, with or without waits, loads of fragments and computations, legally ordered."""
    depth = draw(st.integers(1, 4))
    ahead = draw(st.integers(0, depth - 1))
    buffers = [f"S{i}" for i in range(draw(st.integers(1, 2)))]
    asynchronous = draw(st.booleans())
    names = []

    def op(name, kind, pipe, stage):
        occupancy = draw(st.integers(1, 80))
        latency = occupancy + draw(st.integers(0, 300))
        found = OpPlan(Op.parse(name), kind, name, pipe, latency, occupancy, stage=stage)
        names.append(found)
        return name

    edges = []
    # A copy ahead by depth - 1 steps comes after the step's last read: else a slot is overwritten.
    early = (
        [op(name, "copy", "l2", 0) for name in buffers] if ahead < depth - 1 or not ahead else []
    )
    waits = []
    if asynchronous:
        names.append(OpPlan(Op("W"), "wait", "W", "sync", 1, 1, stage=ahead))
        waits = ["W"]
    for name in buffers:
        op(f"F{name}", "load", "lsu", ahead)
        op(f"C{name}", "mma", draw(st.sampled_from(["tensor", "fma"])), ahead)
        edges += [
            EdgePlan(name, f"F{name}", "RAW", name, 0),
            EdgePlan(f"F{name}", f"C{name}", "RAW", f"R{name}", 0),
            EdgePlan(f"C{name}", f"C{name}", "RAW", "acc", 1),
        ]
        for wait in waits:
            edges += [
                EdgePlan(name, wait, "RAW", name, 0, "cp_async"),
                EdgePlan(wait, f"F{name}", "RAW", name, 0),
            ]
    if not early:
        early = [op(name, "copy", "l2", 0) for name in buffers]
    rings = [RingPlan(n, "shared", depth, 16, (n,), (f"F{n}",)) for n in buffers]
    rings += [RingPlan(f"R{n}", "local", 1, 4, (f"F{n}",), (f"C{n}",)) for n in buffers]
    ops = tuple(dataclasses.replace(found, order=i) for i, found in enumerate(names))
    epilogue = draw(st.sampled_from(["rolled", "clamped", "peeled"]))
    return LoopPlan("k", "n", True, ops, tuple(edges), tuple(rings), epilogue=epilogue)


@settings(deadline=None, max_examples=150)
@given(loops(), st.integers(1, 7))
def test_rules_of_the_model(loop, iterations):
    run = trace(loop, iterations, A100)
    ops = {op.name: op for op in loop.ops}
    done = {(e.op, e.iteration): e for e in run.events if e.op in ops}
    for edge in loop.edges:
        for i in range(iterations - edge.distance):
            first, then = done[edge.src, i], done[edge.dst, i + edge.distance]
            if edge.sync == "cp_async":
                assert then.end >= first.end
            else:
                assert then.start >= first.end
    for ring in loop.rings:
        for producer in ring.producers:
            for user in ring.consumers:
                for i in range(iterations - ring.depth):
                    assert done[producer, i + ring.depth].start >= done[user, i].busy
    for pipe in {op.pipe for op in loop.ops}:
        taken = sorted((e.start, e.busy) for e in run.events if e.pipe == pipe)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(taken))
    front = 0
    for event in run.events:
        assert event.resume - event.stall == front  # every cycle of waiting is accounted for
        front = event.resume
        if event.pipe not in QUEUED:
            assert event.start <= front


@settings(deadline=None, max_examples=150)
@given(loops(), st.integers(1, 7))
def test_slots_follow_one_another(loop, iterations):
    run = trace(loop, iterations, A100)
    for spans in slot_spans(run).values():
        assert [s.end for s in spans[:-1]] == [s.start for s in spans[1:]]
        assert (spans[0].start, spans[-1].end) == (0, run.cycles)
        filled = [s for s in spans if s.state != "empty"]
        assert [s.iteration for s in filled] == sorted(s.iteration for s in filled)
        order = {"filling": 0, "ready": 1, "read": 2}
        keys = [(s.iteration, order[s.state]) for s in filled]
        assert keys == sorted(set(keys))


@settings(deadline=None, max_examples=100)
@given(loops(), st.integers(1, 7))
def test_threads_meet_between_accesses_to_one_slot(loop, iterations):
    """A race detector that knows nothing of the simulation: walk, and look for a barrier between."""
    touched = {}
    for count, event in enumerate(trace(loop, iterations, A100).events):
        if event.op == BARRIER:
            touched = {}
        for slot in (s for s in (*event.reads, *event.writes) if s.ring.startswith("S")):
            writes = slot in event.writes
            for other, wrote in touched.get(slot, ()):
                assert other == event.op or not (writes or wrote), (event, other)
            touched.setdefault(slot, []).append((event.op, writes))
