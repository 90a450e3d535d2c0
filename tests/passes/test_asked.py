"""What is asked for is had or refused, and what is predicted is what is built."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tvm.script import tirx as T

import pipeliner
from pipeliner.errors import PlanError
from pipeliner.explain.why import alternatives
from pipeliner.passes.ir import nodes as ir
from pipeliner.plan.request import Request
from pipeliner.timeline import timeline
from tests.refusals import refused, says, the

from ..verify.edited_plans import SUBJECTS

DEPTHS = (1, 2, 3, 5)
KINDS = (
    "mma.sync",
    "through registers",
    "simt",
    "split",
    "roles",
    "wgmma, cp.async",
    "convolution",
    "streaming",
    "gather",
)
"""Subjects of which depths are asked for, in place of what they are made with."""


@T.prim_func(s_tir=True)
def one_buffer(A: T.Buffer((64, 128), "float32"), B: T.Buffer((64, 128), "float32")) -> None:
    """Reads a shared buffer of the CTA, then overwrites it: nothing could have slots."""
    T.func_attr({"global_symbol": "one_buffer", "tirx.noalias": True})
    for _bx in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("cta"):
            S = T.sblock_alloc_buffer((128,), "float32", scope="shared")
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                with T.sblock("init"):
                    v = T.axis.spatial(128, tx)
                    S[v] = T.float32(7)
            for i in range(64):
                for tx in T.thread_binding(128, thread="threadIdx.x"):
                    with T.sblock("use"):
                        vi, v = T.axis.remap("SS", [i, tx])
                        B[vi, v] = S[127 - v] + T.float32(1)
                for tx in T.thread_binding(128, thread="threadIdx.x"):
                    with T.sblock("load"):
                        vi, v = T.axis.remap("SS", [i, tx])
                        S[v] = A[vi, v]


def sizes(func: Any) -> dict[str, int]:
    """Elements of every buffer that the function allocates, by its name."""
    found: dict[str, int] = {}

    def add(block: Any) -> None:
        for buf in block.alloc_buffers:
            extents = [ir.const_int(extent) or 0 for extent in buf.shape]
            found[str(buf.name)] = math.prod(extents)

    ir.walk(func.body, ir.SBlock, add)
    return found


def options_of(name: str) -> dict[str, Any]:
    return {key: value for key, value in SUBJECTS[name].options.items() if key != "depth"}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.part(9)
def test_a_depth_is_that_of_the_rings_in_the_code_or_refused(name: str) -> None:
    subject, options = SUBJECTS[name], options_of(name)
    func = subject.build()
    single = sizes(pipeliner.pipeline(func, subject.target, depth=1, **options))
    had = 0
    for depth in DEPTHS[1:]:
        try:
            done = pipeliner.pipeline(func, subject.target, depth=depth, **options)
        except PlanError as err:
            if not any(depth in reason.args.values() for reason in err.reason.walk()):
                raise
            continue
        had += 1
        loops = [loop for loop in pipeliner.plan_of(done).loops if loop.pipelined]
        rings = [ring for loop in loops for ring in loop.rings if ring.requested]
        assert rings
        for ring in rings:
            assert ring.depth == depth
            assert sizes(done)[ring.buffer] == depth * single[ring.buffer]
    assert had


@pytest.mark.part(12)
@pytest.mark.parametrize("name", [*SUBJECTS])
def test_plan_why_and_timeline_say_the_same(name: str) -> None:
    subject = SUBJECTS[name]
    func = subject.build()
    plan = pipeliner.plan_of(pipeliner.pipeline(func, subject.target, **subject.options))
    found = alternatives(
        func, pipeliner.targets.cuda_target(subject.target), Request(**subject.options)
    )
    assert found.predicted_us == plan.predicted_us
    for loop in found.depths:
        (chosen,) = [option for option in loop.depths if option.chosen]
        planned = plan.loop(loop.loop)
        depths = {r.depth for r in planned.rings if r.scope != "local" or "load" in r.buffer}
        if planned.pipelined and chosen.depth > 1:
            assert max(depths) == chosen.depth
        if len(found.depths) == 1 and not plan.elementwise:
            assert round(chosen.us or 0.0, 2) == plan.predicted_us
            assert the("choice.predicted", plan.reasons)["us"] == chosen.us
    (taken,) = (one for one in found.candidates if one.chosen)
    assert taken.us == (plan.predicted_us or None)
    for one in plan.loops:
        if one.pipelined:
            drawn = timeline(func, subject.target, loop=one.name, **subject.options)
            assert drawn.pipelined.loop == one
            assert (drawn.trip, drawn.pipelined.loop.ii) == (one.trip, one.ii)


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_where_nothing_could_have_slots_no_depth_is_had(depth: int) -> None:
    with refused("depth.not_allocated", PlanError, buffers=("S",)):
        pipeliner.pipeline(one_buffer, "a100", depth=depth)


def test_where_nothing_could_have_slots_none_are_predicted() -> None:
    plan = pipeliner.plan_of(pipeliner.pipeline(one_buffer, "a100"))
    assert not plan.pipelined
    assert says("pipelined.nothing_ahead", plan.loops[0].reasons[:1])
    found = alternatives(one_buffer, pipeliner.targets.cuda_target("a100"), Request())
    assert [option.us for option in found.depths[0].depths if option.chosen] == pytest.approx(
        [plan.predicted_us], abs=0.005
    )


@pytest.mark.parametrize("target", ["a100", "v100"])
def test_one_slot_is_one_step(target: str) -> None:
    (loop,) = pipeliner.plan_of(pipeliner.pipeline(one_buffer, target, depth=1)).loops
    assert loop.stages == 1


def test_a_mechanism_that_is_asked_for_is_had_where_a_loop_gains_nothing() -> None:
    subject = SUBJECTS["left alone"]
    plain = pipeliner.plan_of(pipeliner.pipeline(subject.build(), subject.target))
    asked = pipeliner.pipeline(subject.build(), subject.target, mechanism="cp_async")
    plan = pipeliner.plan_of(asked)
    assert {copied.mechanism for copied in plain.copies} == {"register"}
    assert {copied.mechanism for copied in plan.copies} == {"cp_async"}
    calls: list[str] = []
    ir.walk(asked.body, ir.Call, lambda call: calls.append(str(call.op)))
    assert any("wait" in name for name in calls)


def test_a_depth_beside_annotated_stages_is_refused() -> None:
    subject = SUBJECTS["annotated"]
    with refused("asked.depth", PlanError, asked=7, found=2):
        pipeliner.pipeline(subject.build(), subject.target, depth=7)


@T.prim_func(s_tir=True)
def masked(
    A: T.Buffer((64, 256), "float16"),
    B: T.Buffer((64, 256), "float16"),
    C: T.Buffer((64, 64), "float32"),
) -> None:
    """A product without the first columns of B, which are no edge of B."""
    T.func_attr({"global_symbol": "masked", "tirx.noalias": True})
    for _x in T.thread_binding(1, thread="blockIdx.x"):
        with T.sblock("cta"):
            acc = T.sblock_alloc_buffer((64, 64), "float32", scope="local")
            for i, j in T.grid(64, 64):
                with T.sblock("init"):
                    acc[i, j] = T.float32(0)
            for s in range(4):
                with T.sblock("step"):
                    A_shared = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                    B_shared = T.sblock_alloc_buffer((64, 64), "float16", scope="shared")
                    for i, d in T.grid(64, 64):
                        with T.sblock("A_shared"):
                            A_shared[i, d] = A[i, s * 64 + d]
                    for j, d in T.grid(64, 64):
                        with T.sblock("B_shared"):
                            B_shared[j, d] = T.if_then_else(
                                s * 64 + d >= 8, B[j, s * 64 + d], T.float16(0)
                            )
                    for i, j, d in T.grid(64, 64, 64):
                        with T.sblock("acc"):
                            acc[i, j] = acc[i, j] + T.Cast("float32", A_shared[i, d]) * T.Cast(
                                "float32", B_shared[j, d]
                            )
            for i, j in T.grid(64, 64):
                with T.sblock("C"):
                    C[i, j] = acc[i, j]


def test_roles_that_cannot_be_had_name_the_copy_that_no_producer_issues() -> None:
    with refused("asked.no_box", PlanError, copy="B_shared") as caught:
        pipeliner.pipeline(masked, "h100", roles=1)
    assert the("tma.mask", [caught.value.reason])["buffer"] == "B"
    assert not pipeliner.plan_of(pipeliner.pipeline(masked, "h100")).roles
