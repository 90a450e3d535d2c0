"""Whether smaller extents leave every kind of CTA and step of a kernel, and the tile on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from ...errors import PipelinerError
from ..channelwise import threads_alike, weights_alike
from ..grouped import groups_alike
from ..loops.attention_alike import attention_alike, attention_tile, ctas_for
from ..loops.back_to_back import back_to_back_alike
from ..loops.products import ProductCut, has_groups, is_alike
from ..reordered import reordered_infos, written_first
from ..tiles import (
    AttentionTile,
    ConvTile,
    DepthwiseTile,
    GemmTile,
    GroupTile,
    NaiveTile,
    RowTile,
    Tile,
    divisor,
    grid_of,
    is_ragged,
)
from ..total import sum_info
from ..workloads import (
    LOOPS,
    Attention,
    BackToBackGemm,
    Contraction,
    Conv,
    ConvInputGrad,
    ConvWeightGrad,
    Gemm,
    Spec,
    reduction_tiles,
    split,
)

TILES: Final = 2
"""Along M and along N, where there are as many: neighbours, and an edge at either end."""

BATCH: Final = 2
"""Independent matmuls, where there are as many."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What smaller extents must leave room for: see ``needs_of`` of whoever reads the plan.

    ``steps``: of the reduction's loop. ``cluster``: CTAs that are neighbours. ``ping_pong_groups``:
    consumer warpgroups that alternate on the tiles of a CTA.
    """

    steps: int
    cluster: int = 1
    ping_pong_groups: int = 1


def has_every_kind(small: Spec, spec: Spec, tile: Tile, needs: Needs) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``spec`` has."""
    try:
        if isinstance(small, ConvWeightGrad) and isinstance(tile, DepthwiseTile):
            assert isinstance(spec, ConvWeightGrad)
            return weights_alike(small, spec, tile, TILES)
        if isinstance(tile, DepthwiseTile):
            assert isinstance(small, (Conv, ConvInputGrad))
            assert isinstance(spec, (Conv, ConvInputGrad))
            return threads_alike(small, spec, tile, TILES)
        if isinstance(tile, GroupTile):
            assert isinstance(small, Conv)
            assert isinstance(spec, Conv)
            return groups_alike(small, spec, tile, TILES)
        if isinstance(tile, NaiveTile):
            return _naive_alike(small, spec, tile, needs)
        if isinstance(tile, AttentionTile):
            assert isinstance(small, Attention)
            assert isinstance(spec, Attention)
            few = (TILES, BATCH, needs.steps)
            return attention_alike(small, spec, tile, few, needs.ping_pong_groups)
        if isinstance(small, BackToBackGemm) and isinstance(spec, BackToBackGemm):
            assert isinstance(tile, RowTile)
            return back_to_back_alike(small, spec, tile, (TILES, needs.steps))
        if isinstance(tile, RowTile):
            cut, whole = ProductCut.of(small, tile), ProductCut.of(spec, tile)
            ctas = _persistent(cut.count, whole.count, tile, needs)
            alike = is_alike(cut, whole, TILES, needs.steps, needs.cluster)
            return ctas is not None and alike and has_groups(small, spec, tile)
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
        if isinstance(spec, Gemm):
            what = spec.contraction(tile.reordered)
        else:
            what = tile.contraction(spec) if isinstance(tile, ConvTile) else spec.contraction()
        rows, columns = grid_of(what.m[1] or 1, what.n[1] or 1, tile)
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

    @property
    def padded(self) -> list[tuple[int, int]]:
        """Outputs of a CTA and of a thread at once, of kernels that write longer rows first."""
        infos = zip(written_first(self.what), reordered_infos(self.what))
        return [(made.elements, made.vector) for side, made in infos if side.pitch is not None]


def _tiles_alike(small: _Cut, whole: _Cut, needs: Needs) -> bool:
    if is_ragged(small.what, small.tile) != is_ragged(whole.what, whole.tile):
        return False
    if small.rows < min(TILES, whole.rows) or small.columns < min(TILES, whole.columns):
        return False
    if small.each < min(needs.steps, whole.each) or bool(small.missing) != bool(whole.missing):
        return False
    if small.batch < min(BATCH, whole.batch) or small.piece != whole.piece:
        return False
    if small.padded != whole.padded:
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


def _naive_alike(small: Spec, spec: Spec, tile: NaiveTile, needs: Needs) -> bool:
    assert isinstance(small, Gemm)
    assert isinstance(spec, Gemm)
    sides = ((small.m or 1, spec.m or 1, tile.m), (small.n, spec.n, tile.n))
    if any(-(-few // size) < min(TILES, -(-many // size)) for few, many, size in sides):
        return False
    return small.k >= min(needs.steps, spec.k) and (small.batch or 1) >= min(BATCH, spec.batch or 1)


def tile_for(small: Spec, spec: Spec, tile: Tile, needs: Needs) -> Tile:
    """``tile`` with as many persistent CTAs as the tiles of ``small`` keep busy."""
    if isinstance(tile, AttentionTile) and isinstance(spec, Attention):
        assert isinstance(small, Attention)
        return tile if small == spec else attention_tile(small, spec, tile, needs.ping_pong_groups)
    if not isinstance(tile, (GemmTile, RowTile)) or small == spec:
        return tile
    if isinstance(spec, BackToBackGemm):
        return tile
    if isinstance(tile, RowTile):
        count, every = ProductCut.of(small, tile).count, ProductCut.of(spec, tile).count
        return replace(tile, persistent=tile.persistent and _persistent(count, every, tile, needs))
    cut, whole = _Cut.of(small, tile), _Cut.of(spec, tile)
    made = replace(tile, raster_group=_together(cut, whole)) if whole.group == 1 else tile
    few = tile.persistent and _persistent(cut.tiles, whole.tiles, tile, needs)
    return replace(made, persistent=few or tile.persistent)
