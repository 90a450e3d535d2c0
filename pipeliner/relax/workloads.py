"""The product or convolution of ours that a call of a relax operator is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..errors import WorkloadError
from ..schedules import Conv, Gemm, conv2d
from .calls import extents_of, tensor_of


def matmul_of(call: Any) -> Gemm:
    """The product that a call of ``relax.matmul`` is; WorkloadError: it is none of ours.

    Several axes of rows are one, and so are several axes of a batch.
    """
    a, b, out = (tensor_of(arg) for arg in (*call.args, call))
    if a.ndim < 2 or b.ndim not in (2, a.ndim):
        raise WorkloadError("relax.axes", a=a.ndim, b=b.ndim)
    *batch_axes, m, k = extents_of(a, open_at=a.ndim - 2)
    *others, _, n = extents_of(b)
    if b.ndim == 2 and m is not None:
        batch_axes, m = [], math.prod([extent or 0 for extent in batch_axes]) * m
    if batch_axes != others or None in (*batch_axes, k, n):
        raise WorkloadError("relax.batches")
    if a.dtype != b.dtype:
        raise WorkloadError("relax.types", a=str(a.dtype), b=str(b.dtype))
    assert k is not None
    assert n is not None
    batch = math.prod([extent or 0 for extent in batch_axes]) if batch_axes else None
    return Gemm(m, n, k, batch, dtype=str(a.dtype), layout="NN", out=str(out.dtype))


def conv2d_of(call: Any) -> Conv:
    """The convolution that a call of ``relax.nn.conv2d`` is; WorkloadError: it is none of ours."""
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts not in (("NHWC", "OHWI", "NHWC"), ("NHWC", "OHWI", "")):
        raise WorkloadError("relax.layouts", layouts=layouts)
    x, w, out = (tensor_of(arg) for arg in (*call.args, call))
    n, height, width, c = extents_of(x)
    k, r, s, _ = extents_of(w)
    extents = (n, height, width, c, k, r, s)
    if None in extents:
        raise WorkloadError("relax.extents")
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    known = [extent for extent in extents if extent is not None]
    return conv2d(
        *known,
        stride=tuple(int(step) for step in attrs.strides),
        pad=(top, bottom, left, right),
        dilation=tuple(int(step) for step in attrs.dilation),
        groups=int(attrs.groups),
        dtype=str(x.dtype),
        out=str(out.dtype),
    )


Workload: TypeAlias = Gemm | Conv
"""What may have an epilogue."""

WORKLOADS: Final[dict[str, Callable[[Any], Workload]]] = {
    "relax.matmul": matmul_of,
    "relax.nn.conv2d": conv2d_of,
}
"""What makes a workload of a call, by the operator's name."""
