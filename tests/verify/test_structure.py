"""What pipelined GEMMs are made of: slots, barriers, registers; and the ways there are the same."""

from __future__ import annotations

import re

import pytest
import tvm

import pipeliner
from pipeliner.api import build
from pipeliner.kernel.building import pipeline_with
from pipeliner.machine import machine_for
from pipeliner.passes import SoftwarePipeline
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile, default_tile, schedule_gemm
from pipeliner.targets import cuda_target

from .sweep import Case

LARGE = {
    "fp32": Gemm(4096, 4096, 4096, dtype="fp32"),
    "tf32": Gemm(4096, 4096, 4096, dtype="tf32"),
    "fp16": Gemm(4096, 4096, 4096, dtype="fp16"),
    "bf16 NN": Gemm(4096, 4096, 4096, dtype="bf16", layout="NN"),
    "int8": Gemm(4096, 4096, 4096, dtype="int8"),
    "fp16 ragged": Gemm(4000, 4104, 4040, dtype="fp16"),
    "fp32 TN": Gemm(4096, 4096, 4096, dtype="fp32", layout="TN"),
}


def pipelined(gemm, target, **options):
    tile = default_tile(gemm, machine_for(target), options.get("instruction", "auto"))
    return pipeline_with(schedule_gemm(gemm, tile), target, Request(**options))


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.part(9)
def test_a_steady_iteration_has_one_barrier(name: str) -> None:
    instruction = "auto" if LARGE[name].dtype == "float32" else "mma"
    plan = pipeliner.plan_of(pipelined(LARGE[name], "sm_90", instruction=instruction))
    (loop,) = plan.loops
    assert loop.pipelined
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    assert {ring.depth for ring in loop.rings if ring.scope.startswith("shared")} != {1}
    assert plan.sync.barriers_in_steady == 1


@pytest.mark.parametrize("name", [name for name in LARGE if not name.startswith("fp32")])
@pytest.mark.part(6)
def test_on_hopper_roles_leave_the_steady_state_without_one(name: str) -> None:
    plan = pipeliner.plan_of(pipelined(LARGE[name], "sm_90"))
    assert [role.name for role in plan.roles] == ["consumer", "producer"]
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert plan.sync.barriers_in_steady == 0
    halves = LARGE[name].out in ("float16", "bfloat16")
    assert [store.mechanism for store in plan.stores] == ["tma" if halves else "direct"]


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", ["fp32", "tf32", "fp16", "int8"])
@pytest.mark.part(9)
def test_a_depth_asked_for_is_what_the_rings_get(name: str, depth: int) -> None:
    plan = pipeliner.plan_of(pipelined(LARGE[name], "sm_80", depth=depth))
    rings = {r.buffer: r.depth for r in plan.loops[0].rings if r.scope.startswith("shared")}
    assert set(rings.values()) == {depth}
    assert {copy.dst for copy in plan.copies} == set(rings)
    assert plan.sync.barriers_in_steady == 1


@pytest.mark.part(4)
@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("name", "target"),
    [("fp32", "sm_80"), ("fp16", "sm_80"), ("tf32", "sm_90"), ("int8", "sm_90")],
)
def test_large_kernels_keep_everything_in_registers(name: str, target: str) -> None:
    kernel = build(pipelined(LARGE[name], target))
    used = kernel.resources
    assert (used.spills, used.stack) == (0, 0)
    assert used.registers <= 255
    assert used.dynamic_shared == kernel.plan.smem.bytes


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.part(3)
def test_vectors_move_as_vectors(dtype: str) -> None:
    """Where TVM cannot prove an access aligned it prints one access for each element."""
    case = Case(dtype=dtype, instruction="simt", mechanism="register", depth=2)
    assert re.findall(r"make_\w+4\([^;]*_ptr\[", case.kernel().cuda) == []


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.deep("tests/passes/test_plain_programs.py, on a V100")
def test_a_gpu_without_cp_async_gets_code_that_compiles(dtype: str) -> None:
    kernel = Case(dtype=dtype, target="sm_75", depth=2).kernel()
    assert {copy.mechanism for copy in kernel.plan.copies} == {"register"}
    assert (kernel.resources.spills, kernel.resources.stack) == (0, 0)


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(dtype="fp32", shape="primes", layout="TN"),
        Case(dtype="int8", symbolic=True, epilogue="peeled"),
        Case(mechanism="register", depth=2, batch=2, target="sm_75"),
    ],
    ids=str,
)
def test_every_way_gives_the_same_cuda_and_twice_is_once(case: Case) -> None:
    target = cuda_target(case.target)
    once = pipeline_with(case.scheduled(), case.target, case.request())
    assert pipeline_with(once, case.target, Request()).same_as(once)
    kernel = build(once)
    request = case.request()
    with target:
        passed = SoftwarePipeline(
            depth=request.depth, mechanism=request.mechanism, epilogue=request.epilogue
        )(case.scheduled().mod)
        again = SoftwarePipeline()(passed)
        second = tvm.compile(again, target, tir_pipeline="pipeliner")
    tvm.ir.assert_structural_equal(passed, again)
    assert second.mod.imports[0].inspect_source() == kernel.cuda


def test_what_is_left_to_the_lowering_is_what_pipeline_gives() -> None:
    target = cuda_target("sm_80")
    schedule = schedule_gemm(Gemm(128, 64, 256), GemmTile(64, 64, 32))
    with target:
        compiled = tvm.compile(schedule.mod, target, tir_pipeline="pipeliner")
    kernel = build(pipeliner.pipeline(schedule, "sm_80"))
    assert compiled.mod.imports[0].inspect_source() == kernel.cuda
