"""What a call of attention is as a workload: from shapes, strides and types; no torch is needed.

    q, k, v of (2, 8, 512, 64), contiguous       =>  Attention(2, 8, 512, 512, 64)
    x.view(2, 512, 8, 64).transpose(1, 2)        =>  Attention(..., layout="BSHD")
    q, k, v split from one product of 24 heads   =>  Attention(..., layout="BSHD", within=(24,) * 3)
    k, v of the first 512 tokens of a cache      =>  Attention(..., within=(0, 4096, 4096))

Nothing is copied: where an element lies is a matter of the workload. The output lies as Q does, so
that what linear layers made is read by the next one without a copy.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import WorkloadError
from ..schedules.workloads import ATTENTION_DTYPES, ATTENTION_LAYOUTS, Attention
from .problems import Strided, TorchCall

AXES: Final = 4
"""Of each tensor: batch, heads, tokens and elements of a head."""

TOKENS_FIRST: Final = (0, 2, 1, 3)
"""The order of axes in memory of what has tokens before heads."""


def attended(
    q: Strided, k: Strided, v: Strided, *, causal: bool = False, scale: float | None = None
) -> TorchCall:
    """``scaled_dot_product_attention(q, k, v)``, where heads of Q may share those of K and V."""
    found = tuple(dict.fromkeys(one.dtype for one in (q, k, v)))
    if len(found) > 1 or found[0] not in ATTENTION_DTYPES:
        raise WorkloadError("torch.dtype", choices=ATTENTION_DTYPES, found=found)
    axes = tuple(len(one.shape) for one in (q, k, v))
    if axes != (AXES,) * 3:
        raise WorkloadError("torch.axes", expected="batches of heads of tokens", found=axes)
    (batch, heads, queries, dim), (_, groups, keys, _) = q.shape, k.shape
    if k.shape != v.shape or k.shape != (batch, groups, keys, dim):
        raise WorkloadError("torch.extents", found=tuple(str(one.shape) for one in (q, k, v)))
    if any(0 in one.shape for one in (q, k, v)):
        raise WorkloadError("torch.empty")
    (layout, of_q), (kv_layout, of_k, of_v) = _lying("q", q), _lying("k and v", k, v)
    spec = Attention(
        batch,
        heads,
        queries,
        keys,
        dim,
        groups,
        causal,
        found[0],
        layout,
        kv_layout,
        (of_q, of_k, of_v),
        scale,
    )
    return TorchCall(spec, q.shape, TOKENS_FIRST if tokens_first(q.shape, q.strides) else ())


def tokens_first(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether tokens lie before heads in memory; where there is but one of either, they do not."""
    return len(shape) == AXES and shape[1] > 1 and shape[2] > 1 and strides[1] < strides[2]


def _lying(name: str, *tensors: Strided) -> tuple[Any, ...]:
    """The layout that all have in memory, and the extent in memory of the third axis of each."""
    for layout in ATTENTION_LAYOUTS:
        extents = [_third(layout, one) for one in tensors]
        if None not in extents:
            return (layout, *extents)
    strides = tuple(stride for one in tensors for stride in one.strides)
    raise WorkloadError("torch.strides_of_heads", name=name, strides=strides)


def _third(layout: str, tensor: Strided) -> int | None:
    """The extent in memory of the third axis; None: it does not lie so.

    Strides of one element say nothing.
    """
    order = (0, 1, 2, 3) if layout == "BHSD" else TOKENS_FIRST
    batch, second, third, dim = (tensor.shape[at] for at in order)
    by_batch, by_second, by_third, by_one = (tensor.strides[at] for at in order)
    if (dim > 1 and by_one != 1) or (third > 1 and by_third != dim):
        return None
    several = by_second if second > 1 else by_batch if batch > 1 else third * dim
    extent, rest = divmod(several, dim)
    if rest or extent < third or (batch > 1 and by_batch != second * several):
        return None
    return extent
