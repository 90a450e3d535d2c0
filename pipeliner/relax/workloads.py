"""The product or convolution of ours that a call of a relax operator is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from tvm import relax

from ..errors import WorkloadError
from ..schedules import Conv, Gemm, conv2d


def matmul_of(call: Any) -> Gemm:
    """The product that a call of ``relax.matmul`` is; WorkloadError: it is none of ours."""
    a, b, out = (_tensor(arg) for arg in (*call.args, call))
    if a.ndim not in (2, 3) or b.ndim != a.ndim:
        raise WorkloadError("relax.axes", a=a.ndim, b=b.ndim)
    *batch_axes, m, k = _extents(a, open_at=a.ndim - 2)
    *others, _, n = _extents(b)
    if batch_axes != others or None in (*batch_axes, k, n):
        raise WorkloadError("relax.batches")
    if a.dtype != b.dtype:
        raise WorkloadError("relax.types", a=str(a.dtype), b=str(b.dtype))
    assert k is not None
    assert n is not None
    batch = batch_axes[0] if batch_axes else None
    return Gemm(m, n, k, batch, dtype=str(a.dtype), layout="NN", out=str(out.dtype))


def conv2d_of(call: Any) -> Conv:
    """The convolution that a call of ``relax.nn.conv2d`` is; WorkloadError: it is none of ours."""
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts not in (("NHWC", "OHWI", "NHWC"), ("NHWC", "OHWI", "")):
        raise WorkloadError("relax.layouts", layouts=layouts)
    x, w, out = (_tensor(arg) for arg in (*call.args, call))
    n, height, width, c = _extents(x)
    k, r, s, _ = _extents(w)
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


def _tensor(value: Any) -> Any:
    """The type of a tensor; WorkloadError: its shape is not known."""
    if not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
        raise WorkloadError("relax.shape")
    return value.ty


def _extents(tensor: Any, open_at: int | None = None) -> list[int | None]:
    """Extents of a tensor; None: symbolic, which only axis ``open_at`` may be."""
    return list(_each_extent(tensor, open_at))


def _each_extent(tensor: Any, open_at: int | None) -> Iterator[int | None]:
    for at, extent in enumerate(tensor.shape.values):
        value = getattr(extent, "value", None)
        if value is None and at != open_at:
            raise WorkloadError("relax.axis", axis=at)
        yield None if value is None else int(value)
