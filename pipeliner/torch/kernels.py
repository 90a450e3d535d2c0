"""The ops below autograd: by a kernel of ours where there is one, else by PyTorch's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.nn import functional

from .attention import attended, tokens_first
from .dispatch import run, strided
from .problems import (
    Window,
    convolution,
    gated_product,
    input_gradient,
    is_channels_last,
    product,
    weight_gradient,
)

_FLOAT32: Final = torch.float32


def linear(x: Any, w: Any, bias: Any = None) -> Any:
    """What ``torch.nn.functional.linear`` returns."""
    tf32 = x.dtype is _FLOAT32 and _products_by_tf32()
    try:
        key = ("linear", tf32, *_known(x), *_known(w), None if bias is None else _known(bias))
    except RuntimeError:  # it has no strides: another layout than torch.strided
        return functional.linear(x, w, bias)
    operands = (x, w) if bias is None else (x, w, bias)

    def problem() -> Any:
        given = None if bias is None else strided(bias)
        return product(strided(x), strided(w.t()), given, tf32=tf32)

    out = run("linear", key, operands, problem)
    return functional.linear(x, w, bias).contiguous() if out is None else out


def fused_linear(
    x: Any, w: Any, bias: Any = None, activation: str = "", residual: Any = None
) -> Any:
    """What ``activation(linear(x, w, bias)) + residual`` is."""
    tf32 = x.dtype is _FLOAT32 and _products_by_tf32()
    extras = (bias, residual)
    try:
        known = [None if one is None else _known(one) for one in extras]
        key = ("fused_linear", activation, tf32, *_known(x), *_known(w), *known)
    except RuntimeError:
        return fused_by(functional.linear, x, w, bias, activation, residual)

    def problem() -> Any:
        given = [None if one is None else strided(one) for one in extras]
        return product(
            *(strided(x), strided(w.t()), given[0]),
            activation=activation,
            residual=given[1],
            tf32=tf32,
        )

    operands = [x, w, *(one for one in extras if one is not None)]
    out = run("fused_linear", key, operands, problem)
    if out is None:
        return fused_by(functional.linear, x, w, bias, activation, residual)
    return out


def fused_by(
    linear: Any, x: Any, w: Any, bias: Any = None, activation: str = "", residual: Any = None
) -> Any:
    """The same by a call of ``linear``, and what follows it by PyTorch."""
    made = linear(x, w, bias)
    made = getattr(functional, activation)(made) if activation else made
    return (made if residual is None else made + residual).contiguous()


def matmul(a: Any, b: Any) -> Any:
    """What ``torch.matmul`` returns."""
    tf32 = a.dtype is _FLOAT32 and _products_by_tf32()
    try:
        key = ("matmul", tf32, *_known(a), *_known(b))
    except RuntimeError:
        return torch.matmul(a, b)
    out = run("matmul", key, (a, b), lambda: product(strided(a), strided(b), tf32=tf32))
    return torch.matmul(a, b).contiguous() if out is None else out


def gated(x: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    """What ``activation(linear(x, gate)) * linear(x, value)`` is."""
    tf32 = x.dtype is _FLOAT32 and _products_by_tf32()
    try:
        key = ("gated", activation, tf32, *_known(x), *_known(gate), *_known(value))
    except RuntimeError:
        return gated_by(functional.linear, x, gate, value, activation)

    def problem() -> Any:
        matrices = strided(gate.t()), strided(value.t())
        return gated_product(strided(x), *matrices, activation, tf32=tf32)

    out = run("gated", key, (x, gate, value), problem)
    return gated_by(functional.linear, x, gate, value, activation) if out is None else out


def gated_by(linear: Any, x: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    """The same by two calls of ``linear``."""
    made = getattr(functional, activation)(linear(x, gate)) * linear(x, value)
    return made.contiguous()


def attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    """What ``torch.nn.functional.scaled_dot_product_attention`` returns."""
    try:
        key = ("attention", causal, scale, *_known(q), *_known(k), *_known(v))
    except RuntimeError:
        return attention_by_torch(q, k, v, causal, scale)

    def problem() -> Any:
        return attended(strided(q), strided(k), strided(v), causal=causal, scale=scale)

    out = run("attention", key, (q, k, v), problem)
    return attention_by_torch(q, k, v, causal, scale) if out is None else out


def attention_by_torch(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None
) -> Any:
    """The same by PyTorch's own."""
    grouped = bool(q.dim() == k.dim() == 4 and q.shape[1] != k.shape[1])
    made = functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped
    )
    return lying_as(q, made)


def lying_as(q: Any, made: Any) -> Any:
    """``made`` with its tokens before its heads in memory where those of ``q`` are, else dense."""
    if q.layout is torch.strided and tokens_first(q.shape, q.stride()):
        return made.transpose(1, 2).contiguous().transpose(1, 2)
    return made.contiguous()


def conv2d(x: Any, w: Any, bias: Any, window: Window) -> Any:
    """What ``torch.nn.functional.conv2d`` returns, channels_last or contiguous."""
    tf32 = x.dtype is _FLOAT32 and _convolutions_by_tf32()
    filters = _last(w) if _takes_last(x) else w
    try:
        known = None if bias is None else _known(bias)
        key = (window, tf32, *_known(x), *_known(w), known)
    except RuntimeError:
        return functional.conv2d(x, w, bias, *_numbers(window))
    operands = (x, filters) if bias is None else (x, filters, bias)

    def problem() -> Any:
        given = None if bias is None else strided(bias)
        last = is_channels_last(strided(x), strided(w))
        return convolution(strided(x), strided(filters), given, window, last=last, tf32=tf32)

    out = run("conv2d", key, operands, problem)
    if out is None:
        made = functional.conv2d(x, w, bias, *_numbers(window))
        return made.contiguous(memory_format=image_format(x, w))
    return out


def conv2d_input_gradient(dy: Any, w: Any, size: Sequence[int], window: Window) -> Any:
    """The gradient of the input, whose shape is ``size``, channels_last."""
    tf32 = dy.dtype is _FLOAT32 and _convolutions_by_tf32()
    gradient, filters = _last(dy), _last(w)
    shape = tuple(size)
    key = ("input", shape, window, tf32, *_known(gradient), *_known(filters))

    def problem() -> Any:
        return input_gradient(strided(gradient), strided(filters), shape, window, tf32=tf32)

    out = run("conv2d_input_gradient", key, (gradient, filters), problem)
    if out is None:
        made = torch.nn.grad.conv2d_input(shape, w, dy, *_numbers(window))
        return _last(made)
    return out


def conv2d_weight_gradient(dy: Any, x: Any, size: Sequence[int], window: Window) -> Any:
    """The gradient of the filters, whose shape is ``size``, channels_last."""
    tf32 = dy.dtype is _FLOAT32 and _convolutions_by_tf32()
    gradient, image = _last(dy), _last(x)
    shape = tuple(size)
    key = ("weight", shape, window, tf32, *_known(gradient), *_known(image))

    def problem() -> Any:
        return weight_gradient(strided(gradient), strided(image), shape, window, tf32=tf32)

    out = run("conv2d_weight_gradient", key, (gradient, image), problem)
    if out is None:
        made = torch.nn.grad.conv2d_weight(x, shape, dy, *_numbers(window))
        return _last(made)
    return out


def image_format(x: Any, w: Any) -> Any:
    """The memory format of a convolution's output, as PyTorch chooses it."""
    last = x.dim() == 4 and is_channels_last(strided(x), strided(w))
    return torch.channels_last if last else torch.contiguous_format


def _known(tensor: Any) -> tuple[Any, ...]:
    """What a key says of a tensor."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()


def _takes_last(x: Any) -> bool:
    return x.dim() == 4 and bool(x.is_contiguous(memory_format=torch.channels_last))


def _last(image: Any) -> Any:
    """``image`` as channels_last; itself where it is."""
    return image.contiguous(memory_format=torch.channels_last) if image.dim() == 4 else image


def _numbers(window: Window) -> tuple[Any, ...]:
    return window.stride, window.padding, window.dilation, window.groups


def _products_by_tf32() -> bool:
    """Whether the user lets products of float32 be multiplied as tf32."""
    return _allows(torch.backends.cuda.matmul, torch.backends.cuda.matmul)


def _convolutions_by_tf32() -> bool:
    """The same of convolutions, for which PyTorch has a switch of its own."""
    return _allows(torch.backends.cudnn, torch.backends.cudnn.conv)


def _allows(older: Any, newer: Any) -> bool:
    try:
        return bool(older.allow_tf32)
    except RuntimeError:  # it was set by the newer switch, which says more
        return bool(newer.fp32_precision == "tf32")
