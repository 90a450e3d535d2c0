"""A plan that says otherwise than the code is an error: one field at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tvm

import pipeliner
from pipeliner.plan import PLAN_ATTR, KernelPlan
from pipeliner.proof.proof import Proof
from pipeliner.proof.prove import prove
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm

from ..corpus.generated import CASES as GENERATED

Edit = Callable[[KernelPlan], KernelPlan]


@pytest.fixture(scope="module")
def by_roles() -> Any:
    schedule = schedule_gemm(Gemm(m=64, n=16, k=256), GemmTile(64, 16, 64))
    options = {"instruction": "wgmma", "roles": 1, "mechanism": "tma", "store": "direct"}
    return pipeliner.build(schedule, "h100", depth=2, **options)


@pytest.fixture(scope="module")
def by_groups() -> Any:
    schedule = schedule_gemm(Gemm(m=32, n=32, k=128), GemmTile(32, 32, 32))
    return pipeliner.build(schedule, "a100", depth=3)


def proof_with(kernel: Any, edit: Edit) -> Proof:
    """The proof of a kernel whose plan was edited behind the passes' back."""
    text = edit(kernel.plan).to_json()
    changed = {
        var: func.with_attr(PLAN_ATTR, text) if PLAN_ATTR in func.attrs else func
        for var, func in kernel.lowered.functions.items()
    }
    return prove(tvm.IRModule(changed))


def ring_of(plan: KernelPlan, more: int) -> KernelPlan:
    (loop,) = plan.loops
    rings = tuple(replace(ring, depth=ring.depth + more) for ring in loop.rings)
    return replace(plan, loops=(replace(loop, rings=rings),))


def arrivals(plan: KernelPlan) -> KernelPlan:
    pairs = tuple(replace(pair, arrivals=pair.arrivals + 1) for pair in plan.mbarriers)
    return replace(plan, mbarriers=pairs)


ROLES: list[tuple[Edit, str]] = [
    (lambda plan: replace(plan, threads=plan.threads + 128), "proof.plan_threads"),
    (lambda plan: replace(plan, cluster=2), "proof.plan_cluster"),
    (lambda plan: replace(plan, smem=replace(plan.smem, bytes=1024)), "proof.plan_bytes"),
    (lambda plan: ring_of(plan, -1), "proof.plan_slots"),
    (arrivals, "proof.plan_arrivals"),
    (lambda plan: replace(plan, sync=replace(plan.sync, barriers=9)), "proof.plan_barriers"),
]


@pytest.mark.parametrize(("edit", "code"), ROLES, ids=[code for _, code in ROLES])
def test_a_field_that_the_code_contradicts(by_roles: Any, edit: Edit, code: str) -> None:
    found = proof_with(by_roles, edit)
    assert not found.ok
    assert found.refuted is None  # the code is right: the plan is not
    assert {reason.code for reason in found.disagreements} == {code}
    assert found.wrong[0].has(code)


def test_waits_that_leave_more_in_flight_than_planned(by_groups: Any) -> None:
    def edit(plan: KernelPlan) -> KernelPlan:
        return replace(plan, sync=replace(plan.sync, waits=("wait_group 5",)))

    (reason,) = proof_with(by_groups, edit).disagreements
    assert reason.code == "proof.plan_waits"
    assert reason["planned"] == (5,)


def test_what_the_passes_say_is_what_they_made(by_roles: Any, by_groups: Any) -> None:
    for kernel in (by_roles, by_groups):
        found = proof_with(kernel, lambda plan: plan)
        assert found.ok
        assert found.disagreements == ()


def test_a_slot_more_than_there_is_memory_for(by_groups: Any) -> None:
    found = proof_with(by_groups, lambda plan: ring_of(plan, 1))
    assert {reason.code for reason in found.disagreements} == {"proof.plan_slots"}


def test_a_loop_of_fewer_iterations_than_slots_fills_as_many() -> None:
    schedule = schedule_gemm(Gemm(m=32, n=32, k=32), GemmTile(32, 32, 32))
    found = proof_with(pipeliner.build(schedule, "a100", depth=3), lambda plan: plan)
    assert found.disagreements == ()


def test_rows_that_are_padded_are_no_slot_more() -> None:
    (case,) = (case for case in GENERATED if case.name == "dlight_matmul_fp16_wmma")
    kernel = pipeliner.build(case.build(), case.arch)
    rings = {ring.buffer: ring for loop in kernel.plan.loops for ring in loop.rings}
    (place, *_) = (one for one in kernel.plan.smem.buffers if one.buffer in rings)
    ring = rings[place.buffer]
    assert place.bytes > ring.depth * ring.slot_bytes
    assert proof_with(kernel, lambda plan: plan).disagreements == ()


def test_a_second_kernel_has_granules_of_its_own() -> None:
    """That which adds up the parts writes other sizes than that which multiplies."""
    schedule = schedule_gemm(Gemm(m=64, n=16, k=512), GemmTile(64, 16, 64, splits=2))
    asked: dict[str, Any] = {"depth": 2, "instruction": "wgmma", "mechanism": "tma"}
    kernel = pipeliner.build(schedule, "h100", **asked, reduction="workspace")
    found = proof_with(kernel, lambda plan: plan)
    assert len(found.kernels) == 2
    assert found.disagreements == ()
