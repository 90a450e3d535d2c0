"""How a grouped convolution is cut: rows of pixels, and blocks of channels that hold whole groups.

A block is 16 output channels: the columns of a warp. It reads the 16 input channels of its groups,
or all of one larger group's. What a small group does not multiply is a zero of the weights, on a
diagonal of blocks: the tensor cores have time for that where memory bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ...errors import WorkloadError
from ...values.elements import element
from ..tiles import GroupTile
from ..workloads import Conv

BLOCK: Final = 16
"""Channels that a warp multiplies at once, and pixels of a tile: those of one instruction."""

WARP: Final = 32

MOST_WORDS: Final = 200
"""Weights and sums that a thread has: more, and registers are spilled."""

MOST_BLOCKS: Final = 32
"""Of a CTA: a warp each."""

CHUNK: Final = 8
"""16-bit channels that are copied at once."""


def has_group_rows(conv: Conv) -> bool:
    """Whether ``schedule_groups`` has this convolution, by some tile."""
    kind = element(conv.storage)
    plain = conv.rank == 2 and conv.channels_last and not conv.epilogue and conv.k == conv.c
    if not plain or kind.integer or kind.nbytes != 2 or conv.accumulator != "float32":
        return False
    each = conv.c // conv.groups
    whole = BLOCK % each == 0 or each % BLOCK == 0
    return 1 < conv.groups < conv.c and whole and conv.c % max(each, BLOCK) == 0


def fits(conv: Conv, tile: GroupTile) -> bool:
    """Whether the convolution is one that is cut so, and a thread has registers for it."""
    if not has_group_rows(conv) or conv.dilation[0] != 1:
        return False
    if tile.pixels % BLOCK or tile.channels % BLOCK or tile.channels > BLOCK * MOST_BLOCKS:
        return False
    cut = GroupCut.of(conv, tile)
    whole = tile.channels % cut.reads == 0 and conv.c % tile.channels == 0
    return whole and cut.words <= MOST_WORDS and tile.rows <= conv.out_size[0]


@dataclass(frozen=True, slots=True)
class GroupCut:
    """What follows from a tile.

    ``each``: channels of a group. ``reads``: input channels of a block. ``live``: output rows that
    one step adds to. ``fresh``: input rows that it copies. ``down``, ``across``: CTAs of an image.
    ``blocks``: of a CTA's channels, of all. ``run``: input pixels of a row that it reads.
    ``steps``: of its loop. ``words``: registers of weights and sums.
    """

    each: int
    reads: int
    live: int
    fresh: int
    down: int
    across: int
    images: int
    blocks: int
    run: int
    steps: int
    words: int
    threads: int

    @property
    def ctas(self) -> int:
        """Of the grid."""
        return self.images * self.down * self.across * self.blocks

    @classmethod
    def of(cls, conv: Conv, tile: GroupTile) -> GroupCut:
        """The convolution, cut so."""
        each = conv.c // conv.groups
        reads = max(each, BLOCK)
        live = -(-conv.kernel[0] // conv.stride[0])
        high, wide = conv.out_size
        pixels = min(tile.pixels, wide)
        run = (pixels - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] + 1
        weights = math.prod(conv.kernel) * reads // BLOCK * 4
        return cls(
            each,
            reads,
            live,
            min(conv.stride[0], conv.kernel[0]),
            -(-high // tile.rows),
            -(-wide // tile.pixels),
            conv.n,
            conv.c // tile.channels,
            run,
            tile.rows + live - 1,
            weights + live * tile.pixels // BLOCK * 8,
            WARP * tile.channels // BLOCK,
        )


def checked(conv: Conv, tile: GroupTile) -> GroupCut:
    """The cut; WorkloadError: the convolution is none of those, or has not registers for it."""
    if not fits(conv, tile):
        raise WorkloadError("tile.groups", workload=conv.name, block=BLOCK, most=MOST_WORDS)
    return GroupCut.of(conv, tile)


def groups_alike(small: Conv, conv: Conv, tile: GroupTile, ctas: int) -> bool:
    """Whether the kernel of ``small`` has every kind of CTA and edge that that of ``conv`` has.

    At least ``ctas`` along each dimension of the grid, where there are as many.
    """
    if not fits(small, tile) or (small.c, small.groups) != (conv.c, conv.groups):
        return False
    few, many = GroupCut.of(small, tile), GroupCut.of(conv, tile)
    counts = ((few.images, many.images), (few.down, many.down), (few.across, many.across))
    if any(one < min(ctas, other) for one, other in counts) or few.run != many.run:
        return False
    edges = [
        [size % of for size, of in zip(one.out_size, (tile.rows, tile.pixels))]
        for one in (small, conv)
    ]
    return edges[0] == edges[1]
