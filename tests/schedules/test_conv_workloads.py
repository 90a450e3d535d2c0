"""Convolutions compute their definition, and gradients are the adjoint of what they differentiate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
import tvm
from hypothesis import strategies as st
from tvm import s_tir

import pipeliner
from pipeliner.errors import WorkloadError
from pipeliner.machine import H100
from pipeliner.schedules import ConvTile, default_tile, schedule_conv
from pipeliner.schedules.workloads import (
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    conv1d,
    conv2d,
    conv3d,
)
from pipeliner.verification.accuracy import poisoned, worst_error
from tests.refusals import refused

from .conv_cases import CASES, FIRST, GROUPED, SAME, STRIDED


def by_definition(conv: Conv, x, w):
    """Element by element, in channels-last order."""
    if not conv.channels_last:
        x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1)
    y = np.zeros((conv.n, *conv.out_size, conv.k), x.dtype)
    each_in, each_out = conv.c // conv.groups, conv.k // conv.groups
    for index in np.ndindex(*y.shape):
        image, *pixel, channel = index
        first = channel // each_out * each_in
        for position in np.ndindex(*conv.kernel):
            at = [
                p * stride + r * dilation - low
                for p, stride, r, dilation, (low, _) in zip(
                    pixel, conv.stride, position, conv.dilation, conv.pad, strict=True
                )
            ]
            if all(0 <= a < size for a, size in zip(at, conv.size, strict=True)):
                source = x[(image, *at)][first : first + each_in]
                y[index] += (source * w[(channel, *position)]).sum()
    return y if conv.channels_last else np.moveaxis(y, -1, 1)


SMALL = {
    "conv1d": conv1d(2, 7, 4, 3, 3, stride=2, pad=(1, 2), dilation=2, dtype="int8"),
    "conv2d": conv2d(2, 5, 6, 3, 4, 3, 2, stride=(2, 1), pad=(1, 0, 2, 1), dtype="int8"),
    "dilated": conv2d(1, 7, 7, 2, 2, 3, 3, dilation=(1, 2), pad=1, dtype="int8"),
    "grouped": conv2d(1, 4, 4, 6, 4, 3, 3, groups=2, pad=1, dtype="int8"),
    "depthwise": conv2d(1, 4, 4, 6, 12, 3, 3, groups=6, pad=1, dtype="int8"),
    "channels first": conv2d(2, 4, 5, 6, 4, 3, 3, groups=2, stride=2, layout="NCHW", dtype="int8"),
    "conv3d": conv3d(1, 3, 4, 3, 2, 3, 2, 3, 2, pad=(1, 1, 0), stride=(1, 2, 1), dtype="int8"),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_is_the_definition(name):
    conv = SMALL[name]
    x, w = conv.inputs(seed=1)
    wide = x.astype(np.int64), w.astype(np.int64)
    y = conv.reference(x, w)
    assert y.shape == conv.shapes()[-1]
    np.testing.assert_array_equal(y, by_definition(conv, *wide))


@pytest.mark.parametrize("name", SMALL)
def test_gradients_are_adjoint_to_the_convolution(name):
    """``<dY, conv(X, W)> = <dX, X> = <dW, W>`` for every X and W, exactly in integers."""
    conv = SMALL[name]
    for seed in range(3):
        x, w = conv.inputs(seed)
        dy = np.random.default_rng(seed).integers(-8, 8, conv.shapes()[-1], dtype=np.int8)
        product = (dy * conv.reference(x, w)).sum()
        assert (ConvInputGrad(conv).reference(dy, w) * x).sum() == product
        assert (ConvWeightGrad(conv).reference(dy, x) * w).sum() == product


@pytest.mark.parametrize("case", ["same", "strided and asymmetric", "grouped", "channels first"])
@pytest.mark.parametrize("of", [lambda conv: conv, ConvInputGrad, ConvWeightGrad])
@pytest.mark.part(6)
def test_the_function_computes_the_reference(case, of):
    conv = replace(CASES[case][0], dtype="int8", out="", accumulator="")
    spec = of(conv)
    func = spec.function()
    assert s_tir.analysis.verify_well_formed(func)
    inputs = spec.inputs(seed=2)
    np.testing.assert_array_equal(run_by_llvm(func, spec, inputs), spec.reference(*inputs))


def run_by_llvm(func, spec, inputs):
    kernel = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")
    y = tvm.runtime.tensor(np.zeros(spec.shapes()[-1], "int32"))
    kernel["main"](*map(tvm.runtime.tensor, inputs), y)
    return y.numpy()


@st.composite
def strided(draw):
    """A convolution of two dimensions whose input has phases of the stride."""
    strides = draw(st.tuples(*[st.integers(1, 4)] * 2).filter(lambda pair: max(pair) > 1))
    sizes = [stride * draw(st.integers(2, 4)) for stride in strides]
    kernel = draw(st.tuples(*[st.integers(1, 6)] * 2))
    pad = draw(st.tuples(*[st.integers(0, 2)] * 4))
    dilation = tuple(draw(st.sampled_from([1, 2, 3])) for _ in range(2))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    padded = [n + before + after for n, before, after in zip(sizes, pad[::2], pad[1::2])]
    hypothesis.assume(all(size >= span for size, span in zip(padded, spans)))
    hypothesis.assume(all(math.gcd(*pair) == 1 for pair in zip(strides, dilation)))
    return conv2d(
        1, *sizes, 3, 4, *kernel, stride=strides, pad=pad, dilation=dilation, dtype="int8"
    )


@hypothesis.given(strided())
@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.example(conv2d(1, 8, 8, 3, 4, 4, 4, stride=2, pad=1, dtype="int8"))
@hypothesis.example(conv2d(1, 6, 9, 3, 4, 1, 1, stride=3, pad=1, dtype="int8"))
def test_phases_of_the_stride_compute_the_gradient(conv):
    """TVM's FlattenBuffer errs where two divisions of a block's number have offsets of their own."""
    spec = ConvInputGrad(conv)
    inputs = spec.inputs(seed=4)
    found = run_by_llvm(spec.contraction(fold=True).function(), spec, inputs)
    np.testing.assert_array_equal(found, spec.reference(*inputs))


def test_a_multiplication_is_counted_for_each_position_and_channel_of_a_group():
    conv = conv2d(2, 8, 8, 8, 12, 3, 3, groups=4, pad=1)
    assert conv.flops() == 2 * (2 * 8 * 8) * 12 * 9 * 2
    assert ConvInputGrad(conv).flops() == ConvWeightGrad(conv).flops() == conv.flops()


@pytest.mark.parametrize("spec", [SAME, FIRST, Gemm(5, 6, 7)], ids=lambda spec: spec.name)
def test_epilogues_follow_the_sums(spec):
    steps = ("bias", "residual", "relu")
    fused = replace(spec, epilogue=steps)
    a, b, bias, residual = fused.inputs(seed=3)
    assert bias.shape == ((spec.k,) if isinstance(spec, Conv) else (spec.n,))
    assert residual.shape == fused.shapes()[-1]
    along = bias.astype(float)
    if spec is FIRST:
        along = along[:, None, None]
    wanted = np.maximum(spec.reference(a, b) + along + residual.astype(float), 0)
    np.testing.assert_array_equal(fused.reference(a, b, bias, residual), wanted)


def test_activations_are_those_of_the_literature():
    """GELU as x times the normal distribution function; SiLU as x times the logistic function."""
    x = np.linspace(-4, 4, 9)
    table = [
        -0.000127,
        -0.004050,
        -0.045500,
        -0.158655,
        0.0,
        0.841345,
        1.954500,
        2.995950,
        3.999873,
    ]
    from pipeliner.schedules.workloads.base import epilogue

    np.testing.assert_allclose(epilogue.reference(["gelu"], x, []), table, atol=1e-6)
    np.testing.assert_allclose(epilogue.reference(["silu"], x, []), x * (1 + np.tanh(x / 2)) / 2)


def test_an_error_counts_in_units_of_what_rounding_may_do():
    spec = replace(SAME, epilogue=("bias", "gelu"))
    inputs = spec.inputs(seed=4)
    exact, magnitude = spec.reference(*inputs), spec.magnitude(*inputs)
    assert (magnitude >= abs(exact)).all()
    assert worst_error(spec, exact.astype(np.float16), exact, magnitude) <= 1
    assert worst_error(spec, (exact * 1.01 + 0.1).astype(np.float16), exact, magnitude) > 1
    assert np.isnan(worst_error(spec, poisoned(exact.shape, spec.out), exact, magnitude))


def test_names_tell_convolutions_apart():
    specs = [spec for spec, _ in CASES.values()]
    by_value = {spec: spec.name for spec in specs}
    assert len(set(by_value.values())) == len(by_value)
    assert all(name.isidentifier() for name in by_value.values())


@pytest.mark.parametrize(
    ("make", "code", "args"),
    [
        (
            lambda: conv2d(1, 8, 8, 6, 8, 3, 3, groups=4),
            "conv.groups",
            {"channels": 6, "side": "input", "groups": 4},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 6, 3, 3, groups=4),
            "conv.groups",
            {"channels": 6, "side": "output", "groups": 4},
        ),
        (
            lambda: conv2d(1, 8, 4, 8, 8, 3, 3, dilation=3, pad=(1, 1, 1, 0)),
            "conv.empty",
            {"name": "w", "size": 4, "low": 1, "high": 0, "reach": 7},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, layout="NHCW"),
            "workload.layout",
            {"choices": ("NHWC", "NCHW"), "value": "NHCW"},
        ),
        (
            lambda: conv1d(1, 8, 8, 8, 3, layout="NHWC"),
            "workload.layout",
            {"choices": ("NWC", "NCW"), "value": "NHWC"},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, stride=(1, 2, 3)),
            "conv.numbers",
            {"counts": (1, 2), "name": "stride", "found": 3},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, pad=(1, 2, 3)),
            "conv.numbers",
            {"counts": (1, 2, 4), "name": "pad", "found": 3},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, stride=0),
            "workload.extent",
            {"name": "stride", "least": 1, "value": "0"},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, pad=-1),
            "workload.extent",
            {"name": "pad", "least": 0, "value": "-1"},
        ),
        (
            lambda: conv2d(0, 8, 8, 8, 8, 3, 3),
            "workload.extent",
            {"name": "n", "least": 1, "value": "0"},
        ),
        (
            lambda: Conv(1, (8, 8), 8, 8, (3,), (1, 1), ((0, 0), (0, 0)), (1, 1)),
            "conv.extents",
            {"name": "kernel", "dimensions": 2, "found": 1},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, epilogue=("tanh",)),
            "epilogue.step",
            {"value": "tanh"},
        ),
        (
            lambda: Gemm(8, 8, 8, epilogue=("relu", "relu")),
            "epilogue.twice",
            {"steps": ("relu", "relu")},
        ),
        (
            lambda: conv2d(1, 8, 8, 8, 8, 3, 3, dtype="int8", epilogue=("gelu",)),
            "epilogue.integers",
            {"step": "gelu", "accumulator": "int32"},
        ),
        (lambda: GROUPED.contraction(fold=True), "conv.fold", {"workload": GROUPED.name}),
        (
            lambda: SAME.contraction(fold=True, phases=2),
            "conv.phases",
            {"workload": SAME.name, "phases": 2, "row": 7},
        ),
        (
            lambda: SAME.contraction(phases=7),
            "conv.phases_unfolded",
            {"workload": SAME.name, "phases": 7},
        ),
        (
            lambda: ConvTile(16, 16, 16, phases=2).contraction(ConvInputGrad(SAME)),
            "conv.phases_unfolded",
            {"workload": f"input_grad_{SAME.name}", "phases": 2},
        ),
        (
            lambda: ConvInputGrad(STRIDED).contraction(fold=True),
            "conv.fold_gradient",
            {"workload": f"input_grad_{STRIDED.name}"},
        ),
        (
            lambda: ConvWeightGrad(replace(SAME, epilogue=("relu",))),
            "conv.gradient",
            {"workload": f"{SAME.name}_relu", "step": "relu"},
        ),
    ],
)
def test_a_convolution_that_makes_no_sense_is_refused(make, code, args):
    with refused(code, WorkloadError, **args):
        make()


def test_every_rank_has_its_short_form():
    made = [
        conv1d(1, 9, 4, 4, 3, stride=2),
        conv2d(1, 9, 9, 4, 4, 3, 3, stride=2),
        conv3d(1, 9, 9, 9, 4, 4, 3, 3, 3, stride=2),
    ]
    assert [conv.out_size for conv in made] == [(4,), (4, 4), (4, 4, 4)]
    assert [conv.layout for conv in made] == ["NWC", "NHWC", "NDHWC"]
    assert len(list(itertools.chain(*(conv.stride for conv in made)))) == 6


def test_pixels_of_one_image_are_copied_in_vectors_where_channels_lie_outside():
    """A 1 x 1 kernel reads its image as it lies; over several images pixels are no run."""
    conv = conv2d(4, 12, 12, 64, 64, 1, 1, layout="NCHW")
    widths = []
    for by_image in (False, True):
        tile = ConvTile(64, 64, 32, by_image=by_image)
        plan = pipeliner.plan_of(pipeliner.pipeline(schedule_conv(conv, tile), "a100"))
        widths.append({copy.src: copy.vector_bytes for copy in plan.copies})
    assert widths == [{"X": 2, "W": 16}, {"X": 16, "W": 16}]
    assert default_tile(conv2d(32, 28, 28, 512, 128, 1, 1, layout="NCHW"), H100).by_image


def test_images_are_kept_apart_in_convolutions_alone():
    with refused("conv.by_image_gradient", WorkloadError):
        ConvTile(16, 16, 16, by_image=True).contraction(ConvInputGrad(FIRST))
    with refused("conv.by_image_folded", WorkloadError):
        ConvTile(16, 16, 16, fold=True, by_image=True).contraction(SAME)
