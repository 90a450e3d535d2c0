"""A plan that is handed in is obeyed in every field, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import pipeliner
from pipeliner import KernelPlan
from pipeliner.errors import PlanError
from pipeliner.plan.comparing import ESTIMATES, WORDS, difference
from pipeliner.schedules import GemmTile, schedule_gemm
from pipeliner.schedules.workloads import Gemm

from ..refusals import refused
from ..verify.edited_plans import ATTR, SUBJECTS, ready

Edit = Callable[[dict[str, Any]], None]


@cache
def scheduled() -> Any:
    return schedule_gemm(Gemm(64, 64, 256), GemmTile(64, 64, 32))


def planned() -> dict[str, Any]:
    func = pipeliner.pipeline(scheduled(), "a100", depth=3)
    plan: dict[str, Any] = json.loads(str(func.attrs[ATTR]))
    return plan


def obey(plan: dict[str, Any], **options: Any) -> Any:
    given = KernelPlan.from_json(json.dumps(plan))
    return pipeliner.pipeline(scheduled(), "a100", plan=given, **options)


def in_loop(**fields: Any) -> Edit:
    return lambda plan: plan["loops"][0].update(fields)


def in_op(**fields: Any) -> Edit:
    return lambda plan: plan["loops"][0]["ops"][0].update(fields)


def in_ring(**fields: Any) -> Edit:
    return lambda plan: plan["loops"][0]["rings"][0].update(fields)


def in_copy(**fields: Any) -> Edit:
    return lambda plan: plan["copies"][0].update(fields)


def in_matmul(**fields: Any) -> Edit:
    return lambda plan: plan["matmuls"][0].update(fields)


def without_waits(plan: dict[str, Any]) -> None:
    loop = plan["loops"][0]
    loop["ops"] = [op for op in loop["ops"] if op["kind"] != "wait"]


def by_direct_stores(plan: dict[str, Any]) -> None:
    """With a schedule whose waits would wait for nothing."""
    for copied in plan["copies"]:
        copied["mechanism"] = "direct"


Told = tuple[str, dict[str, Any]]
"""The code of a reason, and some of its arguments."""


def told(code: str, **args: Any) -> Told:
    """That a reason with this code and these arguments, among others, is given."""
    return code, args


def differs(where: str, value: object, expected: object) -> Told:
    """That a field of the plan is ``value``, and would have been made as ``expected``."""
    shown = {"value": repr(value), "expected": repr(expected)}
    return told("difference.value", where=f"plan.{where}", **shown)


REFUSED: dict[str, tuple[Edit, Told]] = {
    "stage": (in_op(stage=99), told("schedule.dependence", after="A_shared", iteration="i")),
    "negative": (
        in_op(stage=-1),
        told("schedule.stage", loop="k_0", op="A_shared", stage=-1),
    ),
    "steps": (in_op(stage=10**9), told("size.stages", loop="k_0", stages=10**9 + 1, most=256)),
    "kind": (in_op(kind="store"), differs("loops[0].ops[0].kind", "store", "copy")),
    "block": (in_op(block="B_shared"), differs("loops[0].ops[0].block", "B_shared", "A_shared")),
    "role": (in_op(role="producer"), differs("loops[0].ops[0].role", "producer", "all")),
    "shallow": (in_ring(depth=1), told("ring.overwritten", needed=2, depth=1)),
    "deep": (in_ring(depth=7), told("obeyed.follows", field="smem")),
    "nothing": (in_ring(depth=0), told("plan.no_slot", ring="A_shared", depth=0)),
    "slot": (in_ring(slot_bytes=16), differs("loops[0].rings[0].slot_bytes", 16, 4096)),
    "readers": (
        in_ring(consumers=[]),
        told("difference.value", where="plan.loops[0].rings[0].consumers", value="()"),
    ),
    "waits": (without_waits, told("schedule.read_before_wait", copy="A_shared")),
    "trip": (in_loop(trip="7"), differs("loops[0].trip", "7", "8")),
    "unroll": (
        in_loop(unroll=1000),
        told("size.unroll", loop="k_0", unroll=1000, most=256),
    ),
    "unrolled": (in_loop(unroll=3), differs("loops[0].unroll", 3, 1)),
    "source": (in_loop(source="annotation"), told("decided.annotation", loop="k_0")),
    "alone": (in_loop(pipelined=False), told("decided.not_waited", copy="A_shared")),
    "nameless": (in_loop(name="i"), told("plan.not_found", what="loop", name="k_0")),
    "register": (
        in_copy(mechanism="register"),
        told("schedule.op_lacks", loop="k_0", op="A_shared.load"),
    ),
    "direct": (by_direct_stores, told("schedule.waits_for_none", op="A_shared.wait")),
    "tma": (in_copy(mechanism="tma"), told("box.machine", machine="A100 SXM4", arch="sm_80")),
    "width": (in_copy(vector_bytes=32), differs("copies[0].vector_bytes", 32, 16)),
    "no power of two": (in_copy(vector_bytes=12), differs("copies[0].vector_bytes", 12, 16)),
    "less than an element": (in_copy(vector_bytes=1), differs("copies[0].vector_bytes", 1, 16)),
    "layout": (in_copy(layout=""), differs("copies[0].layout", "", "swizzle-64B")),
    "chunks": (in_copy(chunks=2), differs("copies[0].chunks", 2, 1)),
    "multicast": (in_copy(multicast=2), differs("copies[0].multicast", 2, 1)),
    "eviction": (in_copy(eviction="evict_first"), told("eviction.refused", copy="A_shared")),
    "in flight": (in_matmul(in_flight=5), differs("matmuls[0].in_flight", 5, 0)),
    "warps": (in_matmul(warps=[3, 1]), told("mapping.asked_warps", warps=(3, 1))),
    "dtype": (in_matmul(dtype="int8"), differs("matmuls[0].dtype", "int8", "float16")),
    "wgmma": (
        in_matmul(instruction="wgmma.m64n64k16.f16.f32"),
        told("wgmma.machine", arch="sm_80"),
    ),
    "threads": (lambda plan: plan.update(threads=7), differs("threads", 7, 128)),
    "cluster": (lambda plan: plan.update(cluster=2), told("cluster.no_tma")),
    "target": (lambda plan: plan.update(target="sm_90"), differs("target", "sm_90", "sm_80")),
    "kernel": (
        lambda plan: plan.update(kernel="main"),
        told("difference.value", where="plan.kernel", value="'main'"),
    ),
    "launch": (
        lambda plan: plan["launch"].update(pdl=True),
        told("launch.pdl", machine="A100 SXM4"),
    ),
    "arena": (lambda plan: plan["smem"].update(bytes=5), differs("smem.bytes", 5, 24576)),
    "barriers": (
        lambda plan: plan["sync"].update(barriers=0),
        told("obeyed.follows", field="sync"),
    ),
    "copies": (
        lambda plan: plan.update(copies=[]),
        told("difference.entries", where="plan.copies", entries=0, expected=2),
    ),
    "loops": (lambda plan: plan.update(loops=[]), told("plan.not_found", what="loop", name="k_0")),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["auto", "edited"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_is_wrong_is_refused_whoever_wrote_it(name: str, source: str) -> None:
    edit, why = REFUSED[name]
    plan = planned()
    plan["loops"][0]["source"] = source
    edit(plan)
    with refused(why[0], **dict(why[1])) as err:
        obey(plan)
    assert len(str(err.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.part(6)
def test_a_plan_handed_back_is_the_same_kernel(name: str) -> None:
    known = ready(name)
    plan = pipeliner.plan_of(known.done)
    again = pipeliner.pipeline(known.func, SUBJECTS[name].target, plan=plan)
    assert tvm_ffi.structural_equal(again.without_attr(ATTR), known.done.without_attr(ATTR))
    assert difference(plan, pipeliner.plan_of(again), "plan", frozenset()) is None


def test_what_follows_may_be_left_out() -> None:
    plan = planned()
    for part in ("smem", "sync", "mbarriers"):
        del plan[part]
    made = pipeliner.plan_of(obey(plan))
    assert made.smem.bytes == 24576
    assert made.sync.barriers_in_steady == 2


def test_a_ring_that_is_deeper_is_had() -> None:
    plan = planned()
    in_ring(depth=4)(plan)
    del plan["smem"]
    made = pipeliner.plan_of(obey(plan))
    assert made.loops[0].rings[0].depth == 4
    assert made.smem.bytes == 28672


def test_estimates_and_words_decide_nothing() -> None:
    plan = planned()
    said = json.dumps(plan)
    for part in (plan, plan["loops"][0], *plan["loops"][0]["ops"], *plan["copies"]):
        part.update(dict.fromkeys(part.keys() & ESTIMATES - {"pipe", "limiter", "machine"}, 77))
        part.update(dict.fromkeys(part.keys() & WORDS - {"reasons"}, "so I say"))
    made = pipeliner.plan_of(obey(plan))
    assert made.predicted_us == json.loads(said)["predicted_us"]
    assert {op.latency for op in made.loops[0].ops} == {
        op["latency"] for op in json.loads(said)["loops"][0]["ops"]
    }
    assert {copied.reason for copied in made.copies} == {"so I say"}


def test_nothing_else_may_be_asked_beside_a_plan() -> None:
    with refused("obeyed.asked", PlanError, options=("depth", "mechanism")):
        obey(planned(), depth=2, mechanism="register")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{}", "plan.version"),
        ("[]", "plan.version"),
        ("7", "plan.version"),
        ("", "plan.no_json"),
        ('{"version": 1e999}', "plan.version"),
        ("1" + "0" * 5000, "plan.no_json"),
    ],
    ids=["object", "list", "number", "nothing", "version", "digits"],
)
def test_what_is_no_plan_is_said_to_be_none(text: str, code: str) -> None:
    with refused(code, PlanError) as err:
        KernelPlan.from_json(text)
    assert len(str(err.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [8, 4, 2])
@pytest.mark.parametrize("name", ["mma.sync", "through registers", "wgmma, cp.async"])
@pytest.mark.part(9)
def test_fewer_bytes_at_once_are_had(name: str, width: int) -> None:
    known = ready(name)
    plan = json.loads(json.dumps(known.plan))
    for part in ("smem", "sync", "mbarriers"):
        del plan[part]
    for copied in plan["copies"]:
        copied["vector_bytes"] = width
    if width == 2 and name != "through registers":
        with refused("cp_async.vector", PlanError, nbytes=2):
            pipeliner.pipeline(
                known.func, SUBJECTS[name].target, plan=KernelPlan.from_json(json.dumps(plan))
            )
        return
    given = KernelPlan.from_json(json.dumps(plan))
    kernel = pipeliner.build(known.func, SUBJECTS[name].target, plan=given)
    assert {copied.vector_bytes for copied in kernel.plan.copies} == {width}
    if name != "through registers":
        assert "cp.async.ca.shared.global" in kernel.cuda
        assert "cp.async.cg.shared.global" not in kernel.cuda
    result = kernel.emulate(*known.arguments)
    assert not result.hazards
    for output, want in known.outputs.items():
        np.testing.assert_array_equal(result.outputs[output], want)
