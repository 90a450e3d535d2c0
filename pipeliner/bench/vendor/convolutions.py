"""Convolutions and their gradients by cuDNN through torch, on tensors as they lie in memory.

Channels stay where the workload has them. torch copies the image of a 1-D convolution with channels
innermost; one of two dimensions, of which the first is one pixel, is the same to cuDNN and is not
copied.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...errors import WorkloadError
from ...measuring import Runner
from ...measuring.contenders import ChoosingRunner
from ...schedules import Conv, ConvInputGrad, ConvWeightGrad
from ...schedules.workloads import Spec
from ...values.elements import element
from .fastest import Fastest, NamedCall

CUDNN: Final = "cuDNN"

EVERY: Final = 0
"""Of torch.backends.cudnn.benchmark_limit: every engine is tried."""

Seen: TypeAlias = "Callable[[Any], Any]"
"""A tensor as it lies in memory, seen with another order of dimensions."""


def cudnn(spec: Spec) -> Runner:
    """The convolution or gradient by cuDNN in benchmark mode, as ``run`` on torch tensors.

    fp32 runs without tf32, tf32 with it. torch makes the output, which is returned. WorkloadError:
    there is no such convolution in cuDNN through torch.
    """
    import torch

    conv = plain_convolution(spec, CUDNN)
    needed = conv.dtype == "tfloat32"
    convolved = _convolution(spec, conv)

    def run(x: Any, w: Any, out: Any, *, tf32: bool | None = None) -> Any:
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = needed if tf32 is None else tf32
        return convolved(x, w)

    return run


def every_engine(spec: Spec, *, hot: bool = False) -> ChoosingRunner:
    """The same by the fastest of all engines of cuDNN, where benchmark mode tries some.

    torch tries each engine once and keeps the first that was fastest, for a shape and for how it
    was asked: one sample, which may mislead. So it is asked in several ways that come to the same,
    and what it found is timed again. Nothing else may have run the shape in this process.
    """
    import torch

    run, conv = cudnn(spec), plain_convolution(spec, CUDNN)
    tf32 = (False,) if conv.storage == "float32" else (False, True)
    ways = [
        NamedCall("", functools.partial(_asked, torch, run, asked))
        for asked in itertools.product((False, True), tf32)
    ]
    return Fastest(ways, hot)


def _asked(torch: Any, run: Runner, asked: tuple[bool, bool], *arguments: Any) -> Any:
    """``run``, asked to be deterministic or not, and where nothing is fp32 with tf32 or not."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark_limit, cudnn.deterministic
    cudnn.benchmark_limit, cudnn.deterministic = EVERY, asked[0]
    try:
        return run(*arguments, tf32=asked[1] or None)
    finally:
        cudnn.benchmark_limit, cudnn.deterministic = before


def plain_convolution(spec: Spec, peer: str) -> Conv:
    """The convolution of ``spec``, or whose gradient it is, if torch has a call for it.

    WorkloadError names the ``peer`` that it calls.
    """
    conv = spec.forward if isinstance(spec, (ConvInputGrad, ConvWeightGrad)) else spec
    if not isinstance(conv, Conv) or conv.epilogue:
        raise WorkloadError("peer.forward", workload=spec.name, peer=peer)
    if element(conv.storage).integer or conv.out != conv.storage:
        raise WorkloadError(
            "peer.types", workload=spec.name, peer=peer, storage=conv.storage, out=conv.out
        )
    if any(low != high for low, high in conv.pad):
        raise WorkloadError("peer.padding", workload=spec.name, peer=peer)
    return conv


def torch_convolution(conv: Conv) -> Runner:
    """A convolution of torch on tensors as they lie in memory; its result as it must lie there."""
    import torch

    lifted, numbers = _lifted(conv), _numbers(conv)
    convolve = getattr(torch.nn.functional, f"conv{len(numbers['stride'])}d")
    there, back = _orders(conv, lifted)
    return lambda x, w: back(convolve(there(x), there(w), **numbers, groups=conv.groups))


def _convolution(spec: Spec, conv: Conv) -> Runner:
    if isinstance(spec, Conv):
        return torch_convolution(conv)
    import torch

    of_input = isinstance(spec, ConvInputGrad)
    lifted, numbers = _lifted(conv), _numbers(conv)
    there, back = _orders(conv, lifted)
    mask = [of_input, not of_input, False]
    backward = torch.ops.aten.convolution_backward
    # What is differentiated is not read, but its shape and order are: a tensor of them.
    shape = spec.shapes()[2]
    unread = there(torch.empty(shape, dtype=getattr(torch, conv.storage), device="cuda"))

    def run(dy: Any, other: Any) -> Any:
        x, w = (unread, there(other)) if of_input else (there(other), unread)
        found = backward(
            there(dy), x, w, None, numbers["stride"], numbers["padding"], numbers["dilation"],
            False, [0] * len(numbers["stride"]), conv.groups, mask,
        )  # fmt: skip
        return back(found[0] if of_input else found[1])

    return run


def _lifted(conv: Conv) -> bool:
    """Whether torch is given two dimensions for one."""
    return conv.rank == 1 and conv.channels_last


def _numbers(conv: Conv) -> dict[str, tuple[int, ...]]:
    each = {
        "stride": conv.stride,
        "padding": tuple(low for low, _ in conv.pad),
        "dilation": conv.dilation,
    }
    if not _lifted(conv):
        return each
    return {name: (0 if name == "padding" else 1, *values) for name, values in each.items()}


def _orders(conv: Conv, lifted: bool) -> tuple[Seen, Seen]:
    """From what lies in memory to torch's order of dimensions, and back: only strides change."""
    if not conv.channels_last:
        return (lambda tensor: tensor), (lambda tensor: tensor)
    rank = conv.rank + lifted
    first = (0, rank + 1, *range(1, rank + 1))
    last = (0, *range(2, rank + 2), 1)

    def there(tensor: Any) -> Any:
        shape = tensor.shape
        seen = tensor.reshape(shape[0], 1, *shape[1:]) if lifted else tensor
        return seen.permute(first)

    def back(tensor: Any) -> Any:
        seen = tensor.permute(last)
        return seen.reshape(seen.shape[0], *seen.shape[2:]) if lifted else seen

    return there, back
