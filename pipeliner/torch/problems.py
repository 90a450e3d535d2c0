"""What a call of PyTorch is as a workload: from shapes, strides and types; no torch is needed.

    matmul of (8, 128, 64) and a transposed (64, 32)   =>  Gemm(1024, 32, 64, layout="NT")
    conv2d of a channels_last image and filters        =>  Conv(..., layout="NHWC")

Operands are read where they lie: what is a matter of strides is a layout of the workload, and no
copy. WorkloadError gives the reason why a call is left to PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import WorkloadError
from ..schedules.workloads import (
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    GatedGemm,
    Gemm,
    Spec,
    conv2d,
)

DTYPES_TAKEN: Final = ("float16", "bfloat16", "float32")
"""Types of tensors that kernels are built for; other types are left to PyTorch."""

CHANNELS_LAST: Final = (0, 2, 3, 1)
"""The order of axes in memory of an image that is channels_last."""


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor without its data: shape and strides in elements, type as torch calls it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A workload, the shape of the tensor that it makes, and the order of its axes in memory.

    ``axes``: empty where that is their own order.
    """

    spec: Spec
    out: tuple[int, ...]
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution moves over its image: numbers of two dimensions, and groups."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


def product(
    a: Strided,
    b: Strided,
    bias: Strided | None = None,
    *,
    activation: str = "",
    residual: Strided | None = None,
    tf32: bool = False,
) -> TorchCall:
    """``torch.matmul(a, b)``, ``bias`` added to each row, ``activation`` of it, and ``residual``.

    ``b`` is a matrix, and ``a`` has any number of rows in any number of axes; or both are as many
    matrices. ``tf32``: float32 may be multiplied as tf32.
    """
    dtype = _dtype((a, b), tf32=tf32)
    axes = (len(a.shape), len(b.shape))
    if axes[0] < 2 or axes[1] < 2 or (axes[1] > 2 and a.shape[:-2] != b.shape[:-2]):
        expected = "a matrix or a batch by a matrix, or two batches of one size"
        raise WorkloadError("torch.axes", expected=expected, found=axes)
    if a.shape[-1] != b.shape[-2]:
        raise WorkloadError("torch.extents", found=(str(a.shape), str(b.shape)))
    _no_empty(a, b)
    out = (*a.shape[:-1], b.shape[-1])
    if axes[1] == 2:
        a = _one_matrix(a)
    batch = math.prod(b.shape[:-2]) if axes[1] > 2 else None
    layout = _order("a", a) + _order("b", b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    if bias is not None:
        _check_bias(bias, n, a.dtype)
    if residual is not None:
        _check_residual(residual, out, a.dtype)
    steps = (
        (bias is not None, "bias"),
        (bool(activation), activation),
        (residual is not None, "residual"),
    )
    epilogue = tuple(step for asked, step in steps if asked)
    gemm = Gemm(m, n, k, batch, dtype, layout, out=a.dtype, epilogue=epilogue)
    return TorchCall(gemm, out)


def gated_product(
    a: Strided, gate: Strided, value: Strided, activation: str, *, tf32: bool = False
) -> TorchCall:
    """``activation(a @ gate) * (a @ value)`` of two matrices of one shape."""
    one, other = (product(a, b, tf32=tf32) for b in (gate, value))
    assert isinstance(one.spec, Gemm)
    if len(gate.shape) != 2 or one.spec != other.spec:
        found = tuple(f"{b.shape} of strides {b.strides}" for b in (gate, value))
        raise WorkloadError("torch.gated", found=found)
    names = ("m", "n", "k", "batch", "dtype", "layout", "accumulator", "out")
    same = {name: getattr(one.spec, name) for name in names}
    return TorchCall(GatedGemm(**same, activation=activation), one.out)


def convolution(
    x: Strided,
    w: Strided,
    bias: Strided | None,
    window: Window,
    *,
    last: bool = True,
    tf32: bool = False,
) -> TorchCall:
    """``torch.nn.functional.conv2d`` of channels_last tensors.

    ``last``: whether the caller expects that of its output; where either format is the same to
    him, it does not matter.
    """
    conv = _convolution(x.shape, w.shape, window, _dtype((x, w), tf32=tf32), (x, w), bias)
    _check_last("x", x)
    _check_last("w", w)
    out = (conv.n, conv.k, *conv.out_size)
    if not last and conv.k > 1 and math.prod(conv.out_size) > 1:
        raise WorkloadError("torch.channels_first", name="x", strides=x.strides)
    return TorchCall(conv, out, CHANNELS_LAST)


def input_gradient(
    dy: Strided, w: Strided, size: Sequence[int], window: Window, *, tf32: bool = False
) -> TorchCall:
    """The gradient of a convolution's input, whose shape is ``size``, from that of its output."""
    conv = _convolution(size, w.shape, window, _dtype((dy, w), tf32=tf32), (dy, w))
    _check_gradient(conv, dy)
    _check_last("w", w)
    return TorchCall(ConvInputGrad(conv), tuple(size), CHANNELS_LAST)


def weight_gradient(
    dy: Strided, x: Strided, size: Sequence[int], window: Window, *, tf32: bool = False
) -> TorchCall:
    """The gradient of a convolution's filters, whose shape is ``size``, from its output's."""
    conv = _convolution(x.shape, size, window, _dtype((dy, x), tf32=tf32), (dy, x))
    _check_gradient(conv, dy)
    _check_last("x", x)
    return TorchCall(ConvWeightGrad(conv), tuple(size), CHANNELS_LAST)


def is_channels_last(x: Strided, w: Strided) -> bool:
    """Whether PyTorch makes a channels_last image of ``x`` and ``w``: one of them is, for certain.

    A tensor with one channel, or of one pixel, is of either format, and says nothing.
    """
    return any(_lies_last(one) and not _lies_first(one) for one in (x, w))


def in_memory(problem: TorchCall) -> tuple[tuple[int, ...], ...]:
    """Shapes of a workload's arguments as they lie in memory, the output last."""
    spec = problem.spec
    return spec.shapes() if not isinstance(spec, Gemm) else spec.shapes(None)


def _dtype(tensors: Sequence[Strided], *, tf32: bool) -> str:
    found = tuple(dict.fromkeys(one.dtype for one in tensors))
    if len(found) > 1 or found[0] not in DTYPES_TAKEN:
        raise WorkloadError("torch.dtype", choices=DTYPES_TAKEN, found=found)
    return "tfloat32" if found[0] == "float32" and tf32 else found[0]


def _no_empty(*tensors: Strided) -> None:
    if any(0 in one.shape for one in tensors):
        raise WorkloadError("torch.empty")


def _one_matrix(a: Strided) -> Strided:
    """``a`` with all its rows in one axis."""
    if len(a.shape) == 2:
        return a
    if not _is_dense(a.shape, a.strides):
        raise WorkloadError("torch.strides", name="a", strides=a.strides)
    columns = a.shape[-1]
    return Strided((math.prod(a.shape[:-1]), columns), (columns, 1), a.dtype)


def _order(name: str, matrix: Strided) -> str:
    """``N`` where rows lie without gaps, ``T`` where columns do, each matrix behind the other."""
    shape, strides = matrix.shape, matrix.strides
    if _is_dense(shape, strides):
        return "N"
    if _is_dense((*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])):
        return "T"
    raise WorkloadError("torch.strides", name=name, strides=strides)


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie in order without gaps; strides of one element say nothing."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _check_bias(bias: Strided, channels: int, dtype: str) -> None:
    if bias.shape != (channels,) or bias.dtype != dtype or not _is_dense(bias.shape, bias.strides):
        raise WorkloadError("torch.bias", expected=channels)


def _check_residual(residual: Strided, out: tuple[int, ...], dtype: str) -> None:
    if residual.shape != out or residual.dtype != dtype:
        raise WorkloadError("torch.residual", expected=out)
    if not _is_dense(residual.shape, residual.strides):
        raise WorkloadError("torch.strides", name="residual", strides=residual.strides)


def _convolution(
    x: Sequence[int],
    w: Sequence[int],
    window: Window,
    dtype: str,
    tensors: Sequence[Strided],
    bias: Strided | None = None,
) -> Conv:
    axes = tuple(len(one.shape) for one in tensors)
    if len(x) != 4 or len(w) != 4 or axes != (4, 4):
        raise WorkloadError("torch.axes", expected="a batch of images and filters", found=axes)
    _no_empty(*tensors)
    (n, c, height, width), (k, each, r, s) = x, w
    if each * window.groups != c:
        raise WorkloadError("torch.extents", found=(str(tuple(x)), str(tuple(w))))
    storage = tensors[0].dtype
    if bias is not None:
        _check_bias(bias, k, storage)
    return conv2d(
        n,
        height,
        width,
        c,
        k,
        r,
        s,
        stride=window.stride,
        pad=window.padding,
        dilation=window.dilation,
        groups=window.groups,
        dtype=dtype,
        out=storage,
        epilogue=("bias",) if bias is not None else (),
    )


def _check_gradient(conv: Conv, dy: Strided) -> None:
    if dy.shape != (conv.n, conv.k, *conv.out_size):
        raise WorkloadError("torch.extents", found=(str(dy.shape), str(conv.out_size)))
    _check_last("dy", dy)


def _check_last(name: str, image: Strided) -> None:
    if not _lies_last(image):
        raise WorkloadError("torch.channels_first", name=name, strides=image.strides)


def _lies_last(image: Strided) -> bool:
    shape, strides = image.shape, image.strides
    return len(shape) == 4 and _is_dense(
        (shape[0], *shape[2:], shape[1]), (strides[0], *strides[2:], strides[1])
    )


def _lies_first(image: Strided) -> bool:
    return _is_dense(image.shape, image.strides)
