"""The ops ``torch.ops.pipeliner.*``: their schemas, shapes without data, gradients and autocast.

A gradient of a product or a convolution is a product or a convolution, so each op's gradient is
made of these ops, and they can be differentiated again. In the kernels for autograd a call without
gradients goes straight to its kernel: a second way through the dispatcher takes microseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.nn import functional

from ..diagnostics import Reason
from . import dispatch, kernels, launching, said
from .problems import Window

NAMESPACE: Final = "pipeliner"

_WINDOW: Final = "SymInt[2] stride, SymInt[2] padding, SymInt[2] dilation, SymInt groups"

SCHEMAS: Final = {
    "linear": "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "matmul": "(Tensor input, Tensor other) -> Tensor",
    "fused_linear": (
        "(Tensor input, Tensor weight, Tensor? bias=None, str activation='', "
        "Tensor? residual=None) -> Tensor"
    ),
    "gated": '(Tensor input, Tensor gate, Tensor value, str activation="silu") -> Tensor',
    "attention": (
        "(Tensor query, Tensor key, Tensor value, bool causal=False, float? scale=None) -> Tensor"
    ),
    "conv2d": f"(Tensor input, Tensor weight, Tensor? bias, {_WINDOW}) -> Tensor",
    "conv2d_input_gradient": f"(Tensor dy, Tensor weight, SymInt[4] size, {_WINDOW}) -> Tensor",
    "conv2d_weight_gradient": f"(Tensor dy, Tensor input, SymInt[4] size, {_WINDOW}) -> Tensor",
}

_LIBRARY: Final = torch.library.Library(NAMESPACE, "DEF")


def linear(x: Any, w: Any, bias: Any = None) -> Any:
    """The op ``linear``, through torch's dispatcher."""
    return torch.ops.pipeliner.linear.default(x, w, bias)


def matmul(a: Any, b: Any) -> Any:
    """The op ``matmul``, through torch's dispatcher."""
    return torch.ops.pipeliner.matmul.default(a, b)


def fused_linear(x: Any, w: Any, bias: Any, activation: str, residual: Any) -> Any:
    """The op ``fused_linear``, through torch's dispatcher."""
    return torch.ops.pipeliner.fused_linear.default(x, w, bias, activation, residual)


def gated(x: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    """The op ``gated``, through torch's dispatcher."""
    return torch.ops.pipeliner.gated.default(x, gate, value, activation)


def attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    """The op ``attention``, through torch's dispatcher."""
    return torch.ops.pipeliner.attention.default(q, k, v, causal, scale)


def conv2d(x: Any, w: Any, bias: Any, *window: Any) -> Any:
    """The op ``conv2d``, through torch's dispatcher."""
    return torch.ops.pipeliner.conv2d.default(x, w, bias, *window)


def conv2d_input_gradient(dy: Any, w: Any, size: Any, *window: Any) -> Any:
    """The op ``conv2d_input_gradient``, through torch's dispatcher."""
    return torch.ops.pipeliner.conv2d_input_gradient.default(dy, w, size, *window)


def conv2d_weight_gradient(dy: Any, x: Any, size: Any, *window: Any) -> Any:
    """The op ``conv2d_weight_gradient``, through torch's dispatcher."""
    return torch.ops.pipeliner.conv2d_weight_gradient.default(dy, x, size, *window)


class LinearGradient(torch.autograd.Function):
    """``linear`` where a gradient is wanted."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any) -> Any:
        ctx.save_for_backward(x, w)
        ctx.bias = None if bias is None else bias.shape
        return linear(x, w, bias)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        dx = dw = db = None
        dy = dy.contiguous()
        rows = dy.reshape(-1, dy.shape[-1])
        if ctx.needs_input_grad[0]:
            dx = matmul(dy, w)
        if ctx.needs_input_grad[1]:
            dw = matmul(rows.t(), x.reshape(-1, x.shape[-1]))
        if ctx.needs_input_grad[2]:
            db = rows.sum_to_size(ctx.bias)
        return dx, dw, db


class MatmulGradient(torch.autograd.Function):
    """``matmul`` where a gradient is wanted."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return matmul(a, b)

    @staticmethod
    def backward(ctx: Any, dc: Any) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        da = db = None
        dc = dc.contiguous()
        if ctx.needs_input_grad[0]:
            da = matmul(dc, b.mT)
        if ctx.needs_input_grad[1]:
            if b.dim() == 2:  # one matrix for all rows of a
                db = matmul(a.reshape(-1, a.shape[-1]).t(), dc.reshape(-1, dc.shape[-1]))
            else:
                db = matmul(a.mT, dc)
        return da, db


class ConvGradients(torch.autograd.Function):
    """``conv2d`` where a gradient is wanted."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any, *window: Any) -> Any:
        ctx.save_for_backward(x, w)
        ctx.window = window
        return conv2d(x, w, bias, *window)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = conv2d_input_gradient(dy, w, x.shape, *ctx.window)
        if ctx.needs_input_grad[1]:
            dw = conv2d_weight_gradient(dy, x, w.shape, *ctx.window)
        if ctx.needs_input_grad[2]:
            db = dy.sum((0, 2, 3))
        return dx, dw, db, None, None, None, None


class InputGradientGradient(torch.autograd.Function):
    """``conv2d_input_gradient`` where a gradient is wanted: it is linear in either operand."""

    @staticmethod
    def forward(ctx: Any, dy: Any, w: Any, size: Any, *window: Any) -> Any:
        ctx.save_for_backward(dy, w)
        ctx.window = window
        return conv2d_input_gradient(dy, w, size, *window)

    @staticmethod
    def backward(ctx: Any, ddx: Any) -> tuple[Any, ...]:
        dy, w = ctx.saved_tensors
        ddy = dw = None
        if ctx.needs_input_grad[0]:
            ddy = conv2d(ddx, w, None, *ctx.window)
        if ctx.needs_input_grad[1]:
            dw = conv2d_weight_gradient(dy, ddx, w.shape, *ctx.window)
        return ddy, dw, None, None, None, None, None


class WeightGradientGradient(torch.autograd.Function):
    """``conv2d_weight_gradient`` where a gradient is wanted: it is linear in either operand."""

    @staticmethod
    def forward(ctx: Any, dy: Any, x: Any, size: Any, *window: Any) -> Any:
        ctx.save_for_backward(dy, x)
        ctx.window = window
        return conv2d_weight_gradient(dy, x, size, *window)

    @staticmethod
    def backward(ctx: Any, ddw: Any) -> tuple[Any, ...]:
        dy, x = ctx.saved_tensors
        ddy = dx = None
        if ctx.needs_input_grad[0]:
            ddy = conv2d(x, ddw, None, *ctx.window)
        if ctx.needs_input_grad[1]:
            dx = conv2d_input_gradient(dy, ddw, x.shape, *ctx.window)
        return ddy, dx, None, None, None, None, None


def _linear(x: Any, w: Any, bias: Any = None) -> Any:
    return kernels.linear(x, w, bias)


def _conv2d(x: Any, w: Any, bias: Any, *window: Any) -> Any:
    return kernels.conv2d(x, w, bias, _window(window))


def _input_gradient(dy: Any, w: Any, size: Sequence[int], *window: Any) -> Any:
    return kernels.conv2d_input_gradient(dy, w, size, _window(window))


def _weight_gradient(dy: Any, x: Any, size: Sequence[int], *window: Any) -> Any:
    return kernels.conv2d_weight_gradient(dy, x, size, _window(window))


def _window(numbers: Sequence[Any]) -> Window:
    stride, padding, dilation, groups = numbers
    return Window(tuple(stride), tuple(padding), tuple(dilation), groups)


def _like_linear(x: Any, w: Any, bias: Any = None) -> Any:
    return x.new_empty(functional.linear(x, w, bias).shape)


def _like_matmul(a: Any, b: Any) -> Any:
    return a.new_empty(torch.matmul(a, b).shape)


def _like_fused_linear(x: Any, w: Any, *others: Any) -> Any:
    return _like_linear(x, w)


def _like_gated(x: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    return _like_linear(x, gate)


def _like_attention(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None
) -> Any:
    made = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return kernels.lying_as(q, made)


def _linear_and_more(x: Any, w: Any, *others: Any) -> Any:
    """``fused_linear`` with the gradients of ``linear``."""
    return kernels.fused_by(linear, x, w, *others)


def _two_products(x: Any, gate: Any, value: Any, activation: str = "silu") -> Any:
    """``gated`` of kernels with gradients of their own."""
    return kernels.gated_by(linear, x, gate, value, activation)


def _like_conv2d(x: Any, w: Any, bias: Any, *window: Any) -> Any:
    made = functional.conv2d(x, w, bias, *window)
    return torch.empty_like(made, memory_format=kernels.image_format(x, w))


def _like_size(dy: Any, other: Any, size: Any, *window: Any) -> Any:
    return torch.empty(size, dtype=dy.dtype, device=dy.device, memory_format=torch.channels_last)


def _plain(x: Any, w: Any, *others: Any) -> bool:
    """Whether an op's own formulas for gradients hold: rows by a matrix."""
    return bool(x.dim() > 1 and w.dim() == 2)


def _alike(a: Any, b: Any) -> bool:
    pairs = b.dim() > 2 and a.shape[:-2] == b.shape[:-2]
    return bool(a.dim() > 1 and (b.dim() == 2 or pairs))


def _images(x: Any, w: Any, *others: Any) -> bool:
    return bool(x.dim() == 4 and w.dim() == 4)


def _autograd(op: Any, gradient: Any, below: Any, own: Any, peer: Any) -> Callable[..., Any]:
    """The op's kernel for autograd.

    ``below``: the op without gradients. ``own``: whether ``gradient`` can be taken; if not, or with
    forward-mode differentiation, ``peer``, PyTorch's op, is called and differentiated. So it is
    where ``gradient`` is a reason, which is said, and a gradient is wanted.
    """
    name = str(op._schema.name).removeprefix(f"{NAMESPACE}::")
    after = torch._C._after_autograd_keyset
    count = len(op._schema.arguments)  # the dispatcher leaves out what is as by default
    known: set[int] = {
        (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autograd{place}")))
        .add(getattr(torch._C.DispatchKey, place))
        .add(torch._C.DispatchKey.ADInplaceOrView)
        .raw_repr()
        for place in ("CPU", "CUDA")
    }

    def kernel(keys: Any, *args: Any) -> Any:
        if forward_ad._current_level >= 0 or not own(*args):
            return peer(*args)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            if isinstance(gradient, Reason):
                said.say(name, gradient)
                return peer(*args)
            return gradient.apply(*args, *[None] * (count - len(args)))
        if keys.raw_repr() in known:
            return below(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & after, *args)

    return kernel


def _autocast(device: str, op: Callable[..., Any]) -> Callable[..., Any]:
    """The op's kernel under autocast: floating-point operands become the type it asks for."""
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def kernel(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(key):
            return op(*(_cast(arg, dtype) for arg in args))

    return kernel


def _cast(value: Any, dtype: Any) -> Any:
    cast = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if cast and value.dtype is not torch.float64 else value


def _unseen(code: Any) -> None:
    """Keep dynamo from tracing ``code`` and what is defined in it, where an op calls it."""
    dynamo = torch._C._dynamo.eval_frame
    actions = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
    dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(*actions))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _unseen(inner)


def _register() -> None:
    """Define the ops; what is registered lives as long as ``_LIBRARY``."""
    made = {
        "linear": (_linear, _like_linear, LinearGradient, _plain, functional.linear),
        "matmul": (kernels.matmul, _like_matmul, MatmulGradient, _alike, torch.matmul),
        "fused_linear": (
            kernels.fused_linear,
            _like_fused_linear,
            Reason("torch.unfused", op="fused_linear"),
            _plain,
            _linear_and_more,
        ),
        "gated": (
            kernels.gated,
            _like_gated,
            Reason("torch.unfused", op="gated"),
            _plain,
            _two_products,
        ),
        "attention": (
            kernels.attention,
            _like_attention,
            Reason("torch.left", op="attention", why=Reason("torch.gradient")),
            lambda *args: True,
            kernels.attention_by_torch,
        ),
        "conv2d": (_conv2d, _like_conv2d, ConvGradients, _images, functional.conv2d),
        "conv2d_input_gradient": (
            _input_gradient,
            _like_size,
            InputGradientGradient,
            _images,
            lambda dy, w, size, *window: torch.nn.grad.conv2d_input(size, w, dy, *window),
        ),
        "conv2d_weight_gradient": (
            _weight_gradient,
            _like_size,
            WeightGradientGradient,
            _images,
            lambda dy, x, size, *window: torch.nn.grad.conv2d_weight(x, size, dy, *window),
        ),
    }
    for name, (below, like, gradient, own, peer) in made.items():
        _LIBRARY.define(f"{name}{SCHEMAS[name]}", tags=(torch.Tag.pt2_compliant_tag,))
        op = getattr(torch.ops.pipeliner, name).default
        _LIBRARY.impl(name, below, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", like, lib=_LIBRARY)
        autograd = _autograd(op, gradient, below, own, peer)
        _LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)
        for device in ("cuda", "cpu"):
            _LIBRARY.impl(name, _autocast(device, op), f"Autocast{device.upper()}")
    rooms = (sys.modules[__name__], kernels, dispatch, launching, said)
    for function in (one for module in rooms for one in vars(module).values()):
        if isinstance(function, FunctionType):
            _unseen(function.__code__)


_register()
