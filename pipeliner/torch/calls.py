"""What a user calls: straight to a kernel where nothing but the result is asked for, else the op.

Gradients, ``torch.compile``, autocast, modes and transforms of functions (``torch.func``) need
torch's dispatcher; a call that meets none of them saves the microseconds that it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.nn import functional

from ..diagnostics import Reason
from . import kernels, ops
from .problems import Window
from .said import left

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """``torch.nn.functional.linear``: each row of ``input`` times the rows of ``weight``."""
    if _are_plain(input, weight, bias):
        return kernels.linear(input, weight, bias)
    return ops.linear(input, weight, bias)


def matmul(input: Any, other: Any) -> Any:
    """``torch.matmul``: rows of one matrix or of many by a matrix, or as many pairs of matrices."""
    if _are_plain(input, other):
        return kernels.matmul(input, other)
    return ops.matmul(input, other)


def fused_linear(
    input: Any, weight: Any, bias: Any = None, activation: str = "", residual: Any = None
) -> Any:
    """``activation(linear(input, weight, bias)) + residual`` in one kernel.

    ``activation``: ``silu``, ``gelu``, ``relu`` or none. ``residual``: of the output's shape.
    """
    if _are_plain(input, weight, bias) and (residual is None or _has_no_more(residual)):
        return kernels.fused_linear(input, weight, bias, activation, residual)
    return ops.fused_linear(input, weight, bias, activation, residual)


def gated(input: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    """``activation(linear(input, gate)) * linear(input, value)``: SwiGLU, GEGLU or ReGLU.

    ``activation``: ``silu``, ``gelu`` or ``relu``.
    """
    if _are_plain(input, gate, value):
        return kernels.gated(input, gate, value, activation)
    return ops.gated(input, gate, value, activation)


def attention(
    query: Any, key: Any, value: Any, causal: bool = False, scale: float | None = None
) -> Any:
    """``torch.nn.functional.scaled_dot_product_attention`` without a mask or dropout.

    Tensors are (batch, heads, tokens, dim), as they are or as views of (batch, tokens, heads, dim),
    of the first tokens of a cache or of some heads of a product; none is copied. ``key`` and
    ``value`` may have fewer heads, of which each belongs to neighbouring ones of ``query``. The
    output's tokens lie before its heads where those of ``query`` do. ``causal``: query i sees keys
    0 to i.
    """
    if _are_plain(query, key, value):
        return kernels.attention(query, key, value, causal, scale)
    return ops.attention(query, key, value, causal, scale)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """``torch.nn.functional.conv2d``; kernels are built for images that are channels_last."""
    steps, apart = _two(stride), _two(dilation)
    if isinstance(padding, str):
        whole = [step * (extent - 1) for step, extent in zip(apart, weight.shape[-2:])]
        if padding == "same" and any(pad % 2 for pad in whole):
            left("conv2d", Reason("torch.padding", pads=tuple(whole)))
            return functional.conv2d(input, weight, bias, stride, padding, dilation, groups)
        pads = (whole[0] // 2, whole[1] // 2) if padding == "same" else (0, 0)
    else:
        pads = _two(padding)
    if _are_plain(input, weight, bias):
        return kernels.conv2d(input, weight, bias, Window(steps, pads, apart, groups))
    return ops.conv2d(input, weight, bias, steps, pads, apart, groups)


def _are_plain(first: Any, second: Any, third: Any = None) -> bool:
    """Whether nothing but the result is asked for of a call with these operands."""
    return (
        not _is_observed()
        and _has_no_more(first)
        and _has_no_more(second)
        and (third is None or _has_no_more(third))
    )


def _is_observed() -> bool:
    """Whether a compiler, a mode, autocast or a transform of functions looks at calls of ops."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.is_autocast_enabled("cuda")
        or torch.is_autocast_enabled("cpu")
        or torch._C._get_tracing_state() is not None
        or forward_ad._current_level >= 0
    )


def _has_no_more(tensor: Any) -> bool:
    """Whether ``tensor`` is its elements alone: no subclass, no gradient wanted, not negated."""
    return (
        type(tensor) in _PLAIN
        and not (tensor.requires_grad and torch.is_grad_enabled())
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def _two(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return (value, value)
    first, *others = value
    return (first, others[0]) if others else (first, first)
