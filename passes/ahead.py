"""Pixels of a CTA's next tile on their way to L2 while this tile is computed.

    for tile in tiles:
        for k in positions x channels:
            copy pixels of tile, moved by position(k)
            if position(k) is the middle one and there is a next tile:
                prefetch pixels of tile + 1, moved by position(k), to L2

At the middle position the tiles of a grid see each pixel once, so that each comes from memory by
one prefetch, a tile ahead of the copies. Without it all CTAs start their tiles at about the same
time, each with pixels that nobody has read.

Source: PTX ISA, cp.async.bulk.prefetch.tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T

from .im2col import Im2col
from .indexing import conjunction
from .ir import Expr, Stmt, i32, seq, substitute
from .patches import Patch

PREFETCH: Final = "cp.async.bulk.prefetch.tensor.{rank}d.L2.global{mode}"


def middle_of(source: Any) -> list[Expr] | None:
    """The conditions for the middle position of pixels that neighbouring outputs see one by one.

    None where ``source`` is no such pixels.
    """
    pixels = source.pixels if isinstance(source, Patch) else source
    if not isinstance(pixels, Im2col) or any(axis.step != 1 for axis in pixels.axes):
        return None
    return [tirx.EQ(axis.offset, i32(axis.reach // 2)) for axis in pixels.axes if axis.reach]


def bring_next(
    source: Any, tensor: Any, corners: Sequence[Sequence[Expr]], offsets: Sequence[Expr], tiles: Any
) -> Stmt | None:
    """The prefetches of the boxes at ``corners``, as one thread asks for them a tile ahead.

    ``tensor``: the variable of their map, ``offsets``: of im2col mode; ``tiles``: the loop.
    """
    middle = middle_of(source)
    if middle is None:
        return None
    later = {tiles.loop_var: tiles.loop_var + 1}
    mode = ".im2col" if offsets else ""
    asked: list[Stmt] = []
    for corner in corners:
        there = [substitute(index, later) for index in reversed(corner)]
        call = T.ptx[PREFETCH.format(rank=len(corner), mode=mode)]
        asked.append(tirx.Evaluate(call(T.address_of(tensor), *there, *offsets)))
    more = tiles.loop_var + 1 < tiles.min + tiles.extent
    return tirx.IfThenElse(conjunction([*middle, more]), seq(*asked), None)
