"""When CTAs of a cluster put their parts of a tile together, by distributed shared memory.

Each CTA of split-K has a part of every sum of its tile. It stores rows of it to the CTA of the
cluster that owns them, which adds what all have of those and stores the outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...diagnostics import Reason, Why
from ...instructions.wgmma import consumer_groups
from ...machine import Machine
from ...machine.constant import chosen, constant, derived, documented
from ...plan import CopyPlan, MatmulPlan, StorePlan
from ...plan.request import Request
from ...values.facts import KernelInfo, StoreInfo
from .kinds import is_in_cluster
from .sums import by_consumers

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

LEAST_RING_DEPTH: Final = constant(
    "LEAST_RING_DEPTH",
    3,
    "slots",
    "slots that rings keep beside staged boxes",
    formula="LEAST_RING_DEPTH * slot_bytes + boxes <= shared memory",
    source=chosen("fewer would cost more than direct stores do"),
    date="2026-11-21",
)

BARRIER_BYTES: Final = constant(
    "BARRIER_BYTES",
    1024,
    "bytes",
    "more than the mbarriers of a kernel take",
    formula="room = smem_per_cta - BARRIER_BYTES",
    source=derived("8 bytes a mbarrier, two a slot, at most MAX_DEPTH slots a ring"),
    date="2026-11-21",
)


def put_together(info: KernelInfo, stores: tuple[StorePlan, ...]) -> KernelInfo:
    """``info`` without the kernel that puts parts together, where clusters do."""
    if not any(map(is_in_cluster, stores)):
        return info
    return replace(
        info, elementwise=info.elementwise[:-1], kernels=info.kernels - 1, ends_elementwise=False
    )


def in_cluster(
    direct: StorePlan,
    store: StoreInfo,
    info: KernelInfo,
    matmuls: tuple[MatmulPlan, ...],
    copies: tuple[CopyPlan, ...],
    machine: Machine,
    request: Request,
) -> StorePlan | Why:
    """The plan of ``store`` to the CTAs of a cluster, or the requirement that it misses."""
    if not store.parts:
        return Reason("parts.none", buffer=store.dst)
    found = by_consumers(store, info, matmuls, copies)
    if isinstance(found, Reason):
        return found
    tile, _ = found
    if request.reduction == "workspace":
        return Reason("parts.workspace")
    if request.cluster not in ("auto", 1):
        return Reason("parts.multicast", ctas=request.cluster)
    if any(loop.outer != 1 for loop in info.loops) or consumer_groups(request.consumers) > 1:
        return Reason("parts.persistent")
    if tile.m % store.parts:
        return Reason("parts.rows", rows=tile.m, parts=store.parts)
    rows = tile.m // store.parts
    size = store.parts * rows * (tile.n + PART_PADDING) * PART_BYTES
    slots = [sum(each for _, _, each in loop.rings) for loop in info.loops]
    room = machine.smem_per_cta - BARRIER_BYTES
    if LEAST_RING_DEPTH * sum(slots) + size > room:
        return Reason("parts.no_room", slots=LEAST_RING_DEPTH, nbytes=size)
    return replace(
        direct,
        mechanism="cluster",
        box=(rows, tile.n),
        bytes=size,
        parts=store.parts,
        reason=Reason("parts.taken", parts=store.parts, rows=rows),
    )
