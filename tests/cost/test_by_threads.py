"""Warpgroups that copy what they multiply: when they do, and what stays in flight meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.cost.alternatives import depth_options, instruction_options
from pipeliner.cost.busy import RESTART_CYCLES
from pipeliner.cost.choose import CP_ASYNC_MARGIN, choose
from pipeliner.cost.mapped import as_chosen, map_kernel
from pipeliner.cost.predict import CROSS_STEP_DEPTH, predict, why_in_flight
from pipeliner.machine import H100
from pipeliner.request import Request
from pipeliner.schedules import ConvTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import conv2d

from .kernels import WGMMA, gemm, with_copies
from .kernels import by_wgmma as planned


@pytest.mark.parametrize("asked", [{"roles": 0}, {"mechanism": "cp_async"}])
def test_it_is_taken_where_threads_are_to_copy(asked):
    plan = planned(request=Request(**asked))
    assert plan.matmuls[0].instruction.startswith("wgmma")
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert plan.reasons[-1].startswith("wgmma is taken: ")


GATHERED = ConvTile(128, 64, 64)
LAYER = conv2d(32, 56, 56, 64, 64, 3, 3, pad=1)


def test_threads_copy_unasked_where_that_is_predicted_to_be_faster():
    """Measured on an H100: 27.3 us by cp.async with its best depth, 35.2 by tma."""
    info = kernel_info(LAYER, GATHERED)
    plan = choose(info, H100, Request())
    boxes = choose(info, H100, Request(mechanism="tma", instruction="wgmma")).predicted_us
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert plan.roles == plan.mbarriers == ()
    assert plan.predicted_us < boxes * (1 - CP_ASYNC_MARGIN)
    said = (
        f"copies by cp_async are taken: {plan.predicted_us:.1f} us predicted, {boxes:.1f} us where "
        "a role of its own copies by tma"
    )
    assert said in plan.reasons


def test_what_is_compared_with_threads_that_copy_are_threads_that_copy():
    info = kernel_info(LAYER, GATHERED)
    plan = choose(info, H100, Request())
    (loop,) = depth_options(info, plan, H100, Request())
    (chosen,) = (option for option in loop.depths if option.chosen)
    assert round(chosen.us, 2) == plan.predicted_us
    (taken,) = (
        option for option in instruction_options(info, plan, H100, Request()) if option.chosen
    )
    assert (taken.name, taken.us) == ("wgmma", plan.predicted_us)
    asked = as_chosen(Request(), plan)
    assert asked == Request(instruction="wgmma", mechanism="cp_async")
    assert choose(info, H100, asked).predicted_us == plan.predicted_us


def test_boxes_are_kept_where_threads_would_hardly_be_faster():
    plan = planned(request=Request())
    threads = planned(request=Request(instruction="wgmma", mechanism="cp_async")).predicted_us
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    (said,) = (text for text in plan.reasons if text.startswith("copies by cp_async"))
    assert said.startswith(f"copies by cp_async are not taken: {threads:.1f} us predicted, ")


@pytest.mark.parametrize(
    "asked",
    [{"instruction": "wgmma"}, {"mechanism": "tma"}, {"depth": 4}, {"roles": 1}, {"cluster": 1}],
)
def test_nothing_is_compared_where_more_is_asked_for(asked):
    plan = choose(kernel_info(LAYER, GATHERED), H100, Request(**asked))
    assert not any(text.startswith("copies by cp_async") for text in plan.reasons)


def test_a_grid_that_walks_all_tiles_copies_by_tma():
    plan = choose(kernel_info(LAYER, replace(GATHERED, persistent=132)), H100, Request())
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert any(text.startswith("copies by cp_async are not compared: ") for text in plan.reasons)


@pytest.mark.parametrize("changes", [{"no_tma": "it is crooked"}, {"src_strides": (4100, 1)}])
def test_what_is_no_box_is_copied_by_the_threads_that_multiply(changes):
    info = with_copies(gemm(128, 256, 64), **changes)
    plan = choose(info, H100, Request())
    slower = choose(info, H100, Request(instruction="mma")).predicted_us
    assert plan.matmuls[0].instruction == "wgmma.m64n256k16.f16.f32"
    assert plan.reasons[-1] == (
        f"wgmma is taken: {plan.predicted_us:.1f} us predicted, {slower:.1f} us by "
        "mma.m16n8k16.f16.f32"
    )
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert (plan.roles, plan.threads, plan.target) == ((), 256, "sm_90a")


def test_what_is_copied_two_bytes_at_a_time_is_left_to_mma():
    info = with_copies(gemm(128, 128, 64), no_tma="it is crooked", aligned=1)
    plan = choose(info, H100, Request())
    assert plan.matmuls[0].instruction.startswith("mma.")
    assert plan.reasons[-1] == (
        "wgmma is not taken: cannot copy 'A_shared' for wgmma: by tma, it is crooked; by "
        "cp_async, cp.async moves 4, 8 or 16 bytes, here only 2 are provably aligned"
    )


def test_an_sm_holds_as_many_ctas_without_roles_as_registers_of_accumulators_allow():
    """192 x 64 by 384 threads, 62 registers each as compiled for sm_90a by nvcc 13.0."""
    info = with_copies(gemm(192, 64, 64), no_tma="it is crooked")
    (loop,) = choose(info, H100, WGMMA).loops
    assert any("with 2 CTAs an SM (registers limits)" in reason for reason in loop.reasons)


def by_threads():
    """The work of a product whose copies threads make for wgmma."""
    asked = Request(instruction="wgmma", mechanism="cp_async")
    return map_kernel(gemm(128, 256, 64), H100, asked).loops[0].work


def test_with_four_slots_tensor_cores_do_not_wait_for_barriers():
    work = by_threads()
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
    work = by_threads()
    work = replace(work, loads=replace(work.loads, handshake=3000))
    found = predict(work, H100, 4)
    assert found.in_flight == 0
    said = f"each step waits for its wgmma: {found.us:.1f} us, "
    assert why_in_flight(found, H100).startswith(said)
    assert why_in_flight(found, H100).endswith(" with one in flight, copies a slot less ahead")
    assert why_in_flight(predict(work, H100, 3), H100) == ""


@pytest.mark.parametrize(
    ("tile", "depth", "said"),
    [
        ((128, 256), 4, "one wgmma stays in flight across steps: "),
        ((128, 128), 5, "each step waits for its wgmma: with 3 slots an SM has more CTAs than one"),
    ],
)
def test_the_plan_says_whether_wgmma_stays_in_flight(tile, depth, said):
    asked = Request(instruction="wgmma", mechanism="cp_async", depth=depth)
    (loop,) = choose(gemm(*tile, 64), H100, asked).loops
    assert any(reason.startswith(said) for reason in loop.reasons)


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
