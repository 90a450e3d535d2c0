"""Say whether a smaller attention has every kind of CTA and step that a larger one has."""

from __future__ import annotations

from dataclasses import replace

from ..tiles import AttentionTile
from ..workloads import Attention
from .attention_cut import Cut, check_splits, steps_of


def attention_alike(
    small: Attention, what: Attention, tile: AttentionTile, few: tuple[int, int, int], groups: int
) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and step that that of ``what`` has.

    Tiles, steps of the longest tile, edges, and whether it is the keys that end its steps. ``few``:
    how many tiles of a head, heads of K and V, and steps are enough. ``groups``: consumers of a
    persistent CTA that alternate on its tiles.
    """
    cuts = [Cut(one, tile) for one in (small, what)]
    check_splits(small, tile)
    tiles = [cut.tiles for cut in cuts]
    steps = [steps_of(one, tile, count - 1) for one, count in zip((small, what), tiles)]
    by_keys = [
        count * tile.m > -(-one.keys // tile.n) * tile.n for one, count in zip((small, what), tiles)
    ]
    edges = [(cut.rows % tile.m, cut.what.keys % tile.n) for cut in cuts]
    empty = [(cut.empty > 0, cut.is_masked) for cut in cuts]
    heads = [one.batch * one.heads // one.group for one in (small, what)]
    same = edges[0] == edges[1] and (not what.causal or by_keys[0] == by_keys[1])
    if not same or empty[0] != empty[1]:
        return False
    if cuts[1].is_persistent and _ctas(cuts[0], cuts[1], groups) is None:
        return False
    return all(
        found >= min(enough, whole)
        for (found, whole), enough in zip((tiles, heads, steps), few, strict=True)
    )


def attention_tile(
    small: Attention, what: Attention, tile: AttentionTile, groups: int
) -> AttentionTile:
    """``tile`` with as many persistent CTAs as the tiles of ``small`` keep busy."""
    ctas = _ctas(Cut(small, tile), Cut(what, tile), groups)
    return tile if ctas is None else replace(tile, persistent=ctas)


def _ctas(small: Cut, whole: Cut, groups: int) -> int | None:
    """CTAs for ``small`` as those of ``whole``; None: there are none, or it is not persistent."""
    if not whole.is_persistent:
        return None
    return ctas_for(small.all_tiles, (whole.all_tiles, whole.ctas), 1, groups)


def ctas_for(tiles: int, whole: tuple[int, int], cluster: int, groups: int) -> int | None:
    """CTAs of a persistent grid for ``tiles``, of which some walk one round more, as in ``whole``.

    ``whole``: its tiles and CTAs. ``cluster``: CTAs that are neighbours. ``groups``: consumers that
    alternate on the tiles of a CTA. None: there are none.
    """
    for times in (2, 3, 4, 5, 6, 7, 1):
        ctas = times * cluster
        alike = bool(tiles % ctas) == bool(whole[0] % whole[1])
        if alike and tiles > ctas * groups and ctas <= whole[1]:
            return ctas
    return None
