"""Warpgroups that copy what they multiply: when they do, and what stays in flight meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.choice.depth import TOLERANCE
from pipeliner.choice.mapped import map_kernel
from pipeliner.cost.busy import RESTART_CYCLES
from pipeliner.cost.predict import CROSS_STEP_DEPTH, predict, why_in_flight
from pipeliner.machine import H100
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import conv2d
from pipeliner.space.alternatives import candidate_options, depth_options
from pipeliner.space.ranking import BY_MATH_WARPS, Ranking, choose
from tests.refusals import says, the

from .kernels import WGMMA, gemm, with_copies
from .kernels import by_wgmma as planned


@pytest.mark.parametrize("asked", [{"roles": 0}, {"mechanism": "cp_async"}])
def test_it_is_taken_where_threads_are_to_copy(asked):
    plan = planned(request=Request(**asked))
    assert plan.matmuls[0].instruction.startswith("wgmma")
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert the("choice.taken", plan.reasons)["what"] == "wgmma"


def about(what, plan):
    """What ``plan`` says of ``what`` being taken or not."""
    reasons = [reason for reason in plan.reasons if reason.code.startswith("choice.")]
    return [reason for reason in reasons if reason.args.get("what") == what]


GATHERED = ConvTile(128, 64, 64)
LAYER = conv2d(32, 56, 56, 64, 64, 3, 3, pad=1)


def test_threads_copy_by_default_where_that_is_predicted_to_be_faster():
    """Measured on an H100: 27.3 us by cp.async with its best depth, 35.2 by tma."""
    info = kernel_info(LAYER, GATHERED)
    plan = choose(info, H100, Request())
    boxes = choose(info, H100, Request(mechanism="tma", instruction="wgmma")).predicted_us
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert plan.roles == plan.mbarriers == ()
    assert plan.predicted_us < boxes * (1 - TOLERANCE)
    taken = the("choice.taken", about(BY_MATH_WARPS, plan))
    assert (taken.why["us"], taken.why["other_us"]) == (plan.predicted_us, boxes)


def test_what_is_compared_with_a_non_specialised_mainloop_is_one():
    info = kernel_info(LAYER, GATHERED)
    plan = choose(info, H100, Request())
    ranking = Ranking(info, H100, Request())
    (loop,) = depth_options(plan, ranking)
    (chosen,) = (option for option in loop.depths if option.chosen)
    assert round(chosen.us, 2) == plan.predicted_us
    (taken,) = (option for option in candidate_options(plan, ranking) if option.chosen)
    assert (taken.name, taken.us) == ("wgmma, cp_async", plan.predicted_us)
    asked = ranking.taken(plan).pinned.within(Request())
    assert asked == Request(instruction="wgmma", mechanism="cp_async")
    assert choose(info, H100, asked).predicted_us == plan.predicted_us


def test_boxes_are_kept_where_threads_would_hardly_be_faster():
    plan = planned(request=Request())
    threads = planned(request=Request(instruction="wgmma", mechanism="cp_async")).predicted_us
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    (said,) = about(BY_MATH_WARPS, plan)
    assert (said.code, said.why["us"]) == ("choice.not_taken", threads)


@pytest.mark.parametrize(
    "asked",
    [{"instruction": "wgmma"}, {"mechanism": "tma"}, {"depth": 4}, {"roles": 1}, {"cluster": 1}],
)
def test_nothing_is_compared_where_more_is_asked_for(asked):
    plan = choose(kernel_info(LAYER, GATHERED), H100, Request(**asked))
    assert about(BY_MATH_WARPS, plan) == []


def test_a_persistent_kernel_copies_by_tma():
    plan = choose(kernel_info(LAYER, replace(GATHERED, persistent=132)), H100, Request())
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert says("choice.persistent", about(BY_MATH_WARPS, plan))


@pytest.mark.parametrize("changes", [{"no_tma": "it is crooked"}, {"src_strides": (4100, 1)}])
def test_what_is_no_box_is_copied_by_the_math_warps(changes):
    info = with_copies(gemm(128, 256, 64), **changes)
    plan = choose(info, H100, Request())
    slower = choose(info, H100, Request(instruction="mma")).predicted_us
    assert plan.matmuls[0].instruction == "wgmma.m64n256k16.f16.f32"
    times = the("choice.taken", about("wgmma", plan)).why
    assert (times["us"], times["other_us"]) == (plan.predicted_us, slower)
    assert times["other"] == "mma.m16n8k16.f16.f32"
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert (plan.roles, plan.threads, plan.target) == ((), 256, "sm_90a")


def test_what_is_copied_two_bytes_at_a_time_is_left_to_mma():
    info = with_copies(gemm(128, 128, 64), no_tma="it is crooked", aligned=1)
    plan = choose(info, H100, Request())
    assert plan.matmuls[0].instruction.startswith("mma.")
    why = the("choice.not_taken", about("wgmma", plan)).why
    assert (why.code, why["copy"], why["tma"]) == (
        "mechanism.for_wgmma",
        "A_shared",
        "it is crooked",
    )
    assert the("cp_async.vector", [why])["nbytes"] == 2


def test_an_sm_holds_as_many_ctas_without_roles_as_registers_of_accumulators_allow():
    """192 x 64 by 384 threads, 62 registers each as compiled for sm_90a by nvcc 13.0."""
    info = with_copies(gemm(192, 64, 64), no_tma="it is crooked")
    (loop,) = choose(info, H100, WGMMA).loops
    depth = the("depth.taken", loop.reasons)
    assert (depth["resident"], depth["limiter"]) == (2, "registers")


def non_specialised():
    """The work of a product whose copies threads make for wgmma."""
    asked = Request(instruction="wgmma", mechanism="cp_async")
    return map_kernel(gemm(128, 256, 64), H100, asked).loops[0].work


def test_with_four_slots_tensor_cores_do_not_wait_for_barriers():
    work = non_specialised()
    waiting = replace(work, wgmma=replace(work.wgmma, crosses_steps=False))
    assert work.wgmma.crosses_steps
    for depth in (1, 2, 3, {"A_shared": 3, "B_shared": 4}):
        assert predict(work, H100, depth) == predict(waiting, H100, depth)._replace(work=work)
    one, none = (predict(each, H100, CROSS_STEP_DEPTH) for each in (work, waiting))
    assert (one.in_flight, none.in_flight) == (1, 0)
    bubble = H100.barrier_cycles + H100.shared_latency + RESTART_CYCLES
    assert 0 < none.step - one.step <= bubble
    assert one.step >= work.usage.tensor
    # A slot is in use for a step more.
    assert one.response == none.response + none.ii
    assert predict(work, H100, {"A_shared": 4, "B_shared": 4}).in_flight == 1


def test_what_would_wait_for_loads_waits_for_its_wgmma():
    """Copies run a slot less ahead of what stays in flight: loads that land late forbid it."""
    work = non_specialised()
    work = replace(work, loads=replace(work.loads, handshake=3000))
    found = predict(work, H100, 4)
    assert found.in_flight == 0
    assert the("in_flight.none", [why_in_flight(found, H100)])["us"] == found.us
    assert why_in_flight(predict(work, H100, 3), H100) is None


@pytest.mark.parametrize(
    ("tile", "depth", "said"),
    [
        ((128, 256), 4, "in_flight.one"),
        ((128, 128), 5, "in_flight.ctas"),
    ],
)
def test_the_plan_says_whether_wgmma_stays_in_flight(tile, depth, said):
    asked = Request(instruction="wgmma", mechanism="cp_async", depth=depth)
    (loop,) = choose(gemm(*tile, 64), H100, asked).loops
    assert says(said, loop.reasons)


def test_where_an_sm_has_two_ctas_each_waits_for_its_wgmma():
    asked = Request(instruction="wgmma", mechanism="cp_async")
    work = map_kernel(gemm(128, 128, 64), H100, asked).loops[0].work
    assert work.wgmma.crosses_steps
    assert predict(work, H100, 3).occupancy.ctas == 2
    assert {predict(work, H100, depth).in_flight for depth in (4, 5, 6)} == {0}


@pytest.mark.parametrize(
    "changes", [{"operand": "registers"}, {"mechanism": "tma"}, {"instruction": "mma"}]
)
def test_what_does_not_run_on_into_the_next_step(changes):
    asked = replace(Request(instruction="wgmma", mechanism="cp_async"), **changes)
    assert not map_kernel(gemm(128, 256, 64), H100, asked).loops[0].work.wgmma.crosses_steps
