"""The KernelPlan: JSON round trip, editing, refusals."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.errors import PlanError, ScheduleRefused
from pipeliner.plan import (
    PLAN_VERSION,
    CopyPlan,
    EdgePlan,
    KernelPlan,
    LoopPlan,
    MatmulPlan,
    OpPlan,
    RingPlan,
    SmemBuffer,
    SmemPlan,
    SyncPlan,
)
from pipeliner.values.op import Op
from tests.refusals import refused

RING = RingPlan("A_shared", "shared", 3, 4096, ("A_shared",), ("mma",))
LOOP = LoopPlan(
    "ko",
    "64",
    True,
    ops=(
        OpPlan(Op("A_shared"), "copy", "A_shared", "l2", 600, 100),
        OpPlan(Op("mma"), "mma", "C_update", "tensor", 400, 400, cycle=700, stage=2, order=1),
    ),
    edges=(EdgePlan("A_shared", "mma", "RAW", "A_shared", 0, "cp.async group"),),
    rings=(RING,),
    ii=400,
)
PLAN = KernelPlan(
    "gemm",
    "sm_80",
    "A100 SXM4",
    threads=128,
    loops=(LOOP, LoopPlan("j", "8", False, reasons=("no global load",))),
    copies=(CopyPlan("A_shared", "A", "A_shared", (128, 32), "cp_async", 16, "swizzle-64B"),),
    smem=SmemPlan(12288, 166912, (SmemBuffer("A_shared", 0, 12288, 128),)),
    sync=SyncPlan(2, 1, ("A_shared.wait: 1",)),
    predicted_us=12.5,
)

names = st.text("abcAB_.019", min_size=1, max_size=8)
numbers = st.integers(0, 1 << 20)
texts = st.text(max_size=12)
ops = st.sampled_from([Op("A"), Op("A", "load"), Op("A", chunk=1), Op("C", "a", k_step=3)])


def instances(cls, /, **fields):
    """Random values of a plan's dataclass; ``fields`` where the type alone says too little."""
    hints = {field.name: field.type for field in dataclasses.fields(cls)}
    simple = {"str": texts, "int": numbers, "bool": st.booleans(), "tuple[str, ...]": strings}
    simple |= {"Op": ops, "tuple[Op, ...]": tuples(ops)}
    drawn = {name: simple[hint] for name, hint in hints.items() if hint in simple}
    return st.builds(cls, **{**drawn, **fields})


strings = st.lists(texts, max_size=3).map(tuple)


def tuples(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


pairs = st.tuples(numbers, numbers)
loops = instances(
    LoopPlan,
    name=names,
    ops=tuples(
        instances(
            OpPlan,
            kind=st.sampled_from(["copy", "load", "store", "wait", "mma", "compute", "opaque"]),
            pipe=st.sampled_from(["lsu", "l2", "tma", "tensor", "fma", "alu", "sfu", "sync"]),
        )
    ),
    edges=tuples(instances(EdgePlan, kind=st.sampled_from(["RAW", "WAR", "WAW"]))),
    rings=tuples(instances(RingPlan)),
    epilogue=st.sampled_from(["rolled", "peeled"]),
    source=st.sampled_from(["auto", "request", "annotation", "edited"]),
)
plans = instances(
    KernelPlan,
    loops=tuples(loops),
    copies=tuples(
        instances(
            CopyPlan,
            tile=tuples(numbers),
            mechanism=st.sampled_from(["direct", "register", "cp_async"]),
        )
    ),
    matmuls=tuples(instances(MatmulPlan, warps=pairs, warp_tile=pairs, thread_tile=pairs)),
    smem=instances(SmemPlan, buffers=tuples(instances(SmemBuffer))),
    sync=instances(SyncPlan),
    predicted_us=st.floats(0, 1e9),
)


@given(plans)
def test_json_gives_an_equal_plan_back(plan):
    assert KernelPlan.from_json(plan.to_json()) == plan
    assert KernelPlan.from_json(plan.to_json(indent=2)) == plan


@given(plans)
def test_a_plan_is_a_value(plan):
    assert hash(plan) == hash(KernelPlan.from_json(plan.to_json()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.kernel = "other"


def test_a_whole_number_is_a_time_too():
    data = {**json.loads(PLAN.to_json()), "predicted_us": 12}
    assert KernelPlan.from_json(json.dumps(data)).predicted_us == 12.0


def broken(**changes):
    return json.dumps({**json.loads(PLAN.to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "code", "args"),
    [
        ("{", "plan.no_json", {}),
        ("[]", "plan.version", {"version": PLAN_VERSION}),
        (broken(version=0), "plan.version", {"version": PLAN_VERSION}),
        (broken(colour="red"), "plan.unknown_field", {"name": "colour", "where": "plan"}),
        (
            broken(threads="many"),
            "plan.type",
            {"expected": "int", "where": "plan.threads", "value": "'many'"},
        ),
        (broken(threads=True), "plan.type", {"where": "plan.threads", "value": "True"}),
        (broken(loops={}), "plan.type", {"expected": "a list", "where": "plan.loops"}),
        (broken(smem=3), "plan.type", {"expected": "an object", "where": "plan.smem"}),
        (broken(loops=[{"name": "k"}]), "plan.fields", {"where": "plan.loops[0]"}),
        (
            broken(loops=[{"name": "k", "trip": "1", "pipelined": True, "epilogue": "folded"}]),
            "plan.choice",
            {"choices": ("rolled", "clamped", "peeled"), "where": "plan.loops[0].epilogue"},
        ),
    ],
)
def test_a_broken_plan_is_refused_with_its_place(text, code, args):
    with refused(code, PlanError, **args) as error:
        KernelPlan.from_json(text)
    assert "\n" not in str(error.value)


def test_editing_a_depth_leaves_the_old_plan_alone():
    edited = PLAN.with_depth("A_shared", 4)
    assert edited.loop("ko").ring("A_shared").depth == 4
    assert edited.loop("ko").ring("A_shared").requested
    assert edited.loop("ko").source == "request"
    assert PLAN.loop("ko").ring("A_shared") == RING
    assert edited.loop("j") == PLAN.loop("j")


def test_editing_an_op_marks_the_loop():
    edited = PLAN.with_op("ko", "mma", stage=1, order=0)
    assert (edited.loop("ko").op("mma").stage, edited.loop("ko").op("mma").order) == (1, 0)
    assert edited.loop("ko").source == "edited"
    assert edited.loop("ko").stages == 2


@pytest.mark.parametrize(
    ("edit", "code", "args"),
    [
        (
            lambda: PLAN.with_depth("A_shared", 0),
            "plan.no_slot",
            {"ring": "A_shared", "depth": 0},
        ),
        (
            lambda: PLAN.with_depth("D", 2),
            "plan.no_ring",
            {"ring": "D", "kernel": "gemm", "known": ("A_shared",)},
        ),
        (
            lambda: PLAN.with_op("ko", "B_shared", stage=0, order=0),
            "plan.not_found",
            {"what": "op", "name": "B_shared", "where": "ko", "known": ("A_shared", "mma")},
        ),
        (
            lambda: PLAN.loop("kk"),
            "plan.not_found",
            {"what": "loop", "name": "kk", "where": "gemm", "known": ("ko", "j")},
        ),
    ],
)
def test_an_edit_that_names_nothing_says_what_there_is(edit, code, args):
    with refused(code, PlanError, **args):
        edit()


def test_stages_and_pipelined_follow_from_the_parts():
    assert PLAN.pipelined
    assert PLAN.loop("ko").stages == 3
    assert PLAN.loop("j").stages == 1
    assert not dataclasses.replace(PLAN, loops=(PLAN.loop("j"),)).pipelined


def test_a_refused_schedule_is_a_plan_error():
    assert issubclass(ScheduleRefused, PlanError)
