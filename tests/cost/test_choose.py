from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.choice.depth import MAX_DEPTH, SPARE_SLOTS, TOLERANCE, DepthAxis, choose_depth
from pipeliner.cost import predict
from pipeliner.cost.descriptor import (
    FragmentTiming,
    Grid,
    SharedMemory,
    ThreadBudget,
    Traffic,
    Work,
)
from pipeliner.cost.usage import Usage
from pipeliner.diagnostics import Reason
from pipeliner.errors import PlanError
from pipeliner.machine import A100, H100, T4
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space.ranking import choose
from tests.refusals import refused, says, the

from .kernels import copy, depths, gemm, matmul, stream

FREE = Request()


def test_the_depth_of_the_fastest_measured_gemm_is_found():
    # 128x256x64 on an H100: depth 3; depth 2 measured 30 % slower, depth 4 the same: one to spare.
    plan = choose(gemm(128, 256, 64, trip=64, grid=(512,)), H100, Request(instruction="mma"))
    assert depths(plan) == {"A_shared": 4, "B_shared": 4}
    assert plan.threads == 256


def test_every_choice_has_a_reason_with_numbers():
    plan = choose(gemm(), A100, FREE)
    texts = [*plan.reasons, *plan.loops[0].reasons]
    texts += [item.reason for item in (*plan.copies, *plan.matmuls, *plan.loops[0].rings)]
    assert all(texts)
    for code in ("depth.law", "depth.less", "depth.more"):
        assert any(why.code.startswith(code) for why in plan.loops[0].reasons)


def test_choosing_twice_gives_the_same_plan_and_it_survives_json():
    plan = choose(gemm(), A100, FREE)
    assert plan == choose(gemm(), A100, FREE) == KernelPlan.from_json(plan.to_json())


def test_ops_are_those_that_mapping_makes():
    plan = choose(gemm(k=32), A100, FREE)
    names = [op.name for op in plan.loops[0].ops]
    assert names == [
        "A_shared",
        "B_shared",
        "C_update.k0.a",
        "C_update.k0.b",
        "C_update.k0",
        "C_update.k1.a",
        "C_update.k1.b",
        "C_update.k1",
    ]


def test_before_ampere_two_slots_are_filled_through_registers():
    plan = choose(gemm(128, 128, 16), T4, FREE)
    assert {item.mechanism for item in plan.copies} == {"register"}
    assert set(depths(plan).values()) == {2}
    assert [op.name for op in plan.loops[0].ops][:2] == ["A_shared.load", "A_shared.store"]


@pytest.mark.parametrize("trip", [0, 1])
def test_a_loop_with_nothing_to_overlap_is_left_alone(trip):
    plan = choose(gemm(trip=trip), A100, FREE)
    assert not plan.pipelined
    assert plan.loops[0].reasons == (Reason("pipelined.short", trip=trip),)
    assert {item.mechanism for item in plan.copies} == {"register"}


def test_depth_is_at_most_the_trip_count():
    info = gemm(128, 256, 64, grid=(132,), trip=2)
    plan = choose(info, H100, FREE)
    assert set(depths(plan).values()) == {2}
    assert Reason("depth.more_trip", trip=2) in plan.loops[0].reasons


def test_a_loop_that_does_not_fit_is_left_alone_with_numbers():
    plan = choose(gemm(256, 256, 256, trip=16), A100, FREE)
    assert not plan.pipelined
    assert the("depth.no_fit", plan.loops[0].reasons)["smem"] == 262144


def test_a_loop_that_many_ctas_already_hide_is_left_alone():
    info = stream(bytes_=64, flops=1 << 22)
    plan = choose(info, H100, FREE)
    assert not plan.pipelined
    assert says("depth.gains_nothing", plan.loops[0].reasons)


def test_a_streaming_loop_gets_a_register_ring_for_its_load():
    plan = choose(stream(), H100, FREE)
    (ring,) = plan.loops[0].rings
    assert (ring.buffer, ring.scope, ring.producers) == ("C.load", "local", ("C.load",))
    assert ring.depth >= 2


def test_a_loop_that_stores_to_global_memory_without_loads_has_no_ring_to_fill():
    info = stream()
    (op,) = info.loops[0].ops
    info = replace(info, loops=(replace(info.loops[0], ops=(replace(op, loads=False),)),))
    assert choose(info, H100, FREE).loops[0].rings == ()
    with refused("depth.unknown_ring", PlanError, ring="C.load"):
        choose(info, H100, Request(depth={"C.load": 2}))


@pytest.mark.parametrize("depth", [2, {"C.load": 2}])
@pytest.mark.parametrize("rings", [(), (("sum", "local", 4),)])
def test_a_streaming_loop_gets_the_depth_that_is_asked_for(rings, depth):
    info = stream()
    info = replace(info, loops=(replace(info.loops[0], rings=rings),))
    (ring,) = choose(info, H100, Request(depth=depth)).loops[0].rings
    assert (ring.buffer, ring.depth, ring.requested) == ("C.load", 2, True)


def test_loops_that_recognition_declined_keep_their_reason():
    info = gemm(declined=(("j", "atomic in the body orders iterations"),))
    plan = choose(info, A100, FREE)
    assert plan.loop("j").reasons == ("atomic in the body orders iterations",)
    assert not plan.loop("j").pipelined


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_depth_that_is_asked_for_is_given(depth):
    plan = choose(gemm(), A100, Request(depth=depth))
    assert set(depths(plan).values()) == {depth}
    assert plan.loops[0].source == "request"
    assert all(ring.requested for ring in plan.loops[0].rings)


def test_the_schedules_annotation_is_a_request():
    assert set(depths(choose(gemm(depth=4), A100, FREE)).values()) == {4}
    assert set(depths(choose(gemm(depth=4), A100, Request(depth=2))).values()) == {2}


def test_one_ring_may_be_asked_for_by_name():
    plan = choose(gemm(), A100, Request(depth={"A_shared": 5}))
    found = depths(plan)
    assert found["A_shared"] == 5
    assert found["B_shared"] == depths(choose(gemm(), A100, FREE))["B_shared"]


@pytest.mark.parametrize(
    ("depth", "code", "args"),
    [
        (11, "depth.smem", {"smem": 180224, "most": 166912}),
        ({"A_shared": 20, "B_shared": 2}, "depth.smem", {"smem": 180224, "most": 166912}),
        (
            {"D_shared": 2},
            "depth.unknown_ring",
            {"ring": "D_shared", "rings": ("A_shared", "B_shared")},
        ),
    ],
)
def test_a_depth_that_cannot_be_had_is_refused(depth, code, args):
    with refused(code, PlanError, **args):
        choose(gemm(), A100, Request(depth=depth))


def test_annotated_stages_are_left_to_the_annotation():
    plan = choose(gemm(annotated=True), A100, FREE)
    assert plan.loops[0].source == "annotation"
    assert plan.loops[0].rings == ()


def test_shared_buffers_outside_the_loop_count_against_the_budget():
    reserved = ("S", "shared", 160 * 1024)
    plan = choose(gemm(accumulators=(reserved,)), A100, FREE)
    assert not plan.pipelined


WORK = Work(
    Usage(tensor=400, lsu=200, global_bytes=16384, l2=350),
    Grid(ctas=1024, trip=64),
    ThreadBudget(128, registers=128),
    SharedMemory(16384),
    Traffic(46.6),
    fragments=FragmentTiming(ahead=0.5),
)


def work(usage, trip, slot_bytes, ctas=1024):
    """As ``WORK``, but for these."""
    return replace(WORK, usage=usage, grid=Grid(ctas, trip), shared=SharedMemory(slot_bytes))


def test_a_third_slot_may_cost_one_of_three_ctas():
    described = work(Usage(tensor=400, global_bytes=1), trip=None, slot_bytes=24000)
    two, three = (predict(described, A100, depth) for depth in (2, 3))
    assert (two.resident, three.resident) == (3, 2)
    assert three.us == pytest.approx(two.us, rel=TOLERANCE)
    assert choose_depth(DepthAxis(described, A100)).depth == 3


@given(
    tensor=st.integers(1, 4000),
    bytes_=st.integers(1, 1 << 16),
    trip=st.integers(2, 200),
    ctas=st.integers(1, 4000),
    slot=st.integers(128, 1 << 16),
)
def test_more_work_never_takes_less_time(tensor, bytes_, trip, ctas, slot):
    base = work(Usage(tensor=tensor, global_bytes=bytes_), trip, slot, ctas)
    first = predict(base, H100, 2)
    if first is None:
        return
    for change in (
        {"usage": Usage(tensor=2 * tensor, global_bytes=bytes_)},
        {"usage": Usage(tensor=tensor, global_bytes=2 * bytes_)},
        {"grid": Grid(ctas, trip + 1)},
        {"grid": Grid(ctas + H100.sms, trip)},
    ):
        more = predict(replace(base, **change), H100, 2)
        assert more is not None
        assert more.us >= first.us * (1 - 1e-9)
    assert 0 < first.spent.arithmetic <= first.spent.steps <= first.spent.sms <= first.us


@given(depth=st.integers(2, 6))
def test_the_law_is_the_depth_at_which_no_step_waits(depth):
    found = predict(WORK, H100, depth)
    assert found is not None
    waits = (found.load + 0.5 * found.ii) / ((depth - 1) * found.resident)
    assert (depth >= found.law) == (waits <= found.ii)
    assert found.law == math.ceil(found.response / (found.resident * found.ii))


@given(
    tensor=st.integers(1, 4000),
    bytes_=st.integers(1, 1 << 16),
    trip=st.one_of(st.none(), st.integers(2, 300)),
    slot=st.integers(128, 1 << 17),
    machine=st.sampled_from([A100, H100, T4]),
)
def test_a_chosen_depth_fits_and_is_the_least_of_the_fastest(tensor, bytes_, trip, slot, machine):
    described = work(Usage(tensor=tensor, global_bytes=bytes_), trip, slot)
    choice = choose_depth(DepthAxis(described, machine))
    if isinstance(choice, Reason):
        assert slot > machine.smem_per_cta
        return
    most = MAX_DEPTH
    times = [predict(described, machine, depth) for depth in range(1, most + 1)]
    fastest = min(time.us for time in times if time is not None)
    assert choice.depth * slot <= machine.smem_per_cta
    assert choice.prediction.us <= fastest * (1 + TOLERANCE)
    slower = [
        shallower is not None and shallower.us > fastest * (1 + TOLERANCE)
        for shallower in times[: choice.depth - 1]
    ]
    spare = slower.count(False)
    assert spare <= (SPARE_SLOTS if choice.prediction.resident == 1 else 1)
    assert all(slower[: len(slower) - spare])
    if spare:  # beside at least one tile in flight, and of as many CTAs or a third slot
        lean = times[choice.depth - 1 - spare]
        assert lean.depth >= 2
        resident = choice.prediction.resident
        assert lean.resident == resident or (lean.depth == 2 and resident > 1)


def test_a_second_matmul_takes_the_threads_of_the_first():
    info = gemm(64, 64, 32)
    (loop,) = info.loops
    second = replace(matmul(64, 128, 32, op="D_update", a="P", b="V_shared"), acc="out")
    value = copy("V", (128, 32))
    both = replace(
        loop,
        ops=(*loop.ops, value, second),
        rings=(*loop.rings, ("V_shared", "shared", 8192)),
    )
    plan = choose(replace(info, loops=(both,)), A100, FREE)
    threads = {m.warps[0] * m.warps[1] * 32 for m in plan.matmuls}
    assert threads == {plan.threads}
    assert len(plan.matmuls) == 2
    assert {m.instruction for m in plan.matmuls} == {"mma.m16n8k16.f16.f32"}


def test_only_matmuls_on_one_accumulator_take_one_instruction():
    info = gemm(64, 64, 32)
    (loop,) = info.loops

    def instructions(acc):
        # 12 of K is no multiple of what mma.sync takes at once.
        second = replace(matmul(64, 64, 12, op="D_update", a="P", b="Q"), acc=acc)
        both = replace(loop, ops=(*loop.ops, second))
        plan = choose(replace(info, loops=(both,)), A100, FREE)
        assert {m.warps[0] * m.warps[1] * 32 for m in plan.matmuls} == {plan.threads}
        return [m.instruction for m in plan.matmuls]

    assert instructions("out") == ["mma.m16n8k16.f16.f32", "simt"]
    assert instructions("acc") == ["simt", "simt"]


def test_a_depth_that_no_loop_could_have_is_refused():
    info = replace(gemm(), loops=(), declined=(("k", "an atomic orders its iterations"),))
    with refused("depth.of_loop", PlanError, loop="k", why="an atomic orders its iterations"):
        choose(info, A100, Request(depth=3))
    assert not choose(info, A100, Request(depth=1)).pipelined


@pytest.mark.parametrize(
    ("gemm", "tile", "depth", "bound"),
    [
        (Gemm(8192, 8192, 8192), GemmTile(128, 256, 64), 4, "power"),
        (Gemm(16, 8192, 8192), GemmTile(16, 64, 256), 4, "memory"),
        (Gemm(4096, 4096, 4096), GemmTile(128, 128, 64), 1, "the latency of loads"),
        (Gemm(1536, 1536, 2048), GemmTile(128, 192, 64), 5, "tensor cores"),
        (Gemm(1024, 1024, 8192, layout="TT"), GemmTile(64, 64, 64), 6, "L2"),
    ],
    ids=str,
)
def test_a_plan_says_what_its_time_is_limited_by(gemm, tile, depth, bound):
    plan = choose(kernel_info(gemm, tile), H100, Request(instruction="wgmma", depth=depth))
    said = the("choice.predicted", plan.reasons)
    assert said["limiter"] == bound
    where = said["where"].args
    assert where["start_us"] + where["sms_us"] <= said["us"] * (1 + 1e-9)
    assert where["steps_us"] < where["sms_us"]
    assert said["us"] <= where["start_us"] + where["sms_us"] + where["memory_us"]
