"""Rings of one loop that have slots of their own: when the model gives them, and what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.cost.descriptor import Grid, RingWork, SharedMemory, ThreadBudget, Traffic, Work
from pipeliner.cost.predict import predict
from pipeliner.cost.usage import Usage
from pipeliner.errors import PlanError
from pipeliner.machine import A100, H100
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.schedules.workloads import conv2d
from pipeliner.space.alternatives import depth_options
from pipeliner.space.ranking import Ranking, choose
from tests.refusals import refused, says, the

from .kernels import copy, depths, gemm

VGG = conv2d(32, 224, 224, 64, 64, 3, 3, pad=1)
WGMMA = Request(instruction="wgmma", mechanism="cp_async")


def rings(near=H100.l2_latency, far=H100.global_latency):
    return (RingWork("A", 16384, far), RingWork("B", 4096, near))


WORK = Work(
    Usage(tensor=256, l2=100, global_bytes=20480),
    Grid(ctas=132, trip=64),
    ThreadBudget(256, registers=128),
    SharedMemory(20480, rings=rings(), skew=None),
    Traffic(200.0),
)


def test_pixels_get_the_slot_that_weights_leave_room_for():
    """Three slots of each, 120 KB, leave an SM one CTA; three and two leave it two."""
    plan = choose(kernel_info(VGG, ConvTile(256, 64, 64)), H100, WGMMA)
    assert depths(plan) == {"pixels_shared": 3, "filters_shared": 2}
    (loop,) = plan.loops
    said = the("depth.per_ring", loop.reasons)
    assert dict(zip(said["rings"], said["slots"])) == depths(plan)
    pixels, filters = (ring.reason for ring in loop.rings)
    assert says("depth.from_memory", [pixels])
    assert says("depth.from_l2", [filters])
    assert said["resident"] == 2
    for equal in (2, 3):
        other = choose(kernel_info(VGG, ConvTile(256, 64, 64)), H100, replace(WGMMA, depth=equal))
        assert plan.predicted_us < other.predicted_us


def test_the_alternatives_show_what_was_taken_beside_equal_depths():
    info, request = kernel_info(VGG, ConvTile(256, 64, 64)), WGMMA
    plan = choose(info, H100, request)
    (loop,) = depth_options(plan, Ranking(info, H100, request))
    (taken,) = (option for option in loop.depths if option.chosen)
    assert (taken.slots, taken.smem, taken.ctas) == ("3+2", 3 * 32768 + 2 * 8192, 2)
    assert taken.us == pytest.approx(plan.predicted_us, abs=0.01)
    assert taken.us < min(
        option.us for option in loop.depths if option.us and not option.ring_depths
    )


def test_rings_that_fit_and_hide_everything_keep_one_depth():
    for plan in (choose(gemm(), A100, Request()), choose(gemm(), H100, Request())):
        assert len(set(depths(plan).values())) == 1
    by_tma = replace(WGMMA, mechanism="tma")
    plan = choose(kernel_info(VGG, ConvTile(128, 64, 64)), H100, by_tma)
    assert len(set(depths(plan).values())) == 1


def test_what_all_ctas_read_again_comes_from_l2_unless_everything_does():
    info = gemm(grid=(1024,))
    (loop,) = info.loops
    large, small = copy("A", src_bytes=2**30), copy("B", src_bytes=2**20)

    def latencies(a, b):
        ops = (a, b, loop.ops[2])
        plan = choose(replace(info, loops=(replace(loop, ops=ops),)), H100, Request())
        return [ring.reason for ring in plan.loops[0].rings]

    from_memory, from_l2 = latencies(large, small)
    assert says("depth.from_memory", [from_memory])
    assert says("depth.from_l2", [from_l2])
    assert not says("depth.from_l2", latencies(small, copy("B", src_bytes=2**20)))
    assert not says("depth.from_l2", latencies(large, large))


def test_equal_slots_are_predicted_as_one_depth_where_all_comes_from_memory():
    same = replace(
        WORK, shared=SharedMemory(20480, rings=rings(near=H100.global_latency), skew=None)
    )
    for depth in (1, 2, 3, 5):
        assert predict(same, H100, {"A": depth, "B": depth}) == predict(same, H100, depth)


def test_the_ring_that_waits_longest_sets_the_step():
    steps = {
        (a, b): predict(WORK, H100, {"A": a, "B": b}).step for a in range(2, 5) for b in (2, 3, 4)
    }
    assert steps[2, 2] == steps[2, 3] > steps[3, 2] >= steps[3, 3] == steps[4, 4]


def test_slots_that_cannot_be_in_flight_gain_nothing():
    """cp.async completes in order, so only one slot more than the shallowest ring has counts."""
    for skew, useful in ((0, 2), (1, 3), (None, 6)):
        limited = replace(
            WORK,
            shared=SharedMemory(
                20480,
                rings=(RingWork("A", 16384, 3000), RingWork("B", 4096, H100.l2_latency)),
                skew=skew,
            ),
        )
        steps = [predict(limited, H100, {"A": a, "B": 2}).step for a in range(2, 7)]
        assert steps == sorted(steps, reverse=True)
        assert len(set(steps)) == useful - 1


def test_a_plan_says_which_of_the_slots_asked_for_are_idle():
    plan = choose(gemm(), A100, Request(depth={"A_shared": 5, "B_shared": 2}))
    assert depths(plan) == {"A_shared": 5, "B_shared": 2}
    idle = the("depth.idle", plan.loops[0].reasons)
    assert (idle["rings"], idle["most"], idle.why.code) == (("A_shared",), 3, "depth.in_order")
    through = Request(depth={"A_shared": 3, "B_shared": 2}, mechanism="register")
    plan = choose(gemm(64, 64), A100, through)
    idle = the("depth.idle", plan.loops[0].reasons)
    assert (idle["most"], idle.why.code) == (2, "depth.in_registers")


def test_depths_that_need_too_much_are_refused_with_numbers():
    with refused("depth.smem", PlanError, smem=278528, most=166912) as error:
        choose(gemm(), A100, Request(depth={"A_shared": 4, "B_shared": 30}))
    given = the("depth.given_each", [error.value.reason])
    assert dict(zip(given["buffers"], given["depths"])) == {"A_shared": 4, "B_shared": 30}
