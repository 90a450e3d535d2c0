"""A workload with more to sum: the same kernel of more iterations, where tiles stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ..schedules.workloads import Conv, ConvInputGrad, ConvWeightGrad, Gemm

_Spec = TypeVar("_Spec", Gemm, Conv, ConvInputGrad, ConvWeightGrad)


def longer(spec: _Spec, times: int, fold: bool = False) -> _Spec:
    """``spec`` with a reduction ``times`` as long and outputs of the same extents.

    ``fold``: a convolution that reduces over runs gets longer runs, not more channels.
    """
    if isinstance(spec, Gemm):
        return replace(spec, k=spec.k * times)
    if isinstance(spec, ConvInputGrad):
        return replace(spec, forward=replace(spec.forward, k=spec.forward.k * times))
    if isinstance(spec, ConvWeightGrad):
        return replace(spec, forward=replace(spec.forward, n=spec.forward.n * times))
    if not fold:
        return replace(spec, c=spec.c * times)
    *kernel, last = spec.kernel
    *size, width = spec.size
    more = last * (times - 1)
    return replace(spec, kernel=(*kernel, last + more), size=(*size, width + more))
