"""The extents of a workload that may shrink, and by what, those first that leave most as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ..loops.products import EXPERTS
from ..tiles import AttentionTile, Tile
from ..workloads import (
    PRODUCTS,
    Attention,
    BackToBackGemm,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    GroupedGemm,
    ProductWorkload,
    Spec,
)

VECTOR: Final = 8
"""Elements of 16 bits in one access of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One extent of a workload; ``step``: smaller values differ from it by a multiple of that."""

    value: int
    step: Callable[[Tile], int]
    put: Callable[[Any, int], Spec]


def extents_of(spec: Spec) -> list[Extent]:
    """The extents that may shrink, those first that leave most as it is."""
    if isinstance(spec, Gemm):
        return _gemm_extents(spec)
    if isinstance(spec, Attention):
        return _attention_extents(spec)
    if isinstance(spec, BackToBackGemm):
        return _back_to_back_extents(spec)
    if isinstance(spec, PRODUCTS):
        return _product_extents(spec)
    if isinstance(spec, Conv):
        return _conv_extents(spec, lambda whole, forward: forward, spec)
    forward = spec.forward

    def put(whole: Any, made: Conv) -> Spec:
        return (
            ConvInputGrad(made)
            if isinstance(whole, ConvInputGrad)
            else replace(whole, forward=made)
        )

    assert isinstance(spec, (ConvInputGrad, ConvWeightGrad))
    return _conv_extents(forward, put, spec)


def _gemm_extents(gemm: Gemm) -> list[Extent]:
    def extent(name: str, step: Callable[[Tile], int]) -> list[Extent]:
        value = getattr(gemm, name)
        if value is None:
            return []
        return [Extent(value, step, lambda spec, value: replace(spec, **{name: value}))]

    sides = [part for name in "mnk" for part in extent(name, _side(name, 1))]
    return [*extent("batch", _always(1)), *sides]


def _attention_extents(attention: Attention) -> list[Extent]:
    """Batches and heads, then keys and queries; a causal one may need as many of them."""

    def with_heads(made: Any, heads: int) -> Spec:
        return replace(attention_of(made), heads=heads, kv_heads=heads // attention.group)

    def attention_of(made: Any) -> Attention:
        assert isinstance(made, Attention)
        return made

    def with_both(made: Any, keys: int) -> Spec:
        return replace(attention_of(made), keys=keys, queries=keys)

    def extent(name: str) -> Extent:
        side = {"queries": "m", "keys": "n"}.get(name, "")
        step = _side(side, 1) if side else _always(1)
        return Extent(getattr(attention, name), step, lambda made, v: replace(made, **{name: v}))

    square = attention.queries == attention.keys
    both = Extent(attention.keys, _both_sides, with_both)
    tokens = [both] if square else [extent("keys"), extent("queries")]
    heads = Extent(attention.heads, _always(attention.group), with_heads)
    return [extent("batch"), heads, *tokens]


def _back_to_back_extents(what: BackToBackGemm) -> list[Extent]:
    """Steps, which are columns of the first product, then rows."""

    def extent(name: str) -> Extent:
        value = getattr(what, name)
        return Extent(value, _side(name, 1), lambda made, v: replace(made, **{name: v}))

    return [extent("n"), extent("m")]


def _product_extents(what: ProductWorkload) -> list[Extent]:
    """Steps of K, then columns, experts and rows."""

    def extent(name: str, step: Callable[[Tile], int]) -> Extent:
        return Extent(getattr(what, name), step, lambda made, v: replace(made, **{name: v}))

    inner = [extent("k", _always(what.step)), extent("n", _side("n", 1))]
    if isinstance(what, GroupedGemm):
        return [*inner, extent("experts", _always(EXPERTS)), extent("m", _side("m", EXPERTS))]
    return [*inner, extent("m", _side("m", 1))]


def _conv_extents(conv: Conv, whole: Callable[[Any, Conv], Spec], spec: Spec) -> list[Extent]:
    """Images, then channels; last the size of an image, which boxes may depend on."""

    def forward(made: Any) -> Conv:
        return made if isinstance(made, Conv) else made.forward

    def with_images(made: Any, n: int) -> Spec:
        return whole(made, replace(forward(made), n=n))

    def with_channels(made: Any, c: int) -> Spec:
        return whole(made, replace(forward(made), c=c))

    def with_filters(made: Any, k: int) -> Spec:
        return whole(made, replace(forward(made), k=k))

    def with_size(at: int) -> Callable[[Any, int], Spec]:
        def put(made: Any, extent: int) -> Spec:
            size = forward(made).size
            return whole(made, replace(forward(made), size=(*size[:at], extent, *size[at + 1 :])))

        return put

    sides = _channel_sides(spec)
    images = Extent(conv.n, _always(1), with_images)
    units = [*[1] * (conv.rank - 1), VECTOR]  # rows of an image may be read in vectors
    sizes = [
        Extent(extent, _always(stride * unit), with_size(at))
        for at, (extent, stride, unit) in enumerate(zip(conv.size, conv.stride, units))
    ]
    if conv.depthwise:
        return [images, *sizes]
    channels, filters = (
        Extent(extent, _side(side, conv.groups), put)
        for extent, side, put in zip((conv.c, conv.k), sides, (with_channels, with_filters))
    )
    return [images, filters, channels, *sizes]


def _both_sides(tile: Tile) -> int:
    """What leaves the last tile of queries and that of keys as they were."""
    assert isinstance(tile, AttentionTile)
    return math.lcm(tile.m, tile.n)


def _always(step: int) -> Callable[[Tile], int]:
    return lambda tile: step


def _side(name: str, groups: int) -> Callable[[Tile], int]:
    """That side of a tile, for all groups together; 1 where tiles have no sides."""
    return lambda tile: groups * int(getattr(tile, name, 1))


def _channel_sides(spec: Spec) -> tuple[str, str]:
    """The sides of a tile that cut a convolution's input and output channels."""
    if isinstance(spec, ConvInputGrad):
        return "n", "k"
    if isinstance(spec, ConvWeightGrad):
        return "n", "m"
    return "k", "n" if isinstance(spec, Conv) and spec.channels_last else "m"
