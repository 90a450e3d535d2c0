"""Pipelined convolutions are right, and are made of what fast ones are made of."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import pipeliner
from pipeliner.api import build
from pipeliner.diagnostics import Reason, each_of
from pipeliner.errors import PipelinerError
from pipeliner.kernel.building import pipeline_with
from pipeliner.machine import machine_for
from pipeliner.plan.request import Request
from pipeliner.schedules import ConvTile, default_tile, schedule_conv
from pipeliner.schedules.workloads import ConvInputGrad, ConvWeightGrad, conv2d
from pipeliner.verification.verdict import verify_workload
from tests.refusals import says, the

from ..schedules.conv_cases import CASES
from .conv_sweep import FACTORS, ConvCase, check
from .modes import modes_of
from .sweep import cover

LAYERS = {
    "rn50 stem": conv2d(32, 224, 224, 3, 64, 7, 7, stride=2, pad=3),
    "rn50 3x3 56": conv2d(32, 56, 56, 64, 64, 3, 3, pad=1),
    "rn50 3x3 28": conv2d(32, 28, 28, 128, 128, 3, 3, pad=1),
    "rn50 3x3 14": conv2d(32, 14, 14, 256, 256, 3, 3, pad=1),
    "rn50 3x3 7": conv2d(32, 7, 7, 512, 512, 3, 3, pad=1),
    "rn50 3x3 strided": conv2d(32, 56, 56, 128, 128, 3, 3, stride=2, pad=1),
    "rn50 1x1": conv2d(32, 56, 56, 256, 64, 1, 1),
    "rn50 1x1 strided": conv2d(32, 56, 56, 256, 512, 1, 1, stride=2),
    "vgg 224": conv2d(32, 224, 224, 64, 64, 3, 3, pad=1),
    "vgg 28": conv2d(32, 28, 28, 512, 512, 3, 3, pad=1),
    "unet": conv2d(8, 64, 64, 320, 320, 3, 3, pad=1),
}
"""Layers of ResNet-50, VGG-16 and a diffusion U-Net at a batch of 32 (8)."""

ALIGNED = [name for name, conv in LAYERS.items() if conv.c % 8 == 0]


def pipelined(spec, target, tile=None, instruction="auto", depth="auto", splits=None):
    chosen = tile or default_tile(spec, machine_for(target), instruction, splits)
    request = Request(depth=depth, instruction=instruction)
    return pipeline_with(schedule_conv(spec, chosen), target, request)


def slots(target):
    """What is asked for where the code is looked at: on an A100 the model leaves some loops alone."""
    return 2 if target == "sm_80" else "auto"


@pytest.mark.part(12)
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_convolution_is_right(case):
    spec, tile = CASES[case]
    kernel = build(pipelined(spec, "sm_80", tile))
    verdict = verify_workload(kernel, spec, seed=5, **modes_of(case))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.part(12)
@pytest.mark.parametrize("case", cover(FACTORS, lambda case: case.is_legal, ConvCase), ids=str)
def test_every_pair_of_options_computes_the_convolution(case):
    check(case.spec(), case.kernel_of())


@pytest.mark.parametrize(
    "conv",
    [
        conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16, epilogue=("bias", "relu")),
        conv2d(1, 9, 9, 12, 24, 3, 3, stride=2, pad=1, groups=12, dtype="fp32"),
        conv2d(1, 8, 8, 16, 16, 5, 5, pad=2, groups=16, dtype="int8"),
        conv2d(1, 8, 8, 16, 16, 3, 3, pad=1, groups=16, dtype="bf16"),
        conv2d(2, 12, 12, 128, 128, 3, 3, pad=1, groups=128),
    ],
    ids=lambda conv: conv.name,
)
def test_a_depthwise_convolution_loads_ahead_into_registers(conv):
    kernel = build(pipelined(conv, "sm_90"))
    (loop,) = (loop for loop in kernel.plan.loops if loop.pipelined)
    assert {ring.scope for ring in loop.rings} == {"local"}
    assert max(ring.depth for ring in loop.rings) > 1
    assert kernel.plan.sync.barriers_in_steady == 0
    verdict = verify_workload(kernel, conv, seed=6, **modes_of(conv.name))
    assert verdict.ok, (verdict.worst, verdict.hazards)


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("target", "instruction"), [("sm_80", "auto"), ("sm_90", "mma")], ids=["sm_80", "sm_90"]
)
@pytest.mark.parametrize("name", ALIGNED)
def test_layers_move_vectors_past_one_barrier(name, target, instruction):
    func = pipelined(LAYERS[name], target, instruction=instruction, depth=slots(target))
    plan = pipeliner.plan_of(func)
    (loop,) = plan.loops
    assert loop.pipelined
    assert {(copy.mechanism, copy.vector_bytes) for copy in plan.copies} == {("cp_async", 16)}
    assert min(ring.depth for ring in loop.rings if ring.scope.startswith("shared")) > 1
    assert plan.sync.barriers_in_steady == 1


WAYS = {"rn50 1x1": "tma", "unet": "tma (window)"}
"""How pixels come that are a box: of the matrix that they are, or of the image."""


@pytest.mark.part(12)
@pytest.mark.parametrize("name", LAYERS)
def test_warpgroups_multiply_layers_that_a_producer_warp_copies(name):
    plan = pipeliner.plan_of(pipelined(LAYERS[name], "sm_90"))
    *_, why = plan.reasons
    if name in ALIGNED:
        assert plan.matmuls[0].instruction.startswith("wgmma."), why
        assert says("choice.taken", [why])
        assert plan.target == "sm_90a"
        assert [role.name for role in plan.roles] == ["consumer", "producer"]
        pixels = WAYS.get(name, "tma (im2col)")
        assert [copy.way for copy in plan.copies] == [pixels, "tma"]
        assert plan.sync.barriers_in_steady == 0
    else:
        assert plan.matmuls[0].instruction.startswith("mma.")
        assert the("mechanism.for_wgmma", [why])["copy"] == "filters_pad_shared"
        assert the("cp_async.vector", [why])["nbytes"] == 2
        assert plan.target == "sm_90"


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["rn50 3x3 56", "rn50 3x3 7"])
@pytest.mark.part(2)
def test_whoever_asks_for_mma_gets_the_tile_and_the_instruction(name, target):
    plan = pipeliner.plan_of(pipelined(LAYERS[name], target, instruction="mma"))
    assert plan.matmuls[0].instruction == "mma.m16n8k16.f16.f32"
    assert plan.target == target


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.part(2)
def test_three_channels_move_sixteen_bytes_at_once_and_the_plan_says_how(stride, target):
    conv = replace(LAYERS["rn50 stem"], stride=(stride, stride))
    plan = pipeliner.plan_of(pipelined(conv, target, depth=slots(target)))
    (pixels,) = [copy for copy in plan.copies if copy.src == "X"]
    assert (pixels.mechanism, pixels.vector_bytes) == ("cp_async", 16)
    for reason in (
        Reason("conv.runs", positions=7, channels=3),
        Reason("conv.runs_early", elements=7),
        Reason("conv.runs_aligned", elements=8),
    ):
        assert reason in each_of(pixels.reason)
    assert plan.loops[0].pipelined


def test_a_halo_is_the_size_of_a_copy_and_costs_no_other_store():
    kernel = build(pipelined(LAYERS["rn50 3x3 56"], "sm_90", instruction="mma"))
    copies = [
        line for line in kernel.cuda.splitlines() if "cp_async_cg" in line and "X_ptr" in line
    ]
    assert copies
    assert all("? 16 : 0" in line for line in copies)
    assert all("min(" not in line and "max(" not in line for line in copies)


@pytest.mark.part(3)
@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [*((name, "sm_90") for name in LAYERS), *((name, "sm_80") for name in list(LAYERS)[::3])],
)
def test_layers_keep_everything_in_registers(name, target):
    kernel = build(pipelined(LAYERS[name], target, depth=slots(target)))
    used = kernel.resources
    assert (used.spills, used.stack) == (0, 0)
    tiles = [ring for loop in kernel.plan.loops for ring in loop.rings if ring.scope == "shared"]
    assert len(tiles) == 2
    rings = sum(ring.depth * ring.slot_bytes for ring in tiles)
    staged = sum(store.bytes for store in kernel.plan.stores)
    barriers = 256 if kernel.plan.mbarriers else 0  # two of 8 bytes for each slot, 128 apart
    assert 0 <= used.dynamic_shared - rings - staged <= barriers


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("instruction", "opcode", "least"), [("mma", "HMMA", 32), ("wgmma", "HGMMA", 4)]
)
@pytest.mark.parametrize("name", ["rn50 3x3 56", "rn50 3x3 strided", "rn50 3x3 7"])
@pytest.mark.deep(
    "test_layers_move_vectors_past_one_barrier; the CUDA is that of test_fixed_plans.py"
)
def test_no_thread_divides_in_the_steady_loop(name, instruction, opcode, least):
    """A division by a constant is a multiplication of which the upper half is taken.

    In one part: the steps of a part count from somewhere, and are divided.
    """
    func = pipelined(LAYERS[name], "sm_90", instruction=instruction, splits=1)
    sass = build(func).sass
    loop = innermost(sass, opcode)
    assert sum(opcode in line for line in loop) >= least
    assert [line for line in loop if re.search(r"\bIMAD\.HI", line)] == []


@pytest.mark.part(3)
@pytest.mark.nvcc
@pytest.mark.parametrize(
    "spec",
    [
        conv2d(4, 14, 14, 64, 64, 3, 3, pad=1, epilogue=("bias", "residual", "relu")),
        conv2d(4, 14, 14, 64, 64, 3, 3, pad=1, dtype="bf16", epilogue=("bias", "gelu")),
        conv2d(4, 14, 14, 64, 64, 3, 3, pad=1, epilogue=("silu",), layout="NCHW"),
        conv2d(4, 14, 14, 64, 64, 3, 3, pad=1, dtype="int8", epilogue=("bias", "relu")),
        ConvInputGrad(LAYERS["rn50 3x3 strided"]),
        ConvWeightGrad(LAYERS["rn50 3x3 14"]),
        conv2d(32, 56, 56, 128, 128, 3, 3, pad=1, groups=128, epilogue=("bias", "relu")),
    ],
    ids=lambda spec: spec.name,
)
def test_epilogues_and_gradients_compile(spec):
    used = build(pipelined(spec, "sm_90")).resources
    assert (used.spills, used.stack) == (0, 0)


def test_a_request_that_a_convolution_cannot_have_is_one_line():
    stem = LAYERS["rn50 stem"]
    with pytest.raises(PipelinerError) as error:
        pipeline_with(
            schedule_conv(stem, ConvTile(64, 64, 32, fold=True)),
            "sm_80",
            Request(mechanism="cp_async"),
        )
    assert str(error.value) == (
        "cannot copy 'filters_pad_shared' by cp_async: "
        "cp.async moves 4, 8 or 16 bytes, here only 2 are provably aligned"
    )


def innermost(sass, opcode):
    """The lines of the shortest loop with ``opcode`` in it."""
    lines = sass.splitlines()
    labels = {
        m[1]: at for at, line in enumerate(lines) if (m := re.match(r"\s*(\.L_x_\d+):", line))
    }
    jumps = [
        (labels[m[1]], at)
        for at, line in enumerate(lines)
        if (m := re.search(r"BRA.*\((\.L_x_\d+)\)", line)) and labels[m[1]] < at
    ]
    loops = [lines[first : last + 1] for first, last in jumps]
    return min((loop for loop in loops if any(opcode in line for line in loop)), key=len)
