"""The tiles to compare where wgmma multiplies.

A warpgroup multiplies 64 rows by any multiple of 8 columns, so tiles need not be powers of two: the
one whose number is just below a multiple of the SMs leaves the fewest idle. With A and B swapped
rows are the instruction's columns: of few there are no 64, of many a tile may have any multiple of
16. Where there are more tiles than SMs, a persistent kernel loads the next tile while the one
before is stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from ..machine import WARP, Machine
from ..machine.constant import chosen, constant, derived, documented, measured
from ..plan import MatmulPlan
from ..plan.request import Instruction, Request
from ..values.elements import ELEMENT_TYPES
from .dtypes import SECTOR_BYTES
from .table import may_be_warpgroup_wide
from .wgmma import CONSUMERS
from .wgmma_shapes import ROWS, WARPGROUP

ASKED: Final = Request(instruction="wgmma")
"""The request that such a tile is planned with."""

COLUMNS: Final = constant(
    "COLUMNS",
    tuple(range(16, 257, 16)),
    "columns",
    "columns of a tile to compare: whole rows of the narrowest swizzle, for 16-bit results",
    formula="n of a tile in COLUMNS",
    source=derived("32 bytes of the narrowest swizzle; 256 columns of the widest wgmma"),
    date="2026-11-21",
)

WIDE_COLUMNS: Final = constant(
    "WIDE_COLUMNS",
    (272, 288, 304, 320, 352, 384),
    "columns",
    "columns of a tile to compare that two warpgroups side by side multiply",
    formula="n of a tile in COLUMNS + WIDE_COLUMNS",
    source=chosen("128 rows of so many fit the registers of two warpgroups"),
    date="2026-11-28",
)

BLOCKS: Final = constant(
    "BLOCKS",
    (1, 2, 3, 4),
    "64 rows",
    "rows of a tile to compare; columns, with A and B swapped",
    formula="m of a tile in 64 * BLOCKS",
    source=derived("one to four consumer warpgroups"),
    date="2026-11-21",
)

K_BYTES: Final = constant(
    "K_BYTES",
    (128, 256),
    "bytes",
    "K of a step to compare: one swizzled row or two, which halve what a step costs beside "
    "arithmetic",
    formula="k of a tile = K_BYTES / element_bytes",
    source=derived("128 bytes of the widest swizzle"),
    date="2026-11-21",
)

GATHERED_K_BYTES: Final = constant(
    "GATHERED_K_BYTES",
    (64, 128),
    "bytes",
    "K of a step to compare where the math warps copy: half a row where that leaves an SM to more "
    "CTAs",
    formula="k of a tile = GATHERED_K_BYTES / element_bytes",
    source=chosen("shallower slots leave room for a second CTA"),
    date="2026-11-21",
)

PARTS: Final = constant(
    "PARTS",
    8,
    "tiles",
    "tiles of equal rows that a problem's are cut into, A and B swapped, to compare",
    formula="m of a tile = ceil(rows / parts), in whole COLUMN_UNIT, for parts in 1 .. PARTS",
    source=chosen("with more, tiles of 64 rows waste as little"),
    date="2026-11-28",
)

LEAST_ROWS: Final = constant(
    "LEAST_ROWS",
    16,
    "rows",
    "rows of the least of such tiles, but for one of them all",
    formula="m of a tile >= LEAST_ROWS, or all rows",
    source=chosen("fewer copy more of B than of A"),
    date="2026-11-28",
)

COLUMN_UNIT: Final = constant(
    "COLUMN_UNIT",
    8,
    "columns",
    "what divides the columns of a wgmma",
    formula="n % COLUMN_UNIT = 0",
    source=documented("PTX ISA, wgmma.mma_async: n8"),
    date="2026-11-21",
)


def are_compared(machine: Machine, instruction: Instruction) -> bool:
    """Whether tiles for wgmma are compared where ``instruction`` is asked for."""
    return bool(machine.wgmmas) and may_be_warpgroup_wide(instruction)


def extents(m: int, n: int, k: int, size: int) -> Iterator[tuple[int, int, int]]:
    """M, N and K of the tiles of a product of these extents; ``size``: bytes of an element.

    Rows that are no multiple of a warpgroup's, with A and B swapped: parts of few, equally large,
    and any of many: 7290x632x4592 in 130 tiles of 288x128 takes 62.8 us on an H200, in 116 of
    256x160 65.8.
    """
    steps = up_to([bytes_ // size for bytes_ in K_BYTES], k)
    blocks = [ROWS * count for count in BLOCKS]
    columns = [*COLUMNS, *WIDE_COLUMNS]
    yield from itertools.product(up_to(blocks, m), up_to(columns, n), steps)
    swap_ab = {rows for rows in up_to(columns, m) if rows % ROWS} if m > max(COLUMNS) else set()
    rows = sorted({*equal_rows(m), *swap_ab})
    yield from itertools.product(rows, up_to(blocks, n), steps)


def equal_rows(m: int) -> list[int]:
    """Rows of tiles that cut ``m`` into equal parts and are no multiple of a warpgroup's.

    They are the columns of an instruction, with A and B swapped: 137 rows are two of 72, where
    warpgroups of 64 rows compute 192. On an H100 300 x 2048 x 5632 takes 19.9 us by 80 x 64 and
    23.4 by any tile of whole warpgroups; 145 x 6184 x 1808 18.0 and 19.4.
    """
    parts = {math.ceil(m / count / COLUMN_UNIT) * COLUMN_UNIT for count in range(1, PARTS + 1)}
    least = min(LEAST_ROWS, max(parts))
    return sorted(rows for rows in parts if least <= rows <= max(COLUMNS) and rows % ROWS)


K_OUTERMOST_BYTES: Final = min(one.nbytes for one in ELEMENT_TYPES if one.k_outermost)
"""Of an element that wgmma reads with K outermost: 16 bits."""


def fills_a_box(extent: int, k_major: bool) -> bool:
    """Whether rows of an operand's tile are worth boxes: they fill a sector, or lie along K.

    8x16352x3632, A transposed, takes 41.4 us by boxes of 8 rows of A on an H200, 39.5 by warps. 19
    products drawn with 16 to 56 rows or columns outermost along K take 3.7 % less there with boxes
    of as many among those compared (from 12 % more to 24 % less), and 9.3 % less than the fastest
    algorithm of cuBLASLt.
    """
    return k_major or extent * K_OUTERMOST_BYTES >= SECTOR_BYTES


SHORT_BOX_BYTES: Final = constant(
    "SHORT_BOX_BYTES",
    64,
    "bytes",
    "K of a step of TMA boxes where channels are multiples of it and of no longer step, part of "
    "which would lie past them",
    formula="k of a tile = SHORT_BOX_BYTES / element_bytes",
    source=measured("H100, 160 and 96 channels", "a tenth faster than any other tile"),
    date="2026-11-22",
)


def image_extents(
    m: int, n: int, k: int, size: int, *, boxes: bool
) -> Iterator[tuple[int, int, int]]:
    """M, N and K of the tiles of an implicit GEMM, as ``extents``.

    Any may swap A and B: its few outputs, or channels, are then the instruction's columns.
    ``boxes``: TMA copies the operands; else the math warps do.
    """
    blocks = [ROWS * count for count in BLOCKS]
    steps = up_to([bytes_ // size for bytes_ in (K_BYTES if boxes else GATHERED_K_BYTES)], k)
    short = SHORT_BOX_BYTES // size
    if boxes and k % short == 0 and all(k % step for step in steps):
        steps.insert(0, short)
    plain = itertools.product(up_to(blocks, m), up_to(COLUMNS, n))
    swap_ab = itertools.product(up_to(COLUMNS, m), up_to(blocks, n))
    tiles = dict.fromkeys(itertools.chain(plain, swap_ab))
    yield from ((rows, columns, step) for (rows, columns), step in itertools.product(tiles, steps))


def grids(tiles: int, machine: Machine) -> list[int | None]:
    """CTAs to compare for ``tiles`` tiles: one for each, or one for each SM (persistent)."""
    return [None] if tiles <= machine.sms else [None, machine.sms]


def up_to(sizes: Sequence[int], extent: int) -> list[int]:
    """The sizes below ``extent`` and the first that covers it."""
    below = [size for size in sizes if size < extent]
    return [*below, *[size for size in sizes if size >= extent][:1]]


def transposed_warps(plan: MatmulPlan) -> tuple[int, int] | None:
    """Warps of a wgmma tile whose rows run along its other dimension; None: it is no multiple."""
    extent = plan.m if plan.swap_ab else plan.n
    groups, rest = divmod(extent, ROWS)
    if rest or groups > max(CONSUMERS):
        return None
    warps = groups * WARPGROUP // WARP
    return (warps, 1) if plan.swap_ab else (1, warps)
