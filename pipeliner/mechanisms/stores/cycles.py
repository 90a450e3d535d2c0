"""What stores cost an SM that are not of whole vectors, sectors, lines of neighbours or boxes."""

from __future__ import annotations

import math
from typing import Final

from ...instructions.dtypes import LINE_BYTES, SECTOR_BYTES, element_bytes
from ...machine import VECTOR_BYTES, WARP
from ...machine.constant import constant, documented, fitted, measured
from ...plan import MatmulPlan, StorePlan
from ...values.facts import KernelInfo, StoreInfo
from .kinds import is_by_tma, is_in_cluster, is_staged
from .sums import stored

UNCOALESCED_STORE_CYCLES: Final = constant(
    "UNCOALESCED_STORE_CYCLES",
    10,
    "cycles",
    "time of an SM for one uncoalesced store of a warp, of one 16-bit element a lane",
    formula="uncoalesced = m * n / 32 * UNCOALESCED_STORE_CYCLES, A and B swapped",
    source=measured(
        "H100, 32 images of 224x224x64, tiles of 176, 208, 224 and 240 pixels by 64 channels, "
        "swap A/B, and as large ones that store 16 bytes a lane",
        "9.6 to 11 cycles",
    ),
    date="2026-11-21",
)

UNALIGNED_STORE_CYCLES: Final = constant(
    "UNALIGNED_STORE_CYCLES",
    28,
    "cycles",
    "time of an SM for what a warp stores from registers, an element a lane, of rows that begin "
    "anywhere",
    formula="uncoalesced = m * n / 32 * UNALIGNED_STORE_CYCLES / vector, rows of whole vectors of "
    "less than 16 bytes, no swap_ab",
    source=measured(
        "H200, 24 kernels of 8 products, 1300x1501x512 to 5000x2505x200, over what is predicted "
        "without",
        "29 with one element of 2 bytes, 13 with two, 7 with four, 0 with eight; 12 kernels whose "
        "parts of 4 bytes begin anywhere are 33 % too fast without, 17 % so",
    ),
    date="2026-11-29",
)

SPLIT_SECTOR_CYCLES: Final = constant(
    "SPLIT_SECTOR_CYCLES",
    5,
    "cycles",
    "what a line's worth of results takes an SM more where rows begin inside sectors: their ends "
    "share sectors, which L2 gets piecemeal",
    formula="split = m * n * element_bytes / LINE_BYTES * SPLIT_SECTOR_CYCLES, rows not of whole "
    "sectors, of vectors of 16 bytes or staged",
    source=fitted(
        "H200, 1,996 kernels of 105 workloads, 65 of them drawn",
        "mean error 5.7 %, 6.0 with 3, 6.6 without, 5.8 with 8. 1088x11272x384 by 136x192 takes "
        "25.3 us, 1088x11280x384, whose rows are of whole sectors, 22.0; 18 of 1232x776x64 by "
        "112x128 20.5, of 1232x784x64 15.3; by TMA, staged and from registers alike, and memory "
        "moves as much. 47 kernels of 1372x3770x168, whose staged rows begin inside 16 bytes, "
        "are 8 % too fast, 18 % without",
    ),
    date="2026-11-30",
)

COLUMN_LANES: Final = constant(
    "COLUMN_LANES",
    8,
    "lanes",
    "lanes of a warp whose accumulators are neighbours in a column",
    formula="uncoalesced where COLUMN_LANES * element_bytes < SECTOR_BYTES",
    source=documented("PTX ISA, wgmma: layout of D"),
    date="2026-11-21",
)


def uncoalesced_cycles(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], stores: tuple[StorePlan, ...]
) -> float:
    """Cycles that an SM takes for the uncoalesced stores of one tile.

    With A and B swapped the rows of the result lie in the columns of the instruction: a lane's two
    elements belong to different rows, and each is a store of its own. Otherwise a lane stores
    vectors as wide as all rows begin at. What is staged and written by neighbours, boxes of TMA
    and parts that stay in a cluster cost nothing of this.
    """
    cycles = 0.0
    for found, plan in zip(info.stores, stores, strict=True):
        if not (is_by_tma(plan) or is_in_cluster(plan) or is_staged(plan)):
            cycles += uncoalesced(found, info, matmuls) + _unaligned(found, info, matmuls)
    return cycles


def split_sector_cycles(
    info: KernelInfo, matmuls: tuple[MatmulPlan, ...], stores: tuple[StorePlan, ...]
) -> float:
    """Cycles of a tile whose rows begin inside sectors.

    ``SPLIT_SECTOR_CYCLES`` for each line, whatever stores it. Of rows that begin inside 16 bytes
    and are stored from registers, ``uncoalesced_cycles`` has this in what it counts.
    """
    return SPLIT_SECTOR_CYCLES * sum(
        op.m * op.n * element_bytes(found.dtype) / LINE_BYTES
        for found, plan in zip(info.stores, stores, strict=True)
        if not is_in_cluster(plan) and _splits_sectors(found, plan)
        for op, _ in stored(found, info, matmuls)
    )


def _splits_sectors(store: StoreInfo, plan: StorePlan) -> bool:
    """Whether rows are written whose ends share sectors, in vectors or by neighbouring threads."""
    inside = _pitch(store) * element_bytes(store.dtype) % SECTOR_BYTES
    return inside == VECTOR_BYTES or (inside > 0 and is_staged(plan))


def _pitch(store: StoreInfo) -> int:
    """Elements from one row of a result to the next; 0: it is not stored by rows, or who knows."""
    return (store.by_rows and next(iter(store.dst_strides[-2:-1]), None)) or 0


def _unaligned(store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Cycles of a tile of rows that begin inside 16 bytes: ``m * n / 32`` times those of a warp."""
    pitch, widest = _pitch(store), VECTOR_BYTES // element_bytes(store.dtype)
    if not pitch:
        return 0.0
    vector = math.gcd(pitch, widest)
    each = UNALIGNED_STORE_CYCLES / vector if vector < widest else 0.0
    return sum(
        op.m * op.n / WARP * each
        for op, found in stored(store, info, matmuls)
        if not found.swap_ab  # those are one by one anyway
    )


def uncoalesced(store: StoreInfo, info: KernelInfo, matmuls: tuple[MatmulPlan, ...]) -> float:
    """Cycles of a tile's uncoalesced accesses: ``m * n / 32 * UNCOALESCED_STORE_CYCLES``."""
    if not store.by_rows:
        return 0.0
    return sum(
        op.m * op.n / WARP * UNCOALESCED_STORE_CYCLES
        for op, plan in stored(store, info, matmuls)
        if plan.swap_ab and _is_partial(store.dtype, plan.transposed)
    )


def _is_partial(dtype: str, paired: bool) -> bool:
    """Whether the eight lanes of a column of accumulators store less than a sector."""
    return COLUMN_LANES * (2 if paired else 1) * element_bytes(dtype) < SECTOR_BYTES
