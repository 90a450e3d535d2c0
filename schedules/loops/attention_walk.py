"""Give a CTA of attention tiles one after the other: a persistent grid, longest tiles first.

    for blockIdx.z, y, x in batch, heads, tiles:     for blockIdx.x in ctas:
      Q_shared = Q[z, y, tile x]               =>      for t in tiles of this CTA:
      ..                                                 b, h, x = tile t of this CTA
                                                         Q_shared = Q[b, h, tile x]
                                                         ..

Tiles are numbered head by head, and CTA c takes tiles c, c + ctas, c + 2 * ctas, .. Of a causal one
heads are numbered in groups whose K and V stay in the L2 cache; of a group the tiles with most keys
come first, and every other round of CTAs is numbered backwards, so that each gets long and short
tiles alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tvm import tirx
from tvm.ir import Var

from ...instructions.dtypes import element_bytes
from ...machine import Machine
from ...passes.ir.kernels import with_block
from ...passes.ir.nodes import ForKind, i32, substitute
from ..tiles import AttentionTile, divisor
from ..workloads import Attention
from .attention_cut import TILES, Cut, ctas_of

KEPT_BYTES: Final = 32 << 20
"""Of K and V that a group of heads reads: what an L2 cache of 50 MB keeps beside Q and O."""


def walked_tiles(what: Attention, tile: AttentionTile, machine: Machine) -> list[AttentionTile]:
    """Return ``tile`` with a CTA for each SM that takes several, where that may be faster.

    Not of a causal one: a CTA has its tiles from the start, of which each has its own number of
    steps, while a grid gives the next tile to whoever is done. With 1k keys and heads of 128 it
    took 194 us on an H200, a CTA for each tile 172.
    """
    if what.causal or tile.splits > 1 or not machine.multiplies_by_warpgroup:
        return []
    return [replace(tile, persistent=machine.sms)] if ctas_of(what, tile) > machine.sms else []


def walked(func: Any, cut: Cut) -> Any:
    """Return ``func``, a CTA for each tile, with ``persistent`` CTAs that take all tiles."""
    z = func.body.block.body
    y, x = z.body, z.body.body
    ctas, cta, t = cut.ctas, Var("cta", "int32"), Var(TILES, "int32")
    b, h, at = _place(cut, t * ctas + _in_round(cut, cta, t, ctas))
    body = substitute(x.body, {z.loop_var: b, y.loop_var: h, x.loop_var: at})
    tiles = tirx.For(t, i32(0), _rounds(cut, cta, ctas), ForKind.SERIAL, body)
    grid = tirx.For(cta, i32(0), i32(ctas), x.kind, tiles, x.thread_binding)
    return func.with_body(with_block(func.body, body=grid))


def _in_round(cut: Cut, cta: Any, t: Any, ctas: int) -> Any:
    """The place of a CTA in round ``t``."""
    return cta + t % 2 * (ctas - 1 - cta * 2) if cut.what.causal else cta


def _rounds(cut: Cut, cta: Any, ctas: int) -> Any:
    """How many tiles a CTA has."""
    whole, rest = divmod(cut.all_tiles, ctas)
    if not rest:
        return i32(whole)
    place = _in_round(cut, cta, whole, ctas)
    return (rest - 1 - place + ctas) // ctas + whole


def _place(cut: Cut, number: Any) -> tuple[Any, Any, Any]:
    """Batch, head and tile of queries of a tile."""
    heads, tiles = cut.heads, cut.tiles
    if not cut.what.causal:
        return number // (heads * tiles), number // tiles % heads, number % tiles
    size = 2 * cut.what.keys * cut.what.dim * element_bytes(cut.what.storage)
    group = divisor(cut.what.batch * heads, max(1, KEPT_BYTES // size))
    which = number // (group * tiles) * group + number % group
    return which // heads, which % heads, number // group % tiles
