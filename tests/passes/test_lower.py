"""The registered pipeline: TVM's list but for named exceptions, right for whatever is in a module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.target import Target

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.errors import LoweringError, TargetError
from pipeliner.passes.lower import PIPELINE, pipeline
from pipeliner.passes.software_pipeline import SoftwarePipeline
from pipeliner.plan import PLAN_ATTR

from ..refusals import gives, refused, says
from . import arena_kernels, ring_kernels, sync_kernels
from .lowering_tools import TARGET, cuda, data, run

DROPPED = {
    "s_tir.ManifestSharedMemoryLocalStage": "copies through registers are a mechanism of ours",
    "s_tir.InjectPermutedLayout": "layouts without bank conflicts are chosen with the instruction",
    "s_tir.InjectSoftwarePipeline": "the slot: ours stands here",
    "s_tir.InjectDoubleBuffer": "rings are expanded in the slot",
    "s_tir.LowerAsyncDMA": "a Hexagon pass that breaks CUDA copies",
    "s_tir.ThreadSync": "barriers are placed in the slot (warp memory keeps TVM's)",
    "s_tir.InjectPTXAsyncCopy": "asynchronous copies are lowered in the slot, aligned or not at all",
    "s_tir.MergeSharedMemoryAllocations": "the arena is planned before the barriers",
    "tirx.CommonSubexprElim": "device functions get it behind the last pass that simplifies",
}
ADDED = {"pipeliner.ApplyArena", "pipeliner.CheckArguments", "pipeliner.TakeAddresses"}


@tvm.ir.instrument.pass_instrument
class Names:
    """The passes that run, one by one."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run_before_pass(self, mod: Any, info: Any) -> None:
        self.names.append(str(info.name))


def passes_of(name: str, func: Any, target: Any = TARGET) -> list[str]:
    """Names of the passes that pipeline ``name`` runs on ``func``, without wrappers of others."""
    seen = Names()
    with (
        target,
        tvm.transform.PassContext(instruments=[seen], config={"tirx.use_async_copy": True}),
    ):
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        mod = tirx.transform.BindTarget(target.with_host("llvm"))(mod)
        tirx.get_tir_pipeline(name)[0](mod)
    wrappers = (
        "sequential",
        "_pipeline",
        PIPELINE,
        "pipeliner.Slot",
        "pipeliner.Unmarked",
        "pipeliner.Marked",
    )
    return [n for n in seen.names if n not in wrappers and n != "tirx.BindTarget"]


# The list.


def test_our_list_is_tvms_but_for_the_named_passes() -> None:
    stock = passes_of("s_tir", ring_kernels.one_slot)
    ours = [n for n in passes_of(PIPELINE, ring_kernels.one_slot) if not n.startswith("pipeliner.")]
    kept = [name for name in stock if name not in DROPPED]
    assert [name for name in ours if name != "s_tir.ThreadSync"] == kept
    assert set(DROPPED) <= set(stock)
    assert ours.count("s_tir.ThreadSync") == 1
    assert stock.count("s_tir.ThreadSync") == 3


def test_the_arena_stands_before_the_pass_that_would_reuse_it() -> None:
    ours = passes_of(PIPELINE, ring_kernels.one_slot)
    own = {n for n in ours if n.startswith("pipeliner.")}
    assert own >= ADDED
    assert ours.index("pipeliner.ApplyArena") + 1 == ours.index("tirx.StorageRewrite")


@pytest.mark.parametrize(
    ("func", "target"),
    [
        (arena_kernels.on_the_cpu, Target("llvm")),
        (arena_kernels.on_the_cpu, TARGET),
        (ring_kernels.one_slot, Target({"kind": "opencl", "host": "llvm"})),
    ],
    ids=["cpu", "unscheduled", "opencl"],
)
def test_what_is_not_ours_gets_tvms_list(func: Any, target: Any) -> None:
    ours = [n for n in passes_of(PIPELINE, func, target) if n not in ADDED]
    assert ours == passes_of("s_tir", func, target)


def test_registration_is_by_name_and_may_happen_twice() -> None:
    tirx.register_tir_pipeline(PIPELINE, pipeline)
    assert tirx.get_tir_pipeline(PIPELINE)[0] is not None


# Once, twice, in two steps.

EVERY_KIND = [
    ring_kernels.waits_first,
    ring_kernels.one_slot,
    ring_kernels.stores_ahead,
    sync_kernels.uniform_condition,
    sync_kernels.virtual_threads,
    arena_kernels.two_kernels,
    arena_kernels.reduction_between,
    sync_kernels.own_elements,
]


@pytest.mark.part(12)
@pytest.mark.slow
@pytest.mark.parametrize("func", EVERY_KIND, ids=lambda f: str(f.attrs["global_symbol"]))
def test_two_steps_are_one_and_twice_is_once(func: Any) -> None:
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with TARGET:
        once = SoftwarePipeline()(mod)
        twice = SoftwarePipeline()(once)
    assert twice["main"].same_as(once["main"])
    assert cuda(mod) == cuda(once)


def test_a_ring_in_one_loop_survives_the_second_step() -> None:
    """TVM's compaction would make its indices relative to an iteration; see the module's comment."""
    with TARGET:
        once = SoftwarePipeline(depth=3)(tvm.IRModule({"main": ring_kernels.one_slot}))
    source = data(9, 64)
    emulation = run(once, [source, np.zeros_like(source), 9])
    assert not emulation.hazards
    np.testing.assert_array_equal(emulation.outputs["C"], source[:, ::-1])


# Modules.


def test_a_module_may_mix_kernels_and_functions_of_the_cpu() -> None:
    cpu = arena_kernels.on_the_cpu.with_attr("target", Target("llvm")).with_attr(
        "global_symbol", "cpu"
    )
    mod = tvm.IRModule(
        {
            "deep": ring_kernels.one_slot.with_attr("global_symbol", "deep"),
            "flat": sync_kernels.own_elements.with_attr("global_symbol", "flat"),
            "cpu": cpu,
        }
    )
    with TARGET:
        marked = SoftwarePipeline()(mod)
        executable = tvm.compile(mod, TARGET, tir_pipeline=PIPELINE)
    assert marked["cpu"].same_as(cpu)
    assert PLAN_ATTR in marked["deep"].attrs
    assert PLAN_ATTR in marked["flat"].attrs
    source = str(executable.mod.imports[0].inspect_source())
    assert source == cuda(marked)
    out = np.zeros(64, "float32")
    a, c = tvm.runtime.tensor(data(64)), tvm.runtime.tensor(out)
    tvm.compile(cpu, Target("llvm"), tir_pipeline=PIPELINE)["cpu"](a, c)
    np.testing.assert_allclose(c.numpy(), data(64) + 1)


def test_more_than_48_kilobytes_are_asked_for_at_launch() -> None:
    func = arena_kernels.large(256)
    source = data(256, 64)
    emulation = run(func, [source, np.zeros_like(source)])
    np.testing.assert_array_equal(emulation.outputs["C"], source[:, ::-1])
    plan = pipeliner.plan_of(pipeliner.pipeline(func, "sm_80"))
    assert plan.smem.bytes == 256 * 64 * 4


def test_a_gpu_without_a_machine_gets_right_code_and_the_reason() -> None:
    target = Target({"kind": "cuda", "arch": "sm_121"})
    with target:
        mod = SoftwarePipeline()(tvm.IRModule({"main": ring_kernels.one_slot}))
    plan = pipeliner.plan_of(mod["main"])
    assert not plan.pipelined
    assert gives(plan.reasons[0], "machine.unknown", arch="sm_121")
    assert plan.sync.barriers == 2


def test_a_request_for_a_gpu_without_a_machine_raises() -> None:
    with (
        refused("machine.unknown", TargetError, arch="sm_121"),
        Target({"kind": "cuda", "arch": "sm_121"}),
    ):
        SoftwarePipeline(depth=2)(tvm.IRModule({"main": ring_kernels.one_slot}))


# Errors.


def test_our_errors_cross_tvm_as_themselves() -> None:
    with refused("sync.divergent", LoweringError, where=Reason("sync.loop", var="k")):
        pipeliner.pipeline(sync_kernels.divergent_loop, TARGET, mechanism="direct")


def test_what_we_cannot_order_is_left_to_tvm_with_the_reason() -> None:
    fast = pipeliner.pipeline(sync_kernels.divergent_loop, TARGET)
    plan = pipeliner.plan_of(fast)
    assert plan.sync.by == "tvm"
    assert says("sync.divergent", plan.reasons)
    assert cuda(sync_kernels.divergent_loop).count("__syncthreads()") == 2
    again = pipeliner.pipeline(sync_kernels.divergent_loop, TARGET, plan=plan)
    assert again.script() == fast.script()


def test_a_kernel_without_a_target_is_refused() -> None:
    with refused("plan.no_target", TargetError, function="main"):
        SoftwarePipeline()(tvm.IRModule({"main": ring_kernels.one_slot}))
