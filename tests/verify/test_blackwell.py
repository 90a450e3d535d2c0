"""sm_100 and sm_120: mma.sync with TMA or cp.async, right in the emulator, compiled by nvcc."""

from __future__ import annotations

import re

import pytest

import pipeliner
from pipeliner.errors import TargetError
from pipeliner.kernel.compiled import Kernel
from pipeliner.schedules import (
    ConvTile,
    Gemm,
    GemmTile,
    conv2d,
    schedule_conv,
    schedule_gemm,
)
from pipeliner.space.ranking import BY_PRODUCER
from pipeliner.verification.verdict import verify_workload
from tests.refusals import gives, refused, says, the

every_gpu = pytest.mark.parametrize("gpu", ["b200", "rtx5090"])

FUSED = Gemm(100, 72, 40, epilogue=("bias", "relu"))
SMALL = Gemm(64, 64, 96)
PIXELS = conv2d(1, 9, 9, 32, 32, 3, 3, pad=1, epilogue=("bias",))


def product(spec: Gemm, gpu: str) -> Kernel:
    return pipeliner.build(schedule_gemm(spec, GemmTile(64, 64, 32)), gpu)


def filtered(gpu: str) -> Kernel:
    return pipeliner.build(schedule_conv(PIXELS, ConvTile(32, 32, 32)), gpu)


@every_gpu
def test_the_model_takes_tma_and_mma_and_says_what_is_not_used(gpu: str) -> None:
    big = schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(128, 64, 64))
    plan = pipeliner.plan_of(pipeliner.pipeline(big, gpu))
    assert plan.matmuls[0].instruction == "mma.m16n8k16.f16.f32"
    assert {copy.mechanism for copy in plan.copies} == {"tma"}
    assert plan.loops[0].rings[0].depth > 1
    assert [role.threads for role in plan.roles] == [128, 32]
    taken = the("choice.taken", plan.reasons)
    assert taken["what"] == BY_PRODUCER
    assert the("choice.times", [taken])["us"] == plan.predicted_us
    code = {"b200": "mapping.unused_tcgen05", "rtx5090": "mapping.no_warpgroups"}[gpu]
    assert gives(plan.matmuls[0].reason, code, arch=plan.target)


@every_gpu
def test_the_next_best_is_cp_async(gpu: str) -> None:
    func = schedule_gemm(Gemm(4096, 4096, 4096), GemmTile(128, 64, 64))
    asked = pipeliner.plan_of(pipeliner.pipeline(func, gpu, mechanism="cp_async"))
    assert not asked.roles
    times = the("choice.times", pipeliner.plan_of(pipeliner.pipeline(func, gpu)).reasons)
    assert times["other_us"] == asked.predicted_us


@every_gpu
def test_a_tensor_that_is_no_box_is_copied_by_cp_async(gpu: str) -> None:
    rows_of_half_units = Gemm(64, 64, 100)  # of 200 bytes, where a stride is a multiple of 16
    plan = product(rows_of_half_units, gpu).plan
    assert {copy.mechanism for copy in plan.copies} == {"cp_async"}
    why = the("choice.not_taken", plan.reasons)
    assert why["what"] == BY_PRODUCER
    assert the("box.stride", [why])["stride"] == 200


def test_the_reason_is_of_gpus_alone_that_have_more() -> None:
    for gpu in ("a100", "h100"):
        func = pipeliner.pipeline(
            schedule_gemm(SMALL, GemmTile(64, 64, 32)), gpu, instruction="mma"
        )
        reason = pipeliner.plan_of(func).matmuls[0].reason
        assert not says("mapping.unused_tcgen05", [reason])
        assert not says("mapping.no_warpgroups", [reason])


@every_gpu
def test_what_is_not_there_is_refused_in_a_line(gpu: str) -> None:
    with refused("wgmma.machine", TargetError) as caught:
        pipeliner.pipeline(schedule_gemm(SMALL, GemmTile(64, 64, 32)), gpu, instruction="wgmma")
    assert "\n" not in str(caught.value)


@every_gpu
@pytest.mark.parametrize("arch", ["", "a"])
def test_the_architecture_by_name_is_planned_for_like_the_gpu(gpu: str, arch: str) -> None:
    target = {"b200": "sm_100", "rtx5090": "sm_120"}[gpu] + arch
    named, like = product(SMALL, target), product(SMALL, gpu)
    assert named.arch == target
    assert named.plan == like.plan
    assert named.cuda == like.cuda


@every_gpu
def test_a_product_is_right(gpu: str) -> None:
    assert verify_workload(product(FUSED, gpu), FUSED).ok


@every_gpu
@pytest.mark.part(2)
def test_a_convolution_is_right(gpu: str) -> None:
    assert verify_workload(filtered(gpu), PIXELS).ok


@every_gpu
@pytest.mark.nvcc
def test_nvcc_compiles_a_product_for_it(gpu: str) -> None:
    func = schedule_gemm(SMALL, GemmTile(64, 64, 32))
    kernel = pipeliner.build(func, gpu, instruction="mma", mechanism="tma")
    for found in (r"HMMA\.16816\.F32", "LDSM", "UTMALDG"):
        assert re.search(rf"\b{found}\b", kernel.sass)
    # Addresses in other CTAs' shared memory would be asked for by a call at each copy.
    assert not re.search(r"\b(LDGSTS|CALL|STL)\b", kernel.sass)
    assert kernel.resources.spills == 0


@every_gpu
@pytest.mark.nvcc
@pytest.mark.deep("test_nvcc_compiles_a_product_for_it: a convolution takes the same way")
def test_nvcc_compiles_a_convolution_for_it(gpu: str) -> None:
    assert filtered(gpu).resources[0].registers
