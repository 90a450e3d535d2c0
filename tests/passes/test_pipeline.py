"""The driver: requests honoured or refused, automatic choices declined with a reason, steps seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.choice.planned import PlannedKernel, planned
from pipeliner.diagnostics import Reason
from pipeliner.errors import InternalError, PlanError, ScheduleRefused
from pipeliner.machine import A100
from pipeliner.passes import pipeline as driver
from pipeliner.passes.prepare.pinned_rings import pin_rings, unpin_rings
from pipeliner.passes.schedule import loops
from pipeliner.passes.software_pipeline import SoftwarePipeline
from pipeliner.plan import KernelPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.space import candidates

from ..corpus.loops import CASES as LOOPS
from ..refusals import refused, says, the
from . import arena_kernels, ring_kernels, sync_kernels
from .lowering_tools import TARGET, data, prepared, run, text


def pipelined(func: Any, **options: Any) -> tuple[Any, KernelPlan]:
    """``func`` through SoftwarePipeline, and its plan."""
    with TARGET:
        mod = SoftwarePipeline(**options)(tvm.IRModule({"main": func}))
    return mod["main"], pipeliner.plan_of(mod["main"])


def reversed_by(func: Any, rows: int, *more: Any) -> None:
    source = data(rows, 64)
    emulation = run(func, [source, np.zeros_like(source), *more])
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    np.testing.assert_array_equal(emulation.outputs["C"], source[:, ::-1])


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
@pytest.mark.part(2)
def test_the_depth_that_is_asked_for_is_made(depth: int, trips: int) -> None:
    func, plan = pipelined(ring_kernels.one_slot, depth=depth)
    assert plan.loops[0].ring("S").depth == depth
    assert plan.smem.bytes == depth * 256
    reversed_by(func, trips, trips)


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("mechanism", ["cp_async", "register"])
def test_one_barrier_a_step_from_two_slots_on(depth: int, mechanism: str) -> None:
    _, plan = pipelined(ring_kernels.one_slot, depth=depth, mechanism=mechanism)
    assert plan.sync.barriers_in_steady == plan.loops[0].unroll


def test_a_depth_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with refused("depth.smem", PlanError, smem=294912, most=166912):
        pipelined(arena_kernels.large_tiles, depth=9)


def test_an_automatic_plan_that_does_not_fit_is_declined_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = dataclasses.replace(A100, smem_per_cta=300)
    monkeypatch.setattr(driver, "machine_for", lambda target: small)
    monkeypatch.setattr(candidates, "planned", planned_deep)
    done = driver.pipeline_function(prepared(ring_kernels.one_slot), TARGET, Request())
    plan = pipeliner.plan_of(done)
    assert not plan.pipelined
    assert plan.smem.bytes == 256
    (reason,) = plan.loops[0].reasons
    full = the("smem.full", [reason])
    assert (full["kernel"], full["nbytes"], full["budget"]) == ("main", 1024, 300)
    assert full["buffers"] == (Reason("smem.buffer", buffer="S", nbytes=1024),)
    reversed_by(done, 5, 5)


@pytest.mark.parametrize(
    ("gemm", "arch", "instruction"),
    [
        (Gemm(256, 256, 256, dtype="fp32"), "sm_80", "auto"),
        (Gemm(256, 256, 256, dtype="fp32", layout="TT"), "sm_90", "auto"),
        (Gemm(256, 256, 256), "sm_90", "mma"),
        (Gemm(256, 256, 256, dtype="bf16"), "sm_75", "auto"),
    ],
    ids=str,
)
@pytest.mark.part(2)
def test_rings_are_planned_with_the_bytes_that_they_take(
    gemm: Gemm, arch: str, instruction: Any
) -> None:
    func = schedule_gemm(gemm, GemmTile(64, 64, 32))
    plan = pipeliner.plan_of(pipeliner.pipeline(func, arch, depth=2, instruction=instruction))
    rings = [ring for loop in plan.loops for ring in loop.rings if ring.scope.startswith("shared")]
    assert {ring.depth for ring in rings} == {2}
    assert sum(ring.depth * ring.slot_bytes for ring in rings) == plan.smem.bytes


def test_a_depth_that_only_padding_keeps_out_is_refused_before_anything_is_built() -> None:
    func = schedule_gemm(Gemm(256, 256, 512, dtype="fp32"), GemmTile(64, 64, 64))
    with refused("depth.smem", PlanError, smem=174080):
        pipeliner.pipeline(func, "sm_80", depth=5)


def test_an_epilogue_with_nothing_to_clamp_is_refused() -> None:
    with refused("clamped.kernel", PlanError):
        pipelined(ring_kernels.one_slot, depth=2, mechanism="register", epilogue="clamped")


def test_a_loop_that_cannot_be_scheduled_leaves_its_sibling_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = loops.schedule_loop

    def without_j(graph: Any, loop: Any, machine: Any, **options: Any) -> Any:
        if loop.name == "j":
            raise ScheduleRefused("schedule.op_names", loop="j")
        return schedule(graph, loop, machine, **options)

    monkeypatch.setattr(loops, "schedule_loop", without_j)
    case = next(case for case in LOOPS if case.name == "siblings")
    func, plan = pipelined(case.build())
    by_name = {loop.name: loop for loop in plan.loops}
    assert by_name["i"].pipelined
    assert by_name["j"].reasons == (Reason("schedule.op_names", loop="j"),)
    assert {copy.dst: copy.mechanism for copy in plan.copies} == {"A_shared": "cp_async"}
    inputs = case.inputs(np.random.default_rng(0))
    emulation = run(func, {**inputs, "C": np.zeros(64, np.float32)})
    assert not emulation.hazards
    np.testing.assert_allclose(emulation.outputs["C"], case.reference(inputs)["C"], rtol=1e-5)


def planned_deep(info: Any, machine: Any, request: Request) -> PlannedKernel:
    """What would be planned for a GPU with more shared memory, depth 4."""
    deep = planned(info, A100, Request(depth=4))
    loops = tuple(dataclasses.replace(loop, source="auto") for loop in deep.plan.loops)
    return dataclasses.replace(deep, plan=dataclasses.replace(deep.plan, loops=loops))


def test_a_marked_function_passes_unchanged() -> None:
    func, _ = pipelined(ring_kernels.one_slot)
    assert driver.pipeline_function(func, TARGET, Request(depth=2)) is func


def test_an_edited_plan_is_obeyed() -> None:
    _, plan = pipelined(ring_kernels.one_slot, depth=2)
    func, edited = pipelined(ring_kernels.one_slot, plan=plan.with_depth("S", 4))
    assert edited.loops[0].ring("S").depth == 4
    reversed_by(func, 6, 6)


def test_an_edited_plan_that_breaks_an_edge_is_refused() -> None:
    _, plan = pipelined(ring_kernels.one_slot, depth=2)
    loop = plan.loops[0]
    first, last = loop.ops[0], max(loop.ops, key=lambda op: op.stage)
    broken = plan.with_op(loop.name, last.name, stage=0, order=-1).with_op(
        loop.name, first.name, stage=3, order=first.order
    )
    with refused("schedule.read_before_wait", ScheduleRefused, buffer="S"):
        pipelined(ring_kernels.one_slot, plan=broken)


def test_copies_to_a_virtual_threads_own_buffer_are_stores() -> None:
    func, plan = pipelined(sync_kernels.virtual_threads, depth=2)
    assert [copy.mechanism for copy in plan.copies] == ["register"]
    assert says("copy.vthread", [plan.copies[0].reason])
    source = data(8, 128)
    emulation = run(func, [source, np.zeros_like(source)])
    assert not emulation.hazards
    expected = np.concatenate([source[:, 63::-1], source[:, :63:-1]], axis=1)
    np.testing.assert_array_equal(emulation.outputs["C"], expected)


def test_every_step_is_seen_by_tvms_instruments() -> None:
    seen: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, mod: Any, info: Any) -> None:
            seen.append(str(info.name))

    with tvm.transform.PassContext(instruments=[Names()]):
        pipelined(ring_kernels.one_slot, depth=2)
    steps = ["Recognise", "MapTiles", "LowerCopies", "Modulo", "Expand", "Place", "Synchronise"]
    assert [name for name in seen if name.removeprefix("pipeliner.") in steps] == [
        f"pipeliner.{step}" for step in steps
    ]


def test_internal_errors_say_so_once() -> None:
    once = InternalError("cannot be")
    assert str(InternalError(str(once))) == str(once) == "cannot be; this is a bug in pipeliner"


# Rings of the user.


@T.prim_func(s_tir=True)
def delayed(A: T.Buffer((16, 64), "float32"), C: T.Buffer((16, 64), "float32")):
    """C[k] is A[k - 3], kept in a ring of four slots that only the loop uses."""
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("kernel"):
                S = T.sblock_alloc_buffer((4, 64), "float32", scope="shared")
                for k in range(16):
                    S[k % 4, tx] = A[k, tx]
                    if k >= 3:
                        C[k, tx] = S[(k + 1) % 4, 63 - tx]


def test_a_ring_of_the_user_keeps_what_it_carries() -> None:
    source = data(16, 64)
    emulation = run(delayed, [source, np.zeros_like(source)])
    assert not emulation.hazards, "\n".join(map(str, emulation.hazards))
    np.testing.assert_array_equal(emulation.outputs["C"][3:], source[:13, ::-1])


def test_only_rings_are_pinned() -> None:
    assert pin_rings(ring_kernels.one_slot).same_as(ring_kernels.one_slot)
    assert pin_rings(ring_kernels.waits_first).same_as(ring_kernels.waits_first)
    pinned = pin_rings(delayed)
    assert "pipeliner.pinned" in pinned.script()
    assert text(unpin_rings(pinned)) == text(delayed)
