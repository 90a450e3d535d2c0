"""The tiles that are compared for loops of several operations: attention, chains, scales, rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...instructions.dtypes import element_bytes
from ...machine import Machine
from ..tiles import AttentionTile, LoopTile, RowTile
from ..workloads import (
    SCALE_BLOCK,
    Attention,
    BackToBackGemm,
    LoopWorkload,
    PackedGemm,
    ScaledGemm,
)
from .attention_cut import MOST_SPLITS, ctas_of, is_grouped, rows_of, splits_of
from .back_to_back import back_to_back_tiles
from .packed import packed_tiles
from .rows import row_tiles

QUERIES: Final = (64, 128, 192)
"""Queries of a tile of attention to compare: one to three warpgroups of 64 rows.

Where warps multiply, the first two: there is nothing that a third group would compute under.
"""

FEW_QUERIES: Final = (16, 32)
"""The same where there are no more rows, and no warpgroups: tiles of one or two warps."""

FEW_KEYS: Final = (32, 64, 128)
"""Keys of a step of so few queries."""

NARROW_KEYS: Final = (32, 48)
"""Keys of a step to compare, too, where warps multiply and heads have more than ``NARROW_FROM``
columns: their sums leave a thread few registers for scores."""

NARROW_FROM: Final = 128
"""Columns of a head up to which 64 keys and more fit beside its sums."""

KEYS: Final = tuple(range(64, 177, 16))
"""Keys of a step to compare; the scores of 64 queries and 176 keys are 88 registers a thread."""

FEWEST_STEPS: Final = 2
"""Fewest steps of a split of attention's keys."""

SPLIT_ROUNDS: Final = (1, 2, 3, 4)
"""How often the CTAs of attention whose keys are split fill the SMs."""

FEWEST_KEYS: Final = 16
"""What keys of a step are multiples of."""

SCALED_ROWS: Final = (64, 128, 192)
"""Rows of a tile of a block-scaled GEMM to compare: one to three warpgroups of 64."""

SCALED_COLUMNS: Final = (32, 64, SCALE_BLOCK, 2 * SCALE_BLOCK)
"""Columns of one to compare: 128 are 64 registers a thread of sums and 64 of those of a product."""


def attention_tiles(
    attention: Attention, machine: Machine, splits: int | None = None
) -> list[AttentionTile]:
    """The tiles of attention to compare: those of which Q, K and V fit into shared memory once.

    No tile but the smallest is larger than all queries or all keys. Heads that share keys are
    grouped where they then need fewer tiles. Where FMA multiplies, rows pass through shared memory,
    which few of them leave room for. ``splits``: of the keys; None: one, and so many that
    the CTAs fill the SMs once or more, where there are fewer of them.
    """
    row = element_bytes(attention.storage) * attention.dim
    keys = -(-attention.keys // FEWEST_KEYS) * FEWEST_KEYS
    few: list[int] = []
    if machine.mma(attention.storage) is None:
        few = list(FEW_QUERIES)
    elif not machine.multiplies_by_warpgroup:
        few = [m for m in FEW_QUERIES if _rows(attention, m) <= m][:1]
    some = QUERIES if machine.multiplies_by_warpgroup else QUERIES[:2]
    queries = [*few, *(m for m in some if m < attention.queries + QUERIES[0])]
    narrow = (
        NARROW_KEYS if attention.dim > NARROW_FROM and not machine.multiplies_by_warpgroup else ()
    )
    found = [
        AttentionTile(m, n, grouped=is_grouped(attention, m))
        for m in queries
        for n in [n for n in (FEW_KEYS if m in few else (*narrow, *KEYS)) if n <= keys] or [keys]
        if (m + 2 * n) * row <= machine.smem_per_cta
    ]
    if splits is not None:
        return [replace(tile, splits=splits) for tile in found]
    return [
        replace(tile, splits=count)
        for tile in found
        for count in (1, *_splits_of_keys(attention, tile, machine))
    ]


def _rows(attention: Attention, m: int) -> int:
    """Rows that tiles of ``m`` rows cut."""
    return rows_of(attention, AttentionTile(m, 1, grouped=is_grouped(attention, m)))


def _splits_of_keys(attention: Attention, tile: AttentionTile, machine: Machine) -> list[int]:
    """Numbers of splits that fill the SMs some times over, where whole tiles do not fill them."""
    if attention.causal:
        return []
    ctas = ctas_of(attention, tile)
    steps = -(-attention.keys // tile.n)
    most = min(MOST_SPLITS, max(1, steps // FEWEST_STEPS))
    filling = (rounds * machine.sms // ctas for rounds in SPLIT_ROUNDS)
    return sorted({splits_of(steps, min(most, count)) for count in filling if count > 1} - {1})


def scaled_tiles(what: ScaledGemm) -> list[RowTile]:
    """The tiles of a block-scaled GEMM to compare; none but the smallest is larger than C."""
    return [
        RowTile(m, n)
        for m, n in itertools.product(SCALED_ROWS, SCALED_COLUMNS)
        if m < what.m + SCALED_ROWS[0] and n < what.n + SCALED_COLUMNS[0]
    ]


def loop_tiles(
    what: LoopWorkload, machine: Machine, splits: int | None = None
) -> Sequence[LoopTile]:
    """The tiles of a loop of several operations to compare; ``splits``: of keys or of K."""
    if isinstance(what, Attention):
        return attention_tiles(what, machine, splits)
    if isinstance(what, BackToBackGemm):
        return back_to_back_tiles(what, machine, splits)
    if isinstance(what, PackedGemm):
        return packed_tiles(what, machine, splits)
    return scaled_tiles(what) if isinstance(what, ScaledGemm) else row_tiles(what, machine)
