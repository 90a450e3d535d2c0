"""Which workload a call of PyTorch is, and which calls are left to it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipeliner.errors import WorkloadError
from pipeliner.schedules.workloads import Conv, ConvInputGrad, ConvWeightGrad, Gemm
from pipeliner.torch.problems import (
    Strided,
    Window,
    convolution,
    in_memory,
    input_gradient,
    is_channels_last,
    product,
    weight_gradient,
)
from tests.refusals import refused

HALF = "float16"
ONE = Window((1, 1), (0, 0), (1, 1), 1)


def dense(*shape: int, dtype: str = HALF) -> Strided:
    strides = tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))
    return Strided(shape, strides, dtype)


def transposed(*shape: int, dtype: str = HALF) -> Strided:
    """Of the shape ``shape``, stored with its last two axes exchanged."""
    other = dense(*shape[:-2], shape[-1], shape[-2], dtype=dtype)
    *first, a, b = other.strides
    return Strided(shape, (*first, b, a), dtype)


def last(n: int, c: int, h: int, w: int, dtype: str = HALF) -> Strided:
    return Strided((n, c, h, w), (h * w * c, 1, w * c, c), dtype)


@pytest.mark.parametrize(
    ("a", "b", "gemm", "out"),
    [
        (dense(8, 32), dense(32, 16), Gemm(8, 16, 32, layout="NN"), (8, 16)),
        (dense(8, 32), transposed(32, 16), Gemm(8, 16, 32, layout="NT"), (8, 16)),
        (transposed(8, 32), dense(32, 16), Gemm(8, 16, 32, layout="TN"), (8, 16)),
        (transposed(8, 32), transposed(32, 16), Gemm(8, 16, 32, layout="TT"), (8, 16)),
        (dense(2, 4, 32), transposed(32, 16), Gemm(8, 16, 32, layout="NT"), (2, 4, 16)),
        (dense(3, 8, 32), dense(3, 32, 16), Gemm(8, 16, 32, 3, layout="NN"), (3, 8, 16)),
        (dense(3, 2, 8, 4), transposed(3, 2, 4, 5), Gemm(8, 5, 4, 6), (3, 2, 8, 5)),
        (dense(1, 32), dense(32, 16), Gemm(1, 16, 32, layout="NN"), (1, 16)),
    ],
)
def test_products(a: Strided, b: Strided, gemm: Gemm, out: tuple[int, ...]) -> None:
    found = product(a, b)
    assert found.spec == gemm
    assert found.out == out
    assert math.prod(in_memory(found)[-1]) == math.prod(out)


def test_types_of_products() -> None:
    wide = dense(8, 8, dtype="float32")
    assert product(wide, wide).spec.dtype == "float32"
    assert product(wide, wide, tf32=True).spec.dtype == "tfloat32"
    assert product(wide, wide, tf32=True).spec.out == "float32"
    brief = dense(8, 8, dtype="bfloat16")
    assert product(brief, brief).spec.out == "bfloat16"


def test_a_bias() -> None:
    spec = product(dense(8, 32), dense(32, 16), dense(16)).spec
    assert isinstance(spec, Gemm)
    assert spec.epilogue == ("bias",)
    for bias in (dense(8), dense(16, dtype="float32"), Strided((16,), (2,), HALF), dense(1, 16)):
        with refused("torch.bias", WorkloadError, expected=16):
            product(dense(8, 32), dense(32, 16), bias)


def test_what_follows_a_product() -> None:
    a, b, bias = dense(2, 4, 32), dense(32, 16), dense(16)
    spec = product(a, b, bias, activation="gelu", residual=dense(2, 4, 16)).spec
    assert spec == Gemm(8, 16, 32, layout="NN", epilogue=("bias", "gelu", "residual"))
    for residual, code in (
        (dense(8, 16), "torch.residual"),
        (dense(2, 4, 16, dtype="float32"), "torch.residual"),
        (transposed(2, 4, 16), "torch.strides"),
    ):
        with refused(code, WorkloadError):
            product(a, b, residual=residual)
    with refused("epilogue.step", WorkloadError):
        product(a, b, activation="tanh")


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        (dense(8, 8, dtype="float64"), dense(8, 8, dtype="float64"), "torch.dtype"),
        (dense(8, 8), dense(8, 8, dtype="float32"), "torch.dtype"),
        (dense(8), dense(8, 8), "torch.axes"),
        (dense(2, 8, 8), dense(3, 8, 8), "torch.axes"),
        (dense(8, 8), dense(2, 8, 8), "torch.axes"),
        (dense(8, 8), dense(4, 8), "torch.extents"),
        (dense(0, 8), dense(8, 8), "torch.empty"),
        (dense(8, 0), dense(0, 8), "torch.empty"),
        (Strided((8, 8), (16, 1), HALF), dense(8, 8), "torch.strides"),
        (Strided((8, 8), (0, 0), HALF), dense(8, 8), "torch.strides"),
        (Strided((2, 8, 8), (64, 1, 8), HALF), dense(8, 8), "torch.strides"),
        (dense(8, 8), Strided((8, 8), (8, 2), HALF), "torch.strides"),
    ],
)
def test_products_that_are_left_to_pytorch(a: Strided, b: Strided, code: str) -> None:
    with refused(code, WorkloadError):
        product(a, b)


def test_strides_of_one_element_say_nothing() -> None:
    one = Strided((1, 32), (999, 1), HALF)
    assert product(one, dense(32, 16)).spec == Gemm(1, 16, 32, layout="NN")


def test_a_convolution() -> None:
    window = Window((2, 2), (1, 0), (1, 2), 2)
    found = convolution(last(2, 8, 9, 11), last(6, 4, 3, 3), dense(6), window)
    conv = found.spec
    assert isinstance(conv, Conv)
    assert (conv.n, conv.size, conv.c, conv.k, conv.kernel) == (2, (9, 11), 8, 6, (3, 3))
    assert (conv.stride, conv.pad, conv.dilation) == ((2, 2), ((1, 1), (0, 0)), (1, 2))
    assert (conv.groups, conv.layout, conv.epilogue) == (2, "NHWC", ("bias",))
    assert found.out == (2, 6, 5, 4)
    assert in_memory(found)[-1] == (2, 5, 4, 6)


def test_gradients_of_a_convolution() -> None:
    x, w, dy = last(2, 8, 9, 9), last(6, 8, 3, 3), last(2, 6, 7, 7)
    conv = convolution(x, w, None, ONE).spec
    by_input = input_gradient(dy, w, x.shape, ONE)
    assert by_input.spec == ConvInputGrad(conv)
    assert (by_input.out, in_memory(by_input)[-1]) == (x.shape, (2, 9, 9, 8))
    by_weight = weight_gradient(dy, x, w.shape, ONE)
    assert by_weight.spec == ConvWeightGrad(conv)
    assert (by_weight.out, in_memory(by_weight)[-1]) == (w.shape, (6, 3, 3, 8))
    with refused("torch.extents", WorkloadError):
        input_gradient(last(2, 6, 8, 8), w, x.shape, ONE)


@pytest.mark.parametrize(
    ("x", "w", "options", "code"),
    [
        (dense(2, 8, 9, 9), last(6, 8, 3, 3), {}, "torch.channels_first"),
        (last(2, 8, 9, 9), dense(6, 8, 3, 3), {}, "torch.channels_first"),
        (last(2, 1, 9, 9), last(6, 1, 3, 3), {"last": False}, "torch.channels_first"),
        (dense(8, 9, 9), last(6, 8, 3, 3), {}, "torch.axes"),
        (last(2, 8, 9, 9), last(6, 4, 3, 3), {}, "torch.extents"),
        (last(0, 8, 9, 9), last(6, 8, 3, 3), {}, "torch.empty"),
        (last(2, 8, 2, 2), last(6, 8, 3, 3), {}, "conv.empty"),
    ],
)
def test_convolutions_that_are_left_to_pytorch(
    x: Strided, w: Strided, options: dict[str, Any], code: str
) -> None:
    with refused(code, WorkloadError):
        convolution(x, w, None, ONE, **options)


def test_which_format_pytorch_makes() -> None:
    assert is_channels_last(last(2, 8, 9, 9), dense(6, 8, 3, 3))
    assert is_channels_last(dense(2, 8, 9, 9), last(6, 8, 3, 3))
    assert not is_channels_last(dense(2, 8, 9, 9), dense(6, 8, 3, 3))
    assert not is_channels_last(dense(2, 1, 9, 9), dense(6, 8, 1, 1))
