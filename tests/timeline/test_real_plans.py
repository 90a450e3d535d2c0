"""Timelines of real plans, against what the passes counted and the scheduler found."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
import tvm
from tvm.script import tirx as T

from pipeliner.machine import A100, MachineFile, write_machine
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.timeline import timeline
from pipeliner.timeline.trace import ARRIVE, BARRIER

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


@pytest.mark.part(2)
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


def test_latencies_are_those_of_the_machine_file(tmp_path):
    """Whatever it calls the GPU: a memory as far away again takes as long again to arrive."""
    function = schedule_gemm(Gemm(64, 64, 256), GemmTile(64, 64, 32))
    usual = timeline(function, "a100", depth=2, mechanism="cp_async")
    times = []
    for name, factor in (("A100 SXM4 as measured", 1), ("Mine", 2)):
        file = tmp_path / "machine.json"
        far = factor * A100.global_latency, factor * A100.l2_latency
        made = dataclasses.replace(A100, name=name, global_latency=far[0], l2_latency=far[1])
        write_machine(file, MachineFile(made))
        drawn = timeline(function, str(file), depth=2, mechanism="cp_async")
        assert drawn.machine == name
        times.append(drawn.plain.whole)
    assert times[0] == pytest.approx(usual.plain.whole)
    assert times[1] > 1.3 * times[0]


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


def test_the_tile_loop_of_a_nest_is_drawn_unless_the_inner_one_is_asked_for():
    """dlight's tensor core matmul pipelines tiles in shared memory and, inside, fragments."""
    recorded = Path(__file__).parents[1] / "corpus" / "recorded" / "dlight_matmul_wmma.tir"
    func = tvm.script.from_source(recorded.read_text()).with_attr("global_symbol", "main")
    tiles = timeline(func, "sm_80").pipelined.loop
    fragments = timeline(func, "sm_80", loop="ax3_0_1").pipelined.loop
    assert tiles.name == "ax3_0_0"
    assert {ring.scope for ring in tiles.rings} == {"shared.dyn", "local"}
    assert {ring.scope for ring in fragments.rings} == {"wmma.matrix_a", "wmma.matrix_b"}


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
