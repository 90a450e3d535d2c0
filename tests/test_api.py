"""pipeliner.pipeline, build and the kernel they give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import pipeliner
from pipeliner.diagnostics import Reason
from pipeliner.emulator import lower_for_emulation
from pipeliner.errors import PlanError, TargetError, WorkloadError
from pipeliner.kernel.compiled import compile_kernel
from pipeliner.passes import SoftwarePipeline
from pipeliner.schedules import Gemm, GemmTile, schedule_gemm
from pipeliner.targets import cuda_target, gpu
from pipeliner.verification.accuracy import poisoned
from pipeliner.verification.verdict import verify_workload
from tests.refusals import refused

SMALL = Gemm(128, 64, 96, dtype="fp16")
TILE = GemmTile(64, 64, 32)


@pytest.fixture(scope="module")
def scheduled():
    return schedule_gemm(SMALL, TILE)


@pytest.fixture(scope="module")
def kernel(scheduled):
    return pipeliner.build(pipeliner.pipeline(scheduled, "a100", depth=3))


def shared_rings(plan):
    return [r for loop in plan.loops for r in loop.rings if r.scope.startswith("shared")]


def test_pipeline_takes_schedule_module_and_function(scheduled) -> None:
    function = scheduled.mod[scheduled.mod.get_global_vars()[0]]
    plans = [
        pipeliner.plan_of(pipeliner.pipeline(given, "sm_80"))
        for given in (scheduled, scheduled.mod, function)
    ]
    assert plans[0] == plans[1] == plans[2]


def test_pipeline_leaves_its_argument_alone(scheduled) -> None:
    before = scheduled.mod.script()
    pipeliner.pipeline(scheduled, "sm_80")
    assert scheduled.mod.script() == before


def test_options_reach_the_plan(kernel) -> None:
    assert {ring.depth for ring in shared_rings(kernel.plan)} == {3}


def test_twice_is_once(scheduled) -> None:
    once = pipeliner.pipeline(scheduled, "a100")
    twice = pipeliner.pipeline(once, "a100")
    assert once.same_as(twice)
    with refused("plan.again", PlanError, function=SMALL.name):
        pipeliner.pipeline(once, "a100", depth=2)


def test_build_pipelines_what_is_not(scheduled) -> None:
    direct = pipeliner.build(scheduled, "a100", depth=2)
    stepwise = pipeliner.build(pipeliner.pipeline(scheduled, "a100", depth=2))
    assert direct.cuda == stepwise.cuda
    assert direct.arch == "sm_80"


def test_build_refuses_options_for_what_is_pipelined(scheduled) -> None:
    fast = pipeliner.pipeline(scheduled, "a100")
    with pytest.raises(TypeError) as raised:
        pipeliner.build(fast, depth=2)
    assert raised.value.args == (Reason("function.pipelined", options=("depth",)),)


def test_tvm_compiles_the_same(scheduled, kernel) -> None:
    """Way 2: TVM's own driver with our lowering gives the same CUDA."""
    target = cuda_target("a100")
    with target:
        mod = pipeliner.passes.SoftwarePipeline(depth=3)(scheduled.mod)
        executable = tvm.compile(mod, target, tir_pipeline="pipeliner")
    assert executable.mod.imports[0].inspect_source() == kernel.cuda


def test_an_edited_plan_is_obeyed(scheduled) -> None:
    plan = pipeliner.plan_of(pipeliner.pipeline(scheduled, "a100", depth=3))
    edited = plan
    for ring in shared_rings(plan):
        edited = edited.with_depth(ring.buffer, 4)
    assert {ring.depth for ring in shared_rings(plan)} == {3}
    obeyed = pipeliner.plan_of(pipeliner.pipeline(scheduled, "a100", plan=edited))
    assert {ring.depth for ring in shared_rings(obeyed)} == {4}
    with refused("plan.no_ring", PlanError, ring="nonsense"):
        plan.with_depth("nonsense", 2)


def test_emulate_gives_outputs_and_keeps_arguments(kernel) -> None:
    a, b = SMALL.inputs()
    c = poisoned(SMALL.shapes()[2], SMALL.out)
    outcome = kernel.emulate(a, b, c)
    assert np.isnan(c).all()
    assert not outcome.hazards
    np.testing.assert_allclose(
        outcome.outputs["C"].astype("float64"), SMALL.reference(a, b), rtol=2e-3, atol=2e-3
    )
    assert verify_workload(kernel, SMALL).ok


@pytest.mark.skipif(gpu() is not None, reason="a GPU is here")
def test_calling_without_a_gpu_points_to_the_emulator(kernel) -> None:
    a, b = SMALL.inputs()
    with refused("kernel.no_gpu", TargetError):
        kernel(a, b, poisoned(SMALL.shapes()[2], SMALL.out))


@pytest.mark.nvcc
def test_levels_below_cuda(kernel) -> None:
    assert ".target sm_80" in kernel.ptx
    used = kernel.resources
    assert used.kernel.endswith("_kernel")
    assert 0 < used.registers <= 255
    assert (used.spills, used.stack) == (0, 0)
    assert used.dynamic_shared == kernel.plan.smem.bytes


def test_export_needs_no_pipeliner(kernel, tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    kernel.export(path)
    assert path.stat().st_size > 0
    with refused("kernel.export", pipeliner.errors.ToolError):
        kernel.export(tmp_path / "no" / "such" / "folder" / "kernel.so")


def test_what_is_not_a_function() -> None:
    with refused("function.type", WorkloadError, type="int"):
        pipeliner.pipeline(42, "a100")


def test_a_module_of_two(scheduled) -> None:
    function = scheduled.mod[scheduled.mod.get_global_vars()[0]]
    two = tvm.IRModule({"a": function, "b": function})
    with refused("function.one", WorkloadError, count=2, names=("a", "b")):
        pipeliner.pipeline(two, "a100")


def test_plan_of_an_untouched_function(scheduled) -> None:
    with refused("plan.none", PlanError):
        pipeliner.plan_of(scheduled)


@pytest.mark.parametrize(
    ("spec", "arch"),
    [("a100", "sm_80"), ("H100", "sm_90"), ("sm_90a", "sm_90a"), ("t4", "sm_75"),
     ("h200", "sm_90"), ("RTX 4090", "sm_89"), ("l40s", "sm_89"), ("gtx1080ti", "sm_61"),
     ("nvidia/nvidia-a100", "sm_80"), ({"kind": "cuda", "arch": "sm_80"}, "sm_80")],
)  # fmt: skip
def test_targets(spec, arch: str) -> None:
    assert str(cuda_target(spec).attrs["arch"]) == arch


@pytest.mark.parametrize("spec", ["llvm", "rtx", "sm80", ""])
def test_unknown_targets(spec: str) -> None:
    with refused("target.unknown", TargetError, value=repr(spec)):
        cuda_target(spec)


def test_cpu_target() -> None:
    with refused("target.kind", TargetError, kind="llvm"):
        cuda_target(tvm.target.Target("llvm"))


@T.prim_func(s_tir=True)
def on_the_cpu(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "on_the_cpu"})
    for i in range(16):
        with T.sblock("copy"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[vi] + T.float32(1)


UNBOUND = "no loop of 'on_the_cpu' is bound to blockIdx or threadIdx: bind its loops"


@pytest.mark.parametrize("make", [pipeliner.pipeline, pipeliner.build])
def test_nothing_bound_to_a_gpu_is_said(make: Any) -> None:
    with refused("plan.no_kernel", PlanError):
        make(on_the_cpu, "a100")


def test_in_a_module_it_comes_back_as_it_is_and_says_so_where_it_is_asked() -> None:
    with cuda_target("a100"):
        mod = SoftwarePipeline()(tvm.IRModule({"on_the_cpu": on_the_cpu}))
    assert mod["on_the_cpu"].same_as(on_the_cpu)
    with refused("plan.left_alone", PlanError):
        pipeliner.plan_of(mod)


@pytest.mark.parametrize(("target", "splits"), [("a100", 1), ("h100", 2)])
@pytest.mark.part(2)
def test_what_is_emulated_is_what_was_compiled(target: str, splits: int) -> None:
    gemm, tile = Gemm(128, 128, 512), GemmTile(64, 64, 64, splits=splits)
    kernel = pipeliner.build(schedule_gemm(gemm, tile), target)
    alone = lower_for_emulation(kernel.module, kernel.target, kernel.pipeline, kernel.config)
    assert "__global__" in kernel.cuda
    with pytest.MonkeyPatch.context() as monkey:
        monkey.delattr("pipeliner.kernel.compiled.lower_for_emulation")  # not lowered again
        tvm.ir.assert_structural_equal(kernel.lowered, alone)


def test_a_stock_kernel_has_no_plan(scheduled) -> None:
    with refused("plan.left_alone", PlanError):
        compile_kernel(on_the_cpu, cuda_target("a100"), "s_tir").plan


LOAD = """
import sys, tvm
assert "pipeliner" not in sys.modules
mod = tvm.runtime.load_module(sys.argv[1])
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((128, 96)).astype("float16")
b = rng.standard_normal((64, 96)).astype("float16")
dev = tvm.cuda(0)
c = tvm.runtime.tensor(np.zeros((128, 64), "float16"), dev)
mod.get_function(sys.argv[2], query_imports=True)(tvm.runtime.tensor(a, dev), tvm.runtime.tensor(b, dev), c)
want = a.astype("float64") @ b.astype("float64").T
np.testing.assert_allclose(c.numpy().astype("float64"), want, rtol=2e-3, atol=2e-3)
"""


@pytest.fixture(scope="module")
def here(scheduled):
    return pipeliner.build(scheduled)


@pytest.mark.gpu
class TestOnTheGpu:
    def test_numpy_arrays(self, here) -> None:
        a, b = SMALL.inputs()
        c = poisoned(SMALL.shapes()[2], SMALL.out)
        here(a, b, c)
        np.testing.assert_allclose(c.astype("float64"), SMALL.reference(a, b), rtol=2e-3, atol=2e-3)

    def test_torch_tensors_on_another_stream(self, here) -> None:
        import torch

        a, b = (torch.from_numpy(array).cuda() for array in SMALL.inputs())
        c = torch.full(SMALL.shapes()[2], float("nan"), dtype=torch.float16, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            here(a, b, c)
        stream.synchronize()
        torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-3)

    def test_cuda_graph(self, here) -> None:
        import torch

        a, b = (torch.from_numpy(array).cuda() for array in SMALL.inputs())
        c = torch.zeros(SMALL.shapes()[2], dtype=torch.float16, device="cuda")
        here(a, b, c)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            here(a, b, c)
        c.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-3)

    def test_mixed_arrays_are_refused(self, here) -> None:
        import torch

        a, b = SMALL.inputs()
        c = torch.zeros(SMALL.shapes()[2], dtype=torch.float16, device="cuda")
        with refused("kernel.mixed_arrays", WorkloadError):
            here(a, b, c)

    def test_a_kernel_for_another_gpu_is_refused(self, scheduled) -> None:
        from pipeliner.targets import gpu_arch

        other = "sm_80" if gpu_arch() != "sm_80" else "sm_90"
        with refused("kernel.other_gpu", TargetError, arch=other):
            pipeliner.build(scheduled, other)(*SMALL.inputs(), np.zeros((128, 64), "float16"))

    def test_export_runs_without_pipeliner(self, here, tmp_path: Path) -> None:
        path = tmp_path / "kernel.so"
        here.export(path)
        subprocess.run([sys.executable, "-c", LOAD, str(path), here.name], check=True, cwd=tmp_path)
