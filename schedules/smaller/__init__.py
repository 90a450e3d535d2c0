"""A workload on smaller extents that leaves every tile, K tail and kind of CTA as it was.

A matmul of 4096 cubed in tiles of 128 x 256 x 64 becomes one of 256 x 768 x 576: some tiles along M
and N, steps enough for the rings to wrap. What tiles divide they still do, and what they do not
divide has the same tail; a persistent CTA still has several tiles, CTAs of a cluster still are
neighbours along the same axis. So the kernel that was planned for the large extents can be made for
the small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..tiles import Tile
from ..workloads import Spec
from .alike import Needs, has_every_kind, tile_for
from .extents import Extent, extents_of

__all__ = ["Needs", "smaller"]

MORE: Final = 1024
"""Values that are tried for one extent before it stays as it is."""


def smaller(spec: Spec, tile: Tile, needs: Needs) -> Iterator[tuple[Spec, Tile]]:
    """``spec`` and ``tile`` on smaller extents, the smallest first, ``spec`` itself last.

    Later ones leave more extents as they are: the box of a tile may depend on the size of an image,
    and a stationary operand on the length of the reduction.
    """
    extents = extents_of(spec)
    found: list[tuple[Spec, Tile]] = []
    for kept in range(len(extents) + 1):
        made = _shrunk(spec, tile, needs, extents[: len(extents) - kept])
        if made not in found:
            found.append(made)
    yield from found


def _shrunk(spec: Spec, tile: Tile, needs: Needs, extents: list[Extent]) -> tuple[Spec, Tile]:
    """Each of ``extents`` in turn as small as what stays like the original allows."""
    found = spec
    for extent in extents:
        step = extent.step(tile)
        first = extent.value % step or step
        for value in list(range(first, extent.value, step))[:MORE]:
            small = extent.put(found, value)
            if has_every_kind(small, spec, tile, needs):
                found = small
                break
    return found, tile_for(found, spec, tile, needs)
