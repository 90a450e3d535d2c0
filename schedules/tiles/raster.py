"""The order in which CTAs take the tiles of C (rasterisation, or threadblock swizzle).

A raster group is so many rows of tiles; in each, CTAs go down a column before they take the next.
CTAs that are neighbours run on neighbouring SMs at the same time, so what L2 must deliver for them
is as little as they read differently: a few rows of A and columns of B.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from ...machine import Machine
from . import GemmTile

Bits: TypeAlias = "tuple[int, ...]"

NEIGHBOURS: Final = 4
"""CTAs whose reads of a line are one: two SMs of a TPC, and the next pair that is launched."""

GPCS: Final = 8
"""Clusters of SMs, which take pairs of CTAs in turn (``%smid`` of an H200's CTAs)."""

GPC_SHARE: Final = 0.75
"""Weight of what a GPC's SMs read, beside what neighbours do."""

WAVE_SHARE: Final = 2.0
"""Weight of what a whole wave reads, where there are several.

Measured on an H200, 62 tiles of 26 products in two to nine groups each: the group that these
weights take is 0.4 % slower than the best in the mean, and one is 6 % (3112 x 7640 x 784 by 144 x
256). With a weight of 1, and none where L2 holds A and B, as it was, it is 2.1 %, and one is 14 %
(1605 x 16064 x 1232 by 240 x 128: along its rows of tiles each reads all of B, and memory moved
268 MB for 95). On an H100 200 x 4096 x 4096 by 64 x 128 takes 38.7 us along rows, 22.2 down
columns; 3341 x 512 x 1376 by 128 x 128 14.0 and 15.3. Other GPUs are taken to be alike.
"""


READ_SHARE: Final = 0.08
"""How much longer a kernel of several waves takes that reads more in its order, by logarithms.

Measured on an H200: 30 pairs of kernels of drawn workloads that differ in the order alone, by up to
a fifth (correlation .88): 824 x 7288 x 1744, gated, by 208 x 64 takes 72 us and 83 along rows of
tiles. Of 434 pairs of one wave it is .10.
"""


def raster_group(tile: GemmTile, machine: Machine, grid: tuple[int, int]) -> int:
    """Rows of a raster group; ``grid``: rows and columns of tiles.

    The divisor of all rows with which neighbours, the SMs of a GPC, and waves read least.
    """
    if grid[1] == 1:
        return 1
    return min(_divisors(grid[0]), key=lambda size: _reads(tile, machine, grid, size))


def order_slowdown(tile: GemmTile, machine: Machine, grid: tuple[int, int]) -> float:
    """Time of ``tile`` in its own order over that in the best one, at least 1.

    ``exp(READ_SHARE * (reads - least reads))`` where there are several waves.
    """
    down, across = grid
    if across == 1 or down * across <= machine.sms:
        return 1.0
    reads = {size: _reads(tile, machine, grid, size) for size in _divisors(down)}
    own = max(size for size in reads if size <= max(1, tile.raster_group))
    return math.exp(READ_SHARE * (reads[own] - min(reads.values())))


def _divisors(rows: int) -> list[int]:
    return [size for size in range(1, rows + 1) if rows % size == 0]


def _reads(tile: GemmTile, machine: Machine, grid: tuple[int, int], size: int) -> float:
    """Logarithm of what is read in raster groups of ``size``, each part by its share."""
    down, across = grid
    ctas = min(machine.sms, down * across)
    shares = {0: 1.0, GPCS: GPC_SHARE, 1: WAVE_SHARE * (ctas < down * across)}
    read = {sets: _rows_and_columns(size, across, ctas, sets) for sets in shares}
    return sum(share * _log_bytes(tile, read[sets]) for sets, share in shares.items())


def square_group(m: int, n: int, machine: Machine) -> int:
    """The raster group, in rows of tiles of ``m`` x ``n``, with which a wave covers a square of C.

    For a grid that is known at run time only, and where arithmetic on rows is behind the loop.
    """
    side = math.sqrt(machine.sms * n / m)
    return max(1, 1 << round(math.log2(side)))


def _log_bytes(tile: GemmTile, read: tuple[int, int]) -> float:
    """The logarithm of what so many rows and columns of tiles are."""
    rows, columns = read
    return math.log(rows * tile.m + columns * tile.n)


@lru_cache(maxsize=1 << 14)
def _rows_and_columns(group: int, across: int, ctas: int, sets: int) -> tuple[int, int]:
    """Rows and columns of tiles that sets of the first ``ctas`` CTAs read, in sum.

    ``sets``: that pairs of CTAs go to in turn; 0: each is of neighbours.
    """
    rows, columns = set(), set()
    for cta in range(ctas):
        block, inside = divmod(cta, group * across)
        of = cta // 2 % sets if sets else cta // NEIGHBOURS
        rows.add((of, block, inside % group))
        columns.add((of, inside // group))
    return len(rows), len(columns)


@lru_cache(maxsize=1 << 12)
def sharers(group: int, across: int, tiles: int, size: int) -> tuple[Bits, Bits]:
    """Which CTAs of each cluster of ``size`` have the same row of tiles, and which a column.

    Bits of the ranks in which they differ, the most CTAs first.
    """
    places = group * across
    tile = np.arange(min(tiles, math.lcm(places, size))).reshape(-1, size)
    rows, columns = tile // places * group + tile % places % group, tile % places // group
    in_order = sorted(range(1, size), key=lambda bits: (-bits.bit_count(), bits))

    def alike(of: Any) -> Bits:
        return tuple(
            bits
            for bits in in_order
            if all((of[:, rank] == of[:, rank & ~bits]).all() for rank in range(size))
        )

    return alike(rows), alike(columns)
