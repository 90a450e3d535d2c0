"""A workload on smaller extents that leaves every tile, K tail and kind of CTA as it was.

A matmul of 4096 cubed in tiles of 128 x 256 x 64 becomes one of 256 x 768 x 576: some tiles along M
and N, steps enough for the rings to wrap. What tiles divide they still do, and what they do not
divide has the same tail; a persistent CTA still has several tiles, CTAs of a cluster still are
neighbours along the same axis. So the kernel that was planned for the large extents can be made for
the small ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import PipelinerError
from .depthwise import threads_alike
from .loops.attention_alike import attention_alike, attention_tile, ctas_for
from .loops.products import ProductCut, is_alike
from .tiles import (
    AttentionTile,
    ConvTile,
    DepthwiseTile,
    GemmTile,
    NaiveTile,
    RowTile,
    Tile,
    divisor,
    is_ragged,
)
from .total import sum_info
from .workloads import (
    LOOPS,
    PRODUCTS,
    Attention,
    Contraction,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    ProductWorkload,
    Spec,
    reduction_tiles,
    split,
)

TILES: Final = 2
"""Along M and along N, where there are as many: neighbours, and an edge at either end."""

BATCH: Final = 2
"""Independent matmuls, where there are as many."""

VECTOR: Final = 8
"""Elements of 16 bits in one access of 16 bytes."""

MORE: Final = 1024
"""Values that are tried for one extent before it stays as it is."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What smaller extents must leave room for: see ``needs_of`` of whoever reads the plan.

    ``steps``: of the reduction's loop. ``cluster``: CTAs that are neighbours. ``ping_pong_groups``:
    consumer warpgroups that alternate on the tiles of a CTA.
    """

    steps: int
    cluster: int = 1
    ping_pong_groups: int = 1


def smaller(spec: Spec, tile: Tile, needs: Needs) -> Iterator[tuple[Spec, Tile]]:
    """``spec`` and ``tile`` on smaller extents, the smallest first, ``spec`` itself last.

    Later ones leave more extents as they are: the box of a tile may depend on the size of an image,
    and a stationary operand on the length of the reduction.
    """
    axes = _axes(spec)
    found: list[tuple[Spec, Tile]] = []
    for kept in range(len(axes) + 1):
        made = _shrunk(spec, tile, needs, axes[: len(axes) - kept])
        if made not in found:
            found.append(made)
    yield from found


@dataclass(frozen=True, slots=True)
class _Axis:
    """One extent of a workload; ``step``: smaller values differ from it by a multiple of that."""

    extent: int
    step: Callable[[Tile], int]
    put: Callable[[Any, int], Spec]


def _shrunk(spec: Spec, tile: Tile, needs: Needs, axes: list[_Axis]) -> tuple[Spec, Tile]:
    """Each axis in turn as small as what stays like the original allows."""
    found = spec
    for axis in axes:
        step = axis.step(tile)
        first = axis.extent % step or step
        for extent in list(range(first, axis.extent, step))[:MORE]:
            small = axis.put(found, extent)
            if _is_alike(small, spec, tile, needs):
                found = small
                break
    return found, _tile_for(found, spec, tile, needs)


def _is_alike(small: Spec, spec: Spec, tile: Tile, needs: Needs) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``spec`` has."""
    try:
        if isinstance(tile, DepthwiseTile):
            assert isinstance(small, Conv)
            assert isinstance(spec, Conv)
            return threads_alike(small, spec, tile, TILES)
        if isinstance(tile, NaiveTile):
            return _naive_alike(small, spec, tile, needs)
        if isinstance(tile, AttentionTile):
            assert isinstance(small, Attention)
            assert isinstance(spec, Attention)
            few = (TILES, BATCH, needs.steps)
            return attention_alike(small, spec, tile, few, needs.ping_pong_groups)
        if isinstance(tile, RowTile):
            cut, whole = ProductCut.of(small, tile), ProductCut.of(spec, tile)
            ctas = _persistent(cut.count, whole.count, tile, needs)
            return ctas is not None and is_alike(cut, whole, TILES, needs.steps, needs.cluster)
        return _tiles_alike(_Cut.of(small, tile), _Cut.of(spec, tile), needs)
    except PipelinerError:  # such as an image that the kernel does not fit in
        return False


@dataclass(frozen=True, slots=True)
class _Cut:
    """A contraction in tiles: how many along M and N, steps of a part, and what is left over."""

    what: Contraction
    tile: GemmTile
    rows: int
    columns: int
    steps: int

    @staticmethod
    def of(spec: Spec, tile: GemmTile) -> _Cut:
        assert not isinstance(spec, LOOPS)
        if isinstance(spec, Gemm) or not isinstance(tile, ConvTile):
            what = spec.contraction()
        else:
            what = tile.contraction(spec)
        rows, columns = (
            -(-(extent or 1) // size) for extent, size in ((what.m[1], tile.m), (what.n[1], tile.n))
        )
        return _Cut(what, tile, rows, columns, reduction_tiles(what, tile.k))

    @property
    def batch(self) -> int:
        return math.prod(extent or 1 for _, extent in self.what.batch_axes)

    @property
    def tiles(self) -> int:
        """Of the rasterised axis of the grid."""
        return self.rows * self.columns

    @property
    def group(self) -> int:
        """Rows of tiles that neighbours walk before the next column."""
        return divisor(self.rows, self.tile.raster_group)

    @property
    def each(self) -> int:
        """Steps of one part of the reduction."""
        return -(-self.steps // self.tile.splits)

    @property
    def missing(self) -> int:
        """Steps that the last part has less."""
        return self.each * self.tile.splits - self.steps

    @property
    def piece(self) -> int:
        """Outputs of a CTA of the kernel that adds parts; 0: there is none."""
        if self.tile.splits == 1:
            return 0
        return sum_info(split(self.what, self.tile.splits, self.tile.k), "").elements


def _tiles_alike(small: _Cut, whole: _Cut, needs: Needs) -> bool:
    if is_ragged(small.what, small.tile) != is_ragged(whole.what, whole.tile):
        return False
    if small.rows < min(TILES, whole.rows) or small.columns < min(TILES, whole.columns):
        return False
    if small.each < min(needs.steps, whole.each) or bool(small.missing) != bool(whole.missing):
        return False
    if small.batch < min(BATCH, whole.batch) or small.piece != whole.piece:
        return False
    if needs.cluster > 1:
        if small.tiles % needs.cluster != whole.tiles % needs.cluster:
            return False
        if _together(small, whole) % needs.cluster != whole.group % needs.cluster:
            return False
        if small.columns % needs.cluster != whole.columns % needs.cluster:
            return False
    return _persistent(small.tiles, whole.tiles, whole.tile, needs) is not None


def _together(small: _Cut, whole: _Cut) -> int:
    """The group of ``small`` where rows of tiles in raster groups of one stay so."""
    return 1 if whole.group == 1 else small.group


def _persistent(small: int, whole: int, tile: GemmTile | RowTile, needs: Needs) -> int | None:
    """CTAs for ``small`` tiles of which some walk one round more, as in ``whole``; None: none."""
    asked = tile.persistent or whole
    if whole <= asked:
        return asked
    return ctas_for(small, (whole, asked), needs.cluster, needs.ping_pong_groups)


def _tile_for(small: Spec, spec: Spec, tile: Tile, needs: Needs) -> Tile:
    """``tile`` with as many persistent CTAs as the tiles of ``small`` keep busy."""
    if isinstance(tile, AttentionTile) and isinstance(spec, Attention):
        assert isinstance(small, Attention)
        return tile if small == spec else attention_tile(small, spec, tile, needs.ping_pong_groups)
    if not isinstance(tile, (GemmTile, RowTile)) or small == spec:
        return tile
    if isinstance(tile, RowTile):
        count, every = ProductCut.of(small, tile).count, ProductCut.of(spec, tile).count
        return replace(tile, persistent=tile.persistent and _persistent(count, every, tile, needs))
    cut, whole = _Cut.of(small, tile), _Cut.of(spec, tile)
    made = replace(tile, raster_group=_together(cut, whole)) if whole.group == 1 else tile
    few = tile.persistent and _persistent(cut.tiles, whole.tiles, tile, needs)
    return replace(made, persistent=few or tile.persistent)


def _naive_alike(small: Spec, spec: Spec, tile: NaiveTile, needs: Needs) -> bool:
    assert isinstance(small, Gemm)
    assert isinstance(spec, Gemm)
    sides = ((small.m or 1, spec.m or 1, tile.m), (small.n, spec.n, tile.n))
    if any(-(-few // size) < min(TILES, -(-many // size)) for few, many, size in sides):
        return False
    return small.k >= min(needs.steps, spec.k) and (small.batch or 1) >= min(BATCH, spec.batch or 1)


def _axes(spec: Spec) -> list[_Axis]:
    """The extents that may shrink, those first that leave most as it is."""
    if isinstance(spec, Gemm):
        return _gemm_axes(spec)
    if isinstance(spec, Attention):
        return _attention_axes(spec)
    if isinstance(spec, PRODUCTS):
        return _product_axes(spec)
    if isinstance(spec, Conv):
        return _conv_axes(spec, lambda whole, forward: forward, spec)
    forward = spec.forward

    def put(whole: Any, made: Conv) -> Spec:
        return (
            ConvInputGrad(made)
            if isinstance(whole, ConvInputGrad)
            else replace(whole, forward=made)
        )

    assert isinstance(spec, (ConvInputGrad, ConvWeightGrad))
    return _conv_axes(forward, put, spec)


def _gemm_axes(gemm: Gemm) -> list[_Axis]:
    def axis(name: str, step: Callable[[Tile], int]) -> list[_Axis]:
        extent = getattr(gemm, name)
        if extent is None:
            return []
        return [_Axis(extent, step, lambda spec, value: replace(spec, **{name: value}))]

    sides = [part for name in "mnk" for part in axis(name, _side(name, 1))]
    return [*axis("batch", _always(1)), *sides]


def _attention_axes(attention: Attention) -> list[_Axis]:
    """Batches and heads, then keys and queries; a causal one may need as many of them."""

    def with_heads(made: Any, heads: int) -> Spec:
        return replace(attention_of(made), heads=heads, kv_heads=heads // attention.group)

    def attention_of(made: Any) -> Attention:
        assert isinstance(made, Attention)
        return made

    def with_both(made: Any, keys: int) -> Spec:
        return replace(attention_of(made), keys=keys, queries=keys)

    def axis(name: str) -> _Axis:
        side = {"queries": "m", "keys": "n"}.get(name, "")
        step = _side(side, 1) if side else _always(1)
        return _Axis(getattr(attention, name), step, lambda made, v: replace(made, **{name: v}))

    square = attention.queries == attention.keys
    both = _Axis(attention.keys, _both_sides, with_both)
    tokens = [both] if square else [axis("keys"), axis("queries")]
    heads = _Axis(attention.heads, _always(attention.group), with_heads)
    return [axis("batch"), heads, *tokens]


def _product_axes(what: ProductWorkload) -> list[_Axis]:
    """Steps of K, then columns and rows."""

    def axis(name: str, step: Callable[[Tile], int]) -> _Axis:
        return _Axis(getattr(what, name), step, lambda made, v: replace(made, **{name: v}))

    return [axis("k", _always(what.step)), axis("n", _side("n", 1)), axis("m", _side("m", 1))]


def _both_sides(tile: Tile) -> int:
    """What leaves the last tile of queries and that of keys as they were."""
    assert isinstance(tile, AttentionTile)
    return math.lcm(tile.m, tile.n)


def _conv_axes(conv: Conv, whole: Callable[[Any, Conv], Spec], spec: Spec) -> list[_Axis]:
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
    images = _Axis(conv.n, _always(1), with_images)
    units = [*[1] * (conv.rank - 1), VECTOR]  # rows of an image may be read in vectors
    sizes = [
        _Axis(extent, _always(stride * unit), with_size(at))
        for at, (extent, stride, unit) in enumerate(zip(conv.size, conv.stride, units))
    ]
    if conv.depthwise:
        return [images, *sizes]
    channels, filters = (
        _Axis(extent, _side(side, conv.groups), put)
        for extent, side, put in zip((conv.c, conv.k), sides, (with_channels, with_filters))
    )
    return [images, filters, channels, *sizes]


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
