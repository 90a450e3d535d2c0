"""When CTAs of a cluster put their parts of a tile together, by distributed shared memory.

Each CTA of split-K has a part of every sum of its tile. It stores rows of it to the CTA of the
cluster that owns them, which adds what all have of those and stores the outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...diagnostics import Reason, Why
from ...instructions.wgmma import consumer_groups
from ...machine.constant import constant, derived, documented
from ...plan import StorePlan
from ...values.facts import KernelInfo
from .case import LEAST_RING_DEPTH, StoreCase
from .kinds import is_in_cluster

MOST_PARTS: Final = constant(
    "MOST_PARTS",
    8,
    "CTAs",
    "CTAs of a cluster that put their parts of a tile together",
    formula="parts <= MOST_PARTS",
    source=documented("CUDA C++ Programming Guide, clusters: a portable size"),
    date="2026-11-28",
)

PART_BYTES: Final = constant(
    "PART_BYTES",
    4,
    "bytes",
    "a part of an element that is stored to another CTA",
    formula="stored to a cluster where element_bytes = PART_BYTES",
    source=documented("PTX ISA, st: .f32, .s32"),
    date="2026-11-28",
)

PART_PADDING: Final = constant(
    "PART_PADDING",
    8,
    "words",
    "words behind a row of parts: the rows that a warp stores at once begin in other banks",
    formula="row = columns + PART_PADDING",
    source=derived("four rows of eight words a half-warp, as wgmma's accumulators lie"),
    date="2026-11-28",
)

VECTOR_PARTS: Final = constant(
    "VECTOR_PARTS",
    4,
    "parts",
    "neighbouring parts that a thread reads at once, and outputs that it makes",
    formula="vector = min(VECTOR_PARTS, widest)",
    source=derived("16 bytes an access"),
    date="2026-11-28",
)


def put_together(info: KernelInfo, stores: tuple[StorePlan, ...]) -> KernelInfo:
    """``info`` without the kernel that puts parts together, where clusters do."""
    if not any(map(is_in_cluster, stores)):
        return info
    return replace(
        info, elementwise=info.elementwise[:-1], kernels=info.kernels - 1, ends_elementwise=False
    )


def in_cluster(case: StoreCase) -> StorePlan | Why:
    """The plan of a store to the CTAs of a cluster, or the requirement that it misses."""
    parts, request = case.store.parts, case.request
    if not parts:
        return case.store.no_parts or Reason("parts.none", buffer=case.store.dst)
    found = case.by_consumers()
    if isinstance(found, Reason):
        return found
    tile, _ = found
    if request.reduction == "workspace":
        return Reason("parts.workspace")
    if request.cluster not in ("auto", 1):
        return Reason("parts.multicast", ctas=request.cluster)
    if any(loop.outer != 1 for loop in case.info.loops) or consumer_groups(request.consumers) > 1:
        return Reason("parts.persistent")
    if tile.m % parts:
        return Reason("parts.rows", rows=tile.m, parts=parts)
    rows = tile.m // parts
    size = parts * rows * (tile.n + PART_PADDING) * PART_BYTES
    if size > case.room(LEAST_RING_DEPTH):
        return Reason("parts.no_room", slots=LEAST_RING_DEPTH, nbytes=size)
    return case.planned(
        "cluster",
        box=(rows, tile.n),
        bytes=size,
        parts=parts,
        reason=Reason("parts.taken", parts=parts, rows=rows),
    )
