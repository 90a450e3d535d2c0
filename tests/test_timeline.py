"""Model time of planned loops: against times worked out by hand, the passes' own counts, the
emulator's order of execution, and the rules of the model checked apart from what simulates them."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T

from pipeliner import api
from pipeliner.compiled import plan_of
from pipeliner.emulator import emulate
from pipeliner.emulator import machine as emulated
from pipeliner.errors import PlanError
from pipeliner.machine import A100, machine_for
from pipeliner.plan import EdgePlan, KernelPlan, LoopPlan, OpPlan, RingPlan, SyncPlan
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import Slot, steady, timeline, timeline_of, trace
from pipeliner.timeline.slots import slot_spans
from pipeliner.timeline.trace import ARRIVE, BARRIER

QUEUED = ("lsu", "l2", "tma")


def copy_and_compute(depth: int, *, epilogue: str = "peeled", trip: str = "64") -> LoopPlan:
    """A copy of 100 cycles (20 of its pipe) and a computation of 50 on a ring in shared memory."""
    late = min(depth - 1, 1)
    ops = (
        OpPlan("W", "wait", "S", "sync", 1, 1, stage=late, order=0),
        OpPlan("S", "copy", "S", "l2", 100, 20, stage=0, order=1),
        OpPlan("C", "compute", "C", "fma", 50, 50, stage=late, order=2),
    )
    if not late:
        ops = tuple(dataclasses.replace(op, order=(1, 0, 2)[op.order]) for op in ops)
    edges = (
        EdgePlan("S", "C", "RAW", "S", 0),
        EdgePlan("S", "W", "RAW", "S", 0, "cp_async"),
        EdgePlan("W", "C", "RAW", "S", 0),
    )
    ring = RingPlan("S", "shared", depth, 64, ("S",), ("C",))
    return LoopPlan("k", trip, True, ops, edges, (ring,), ii=50, epilogue=epilogue)


def kernel(*loops: LoopPlan, barriers: int = 2, steady_barriers: int = 1) -> KernelPlan:
    sync = SyncPlan(barriers, steady_barriers)
    return KernelPlan("toy", "sm_80", A100.name, 128, loops, sync=sync)


def times(run, op):
    return [(e.start, e.busy, e.end) for e in run.events if e.op == op]


# By hand, with A100's barrier of 30 cycles.


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


def test_a_clamped_epilogue_copies_for_nobody_and_drains():
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
    op = OpPlan("M", "mma", "M", "tensor", 100, 10)
    edges = tuple(EdgePlan("M", "M", kind, "acc", 1) for kind in ("RAW", "WAR", "WAW"))
    loop = LoopPlan("k", "8", True, (op,), edges, ii=10)
    assert steady(loop, A100).cycles == 10
    assert steady(dataclasses.replace(loop, edges=edges[:1]), A100).cycles == 100


def test_threads_meet_before_a_slot_is_written_again():
    op = OpPlan("X", "store", "X", "lsu", 40, 8)
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


# Real plans: what the passes counted.

CASES = {
    "mma": (
        Gemm(64, 64, 256, dtype="float16"),
        GemmTile(64, 64, 32),
        "sm_90",
        {"instruction": "mma"},
    ),
    "rolled": (Gemm(64, 64, 256), GemmTile(64, 64, 32), "sm_80", {"epilogue": "rolled"}),
    "peeled": (Gemm(64, 64, 256), GemmTile(64, 64, 32), "sm_80", {"epilogue": "peeled"}),
    "register": (Gemm(64, 64, 256), GemmTile(64, 64, 32), "sm_80", {"mechanism": "register"}),
    "simt": (Gemm(64, 64, 128, dtype="float32"), GemmTile(64, 64, 8), "sm_80", {}),
    "two": (Gemm(128, 128, 512), GemmTile(128, 128, 64), "sm_80", {"depth": 2}),
}


@pytest.fixture(scope="module", params=CASES)
def drawn(request):
    gemm, tile, target, options = CASES[request.param]
    return timeline(schedule_gemm(gemm, tile), target, **options)


def test_barriers_are_those_of_the_pass(drawn):
    for run in drawn.runs:
        assert run.barriers == run.steady.barriers > 0


def test_holds_add_up_to_the_pace(drawn):
    for run in drawn.runs:
        assert sum(hold.cycles for hold in run.steady.holds) == pytest.approx(run.steady.cycles)


def test_no_pace_beats_the_interval_of_the_pipes(drawn):
    for run in drawn.runs:
        assert run.steady.cycles >= max(run.steady.busy.values())
    assert drawn.pipelined.steady.cycles <= drawn.plain.steady.cycles
    assert drawn.pipelined.whole < drawn.plain.whole
    assert drawn.plain.loop.stages == 1


def test_a_compute_bound_loop_runs_at_its_interval():
    """The scheduler's II, found without this model: 64 x 64 warp tiles keep the tensor cores busy."""
    function = schedule_gemm(Gemm(256, 256, 2048), GemmTile(128, 128, 64))
    fast = timeline(function, "sm_90", instruction="mma")
    assert fast.pipelined.loop.limiter == "pipe tensor"
    assert fast.pipelined.steady.cycles == fast.pipelined.loop.ii
    assert fast.pipelined.steady.exposed == 0
    assert fast.plain.steady.holds[0].cause == "copy in flight"


def test_every_op_runs_once_for_each_iteration(drawn):
    for run in drawn.runs:
        counted = Counter(
            (e.op, e.iteration)
            for e in run.trace.events
            if not e.repeats and e.op not in (BARRIER, ARRIVE)
        )
        wanted = {(op.name, i) for op in run.loop.ops for i in range(drawn.iterations)}
        assert set(counted) == wanted
        assert set(counted.values()) == {1}


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


def test_the_tile_loop_of_a_nest_is_drawn_unless_the_inner_one_is_asked_for():
    """dlight's tensor core matmul pipelines tiles in shared memory and, inside, fragments."""
    recorded = Path(__file__).parent / "corpus" / "recorded" / "dlight_matmul_wmma.tir"
    func = tvm.script.from_source(recorded.read_text()).with_attr("global_symbol", "main")
    tiles = timeline(func, "sm_80").pipelined.loop
    fragments = timeline(func, "sm_80", loop="ax3_0_1").pipelined.loop
    assert tiles.name == "ax3_0_0"
    assert {ring.scope for ring in tiles.rings} == {"shared.dyn", "local"}
    assert {ring.scope for ring in fragments.rings} == {"wmma.matrix_a", "wmma.matrix_b"}


# The rules, checked on random loops apart from what simulates them.


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
        found = OpPlan(name, kind, name, pipe, latency, occupancy, stage=stage)
        names.append(found)
        return name

    edges = []
    # A copy ahead by depth - 1 steps comes after the step's last read: else a slot is overwritten.
    early = (
        [op(name, "copy", "l2", 0) for name in buffers] if ahead < depth - 1 or not ahead else []
    )
    waits = []
    if asynchronous:
        names.append(OpPlan("W", "wait", "W", "sync", 1, 1, stage=ahead))
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


# What it refuses.


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (kernel(), {}, "cannot draw 'toy': none of its loops is pipelined: it has no loop"),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",))),
            {},
            "cannot draw 'toy': none of its loops is pipelined: i: no load",
        ),
        (
            kernel(LoopPlan("i", "8", False, reasons=("no load",)), copy_and_compute(2)),
            {"loop": "i"},
            "cannot draw loop 'i': it is not pipelined: no load",
        ),
        (kernel(copy_and_compute(2)), {"loop": "x"}, "cannot find loop 'x' in 'toy': it has ['k']"),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 65},
            "cannot draw 65 iterations of loop 'k': it has 64",
        ),
        (
            kernel(copy_and_compute(2)),
            {"iterations": 0},
            "expected iterations to be 1 to 1000, not 0",
        ),
    ],
)
def test_what_cannot_be_drawn(plan, options, message):
    with pytest.raises(PlanError) as error:
        timeline_of(plan, kernel(copy_and_compute(1)), A100, **options)
    assert str(error.value) == message


def test_a_loop_that_overlaps_with_one_slot_is_not_called_un_pipelined():
    with pytest.raises(PlanError, match="with one slot a ring it still has 2 stages"):
        timeline_of(kernel(copy_and_compute(2)), kernel(copy_and_compute(2)), A100)


# The emulator ran the same ops in the same order.


@pytest.mark.parametrize("options", [{"epilogue": "rolled"}, {"epilogue": "clamped"}, {"depth": 2}])
@pytest.mark.parametrize("k", [64, 96, 160])
def test_the_emulator_runs_the_same_order(options, k, monkeypatch):
    """Op by op with its iteration, barriers between, to the end; what is past it counts as last."""
    gemm = Gemm(64, 64, k)
    function = api.pipeline(schedule_gemm(gemm, GemmTile(64, 64, 32)), "sm_80", **options)
    (loop,) = (loop for loop in plan_of(function).loops if loop.pipelined)
    drawn = trace(loop, int(loop.trip), machine_for("sm_80"))
    last = drawn.iterations - 1
    assert executed(api.build(function), gemm, last, monkeypatch) == [
        (event.op, min(event.iteration, last)) for event in drawn.events if event.op != ARRIVE
    ]


def executed(built, gemm, last, monkeypatch):
    """Ops and barriers of the only CTA, as the emulator's first thread came to them."""
    origins = []
    step = emulated.Strand.step

    def noted(self, at):
        step(self, at)
        if self.tids[0] == 0:
            origins.append(self.cta.site(self.event).origin)

    monkeypatch.setattr(emulated.Strand, "step", noted)
    shapes = (gemm.m, gemm.k), (gemm.n, gemm.k), (gemm.m, gemm.n)
    assert not emulate(built, [np.ones(shape, "float16") for shape in shapes]).hazards
    order = [
        (BARRIER if found.kind == "barrier" else found.op, min(int(found.iteration or last), last))
        for found in origins
        if found is not None and found.stage is not None and found.kind != "commit"
    ]
    return [op for op, _ in itertools.groupby(order)]


@T.prim_func(s_tir=True)
def scaled(A: T.Buffer((64, 256), "float32"), C: T.Buffer((64, 256), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for i in range(64):
            for v in T.vectorized(4):
                with T.sblock("C"):
                    C[i, tx * 4 + v] = A[i, tx * 4 + v] * T.float32(3)


def test_loads_that_stream_through_registers_are_in_flight_together():
    drawn = timeline(scaled, "sm_80", depth=4)
    load, _ = sorted(drawn.pipelined.trace.loop.ops, key=lambda op: -op.latency)
    assert (load.name, load.pipe) == ("C.load", "l2")
    assert load.latency > A100.global_latency
    # One load at a time un-pipelined; three in flight, or as many as memory delivers.
    expected = min(3.0, load.latency / load.occupancy)
    assert drawn.speedup == pytest.approx(expected, rel=0.1)
